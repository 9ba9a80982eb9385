// The two gradients of convolution as matrix products. No bits depend on the number of threads, nor
// on what else is in the call: the input's gradient adds each cell's terms in the order of the
// output lines; the weight's is summed by blocks of positions and slices of blocks that follow from
// the images and the output sizes alone, and the slices are added in order.
#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/backend/cpu/kernels/conv_call.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kEnoughChunks = 16;
constexpr int64_t kBlockBytes = 512 << 10;  // of patch gradients, in the cache
constexpr int64_t kBlockPositions = 256;    // of a product behind a weight gradient
constexpr int64_t kMostSlices = 16;         // of the positions behind a weight gradient
constexpr int64_t kSlicePositions = 256;    // of a slice, at least
constexpr int64_t kSlicesBytes = 32 << 20;  // of the partial weight gradients of all slices

WindowGeometry geometry_of(const Dims& x, const Dims& w, const Dims& y,
                           const ConvBackwardAttrs& a) {
  return WindowGeometry(x, y, conv_window(forward_attrs(a), Dims(w.begin() + 2, w.end())));
}

DType wide_of(DType t) { return t == DType::kF64 ? DType::kF64 : DType::kF32; }

// --- The input's gradient: patches of dx = w^T dy, added where they came from.

struct InputState {
  WindowGeometry g;
  AdjointLines lines_of_x;
  ConvSizes sizes;
  DType dtype = DType::kF32;
  bool pointwise = false;       // patches are dx itself (not for f16 and bf16)
  int64_t lines = 1;            // output lines of a block, counted through all planes
  int64_t block_channels = 1;   // input channels of a chunk
  std::vector<GemmPlan> plans;  // [whole or last channel block][whole or last line block]
  int64_t patches_at = 0, dx_at = 0, product_at = 0;  // in the thread's scratch

  bool half() const { return is_half(dtype); }
  int64_t all_lines() const { return g.out[0] * g.out[1]; }
  // One output of one input: each tap adds the scaled lines of dy, no product needed.
  bool depthwise() const { return sizes.inputs == 1 && sizes.outputs == 1; }
  int64_t channel_blocks() const { return ceil_div(sizes.inputs, block_channels); }
};

void run_input(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const InputState*>(state);
  const ConvSizes& z = s.sizes;
  const DType wide = wide_of(s.dtype);
  auto* scratch = static_cast<std::byte*>(args.thread_scratch);
  const int64_t image_group = chunk / s.channel_blocks(), group = image_group % z.groups;
  const int64_t channel = chunk % s.channel_blocks() * s.block_channels;
  const int64_t channels = std::min(s.block_channels, z.inputs - channel);
  const size_t plan_row = channels == s.block_channels ? 0 : 2;

  const void* w = s.half() ? args.scratch : args.operands[1];
  w = element(w, wide, (group * z.outputs * z.inputs + channel) * z.taps);
  std::byte* result =
      element(args.results[0], s.dtype, (image_group * z.inputs + channel) * z.in_area);
  std::byte* dx = s.half() ? scratch + s.dx_at : result;
  const int64_t bytes = channels * z.in_area * size_of(wide);
  if (!s.pointwise && bytes > 0) std::memset(dx, 0, size_t(bytes));
  for (int64_t line = 0; line < s.all_lines(); line += s.lines) {
    const int64_t lines = std::min(s.lines, s.all_lines() - line), width = s.g.out[2];
    const int64_t first = image_group * z.outputs * z.out_area + line * width;
    const void* dy = element(args.operands[0], s.dtype, first);
    if (s.half()) {
      for (int64_t c = 0; c < z.outputs; ++c) {
        widen_elements(s.dtype, element(dy, s.dtype, c * z.out_area), lines * width,
                       element(scratch, wide, c * lines * width));
      }
      dy = scratch;
    }
    if (s.depthwise()) {
      add_scaled(s.lines_of_x, wide == DType::kF64, dy, w, dx);
      continue;
    }
    const GemmPlan& plan = s.plans[plan_row + (lines == s.lines ? 0 : 1)];
    std::byte* patches = s.pointwise ? element(dx, wide, line * width) : scratch + s.patches_at;
    run_product(plan, w, dy, patches, scratch + s.product_at);
    if (!s.pointwise)
      add_patches(s.lines_of_x, wide == DType::kF64, patches, channels, line, lines, dx);
  }
  if (s.half()) narrow_elements(s.dtype, dx, channels * z.in_area, result);
}

void widen_input_weight(const void* state, const StepArgs& args, int64_t) {
  const auto& s = *static_cast<const InputState*>(state);
  const int64_t count = s.sizes.all_outputs() * s.sizes.depth();
  widen_elements(s.dtype, args.operands[1], count, args.scratch);
}

GemmPlan input_product(const InputState& s, int64_t channels, int64_t lines) {
  GemmShape shape;
  shape.m = channels * s.sizes.taps;
  shape.n = lines * s.g.out[2];
  shape.k = s.sizes.outputs;
  shape.a_row_stride = 1;
  shape.a_col_stride = s.sizes.depth();
  shape.b_row_stride = s.half() ? shape.n : s.sizes.out_area;
  shape.c_row_stride = s.pointwise ? s.sizes.in_area : shape.n;
  return single_product(s.dtype, std::move(shape), false);
}

// `size` in parts of `part`, the last of which may be shorter.
int64_t last_part(int64_t size, int64_t part) {
  return size == 0 ? 0 : size - (ceil_div(size, part) - 1) * part;
}

PreparedKernel prepare_input(const KernelCall& call) {
  const auto& a = call.as<ConvBackwardAttrs>();
  const Dims &dy = call.operands[0].dims, &w = call.operands[1].dims, &dx = call.results[0].dims;
  InputState s;
  s.dtype = call.results[0].dtype;
  s.g = geometry_of(dx, w, dy, a);
  s.lines_of_x = AdjointLines(s.g);
  s.sizes = conv_sizes(dx, w, s.g, a.groups.value());
  s.pointwise = s.g.is_pointwise() && !s.half() && !s.depthwise();
  const ConvSizes& z = s.sizes;
  const int64_t bytes = size_of(wide_of(s.dtype)), images = z.images * z.groups;
  const int64_t parts = images == 0 ? 1 : ceil_div(kEnoughChunks, images);
  s.block_channels = std::max<int64_t>(1, ceil_div(z.inputs, parts));
  const int64_t line_bytes = checked_mul(checked_mul(s.block_channels * z.taps, s.g.out[2]), bytes);
  s.lines = s.depthwise() ? s.all_lines()
                          : std::clamp<int64_t>(kBlockBytes / line_bytes, 1, s.all_lines());
  for (const int64_t channels : {s.block_channels, last_part(z.inputs, s.block_channels)}) {
    for (const int64_t lines : {s.lines, last_part(s.all_lines(), s.lines)}) {
      s.plans.push_back(input_product(s, channels, lines));
    }
  }
  const int64_t columns = s.lines * s.g.out[2];
  s.patches_at = s.half() ? align64(checked_mul(z.outputs * columns, bytes)) : 0;
  s.dx_at =
      checked_add(s.patches_at, align64(checked_mul(s.block_channels * z.taps * columns, bytes)));
  s.product_at = s.dx_at;
  if (s.half()) s.product_at += align64(checked_mul(s.block_channels * z.in_area, bytes));
  int64_t product = 0;
  for (const GemmPlan& p : s.plans) product = std::max(product, product_bytes(p));

  PreparedKernel k;
  k.thread_scratch_bytes = checked_add(s.product_at, product);
  k.nanoseconds = z.flops() / conv_flops_per_ns(s.dtype) * 1.5 + 300.0 * double(images);
  if (s.half()) {
    k.phases.push_back({1, widen_input_weight});
    k.scratch_bytes = checked_mul(call.operands[1].num_elements(), 4);
  }
  k.phases.push_back({z.inputs == 0 ? 0 : images * s.channel_blocks(), run_input});
  k.state = std::make_shared<const InputState>(std::move(s));
  return k;
}

// --- The weight's gradient: dy times the transposed patches of x, over all images.

struct WeightState {
  PatchGrid grid;  // of the channels of a chunk
  ConvSizes sizes;
  DType dtype = DType::kF32;
  bool pointwise = false;       // x is its own patch matrix (not for f16 and bf16)
  bool transposed = false;      // partial sums are [depth, outputs]: fewer wasted columns
  bool depthwise = false;       // one output of one input: a product of one row
  std::vector<GemmPlan> plans;  // of a whole block, and of the last one of a plane
  int64_t slices = 1;           // of the units; a unit is a block of an image
  // Chunks are slices (each with a sum of its own), or blocks of channels that go through all
  // slices (with a sum of all and one of the current slice): less memory.
  bool by_channels = false;
  int64_t rows_at = 0, dy_at = 0, product_at = 0;

  bool half() const { return is_half(dtype); }
  DType wide() const { return wide_of(dtype); }
  int64_t units() const { return sizes.images * grid.blocks(); }
  int64_t channel_blocks() const { return sizes.inputs / std::max<int64_t>(grid.channels(), 1); }
  int64_t group_elements() const { return sizes.outputs * sizes.depth(); }
  int64_t elements() const { return sizes.groups * group_elements(); }
  int64_t sums() const { return by_channels ? std::min<int64_t>(slices, 2) : slices; }

  // f(image, block) for the blocks of lines of a slice.
  template <class F>
  void for_blocks(int64_t slice, F f) const {
    const int64_t end = units() * (slice + 1) / slices;
    for (int64_t unit = units() * slice / slices; unit < end; ++unit) {
      f(unit / grid.blocks(), grid.block(unit % grid.blocks()));
    }
  }
};

// Adds the products of a block to `sum`, the weight gradient of a group from `channel` on.
void add_block(const WeightState& s, const StepArgs& args, int64_t image_group, int64_t channel,
               const PatchBlock& block, std::byte* sum) {
  const ConvSizes& z = s.sizes;
  auto* scratch = static_cast<std::byte*>(args.thread_scratch);
  const int64_t column = s.grid.first_column(block), columns = s.grid.columns(block.lines);

  const void* x =
      element(args.operands[0], s.dtype, (image_group * z.inputs + channel) * z.in_area);
  const void* rows = scratch + s.rows_at;
  if (s.pointwise) {
    rows = element(x, s.dtype, column);
  } else {
    s.grid.load_lines(x, block, scratch);
    if (!s.depthwise) s.grid.pack_rows(scratch, block, scratch + s.rows_at);
  }
  const void* dy =
      element(args.operands[1], s.dtype, image_group * z.outputs * z.out_area + column);
  if (s.half()) {
    for (int64_t c = 0; c < z.outputs; ++c) {
      widen_elements(s.dtype, element(dy, s.dtype, c * z.out_area), columns,
                     element(scratch + s.dy_at, DType::kF32, c * columns));
    }
    dy = scratch + s.dy_at;
  }
  if (s.depthwise) return s.grid.add_row_product(scratch, block, dy, sum);
  const void *a = s.transposed ? rows : dy, *b = s.transposed ? dy : rows;
  const GemmPlan& plan = s.plans[block.lines == s.grid.block_lines() ? 0 : 1];
  run_product(plan, a, b, sum, scratch + s.product_at);
}

// The part of a group's sum that belongs to a block of channels: rows of `length` elements.
struct SumPart {
  int64_t first, rows, length, stride;
};

SumPart part_of(const WeightState& s, int64_t group, int64_t channel) {
  const ConvSizes& z = s.sizes;
  const int64_t depth = s.grid.depth(), first = group * s.group_elements();
  if (!s.transposed) return {first + channel * z.taps, z.outputs, depth, z.depth()};
  return {first + channel * z.taps * z.outputs, 1, depth * z.outputs, 0};
}

template <class T>
void add_part(const SumPart& p, const T* from, T* to) {
  for (int64_t row = 0; row < p.rows; ++row, from += p.stride, to += p.stride) {
    for (int64_t i = 0; i < p.length; ++i) to[i] += from[i];
  }
}

// The sum of a slice, from zero.
void sum_slice(const WeightState& s, const StepArgs& args, int64_t group, int64_t channel,
               int64_t slice, std::byte* sums) {
  const SumPart p = part_of(s, group, channel);
  std::byte* sum = element(sums, s.wide(), p.first);
  for (int64_t row = 0; row < p.rows; ++row) {
    std::memset(element(sum, s.wide(), row * p.stride), 0, size_t(p.length * size_of(s.wide())));
  }
  s.for_blocks(slice, [&](int64_t image, const PatchBlock& block) {
    add_block(s, args, image * s.sizes.groups + group, channel, block, sum);
  });
}

void run_slice(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const WeightState*>(state);
  const int64_t slice = chunk / s.sizes.groups, group = chunk % s.sizes.groups;
  sum_slice(s, args, group, 0, slice, element(args.scratch, s.wide(), slice * s.elements()));
}

void run_channels(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const WeightState*>(state);
  const int64_t group = chunk / s.channel_blocks();
  const int64_t channel = chunk % s.channel_blocks() * s.grid.channels();
  auto* all = static_cast<std::byte*>(args.scratch);
  sum_slice(s, args, group, channel, 0, all);
  std::byte* one = element(all, s.wide(), s.elements());
  const SumPart p = part_of(s, group, channel);
  for (int64_t slice = 1; slice < s.slices; ++slice) {
    sum_slice(s, args, group, channel, slice, one);
    const std::byte* from = element(one, s.wide(), p.first);
    std::byte* to = element(all, s.wide(), p.first);
    if (s.wide() == DType::kF64) {
      add_part(p, reinterpret_cast<const double*>(from), reinterpret_cast<double*>(to));
    } else {
      add_part(p, reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to));
    }
  }
}

constexpr int64_t kSumElements = 4096;

template <class T>
void add_slices(const WeightState& s, const StepArgs& args, int64_t begin, int64_t end) {
  T* sums = static_cast<T*>(args.scratch);
  for (int64_t slice = 1; slice < s.slices; ++slice) {
    const T* from = sums + slice * s.elements();
    for (int64_t i = begin; i < end; ++i) sums[i] += from[i];
  }
}

// The first slice gets the sum of all in order.
void run_sum(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const WeightState*>(state);
  const int64_t begin = chunk * kSumElements, end = std::min(begin + kSumElements, s.elements());
  if (!s.by_channels && s.wide() == DType::kF64) add_slices<double>(s, args, begin, end);
  if (!s.by_channels && s.wide() == DType::kF32) add_slices<float>(s, args, begin, end);
  if (s.transposed) return;
  narrow_elements(s.dtype, element(args.scratch, s.wide(), begin), end - begin,
                  element(args.results[0], s.dtype, begin));
}

template <class T>
void transpose_group(const WeightState& s, const StepArgs& args, int64_t group) {
  const T* from = static_cast<const T*>(args.scratch) + group * s.group_elements();
  auto* to = static_cast<T*>(args.thread_scratch);
  const int64_t depth = s.sizes.depth();
  for (int64_t o = 0; o < s.sizes.outputs; ++o) {
    for (int64_t r = 0; r < depth; ++r) to[r] = from[r * s.sizes.outputs + o];
    const int64_t at = group * s.group_elements() + o * depth;
    narrow_elements(s.dtype, to, depth, element(args.results[0], s.dtype, at));
  }
}

void run_transpose(const void* state, const StepArgs& args, int64_t group) {
  const auto& s = *static_cast<const WeightState*>(state);
  if (s.wide() == DType::kF64) {
    transpose_group<double>(s, args, group);
  } else {
    transpose_group<float>(s, args, group);
  }
}

GemmPlan weight_product(const WeightState& s, int64_t lines) {
  const ConvSizes& z = s.sizes;
  const int64_t columns = s.grid.columns(lines), depth = s.grid.depth();
  const int64_t row_stride = s.pointwise ? z.in_area : columns;
  const int64_t dy_stride = s.half() ? columns : z.out_area;
  GemmShape shape;
  shape.m = s.transposed ? depth : z.outputs;
  shape.n = s.transposed ? z.outputs : depth;
  shape.k = columns;
  shape.a_row_stride = s.transposed ? row_stride : dy_stride;
  shape.b_row_stride = 1;
  shape.b_col_stride = s.transposed ? dy_stride : row_stride;
  shape.c_row_stride = s.transposed ? z.outputs : z.depth();
  return single_product(s.dtype, std::move(shape), false, /*accumulate=*/true);
}

// What a column of the product costs: its panel's share of the multiplications, and packing it.
bool prefer_transposed(const ConvSizes& z, int64_t element_bytes) {
  const int64_t panel = panel_columns(element_bytes), packing = 16;
  const int64_t plain = z.outputs * round_up(z.depth(), panel) + packing * z.depth();
  return z.depth() * round_up(z.outputs, panel) + packing * z.outputs < plain;
}

// The largest divisor that gives blocks enough to chunks.
int64_t block_count(int64_t channels) {
  int64_t count = kEnoughChunks;
  while (count > 1 && channels % count != 0) --count;
  return count;
}

WeightState weight_state(const KernelCall& call) {
  const auto& a = call.as<ConvBackwardAttrs>();
  const Dims &x = call.operands[0].dims, &dy = call.operands[1].dims, &dw = call.results[0].dims;
  WeightState s;
  s.dtype = call.results[0].dtype;
  const WindowGeometry g = geometry_of(x, dw, dy, a);
  s.sizes = conv_sizes(x, dw, g, a.groups.value());
  const ConvSizes& z = s.sizes;
  const int64_t sum_bytes = checked_mul(s.elements(), size_of(s.wide()));
  // Blocks and slices decide the order of the sums, so they know nothing of channels and groups.
  const int64_t lines = std::clamp<int64_t>(kBlockPositions / std::max<int64_t>(g.out[2], 1), 1,
                                            std::max<int64_t>(g.out[1], 1));
  s.grid = PatchGrid(g, z.inputs, s.dtype, lines);
  s.slices = std::clamp<int64_t>(checked_mul(z.images, z.out_area) / kSlicePositions, 1,
                                 std::clamp<int64_t>(s.units(), 1, kMostSlices));
  s.by_channels = checked_mul(s.slices, sum_bytes) > kSlicesBytes;
  if (s.by_channels) s.grid = PatchGrid(g, z.inputs / block_count(z.inputs), s.dtype, lines);
  s.pointwise = g.is_pointwise() && !s.half();
  s.depthwise = z.inputs == 1 && z.outputs == 1 && !s.pointwise;
  s.transposed = !s.depthwise && prefer_transposed(z, size_of(s.wide()));
  s.plans.push_back(weight_product(s, s.grid.block_lines()));
  s.plans.push_back(weight_product(s, s.grid.last_lines()));
  return s;
}

PreparedKernel prepare_weight(const KernelCall& call) {
  WeightState s = weight_state(call);
  const ConvSizes& z = s.sizes;
  const int64_t bytes = size_of(s.wide());
  s.rows_at = s.pointwise ? 0 : s.grid.lines_bytes();
  s.dy_at = checked_add(s.rows_at, s.pointwise ? 0 : s.grid.rows_bytes());
  s.product_at = s.dy_at;
  if (s.half()) {
    const int64_t block = checked_mul(z.outputs, s.grid.columns(s.grid.block_lines()));
    s.product_at = checked_add(s.dy_at, align64(checked_mul(block, bytes)));
  }
  int64_t product = checked_mul(z.depth(), bytes);  // a row of run_transpose
  for (const GemmPlan& p : s.plans) product = std::max(product, product_bytes(p));

  PreparedKernel k;
  k.scratch_bytes = checked_mul(s.sums(), checked_mul(s.elements(), bytes));
  k.thread_scratch_bytes = checked_add(s.product_at, product);
  k.nanoseconds =
      z.flops() / conv_flops_per_ns(s.dtype) * 1.5 + 300.0 * double(s.units() * z.groups);
  if (s.elements() > 0) {
    if (s.by_channels) {
      k.phases.push_back({z.groups * s.channel_blocks(), run_channels});
    } else {
      k.phases.push_back({s.slices * z.groups, run_slice});
    }
    k.phases.push_back({ceil_div(s.elements(), kSumElements), run_sum});
    if (s.transposed) k.phases.push_back({z.groups, run_transpose});
  }
  k.state = std::make_shared<const WeightState>(std::move(s));
  return k;
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kInput[] = {
    {.name = "conv_backward_input:gemm", .fits = fits, .prepare = prepare_input, .vector = true}};
constexpr KernelEntry kWeight[] = {
    {.name = "conv_backward_weight:gemm", .fits = fits, .prepare = prepare_weight, .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(Conv2dBackwardInput, Cpu) = {kInput};
RLX_DEFINE_KERNELS(Conv2dBackwardWeight, Cpu) = {kWeight};

}  // namespace rlx::cpu
