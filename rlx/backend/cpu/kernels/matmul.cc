#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/product.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

// Axis `a` (from the right end of the batch axes) of an operand: broadcast where missing or 1.
int64_t batch_stride(const TensorDesc& t, size_t batch_rank, size_t from_right) {
  if (from_right >= batch_rank) return 0;
  const size_t a = batch_rank - 1 - from_right;
  return t.dims[a] == 1 ? 0 : t.strides[a];
}

}  // namespace

ProductAxes matmul_axes(const Attrs&, const TensorDesc& a, const TensorDesc& b,
                        const TensorDesc& c) {
  ProductAxes p;
  const size_t ra = a.dims.size(), rb = b.dims.size(), rc = c.dims.size();
  const bool has_row = ra > 1, has_column = rb > 1;
  p.inner = {
      {.size = a.dims[ra - 1], .a = a.strides[ra - 1], .b = b.strides[rb - (has_column ? 2 : 1)]}};
  if (has_row) {
    p.rows = {{.size = a.dims[ra - 2],
               .a = a.strides[ra - 2],
               .c = c.strides[rc - (has_column ? 2 : 1)]}};
  }
  if (has_column) {
    p.columns = {{.size = b.dims[rb - 1], .b = b.strides[rb - 1], .c = c.strides[rc - 1]}};
  }
  const size_t batch = rc - has_row - has_column;
  for (size_t i = batch; i-- > 0;) {
    p.batch.push_back({.size = c.dims[batch - 1 - i],
                       .a = batch_stride(a, ra - std::min<size_t>(ra, 2), i),
                       .b = batch_stride(b, rb - std::min<size_t>(rb, 2), i),
                       .c = c.strides[batch - 1 - i]});
  }
  return p;
}

namespace {

Product product_of(const KernelCall& call) {
  return make_product(matmul_axes(call.attrs, call.operands[0], call.operands[1], call.results[0]));
}

constexpr StrideForm kAnyForms[] = {StrideForm::kAny};

constexpr KernelEntry kEntries[] = {
    {
        .name = "matmul:gemm",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_gemm_dtype(call.results[0].dtype) ? "" : "only f32 and f64";
        },
        .prepare = [](const KernelCall& c) { return prepare_product_gemm(c, product_of(c)); },
        .operand_forms = kAnyForms,
        .result_form = StrideForm::kRows,
        .vector = true,
    },
    {
        .name = "matmul:half",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_half(call.results[0].dtype) ? "" : "only f16 and bf16";
        },
        .prepare = [](const KernelCall& c) { return prepare_product_half(c, matmul_axes); },
        .operand_forms = kAnyForms,
        .vector = true,
    },
    {
        .name = "matmul:blocked",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_float(call.results[0].dtype) ? "only integers and complex numbers" : "";
        },
        .prepare = [](const KernelCall& c) { return prepare_product_generic(c, product_of(c)); },
        .operand_forms = kAnyForms,
        .result_form = StrideForm::kRows,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(MatMul, Cpu) = {kEntries};

}  // namespace rlx::cpu
