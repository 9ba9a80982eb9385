#include "rlx/backend/cpu/gemm/gemm.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "hwy/targets.h"
#include "rlx/backend/cpu/gemm/gemm_kernels.h"
#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

// Sizes in elements or bytes, from measurements on a server core (2 MB of second-level cache).
// A block of rows of A: as many as keep all of k in the cache, but within these limits.
constexpr int64_t kBlockABytes = 1 << 20;
constexpr int64_t kLeastBlockRows = 120;
constexpr int64_t kMostBlockRowBytes = 960;  // over element bytes
constexpr int64_t kFewRows = 48;
constexpr int64_t kStreamBytes = 2 << 20;      // B beyond this comes from memory
constexpr int64_t kDirectElements = 64 << 10;  // A up to this is read where it lies if n is small
constexpr int64_t kDirectColumns = 256;
constexpr int64_t kDirectB = 16 << 10;  // elements of B that are cheaper to read than to pack
constexpr int64_t kLocalABytes = 512 << 10;
constexpr int64_t kPackElements = 16 << 10;  // of a packing chunk
constexpr double kChunkNs = 5000;
constexpr int64_t kChunks = 48;  // as many as balance a dozen threads
constexpr int64_t kRowChunks = 12;
constexpr int64_t kMostPanels = 16;  // of a chunk: enough to pay for reading A

int64_t element_bytes(GemmElement element) { return element == GemmElement::kF32 ? 4 : 8; }

const GemmKernels& kernels_for(GemmElement element) {
  return element == GemmElement::kF32 ? gemm_kernels_f32() : gemm_kernels_f64();
}

const void* offset(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
void* offset(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

// Consecutive units whose packed operands share the scratch.
struct Group {
  int64_t unit_begin = 0, unit_end = 0;
  std::vector<int64_t> b_offsets;  // distinct operands B to pack, by slot
  std::vector<int64_t> slots;      // of the batch items, from that of the first unit on
  bool pack_b = false;             // false if the previous group left them
};

struct Phase {
  bool pack = false;
  size_t group = 0;
  int64_t chunks = 0;
};

}  // namespace

struct GemmGrid {
  GemmShape shape;
  const GemmKernels* kernels = nullptr;
  int64_t bytes = 0;  // of an element
  bool accumulate = false;
  bool direct = false;   // A and B are read where they lie
  bool swapped = false;  // C is one column, computed as the row B^T * A^T
  OperandMode a_mode = OperandMode::kDirect, b_mode = OperandMode::kDirect;
  bool b_prepacked = false;
  int64_t scratch_target = 0;
  bool panel_outer = false, stream = false;
  int64_t block_k = 1, local_panels = 1, finish_panels = 1;

  // A unit is a block of row tiles of one batch item.
  RowTiles tiles, blocks;  // rows into tiles, tiles into blocks
  int64_t tile_count = 0, block_count = 0, unit_rows = 0, units = 0;
  int64_t panels = 0;
  int64_t chunk_panels = 1, panel_chunks = 1;  // panels of a chunk, chunks of a unit
  int64_t chunk_units = 1;  // units of a chunk; above 1 only if panel_chunks is 1
  std::vector<Group> groups;
  std::vector<Phase> phases;

  // Packing chunks: pieces of a unit's A, then pieces of each B.
  int64_t a_piece_tiles = 1, a_pieces = 0, b_piece_panels = 1, b_pieces = 0;
  int64_t a_unit_bytes = 0, b_slot_bytes = 0, b_scratch = 0;  // b_scratch: where packed B begins
  int64_t scratch_bytes = 0, thread_bytes = 0, local_a_bytes = 0;
  std::string path;

  void swap_column();
  void choose_modes();
  void choose_chunks();
  void choose_blocks();
  void find_slots(size_t most, Group& group) const;
  void make_groups();
  void describe();

  int64_t batch() const { return static_cast<int64_t>(shape.c_offset.size()); }
  double panel_ns() const;
  void run_pack(const Group& group, int64_t chunk, const GemmArgs& args) const;
  void run_multiply(const Group& group, int64_t chunk, const GemmArgs& args) const;
  void multiply_unit(const Group& group, int64_t unit, int64_t panel_begin, int64_t panel_end,
                     const GemmArgs& args) const;
};

// A rough time of one panel of one unit on one core.
double GemmGrid::panel_ns() const {
  const double k = static_cast<double>(shape.k) + 4;
  const double work = static_cast<double>(unit_rows) * k * static_cast<double>(bytes) * 8 / 96;
  return std::max(work, k * kPanelBytes / 16.0);
}

void GemmGrid::swap_column() {
  swapped = true;
  std::swap(shape.a_offset, shape.b_offset);
  shape.c_row_stride = shape.n = shape.m;
  shape.m = 1;
  std::swap(shape.a_row_stride, shape.b_col_stride);
  std::swap(shape.a_col_stride, shape.b_row_stride);
}

void GemmGrid::choose_modes() {
  const GemmShape& s = shape;
  const int64_t mr = kernels->tile_rows;
  tile_count = divide_up(s.m, mr);
  tiles = RowTiles(s.m, tile_count);
  panels = divide_up(s.n, panel_columns(bytes));
  const bool one_tile = s.m <= mr;
  direct = !b_prepacked && (s.b_col_stride == 1 || s.n == 1) &&
           (kernels->direct_any_n || s.n % kernels->lanes == 0) &&
           (one_tile || (s.n <= kDirectColumns && s.k <= kDirectB / s.n &&
                         s.m <= kDirectElements / std::max<int64_t>(s.k, 1)));
  const int64_t block_rows = std::clamp<int64_t>(kBlockABytes / bytes / std::max<int64_t>(s.k, 1),
                                                 kLeastBlockRows, kMostBlockRowBytes / bytes);
  block_count = direct ? 1 : divide_up(tile_count, block_rows / mr);
  blocks = RowTiles(tile_count, block_count);
  unit_rows = std::min(s.m, tiles.height(0) * blocks.height(0));
  units = checked_mul(batch(), block_count);
}

void GemmGrid::choose_chunks() {
  const double ns = panel_ns();
  // One or two rows read several panels at a time.
  const int64_t step = unit_rows <= 2 ? 4 : 1;
  int64_t want = std::min(panels, divide_up(checked_mul(panels, units), kChunks));
  if (unit_rows > kFewRows) {
    // Enough row blocks for everyone: whole rows, so that a chunk packs its own A.
    want = panels <= kMostPanels && units >= kRowChunks ? panels : std::min(want, kMostPanels);
  }
  const double least = kChunkNs / ns;
  want = std::max(want, least < static_cast<double>(panels) ? static_cast<int64_t>(least) : panels);
  chunk_panels = std::clamp<int64_t>(divide_up(std::max<int64_t>(want, 1), step) * step, 1, panels);
  panel_chunks = divide_up(panels, chunk_panels);
  chunk_units = 1;
  if (panel_chunks == 1) {
    const double most = kChunkNs / (ns * static_cast<double>(panels));
    chunk_units = std::clamp<int64_t>(
        most < static_cast<double>(units) ? static_cast<int64_t>(most) : units, 1, units);
  }
}

void GemmGrid::choose_blocks() {
  const GemmShape& s = shape;
  std::vector<int64_t> distinct = s.b_offset;
  std::sort(distinct.begin(), distinct.end());
  const bool repeats = std::unique(distinct.begin(), distinct.end()) != distinct.end();
  b_mode = direct                       ? OperandMode::kDirect
           : b_prepacked                ? OperandMode::kPacked
           : block_count > 1 || repeats ? OperandMode::kPacked
                                        : OperandMode::kLocal;
  // Few columns use A too rarely to pay for packing it.
  const bool small_a = s.n <= kDirectColumns &&
                       (s.a_col_stride == 1 || s.m <= kDirectElements / std::max<int64_t>(s.k, 1));
  const bool few_direct = s.m <= 2 && (s.a_col_stride == 1 || s.k == 1);
  a_mode = direct || small_a || few_direct ? OperandMode::kDirect
           : panel_chunks == 1             ? OperandMode::kLocal
                                           : OperandMode::kPacked;
  panel_outer = unit_rows <= kFewRows &&
                (a_mode != OperandMode::kLocal || s.k <= kLocalABytes / (unit_rows * bytes));
  block_k = std::clamp<int64_t>(s.k, 1, sum_block(bytes));
  // Rows of B are long jumps apart: take several panels' worth of each while its page is open.
  local_panels = s.b_col_stride == 1 ? std::min<int64_t>(4, chunk_panels) : 1;
  finish_panels = std::clamp<int64_t>((128 << 10) / (unit_rows * kPanelBytes), 1, 8);
  const int64_t packed_b = checked_mul(checked_mul(panels, std::max<int64_t>(s.k, 1)), kPanelBytes);
  stream = b_mode == OperandMode::kPacked && packed_b >= kStreamBytes;

  int64_t local_b_bytes = 0;
  if (a_mode == OperandMode::kLocal) {
    const bool all = panel_outer || unit_rows <= 2;  // the kernels of several panels take all of k
    local_a_bytes =
        align64(checked_mul(checked_mul(unit_rows, bytes), all ? s.k : std::min(s.k, block_k)));
  }
  if (b_mode == OperandMode::kLocal)
    local_b_bytes = local_panels * std::min(s.k, block_k) * kPanelBytes;
  thread_bytes = checked_add(local_a_bytes, local_b_bytes);
}

// Gives each item of the group its place in the scratch, and ends the group early if they run out.
void GemmGrid::find_slots(size_t most, Group& group) const {
  std::unordered_map<int64_t, int64_t> known;
  const int64_t first = group.unit_begin / block_count;
  const int64_t last = (group.unit_end - 1) / block_count;
  for (int64_t item = first; item <= last; ++item) {
    const int64_t b = shape.b_offset[static_cast<size_t>(item)];
    const auto [at, added] = known.try_emplace(b, static_cast<int64_t>(group.b_offsets.size()));
    if (added && group.b_offsets.size() == most) {
      group.unit_end = item * block_count;
      return;
    }
    if (added) group.b_offsets.push_back(b);
    group.slots.push_back(at->second);
  }
}

void GemmGrid::make_groups() {
  const GemmShape& s = shape;
  const bool pack_a = a_mode == OperandMode::kPacked;
  const bool pack_b = b_mode == OperandMode::kPacked && !b_prepacked;
  const int64_t k = std::max<int64_t>(s.k, 1);
  a_unit_bytes = align64(checked_mul(checked_mul(unit_rows, s.k), bytes));
  b_slot_bytes = checked_mul(checked_mul(panels, s.k), kPanelBytes);
  a_piece_tiles =
      std::clamp<int64_t>(kPackElements / checked_mul(k, kernels->tile_rows), 1, blocks.height(0));
  a_pieces = pack_a ? divide_up(blocks.height(0), a_piece_tiles) : 0;
  b_piece_panels =
      std::clamp<int64_t>(kPackElements / checked_mul(k, panel_columns(bytes)), 1, panels);
  b_pieces = pack_b ? divide_up(panels, b_piece_panels) : 0;

  const int64_t most_units =
      pack_a ? std::max<int64_t>(1, scratch_target / std::max<int64_t>(1, a_unit_bytes)) : units;
  const size_t most_slots = static_cast<size_t>(
      std::max<int64_t>(1, scratch_target / std::max<int64_t>(1, b_slot_bytes)));
  for (int64_t unit = 0; unit < units;) {
    Group group;
    group.unit_begin = unit;
    group.unit_end = std::min(units, unit + std::min(units, most_units));
    if (pack_b) find_slots(most_slots, group);
    group.pack_b = pack_b && (groups.empty() || groups.back().b_offsets != group.b_offsets);
    unit = group.unit_end;
    groups.push_back(std::move(group));
  }
  int64_t a_bytes = 0, b_bytes = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& g = groups[i];
    const int64_t count = g.unit_end - g.unit_begin,
                  slots = static_cast<int64_t>(g.b_offsets.size());
    const int64_t packs = count * a_pieces + (g.pack_b ? slots * b_pieces : 0);
    if (packs > 0) phases.push_back({true, i, packs});
    phases.push_back(
        {false, i,
         panel_chunks > 1 ? checked_mul(count, panel_chunks) : divide_up(count, chunk_units)});
    if (pack_a) a_bytes = std::max(a_bytes, checked_mul(count, a_unit_bytes));
    b_bytes = std::max(b_bytes, checked_mul(slots, b_slot_bytes));
  }
  b_scratch = a_bytes;
  scratch_bytes = checked_add(a_bytes, b_bytes);
}

void GemmGrid::describe() {
  const auto name = [](OperandMode m) {
    return m == OperandMode::kDirect ? "direct" : m == OperandMode::kPacked ? "packed" : "local";
  };
  path = fmt::format("{} a={} b={} {}{} units={} panels={}/{} k={}/{} groups={} ",
                     hwy::TargetName(kernels->target), name(a_mode), name(b_mode),
                     panel_outer ? "panel-outer" : "k-outer", swapped ? " swapped" : "", units,
                     chunk_panels, panels, block_k, shape.k, groups.size());
}

void GemmGrid::run_pack(const Group& group, int64_t chunk, const GemmArgs& args) const {
  const GemmShape& s = shape;
  const int64_t a_chunks = (group.unit_end - group.unit_begin) * a_pieces;
  if (chunk < a_chunks) {
    const int64_t local = chunk / a_pieces, piece = chunk % a_pieces;
    const int64_t unit = group.unit_begin + local;
    const int64_t item = unit / block_count, block = unit % block_count;
    const int64_t first = blocks.start(block), end = first + blocks.height(block);
    const int64_t begin = first + piece * a_piece_tiles;
    const void* a = offset(args.a, s.a_offset[static_cast<size_t>(item)] * bytes);
    void* out = offset(args.scratch, local * a_unit_bytes);
    for (int64_t t = begin; t < std::min(end, begin + a_piece_tiles); ++t) {
      const int64_t row = tiles.start(t), rows = tiles.height(t);
      kernels->pack(offset(a, row * s.a_row_stride * bytes), s.a_row_stride, s.a_col_stride, rows,
                    rows, s.k, offset(out, (row - tiles.start(first)) * s.k * bytes));
    }
    return;
  }
  const int64_t slot = (chunk - a_chunks) / b_pieces, piece = (chunk - a_chunks) % b_pieces;
  const void* b = offset(args.b, group.b_offsets[static_cast<size_t>(slot)] * bytes);
  void* out = offset(args.scratch, b_scratch + slot * b_slot_bytes);
  const int64_t width = panel_columns(bytes), begin = piece * b_piece_panels;
  for (int64_t p = begin; p < std::min(panels, begin + b_piece_panels); ++p) {
    const int64_t j = p * width;
    kernels->pack(offset(b, j * s.b_col_stride * bytes), s.b_col_stride, s.b_row_stride,
                  std::min(width, s.n - j), width, s.k, offset(out, p * s.k * kPanelBytes));
  }
}

void GemmGrid::multiply_unit(const Group& group, int64_t unit, int64_t panel_begin,
                             int64_t panel_end, const GemmArgs& args) const {
  const GemmShape& s = shape;
  const int64_t item = unit / block_count, block = unit % block_count;
  const size_t i = static_cast<size_t>(item);
  GemmBlock g;
  g.tiles = tiles;
  g.tile_begin = blocks.start(block);
  g.tile_end = g.tile_begin + blocks.height(block);
  g.a_mode = a_mode;
  if (a_mode == OperandMode::kPacked) {
    g.a = offset(args.scratch, (unit - group.unit_begin) * a_unit_bytes);
  } else {
    g.a = offset(args.a, s.a_offset[i] * bytes);
  }
  g.a_row_stride = s.a_row_stride;
  g.a_col_stride = s.a_col_stride;
  g.b_mode = b_mode;
  if (b_mode == OperandMode::kPacked && !b_prepacked) {
    const int64_t slot = group.slots[static_cast<size_t>(item - group.unit_begin / block_count)];
    g.b = offset(args.scratch, b_scratch + slot * b_slot_bytes);
  } else {
    g.b = offset(args.b, s.b_offset[i] * bytes);
  }
  g.b_row_stride = s.b_row_stride;
  g.b_col_stride = s.b_col_stride;
  g.c = offset(args.c, s.c_offset[i] * bytes);
  g.c_row_stride = s.c_row_stride;
  g.panel_begin = panel_begin;
  g.panel_end = panel_end;
  g.n = s.n;
  g.k = s.k;
  g.accumulate = accumulate;
  g.panel_outer = panel_outer;
  g.stream = stream;
  g.block_k = block_k;
  g.local_panels = local_panels;
  g.finish_panels = finish_panels;
  g.local_a = args.thread_scratch;
  g.local_b = offset(args.thread_scratch, local_a_bytes);
  g.swapped = swapped;
  g.batch = item;
  g.epilogue = args.epilogue;
  direct ? kernels->multiply_direct(g) : kernels->multiply(g);
}

void GemmGrid::run_multiply(const Group& group, int64_t chunk, const GemmArgs& args) const {
  if (panel_chunks > 1) {
    const int64_t begin = chunk % panel_chunks * chunk_panels;
    return multiply_unit(group, group.unit_begin + chunk / panel_chunks, begin,
                         std::min(panels, begin + chunk_panels), args);
  }
  const int64_t begin = group.unit_begin + chunk * chunk_units;
  for (int64_t u = begin; u < std::min(group.unit_end, begin + chunk_units); ++u) {
    multiply_unit(group, u, 0, panels, args);
  }
}

namespace {

void check(const GemmShape& s) {
  for (const int64_t v : {s.m, s.n, s.k, s.a_row_stride, s.a_col_stride, s.b_row_stride,
                          s.b_col_stride, s.c_row_stride}) {
    if (v < 0) internal_error("gemm: sizes and strides must not be negative, got {}", v);
  }
  if (s.a_offset.size() != s.c_offset.size() || s.b_offset.size() != s.c_offset.size()) {
    internal_error("gemm: offsets of A, B and C must be as many, got {}, {} and {}",
                   s.a_offset.size(), s.b_offset.size(), s.c_offset.size());
  }
  if (s.m > 1 && s.c_row_stride < s.n) {
    internal_error("gemm: rows of C overlap: stride {} for {} columns", s.c_row_stride, s.n);
  }
  for (const int64_t product :
       {checked_mul(s.m, s.k), checked_mul(s.k, s.n), checked_mul(s.m, s.n)}) {
    checked_mul(product, 1024);  // bytes of any packed form fit with room to spare
  }
}

}  // namespace

GemmPlan::GemmPlan(GemmElement element, GemmShape shape, bool b_prepacked, bool accumulate,
                   int64_t scratch_target) {
  check(shape);
  auto grid = std::make_unique<GemmGrid>();
  grid->kernels = &kernels_for(element);
  grid->bytes = element_bytes(element);
  grid->accumulate = accumulate;
  grid->b_prepacked = b_prepacked;
  grid->scratch_target = scratch_target;
  grid->shape = std::move(shape);
  const GemmShape& s = grid->shape;
  if (s.n == 1 && s.m > 1 && s.c_row_stride == 1 && !b_prepacked) grid->swap_column();
  if (s.m > 0 && s.n > 0 && grid->batch() > 0) {
    grid->choose_modes();
    grid->choose_chunks();
    grid->choose_blocks();
    grid->make_groups();
    grid->describe();
  }
  grid_ = std::move(grid);
}

GemmPlan::~GemmPlan() = default;
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;

size_t GemmPlan::scratch_bytes() const { return static_cast<size_t>(grid_->scratch_bytes); }
size_t GemmPlan::thread_scratch_bytes() const { return static_cast<size_t>(grid_->thread_bytes); }
int GemmPlan::phases() const { return static_cast<int>(grid_->phases.size()); }
int64_t GemmPlan::chunks(int phase) const {
  return grid_->phases[static_cast<size_t>(phase)].chunks;
}
const char* GemmPlan::path() const { return grid_->path.c_str(); }
const char* GemmPlan::target() const { return hwy::TargetName(grid_->kernels->target); }

void GemmPlan::run(int phase, int64_t chunk, const GemmArgs& args) const noexcept {
  const Phase& p = grid_->phases[static_cast<size_t>(phase)];
  const Group& group = grid_->groups[p.group];
  GemmArgs operands = args;
  if (grid_->swapped) std::swap(operands.a, operands.b);
  p.pack ? grid_->run_pack(group, chunk, operands) : grid_->run_multiply(group, chunk, operands);
}

size_t GemmPlan::packed_b_bytes(GemmElement element, int64_t n, int64_t k) {
  if (n < 0 || k < 0) internal_error("gemm: sizes must not be negative, got {} x {}", k, n);
  const int64_t panels = divide_up(n, panel_columns(element_bytes(element)));
  return static_cast<size_t>(checked_mul(checked_mul(panels, k), kPanelBytes));
}

void GemmPlan::pack_b(GemmElement element, const void* b, int64_t row_stride, int64_t col_stride,
                      int64_t n, int64_t k, void* out) {
  packed_b_bytes(element, n, k);
  const int64_t bytes = element_bytes(element), width = panel_columns(bytes);
  const GemmKernels& kernels = kernels_for(element);
  for (int64_t j = 0; j < n; j += width) {
    kernels.pack(offset(b, j * col_stride * bytes), col_stride, row_stride, std::min(width, n - j),
                 width, k, offset(out, j / width * k * kPanelBytes));
  }
}

}  // namespace rlx::cpu
