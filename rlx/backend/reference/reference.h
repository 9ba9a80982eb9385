// The oracle: every op once more, directly from its formula, in float64 with std:: mathematics,
// obvious and slow. It shares no code with the fast kernels and is not part of the product.
#pragma once

#include <complex>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/op.h"

namespace rlx::reference {

// A dense tensor with wide elements. Floats live in f, integers and bools in i (u64 as its bit
// pattern), complex numbers in c; packed dtypes keep the bytes of their blocks, one per entry of i.
// Operands are widened exactly.
struct Tensor {
  DType dtype = DType::kF32;
  Dims shape;
  std::vector<double> f;
  std::vector<int64_t> i;
  std::vector<std::complex<double>> c;

  Tensor() = default;
  Tensor(DType dtype, Dims shape);  // zeros
  int64_t size() const { return num_elements(shape); }
  bool is_float() const { return rlx::is_float(dtype); }
};

// The sizes of what f, i or c hold: those of the tensor, but for the last axis of packed dtypes,
// which counts bytes.
Dims stored_shape(const Tensor& t);

Tensor widen(const Array& a);
// Rounds to the dtype once (integers wrap).
Array narrow(const Tensor& t);
// Row-major strides with 0 on broadcast axes, to read `t` at an index of `shape`.
Dims broadcast_strides(const Tensor& t, std::span<const int64_t> shape);
// Calls f(flat, index) for every element of `shape` in row-major order.
template <class F>
void for_each_index(std::span<const int64_t> shape, F&& f) {
  const int64_t n = num_elements(shape);
  Dims index(shape.size(), 0);
  for (int64_t flat = 0; flat < n; ++flat) {
    f(flat, index);
    for (size_t a = shape.size(); a-- > 0;) {
      if (++index[a] < shape[a]) break;
      index[a] = 0;
    }
  }
}
inline int64_t offset_of(std::span<const int64_t> index, std::span<const int64_t> strides) {
  int64_t o = 0;
  for (size_t a = 0; a < index.size(); ++a) o += index[a] * strides[a];
  return o;
}

struct Call {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const Tensor> operands;
  std::span<Tensor> results;  // zeros of the inferred types; the kernel fills them
  template <class S>
  const S& as() const {
    return attrs.as<S>();
  }
};
// Integer results may hold any 64-bit value: the driver wraps them to the dtype afterwards.
// Random draws and conversions that depend on the storage type round inside the kernel.
using Kernel = void (*)(const Call&);

// Every built op that is not an alias has one: kSoftmaxReference.
#define RLX_DEFINE_REFERENCE(K)                          \
  extern const ::rlx::reference::Kernel k##K##Reference; \
  constinit const ::rlx::reference::Kernel k##K##Reference

// One call on widened operands; throws what the kernel throws (index out of range).
std::vector<Tensor> evaluate(const OpDef& op, const Attrs& attrs, std::span<const Tensor> operands);
// A whole graph with static shapes, but for the sizes that it sets itself, all values kept wide:
// floats are NOT rounded between ops, so the result is that of exact arithmetic up to float64.
// Aliases are expanded.
std::vector<Tensor> evaluate(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                             const std::map<std::string, Tensor>& params = {});

}  // namespace rlx::reference
