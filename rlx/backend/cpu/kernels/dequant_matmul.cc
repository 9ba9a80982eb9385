// DequantMatMul: rows of x times rows of blocks, which are decoded where they are multiplied.
#include "rlx/ops/dequant_matmul.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/int8/int8_kernels.h"
#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/packed_codec.h"
#include "rlx/backend/cpu/kernels/packed_dot.h"
#include "rlx/base/checked.h"
#include "rlx/base/half.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kChunkBytes = 128 << 10;      // of w in a chunk of few rows
constexpr int64_t kPanelChunkColumns = 32;      // of a chunk of many rows
constexpr int64_t kStreamBytes = 2 << 20;       // w beyond this comes from memory
constexpr int64_t kArrangeElements = 16 << 10;  // of x in a chunk of the first phase
constexpr int64_t kBlock = 32;

// y[item] = x[item] w[item]^T for every item, rows of x and w k elements long.
struct State {
  DType dtype = DType::kF32, packed = DType::kQ8_0;
  int64_t m = 0, n = 0, k = 0;
  std::vector<int64_t> x_item, w_item;  // which matrix of x and of w an item takes
  int64_t x_rows = 0;                   // of all matrices of x
  bool stream = false, panels = false;
  int64_t arrange_rows = 1;                   // of a chunk of the first phase
  int64_t row_step = 1, row_parts = 1;        // rows of a chunk
  int64_t column_step = 1, column_parts = 1;  // columns of a chunk
  // Scratch: x in f32 as run_arrange leaves it, or in blocks: codes, scales, beginnings of integer
  // sums.
  int64_t scales_at = 0, starts_at = 0;
  int64_t tile_at = 0;  // thread scratch: results of a chunk in f32
  const Int8Kernels* int8 = nullptr;

  bool half() const { return is_half(dtype); }
  bool arranged() const { return half() || panels; }
  int64_t items() const { return int64_t(x_item.size()); }
  int64_t blocks() const { return k / kBlock; }
  int64_t row_bytes() const { return bytes_of(packed, k); }
};

int64_t leading(const Dims& dims) {
  return num_elements(std::span(dims).first(dims.size() - std::min<size_t>(dims.size(), 2)));
}

// For every index of `batch`, the matrix that an operand with those leading axes gives.
std::vector<int64_t> matrices_of(const Dims& dims, std::span<const int64_t> batch) {
  const Dims lead(dims.begin(), dims.end() - int64_t(std::min<size_t>(dims.size(), 2)));
  const Dims own = dense_strides(lead);
  std::vector<int64_t> list{0};
  for (size_t a = 0; a < batch.size(); ++a) {
    const int64_t skipped = int64_t(batch.size()) - int64_t(lead.size());
    const int64_t at = int64_t(a) - skipped;
    const int64_t step = at < 0 || lead[size_t(at)] == 1 ? 0 : own[size_t(at)];
    std::vector<int64_t> next;
    for (const int64_t base : list) {
      for (int64_t i = 0; i < batch[a]; ++i) next.push_back(base + i * step);
    }
    list = std::move(next);
  }
  return list;
}

State state_of(const KernelCall& call) {
  const TensorDesc &x = call.operands[0], &w = call.operands[1], &y = call.results[0];
  State s;
  s.dtype = x.dtype;
  s.packed = w.dtype;
  s.k = x.dims.back();
  s.m = x.dims.size() > 1 ? x.dims[x.dims.size() - 2] : 1;
  s.n = w.dims[w.dims.size() - 2];
  s.x_rows = checked_mul(leading(x.dims), s.m);
  if (w.dims.size() == 2) {  // one matrix: all of x are rows of it
    s.m = s.x_rows;
    s.x_item = s.w_item = {0};
  } else {
    const auto batch = std::span(y.dims).first(y.dims.size() - (x.dims.size() > 1 ? 2 : 1));
    s.x_item = matrices_of(x.dims, batch);
    s.w_item = matrices_of(w.dims, batch);
  }
  s.stream = checked_mul(s.row_bytes(), s.n) >= kStreamBytes;
  return s;
}

void choose_chunks(State& s, bool panels) {
  s.row_step = std::clamp<int64_t>(s.m, 1, panels ? kPackedDotRows : s.m);
  s.row_parts = ceil_div(s.m, std::max<int64_t>(s.row_step, 1));
  const int64_t columns =
      panels ? kPanelChunkColumns
             : std::max<int64_t>(kChunkBytes / std::max<int64_t>(s.row_bytes(), 1) / 8 * 8, 8);
  s.column_step = std::clamp<int64_t>(columns, 1, std::max<int64_t>(s.n, 1));
  s.column_parts = ceil_div(s.n, s.column_step);
}

struct Part {
  int64_t item, row, rows, column, columns;
};

Part part_of(const State& s, int64_t chunk) {
  Part p{};
  p.row = chunk % s.row_parts * s.row_step;
  chunk /= s.row_parts;
  p.column = chunk % s.column_parts * s.column_step;
  p.item = chunk / s.column_parts;
  p.rows = std::min(s.row_step, s.m - p.row);
  p.columns = std::min(s.column_step, s.n - p.column);
  return p;
}

const uint8_t* weight_of(const State& s, const StepArgs& args, const Part& p) {
  return args.in<uint8_t>(1) + (s.w_item[size_t(p.item)] * s.n + p.column) * s.row_bytes();
}

// Where a chunk writes f32: the result itself, or a tile that store_part rounds into it.
struct Target {
  float* y;
  int64_t stride;
};

Target target_of(const State& s, const StepArgs& args, const Part& p) {
  if (s.half()) {
    return {reinterpret_cast<float*>(static_cast<char*>(args.thread_scratch) + s.tile_at),
            p.columns};
  }
  return {args.out<float>(0) + (p.item * s.m + p.row) * s.n + p.column, s.n};
}

void store_part(const State& s, const StepArgs& args, const Part& p, const Target& from) {
  if (!s.half()) return;
  uint16_t* y = args.out<uint16_t>(0) + (p.item * s.m + p.row) * s.n + p.column;
  for (int64_t i = 0; i < p.rows; ++i) {
    narrow_elements(s.dtype, from.y + i * from.stride, p.columns, y + i * s.n);
  }
}

// --- Exact

// Some rows of x in f32: as they are, or block by block for panels.
void run_arrange(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  auto* out = static_cast<float*>(args.scratch);
  const int64_t begin = chunk * s.arrange_rows;
  for (int64_t i = begin; i < std::min(s.x_rows, begin + s.arrange_rows); ++i) {
    const char* row = args.in<char>(0) + i * s.k * size_of(s.dtype);
    if (!s.panels) {
      widen_elements(s.dtype, row, s.k, out + i * s.k);
      continue;
    }
    for (int64_t k = 0; k < s.k; k += kPackedDotSteps) {
      float* to = out + k * s.x_rows + i * kPackedDotSteps;
      widen_elements(s.dtype, row + k * size_of(s.dtype), std::min(kPackedDotSteps, s.k - k), to);
    }
  }
}

void run_exact(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const Part p = part_of(s, chunk);
  const Target to = target_of(s, args, p);
  const int64_t row = s.x_item[size_t(p.item)] * s.m + p.row;
  const float* x = s.arranged() ? static_cast<const float*>(args.scratch) : args.in<float>(0);
  PackedDot dot;
  dot.packed = s.packed;
  dot.k = s.k;
  dot.x_stride = s.panels ? kPackedDotSteps : s.k;
  dot.x_block = s.panels ? kPackedDotSteps * s.x_rows : kPackedDotSteps;
  dot.x = x + row * dot.x_stride;
  dot.rows = p.rows;
  dot.w = weight_of(s, args, p);
  dot.columns = p.columns;
  dot.y = to.y;
  dot.y_stride = to.stride;
  dot.stream = s.stream;
  dot.scratch = args.thread_scratch;
  packed_dot(dot);
  store_part(s, args, p, to);
}

// Adds the products' phase and the thread's memory.
void finish(State s, void (*run)(const void*, const StepArgs&, int64_t), double per_product,
            int64_t thread_scratch, PreparedKernel& k) {
  const int64_t chunks =
      checked_mul(checked_mul(s.items(), s.column_parts), std::max<int64_t>(s.row_parts, 0));
  k.phases.push_back({chunks, run});
  const double products = double(s.items()) * double(s.m) * double(s.n) * double(s.k);
  const double bytes = double(s.items()) * double(s.n) * double(s.row_bytes());
  k.nanoseconds = 100 + products * per_product + bytes / 16 + double(s.x_rows * s.k) * 0.3;
  s.tile_at = round_up(thread_scratch, 64);
  k.thread_scratch_bytes = s.tile_at;
  if (s.half()) k.thread_scratch_bytes += s.row_step * s.column_step * int64_t(sizeof(float));
  k.state = std::make_shared<const State>(std::move(s));
}

PreparedKernel prepare_exact(const KernelCall& call) {
  State s = state_of(call);
  PreparedKernel k;
  if (call.results[0].num_elements() == 0) return k;
  s.panels = s.m > kPackedDotFewRows;
  const bool panels = s.panels;
  choose_chunks(s, panels);
  if (s.arranged()) {
    const int64_t length = panels ? round_up(s.k, kPackedDotSteps) : s.k;
    k.scratch_bytes = checked_mul(checked_mul(s.x_rows, length), int64_t(sizeof(float)));
    s.arrange_rows = std::max<int64_t>(1, kArrangeElements / std::max<int64_t>(s.k, 1));
    k.phases.push_back({ceil_div(s.x_rows, s.arrange_rows), run_arrange});
  }
  const int64_t scratch = packed_dot_scratch(s.row_step);
  finish(std::move(s), run_exact, panels ? 0.02 : 0.01, scratch, k);
  return k;
}

// --- Activations in blocks

void run_blocks(const void* state, const StepArgs& args, int64_t row) {
  const auto& s = *static_cast<const State*>(state);
  auto* scratch = static_cast<char*>(args.scratch);
  auto* codes = reinterpret_cast<int8_t*>(scratch) + row * s.k;
  auto* scales = reinterpret_cast<float*>(scratch + s.scales_at) + row * s.blocks();
  auto* starts = reinterpret_cast<int32_t*>(scratch + s.starts_at) + row * s.blocks() * 8;
  const char* x = args.in<char>(0) + row * s.k * size_of(s.dtype);
  for (int64_t b = 0; b < s.blocks(); ++b) {
    uint8_t block[2 + kBlock];
    encode_row(DType::kQ8_0, s.dtype, x + b * kBlock * size_of(s.dtype), kBlock, block);
    uint16_t bits;
    std::memcpy(&bits, block, sizeof bits);
    scales[b] = f16_bits_to_float(bits);
    std::memcpy(codes + b * kBlock, block + 2, kBlock);
    // Codes of q4_0 are taken without their offset of -8.
    for (int l = 0; l < 8; ++l) {
      int32_t sum = 0;
      for (int e = 4 * l; e < 4 * l + 4; ++e) sum += codes[b * kBlock + e];
      starts[b * 8 + l] = s.packed == DType::kQ4_0 ? -8 * sum : 0;
    }
  }
}

void run_int8(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const Part p = part_of(s, chunk);
  const Target to = target_of(s, args, p);
  const auto* scratch = static_cast<const char*>(args.scratch);
  const int64_t row = s.x_item[size_t(p.item)] * s.m + p.row;
  Int8Dot dot;
  dot.packed = s.packed;
  dot.blocks = s.blocks();
  dot.rows = p.rows;
  dot.q = reinterpret_cast<const int8_t*>(scratch) + row * s.k;
  dot.scale = reinterpret_cast<const float*>(scratch + s.scales_at) + row * dot.blocks;
  dot.start = reinterpret_cast<const int32_t*>(scratch + s.starts_at) + row * dot.blocks * 8;
  dot.w = weight_of(s, args, p);
  dot.columns = p.columns;
  dot.y = to.y;
  dot.y_stride = to.stride;
  s.int8->dot(dot);
  store_part(s, args, p, to);
}

PreparedKernel prepare_int8(const KernelCall& call) {
  State s = state_of(call);
  PreparedKernel k;
  if (call.results[0].num_elements() == 0) return k;
  choose_chunks(s, false);
  s.row_step = std::min<int64_t>(s.m, kPackedDotRows);
  s.row_parts = ceil_div(s.m, s.row_step);
  s.int8 = int8_kernels().front();
  const int64_t codes = round_up(checked_mul(s.x_rows, s.k), 64);
  s.scales_at = codes;
  s.starts_at = checked_add(codes, round_up(codes / kBlock * 4, 64));
  k.scratch_bytes = checked_add(s.starts_at, checked_mul(codes / kBlock, 32));
  k.phases.push_back({s.x_rows, run_blocks});
  finish(std::move(s), run_int8, 0.02, 0, k);
  return k;
}

template <MatMulActivations A>
std::string_view fits(const KernelCall& call) {
  if (call.as<DequantMatMulAttrs>().activations == A) return {};
  return A == MatMulActivations::kExact ? "only exact activations" : "only activations in blocks";
}

constexpr KernelEntry kEntries[] = {
    {.name = "dequant_matmul:exact",
     .fits = fits<MatMulActivations::kExact>,
     .prepare = prepare_exact,
     .vector = true},
    {.name = "dequant_matmul:int8",
     .fits = fits<MatMulActivations::kInt8Block>,
     .prepare = prepare_int8,
     .vector = true},
};

}  // namespace

RLX_DEFINE_KERNELS(DequantMatMul, Cpu) = {kEntries};

}  // namespace rlx::cpu
