// Depthwise convolution: each output line is a sum over the taps of shifted lines of one channel.
// The sum is one chain of multiply-adds over ascending taps, as in the matrix product.
#include "rlx/backend/cpu/kernels/conv_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/conv_depthwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_DEPTHWISE_TYPES_
#define RLX_CPU_DEPTHWISE_TYPES_
namespace rlx::cpu {

struct DepthwiseState {
  ConvSizes sizes;
  PatchGrid grid;  // of one channel
  int64_t units_per_chunk = 1;
  int64_t finish_at = 0;  // in the thread's scratch
  Finish finish;
  int64_t units() const { return sizes.images * sizes.groups * grid.blocks(); }
};

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// One output line, two vectors at a time.
template <class D, class S>
HWY_INLINE void DepthwiseLine(D d, const hn::TFromD<D>* lines, const int64_t* taps, int64_t depth,
                              const S* w, S* y, int64_t width) {
  using T = hn::TFromD<D>;
  const auto lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    auto a = hn::Zero(d), b = hn::Zero(d);
    for (int64_t r = 0; r < depth; ++r) {
      const auto v = hn::Set(d, T(w[r]));
      a = hn::MulAdd(v, hn::LoadU(d, lines + taps[r] + i), a);
      b = hn::MulAdd(v, hn::LoadU(d, lines + taps[r] + i + lanes), b);
    }
    StoreWide(a, d, y + i);
    StoreWide(b, d, y + i + lanes);
  }
  for (; i < width; i += lanes) {
    auto a = hn::Zero(d);
    for (int64_t r = 0; r < depth; ++r) {
      a = hn::MulAdd(hn::Set(d, T(w[r])), hn::LoadU(d, lines + taps[r] + i), a);
    }
    StoreCount(a, d, y + i, size_t(std::min(lanes, width - i)));
  }
}

template <class S>
void Units(const DepthwiseState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const ConvSizes& z = s.sizes;
  const WindowGeometry& g = s.grid.geometry();
  const int64_t depth = z.depth();
  T* lines = static_cast<T*>(args.thread_scratch);
  const int64_t end = std::min((chunk + 1) * s.units_per_chunk, s.units());
  for (int64_t unit = chunk * s.units_per_chunk; unit < end; ++unit) {
    const int64_t plane = unit / s.grid.blocks();
    const PatchBlock block = s.grid.block(unit % s.grid.blocks());
    s.grid.load_lines(args.in<S>(0) + plane * z.in_area, block, lines);
    for (int64_t o = 0; o < z.outputs; ++o) {
      const S* w = args.in<S>(1) + (plane % z.groups * z.outputs + o) * depth;
      S* y = args.out<S>(0) + (plane * z.outputs + o) * z.out_area + s.grid.first_column(block);
      for (int64_t l = 0; l < block.lines; ++l) {
        DepthwiseLine(d, lines + l * g.stride[1] * g.line(), s.grid.tap_offsets().data(), depth, w,
                      y + l * g.out[2], g.out[2]);
      }
      if (s.finish) {
        const int64_t count = block.lines * g.out[2];
        s.finish.run(s.finish.state.get(), args, {y, count, y - args.out<S>(0), count, 1, count},
                     static_cast<std::byte*>(args.thread_scratch) + s.finish_at);
      }
    }
  }
}

}  // namespace

void DepthwiseChunk(const DepthwiseState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.grid.dtype(), [&]<class S>() { Units<S>(s, args, chunk); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(DepthwiseChunk);

PreparedKernel prepare_depthwise(const KernelCall& call, const ConvSizes& sizes,
                                 const WindowGeometry& geometry, Finish finish) {
  DepthwiseState s{sizes, PatchGrid(geometry, 1, call.results[0].dtype), 1, 0, std::move(finish)};
  const double finish_ns =
      s.finish.nanoseconds_per_element * double(call.results[0].num_elements());
  const double ns =
      sizes.flops() / conv_flops_per_ns(s.grid.dtype()) * 4 + 50.0 * double(s.units()) + finish_ns;
  const double unit_ns = ns / double(std::max<int64_t>(s.units(), 1));
  s.units_per_chunk = std::max<int64_t>(1, int64_t(10000 / unit_ns));
  const int64_t chunks = ceil_div(s.units(), s.units_per_chunk);
  s.finish_at = s.grid.lines_bytes();
  const int64_t bytes = checked_add(s.finish_at, s.finish.thread_scratch_bytes);
  PreparedKernel k = PreparedKernel::single(
      std::move(s), chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(DepthwiseChunk)
        (*static_cast<const DepthwiseState*>(state), args, chunk);
      },
      ns);
  k.thread_scratch_bytes = bytes;
  return k;
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
