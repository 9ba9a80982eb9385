// Convolution as matrix products: w [outputs, inputs * taps] of a group times the patches of an
// image, block by block, so that patches never leave the cache.
#include <algorithm>
#include <utility>

#include "rlx/backend/cpu/kernels/conv_call.h"

namespace rlx::cpu {
namespace {

struct ConvState {
  ConvSizes sizes;
  PatchGrid grid;
  DType dtype = DType::kF32;
  bool pointwise = false;       // x is its own patch matrix
  std::vector<GemmPlan> plans;  // of a whole block, and of the last one of a plane
  int64_t units_per_chunk = 1;  // a unit is a block of a group of an image
  // Offsets in the thread's scratch.
  int64_t panels_at = 0, result_at = 0, product_at = 0, finish_at = 0;
  Finish finish;

  bool half() const { return is_half(dtype); }
  DType wide() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
  int64_t units() const { return sizes.images * sizes.groups * grid.blocks(); }
};

void run_unit(const ConvState& s, const StepArgs& args, int64_t unit) {
  const ConvSizes& z = s.sizes;
  const int64_t image_group = unit / s.grid.blocks(), group = image_group % z.groups;
  const PatchBlock block = s.grid.block(unit % s.grid.blocks());
  const int64_t column = s.grid.first_column(block), columns = s.grid.columns(block.lines);
  auto* scratch = static_cast<std::byte*>(args.thread_scratch);
  const void* x = element(args.operands[0], s.dtype, image_group * z.inputs * z.in_area);

  const void* patches = scratch + s.panels_at;
  if (s.pointwise) {
    patches = element(x, s.dtype, column);
  } else {
    s.grid.load_lines(x, block, scratch);
    s.grid.pack_panels(scratch, block, scratch + s.panels_at);
  }
  const void* w = s.half() ? args.scratch : args.operands[1];
  w = element(w, s.wide(), group * z.outputs * z.depth());
  std::byte* y = element(args.results[0], s.dtype, image_group * z.outputs * z.out_area + column);
  const GemmPlan& plan = s.plans[block.lines == s.grid.block_lines() ? 0 : 1];
  void* product = s.half() ? scratch + s.result_at : y;
  run_product(plan, w, patches, product, scratch + s.product_at);
  if (s.finish) {
    const int64_t first = image_group * z.outputs * z.out_area + column;
    const FinishedPiece piece{
        product, s.half() ? columns : z.out_area, first, z.out_area, z.outputs, columns};
    s.finish.run(s.finish.state.get(), args, piece, scratch + s.finish_at);
    return;
  }
  for (int64_t c = 0; s.half() && c < z.outputs; ++c) {
    narrow_elements(s.dtype, element(scratch + s.result_at, DType::kF32, c * columns), columns,
                    element(y, s.dtype, c * z.out_area));
  }
}

void run_units(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const ConvState*>(state);
  const int64_t end = std::min((chunk + 1) * s.units_per_chunk, s.units());
  for (int64_t unit = chunk * s.units_per_chunk; unit < end; ++unit) run_unit(s, args, unit);
}

// A 16-bit weight is converted once a run.
void widen_weight(const void* state, const StepArgs& args, int64_t) {
  const auto& s = *static_cast<const ConvState*>(state);
  const int64_t count = s.sizes.all_outputs() * s.sizes.depth();
  widen_elements(s.dtype, args.operands[1], count, args.scratch);
}

GemmPlan block_product(const ConvState& s, int64_t lines) {
  const ConvSizes& z = s.sizes;
  GemmShape shape;
  shape.m = z.outputs;
  shape.n = s.grid.columns(lines);
  shape.k = z.depth();
  shape.a_row_stride = z.depth();
  shape.b_row_stride = z.in_area;  // of a pointwise product
  shape.c_row_stride = s.half() ? shape.n : z.out_area;
  return single_product(s.dtype, std::move(shape), !s.pointwise);
}

ConvState state_of(const KernelCall& call) {
  const auto& a = call.as<ConvAttrs>();
  const Dims &x = call.operands[0].dims, &w = call.operands[1].dims;
  const WindowGeometry g(x, call.results[0].dims, conv_window(a, Dims(w.begin() + 2, w.end())));
  ConvState s;
  s.dtype = call.results[0].dtype;
  s.sizes = conv_sizes(x, w, g, a.groups.value());
  s.grid = PatchGrid(g, s.sizes.inputs, s.dtype);
  return s;
}

PreparedKernel prepare(const KernelCall& call, bool pointwise, Finish finish = {}) {
  ConvState s = state_of(call);
  s.pointwise = pointwise;
  s.finish = std::move(finish);
  s.plans.push_back(block_product(s, s.grid.block_lines()));
  s.plans.push_back(block_product(s, s.grid.last_lines()));
  const double finish_ns =
      s.finish.nanoseconds_per_element * double(call.results[0].num_elements());
  const double ns =
      s.sizes.flops() / conv_flops_per_ns(s.dtype) + 200.0 * double(s.units()) + finish_ns;
  const double unit_ns = ns / double(std::max<int64_t>(s.units(), 1));
  s.units_per_chunk = std::max<int64_t>(1, int64_t(10000 / unit_ns));

  PreparedKernel k;
  k.nanoseconds = ns;
  if (s.half()) {
    k.phases.push_back({1, widen_weight});
    k.scratch_bytes = checked_mul(call.operands[1].num_elements(), 4);
  }
  k.phases.push_back({ceil_div(s.units(), s.units_per_chunk), run_units});
  s.panels_at = pointwise ? 0 : s.grid.lines_bytes();
  s.result_at = checked_add(s.panels_at, pointwise ? 0 : s.grid.panels_bytes());
  s.product_at = s.result_at;
  if (s.half()) {
    const int64_t block = checked_mul(s.sizes.outputs, s.grid.columns(s.grid.block_lines()));
    s.product_at = checked_add(s.result_at, align64(checked_mul(block, 4)));
  }
  int64_t product = 0;
  for (const GemmPlan& p : s.plans) product = std::max(product, product_bytes(p));
  s.finish_at = round_up(checked_add(s.product_at, product), 64);
  k.thread_scratch_bytes = checked_add(s.finish_at, s.finish.thread_scratch_bytes);
  k.state = std::make_shared<const ConvState>(std::move(s));
  return k;
}

WindowGeometry geometry_of(const KernelCall& call) {
  const Dims& w = call.operands[1].dims;
  return WindowGeometry(call.operands[0].dims, call.results[0].dims,
                        conv_window(call.as<ConvAttrs>(), Dims(w.begin() + 2, w.end())));
}

std::string_view fits_pointwise(const KernelCall& call) {
  if (!geometry_of(call).is_pointwise()) return "the kernel is not 1x1 with stride 1, unpadded";
  return is_half(call.results[0].dtype) ? "only f32 and f64" : "";
}

// With one input channel a group, a product has one row per output: mostly overhead.
std::string_view fits_depthwise(const KernelCall& call) {
  const Dims& w = call.operands[1].dims;
  const int64_t groups = call.as<ConvAttrs>().groups.value();
  if (w[1] != 1) return "a group has more than one input channel";
  const DType t = call.results[0].dtype;
  if (geometry_of(call).taps() > sum_block(t == DType::kF64 ? 8 : 4)) {
    return "the kernel has more taps than the matrix product sums in one chain";
  }
  return w[0] / groups > 4 ? "a group has more than 4 output channels: conv:gemm is faster" : "";
}

std::string_view fits_all(const KernelCall&) { return {}; }

PreparedKernel prepare_depthwise_entry(const KernelCall& call) {
  const WindowGeometry g = geometry_of(call);
  const Dims &x = call.operands[0].dims, &w = call.operands[1].dims;
  return prepare_depthwise(call, conv_sizes(x, w, g, call.as<ConvAttrs>().groups.value()), g);
}

constexpr KernelEntry kEntries[] = {
    {.name = "conv:depthwise",
     .fits = fits_depthwise,
     .prepare = prepare_depthwise_entry,
     .vector = true},
    {.name = "conv:pointwise",
     .fits = fits_pointwise,
     .prepare = [](const KernelCall& call) { return prepare(call, true); },
     .vector = true},
    {.name = "conv:gemm",
     .fits = fits_all,
     .prepare = [](const KernelCall& call) { return prepare(call, false); },
     .vector = true},
};

}  // namespace

bool is_depthwise(const KernelCall& call) { return fits_depthwise(call).empty(); }

PreparedKernel prepare_conv(const KernelCall& call, Finish finish) {
  if (is_depthwise(call)) {
    const WindowGeometry g = geometry_of(call);
    const Dims &x = call.operands[0].dims, &w = call.operands[1].dims;
    const ConvSizes sizes = conv_sizes(x, w, g, call.as<ConvAttrs>().groups.value());
    return prepare_depthwise(call, sizes, g, std::move(finish));
  }
  return prepare(call, fits_pointwise(call).empty(), std::move(finish));
}

RLX_DEFINE_KERNELS(Conv, Cpu) = {kEntries};

}  // namespace rlx::cpu
