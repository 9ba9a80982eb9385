#include "rlx/ops/dot_general.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/dot_general_rearranged.h"
#include "rlx/backend/cpu/kernels/product.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

using Axes = std::vector<int64_t>;

bool contains(const Axes& axes, size_t a) {
  return std::find(axes.begin(), axes.end(), int64_t(a)) != axes.end();
}

}  // namespace

ProductAxes dot_general_axes(const Attrs& attrs, const TensorDesc& a, const TensorDesc& b,
                             const TensorDesc& c) {
  const auto& d = attrs.as<DotGeneralAttrs>();
  ProductAxes p;
  size_t at = 0;  // in the result
  for (size_t i = 0; i < d.lhs_batch.size(); ++i, ++at) {
    const size_t x = size_t(d.lhs_batch[i]), y = size_t(d.rhs_batch[i]);
    p.batch.push_back(
        {.size = a.dims[x], .a = a.strides[x], .b = b.strides[y], .c = c.strides[at]});
  }
  for (size_t x = 0; x < a.dims.size(); ++x) {
    if (contains(d.lhs_contracting, x) || contains(d.lhs_batch, x)) continue;
    p.rows.push_back({.size = a.dims[x], .a = a.strides[x], .c = c.strides[at++]});
  }
  for (size_t y = 0; y < b.dims.size(); ++y) {
    if (contains(d.rhs_contracting, y) || contains(d.rhs_batch, y)) continue;
    p.columns.push_back({.size = b.dims[y], .b = b.strides[y], .c = c.strides[at++]});
  }
  for (size_t i = 0; i < d.lhs_contracting.size(); ++i) {
    const size_t x = size_t(d.lhs_contracting[i]), y = size_t(d.rhs_contracting[i]);
    p.inner.push_back({.size = a.dims[x], .a = a.strides[x], .b = b.strides[y]});
  }
  // Any order of the sum that follows from the shapes alone will do; that of memory joins most.
  std::stable_sort(p.inner.begin(), p.inner.end(),
                   [](const ProductAxis& x, const ProductAxis& y) { return x.a > y.a; });
  return p;
}

namespace {

ProductAxes axes_of(const KernelCall& call) {
  return dot_general_axes(call.attrs, call.operands[0], call.operands[1], call.results[0]);
}

std::string_view inner_reason(const KernelCall& call) {
  return inner_joins(axes_of(call)) ? "" : "the contracted axes are not one in memory";
}

PreparedKernel prepare_gemm(const KernelCall& c) {
  return prepare_product_gemm(c, make_product(axes_of(c)));
}
PreparedKernel prepare_half(const KernelCall& c) {
  return prepare_product_half(c, dot_general_axes);
}
PreparedKernel prepare_generic(const KernelCall& c) {
  return prepare_product_generic(c, make_product(axes_of(c)));
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "dot_general:gemm",
        .fits = [](const KernelCall& call) -> std::string_view {
          if (!is_gemm_dtype(call.results[0].dtype)) return "only f32 and f64";
          return inner_reason(call);
        },
        .prepare = prepare_gemm,
        .vector = true,
    },
    {
        .name = "dot_general:half",
        .fits = [](const KernelCall& call) -> std::string_view {
          if (!is_half(call.results[0].dtype)) return "only f16 and bf16";
          return inner_reason(call);
        },
        .prepare = prepare_half,
        .vector = true,
    },
    {
        .name = "dot_general:blocked",
        .fits = [](const KernelCall& call) -> std::string_view {
          if (is_float(call.results[0].dtype)) return "only integers and complex numbers";
          return inner_reason(call);
        },
        .prepare = prepare_generic,
    },
    {
        .name = "dot_general:rearranged",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_float(call.results[0].dtype) ? "" : "only floats";
        },
        .prepare =
            [](const KernelCall& c) {
              return prepare_rearranged(c,
                                        is_half(c.results[0].dtype) ? prepare_half : prepare_gemm);
            },
        .vector = true,
    },
    {
        .name = "dot_general:rearranged_blocked",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_float(call.results[0].dtype) ? "only integers and complex numbers" : "";
        },
        .prepare = [](const KernelCall& c) { return prepare_rearranged(c, prepare_generic); },
    },
};

}  // namespace

RLX_DEFINE_KERNELS(DotGeneral, Cpu) = {kEntries};

}  // namespace rlx::cpu
