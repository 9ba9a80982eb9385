// What the kernels of Conv and its two gradients have in common.
#pragma once

#include <cstddef>

#include "rlx/backend/cpu/gemm/gemm.h"
#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/backend/cpu/kernels/conv_patches.h"
#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/product.h"
#include "rlx/compile/kernel.h"
#include "rlx/ops/conv.h"

namespace rlx::cpu {

struct ConvSizes {
  int64_t images = 0, groups = 1;
  int64_t inputs = 0, outputs = 0;  // channels of a group
  int64_t in_area = 0, out_area = 0, taps = 1;
  int64_t depth() const { return inputs * taps; }  // of a row of the weight
  int64_t all_outputs() const { return groups * outputs; }
  double flops() const {
    return 2.0 * double(images) * double(all_outputs()) * double(out_area) * double(depth());
  }
};

inline ConvSizes conv_sizes(const Dims& x, const Dims& w, const WindowGeometry& g, int64_t groups) {
  return {x[0], groups, w[1], w[0] / groups, g.in_area(), g.out_area(), g.taps()};
}

// A product of one matrix pair; b_packed says that B is packed by the caller.
inline GemmPlan single_product(DType dtype, GemmShape shape, bool b_packed,
                               bool accumulate = false) {
  const GemmElement e = dtype == DType::kF64 ? GemmElement::kF64 : GemmElement::kF32;
  return GemmPlan(e, std::move(shape), b_packed, accumulate);
}

inline int64_t product_bytes(const GemmPlan& p) {
  return align64(int64_t(p.scratch_bytes())) + align64(int64_t(p.thread_scratch_bytes()));
}

// Runs all of a product on this thread; `scratch` holds product_bytes.
inline void run_product(const GemmPlan& p, const void* a, const void* b, void* c,
                        std::byte* scratch) {
  GemmArgs args;
  args.a = a;
  args.b = b;
  args.c = c;
  args.scratch = scratch;
  args.thread_scratch = scratch + align64(int64_t(p.scratch_bytes()));
  for (int phase = 0; phase < p.phases(); ++phase) {
    for (int64_t chunk = 0; chunk < p.chunks(phase); ++chunk) p.run(phase, chunk, args);
  }
}

// Flops of a nanosecond on one thread, for estimates.
inline double conv_flops_per_ns(DType t) { return t == DType::kF64 ? 30 : 60; }

// Elements of `t` at a byte pointer.
inline const std::byte* element(const void* p, DType t, int64_t i) {
  return static_cast<const std::byte*>(p) + i * size_of(t);
}
inline std::byte* element(void* p, DType t, int64_t i) {
  return static_cast<std::byte*>(p) + i * size_of(t);
}

// conv_depthwise.cc: one input channel a group. With `finish`: f32 and f64 only.
PreparedKernel prepare_depthwise(const KernelCall& call, const ConvSizes& sizes,
                                 const WindowGeometry& geometry, Finish finish = {});

// conv.cc: the entry that fits, with its elements handed over.
bool is_depthwise(const KernelCall& call);
PreparedKernel prepare_conv(const KernelCall& call, Finish finish);

}  // namespace rlx::cpu
