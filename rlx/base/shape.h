// Shapes with symbolic dimensions, and the shape algebra that all ops share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/base/dim.h"
#include "rlx/base/dtype.h"

namespace rlx {

using Dims = std::vector<int64_t>;  // a fully static shape, or strides in elements

inline constexpr int kMaxRank = 16;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
  explicit Shape(std::span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  int64_t rank() const { return int64_t(dims_.size()); }
  const Dim& operator[](int64_t axis) const { return dims_[size_t(axis)]; }
  Dim& operator[](int64_t axis) { return dims_[size_t(axis)]; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  const std::vector<Dim>& dims() const { return dims_; }
  void push_back(Dim d) { dims_.push_back(std::move(d)); }
  void insert(int64_t axis, Dim d) { dims_.insert(dims_.begin() + axis, std::move(d)); }
  void erase(int64_t axis) { dims_.erase(dims_.begin() + axis); }
  Shape slice(int64_t begin, int64_t end) const;

  bool is_static() const;
  Dims static_dims() const;  // throws if symbolic
  Dim num_elements() const;  // checked product; 1 for rank 0
  Shape substitute(const SymbolBindings& bindings) const;

  std::string to_string() const;  // "[2, n, 3*n]"
  static Shape parse(std::string_view text);
  size_t hash() const;
  bool operator==(const Shape&) const = default;

 private:
  std::vector<Dim> dims_;
};

// What a value is: element type and shape.
struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  std::string to_string() const;  // "f32[2, n]"
  bool operator==(const TensorType&) const = default;
};

// -rank <= axis < rank, negative counting from the end; throws otherwise.
int64_t normalize_axis(int64_t axis, int64_t rank);

// NumPy broadcasting. Equal symbols match; a symbol with 1 gives the symbol; a symbol with
// another size is an error (bind it first). Throws with both shapes in the text.
Shape broadcast(const Shape& a, const Shape& b);

// Row-major strides, in elements. Axes of size 1 or 0 get the same formula.
Dims dense_strides(std::span<const int64_t> dims);
int64_t num_elements(std::span<const int64_t> dims);  // checked; 1 for rank 0
// Bytes of a dense tensor, checked.
int64_t byte_size(DType t, std::span<const int64_t> dims);
std::string dims_to_string(std::span<const int64_t> dims);  // "[2, 3]"

}  // namespace rlx
