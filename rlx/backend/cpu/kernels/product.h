// Products of tensors as matrix products: what MatMul and DotGeneral share.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// One axis of a product with the strides of both operands and the result: 0 in the one that does
// not have it.
struct ProductAxis {
  int64_t size = 1, a = 0, b = 0, c = 0;
};

// C[batch, rows, columns] = sum over inner of A[batch, rows, inner] B[batch, inner, columns].
// Lists are outermost first.
struct ProductAxes {
  std::vector<ProductAxis> batch, rows, columns, inner;
};

// The same with one axis of each kind; what is left over multiplies the offsets. c of the column
// axis is 1 (or its size is 1).
struct Product {
  ProductAxis row, column, inner;
  std::vector<int64_t> a_offset, b_offset, c_offset;
  int64_t items() const { return int64_t(c_offset.size()); }
  bool empty() const { return items() == 0 || row.size == 0 || column.size == 0; }
};

// Joins what is one in memory. The inner axes must join into one (`inner_joins`), and the last
// column axis must be contiguous in C.
Product make_product(const ProductAxes& axes);
// Whether the inner axes are one in both operands. If so, make_product takes the axes.
bool inner_joins(const ProductAxes& axes);

// Finished elements of a product or convolution: `rows` stretches of `columns` elements each. Row r
// stands at sums + r * sums_step, and is [flat + r * flat_step, ... + columns) of the dense result
// in row-major order.
struct FinishedPiece {
  void* sums;
  int64_t sums_step, flat, flat_step, rows, columns;
};

// What becomes of them, instead of storing them in the result. Sums are f32 for f16 and bf16. For
// f32 and f64 they stand in their place in the result itself, which is free to be overwritten.
// Every element is handed over once. `scratch` holds thread_scratch_bytes, 64-byte aligned. Must
// not throw.
struct Finish {
  std::shared_ptr<const void> state;
  void (*run)(const void* state, const StepArgs& args, const FinishedPiece& piece,
              void* scratch) = nullptr;
  int64_t thread_scratch_bytes = 0;
  double nanoseconds_per_element = 0;
  bool by_tiles = false;  // cheap enough to be called on single register tiles
  explicit operator bool() const { return run != nullptr; }
};

// Kernels over operands 0 and 1 of the call and its result.
// f32 and f64 by the packed matrix kernels; a frozen right operand is packed ahead.
PreparedKernel prepare_product_gemm(const KernelCall& call, Product product, Finish finish = {});
// f16 and bf16: both operands are converted to f32, and finished pieces of the (dense) result back.
// `axes_of` describes the call for given views of the operands.
using ProductAxesFn = ProductAxes (*)(const Attrs& attrs, const TensorDesc& a, const TensorDesc& b,
                                      const TensorDesc& c);
PreparedKernel prepare_product_half(const KernelCall& call, ProductAxesFn axes_of,
                                    Finish finish = {});
// The same without widening the right operand in memory, for at most so many rows.
inline constexpr int64_t kFewHalfRows = 32;
PreparedKernel prepare_product_half_rows(const KernelCall& call, Product product,
                                         Finish finish = {});
// Integers (summed modulo their width) and complex numbers.
PreparedKernel prepare_product_generic(const KernelCall& call, Product product);

// Of the two ops.
ProductAxes matmul_axes(const Attrs& attrs, const TensorDesc& a, const TensorDesc& b,
                        const TensorDesc& c);
ProductAxes dot_general_axes(const Attrs& attrs, const TensorDesc& a, const TensorDesc& b,
                             const TensorDesc& c);

inline bool is_gemm_dtype(DType t) { return t == DType::kF32 || t == DType::kF64; }

}  // namespace rlx::cpu
