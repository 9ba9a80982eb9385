// Host arrays: owned or borrowed memory with a dtype, a static shape and strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rlx/base/dtype.h"
#include "rlx/base/shape.h"

namespace rlx {

// A handle: copies share the memory. Data is 64-byte aligned when owned. Strides are in elements
// and may be zero or negative in borrowed arrays; rows of packed dtypes are contiguous, and strides
// count their logical elements.
class Array {
 public:
  Array() = default;

  // Owned, dense, zero-filled (or uninitialized).
  static Array zeros(DType dtype, Dims shape);
  static Array uninitialized(DType dtype, Dims shape);
  // Owned copy of `values` (row-major); T is a storage type of dtype.h.
  template <class T>
  static Array from(std::span<const T> values, Dims shape) {  // NOLINT(performance-*): it is moved
    return from_bytes(dtype_of<T>, std::move(shape), values.data(), int64_t(values.size()));
  }
  template <class T>
  static Array from(std::initializer_list<T> values, Dims shape) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape));
  }
  template <class T>
  static Array scalar(T value) {
    return from(std::span<const T>(&value, 1), {});
  }
  // Filled with `value`, converted as Cast does: floats round to even, integers truncate and
  // saturate (NaN gives 0), bool is whether it is not 0.
  static Array full(DType dtype, Dims shape, double value);
  // Memory of the caller, who keeps it alive (or gives an owner that does). `writable` false
  // makes mutable_data() throw.
  static Array borrow(DType dtype, void* data, Dims shape, Dims strides = {},
                      std::shared_ptr<const void> owner = nullptr, bool writable = true);

  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  int64_t rank() const { return int64_t(shape_.size()); }
  int64_t num_elements() const { return num_elements_; }
  int64_t byte_size() const { return bytes_of(dtype_, num_elements_); }
  bool defined() const { return defined_; }
  bool is_dense() const;  // row-major without gaps
  TensorType type() const { return {dtype_, Shape(std::span<const int64_t>(shape_))}; }

  const void* raw() const { return data_; }
  void* mutable_raw();

  // Typed access; throws if T is not the dtype or the array is not dense.
  template <class T>
  std::span<const T> data() const {
    check_access(dtype_of<T>);
    return {static_cast<const T*>(data_), size_t(num_elements_)};
  }
  template <class T>
  std::span<T> mutable_data() {
    check_access(dtype_of<T>);
    return {static_cast<T*>(mutable_raw()), size_t(num_elements_)};
  }

  Array dense() const;                  // itself if dense, else an owned dense copy
  Array copy() const;                   // an owned dense copy
  Array reshaped(Dims shape) const;     // dense only, same number of elements
  void copy_from(const Array& source);  // same dtype and shape; any strides on both sides
  // Same dtype, shape and bytes (NaN equals itself, 0 differs from -0).
  bool same_bits(const Array& other) const;
  // One element as double (complex: the real part), by row-major index.
  double at(int64_t index) const;

 private:
  static Array from_bytes(DType dtype, Dims shape, const void* values, int64_t count);
  void check_access(DType t) const;

  DType dtype_ = DType::kF32;
  Dims shape_, strides_;
  int64_t num_elements_ = 0;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  bool writable_ = true;
  bool defined_ = false;
};

// 64-byte aligned zeroed or raw memory; throws Error(kDevice) when there is none.
std::shared_ptr<void> allocate_aligned(int64_t bytes);

}  // namespace rlx
