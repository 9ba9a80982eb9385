#include "rlx/base/array.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {
namespace {

// Calls f(index of a row's first element in `a`, in `b`) for every row of the last axis.
template <class F>
void for_each_row(std::span<const int64_t> dims, std::span<const int64_t> sa,
                  std::span<const int64_t> sb, F&& f) {
  const size_t outer = dims.empty() ? 0 : dims.size() - 1;
  if (num_elements(dims) == 0) return;
  Dims index(outer, 0);
  int64_t ia = 0, ib = 0;
  for (;;) {
    f(ia, ib);
    size_t axis = outer;
    for (;;) {
      if (axis == 0) return;
      --axis;
      ia += sa[axis];
      ib += sb[axis];
      if (++index[axis] < dims[axis]) break;
      ia -= sa[axis] * dims[axis];
      ib -= sb[axis] * dims[axis];
      index[axis] = 0;
    }
  }
}

// Truncates toward zero and saturates; NaN gives 0.
template <class T>
T saturate(double v) {
  constexpr double low = double(std::numeric_limits<T>::min());
  constexpr double high = double(std::numeric_limits<T>::max());
  if (v != v) return 0;
  if (v <= low) return std::numeric_limits<T>::min();
  if (v >= high) return std::numeric_limits<T>::max();
  return T(v);
}

void check_dims(std::span<const int64_t> shape) {
  if (int64_t(shape.size()) > kMaxRank) user_error("an array has at most {} axes", kMaxRank);
  for (int64_t d : shape) {
    if (d < 0) user_error("an array cannot have the shape {}", dims_to_string(shape));
  }
}

void check_packed_strides(DType dtype, const Dims& shape, const Dims& strides) {
  const int64_t block = block_of(dtype).elements;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool last = i + 1 == shape.size();
    if (shape[i] <= 1) continue;  // never taken
    if (last ? strides[i] != 1 : strides[i] % block != 0) {
      user_error("{}{}: the stride {} of axis {} splits rows or blocks of {} elements",
                 to_string(dtype), dims_to_string(shape), strides[i], i, block);
    }
  }
}

}  // namespace

std::shared_ptr<void> allocate_aligned(int64_t bytes) {
  if (bytes < 0) internal_error("allocation of {} bytes", bytes);
  const size_t size = size_t(round_up(std::max<int64_t>(bytes, 1), 64));
  void* p = std::aligned_alloc(64, size);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes are not available", bytes);
  return {p, std::free};
}

Array Array::uninitialized(DType dtype, Dims shape) {
  check_dims(shape);
  Array a;
  a.dtype_ = dtype;
  a.num_elements_ = rlx::num_elements(shape);
  auto memory = allocate_aligned(rlx::byte_size(dtype, shape));
  a.data_ = memory.get();
  a.owner_ = std::move(memory);
  a.strides_ = dense_strides(shape);
  a.shape_ = std::move(shape);
  a.defined_ = true;
  return a;
}

Array Array::zeros(DType dtype, Dims shape) {
  Array a = uninitialized(dtype, std::move(shape));
  std::memset(a.data_, 0, size_t(a.byte_size()));
  return a;
}

Array Array::from_bytes(DType dtype, Dims shape, const void* values, int64_t count) {
  check_dims(shape);
  if (const int64_t wanted = rlx::num_elements(shape); wanted != count) {
    user_error("an array of shape {} needs {} values, {} were given", dims_to_string(shape), wanted,
               count);
  }
  Array a = uninitialized(dtype, std::move(shape));
  if (count > 0) std::memcpy(a.data_, values, size_t(a.byte_size()));
  return a;
}

Array Array::full(DType dtype, Dims shape, double value) {
  Array a = uninitialized(dtype, std::move(shape));
  visit_dtype(dtype, [&]<class T>() {
    T v;
    if constexpr (std::is_same_v<T, std::complex<float>>) {
      v = T(float(value));
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      v = saturate<T>(value);
    } else {
      v = T(value);
    }
    auto* p = static_cast<T*>(a.data_);
    for (int64_t i = 0; i < a.num_elements_; ++i) p[i] = v;
  });
  return a;
}

Array Array::borrow(DType dtype, void* data, Dims shape, Dims strides,
                    std::shared_ptr<const void> owner, bool writable) {
  check_dims(shape);
  Array a;
  a.dtype_ = dtype;
  a.num_elements_ = rlx::num_elements(shape);
  rlx::byte_size(dtype, shape);  // checks
  if (strides.empty() && !shape.empty()) strides = dense_strides(shape);
  if (strides.size() != shape.size()) {
    user_error("an array of rank {} needs {} strides, {} were given", shape.size(), shape.size(),
               strides.size());
  }
  if (is_packed(dtype) && a.num_elements_ > 0) check_packed_strides(dtype, shape, strides);
  if (!data && a.num_elements_ > 0) user_error("an array borrows a null pointer");
  a.data_ = data;
  a.shape_ = std::move(shape);
  a.strides_ = std::move(strides);
  a.owner_ = std::move(owner);
  a.writable_ = writable;
  a.defined_ = true;
  return a;
}

bool Array::is_dense() const {
  if (num_elements_ == 0) return true;
  int64_t step = 1;
  for (size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

void* Array::mutable_raw() {
  if (!writable_) user_error("the array of type {} is read-only", type().to_string());
  return data_;
}

void Array::check_access(DType t) const {
  if (t != dtype_) {
    user_error("the array holds {}, it was read as {}", to_string(dtype_), to_string(t));
  }
  if (!is_dense())
    user_error("the array of type {} is strided: call dense() first", type().to_string());
}

Array Array::dense() const { return is_dense() ? *this : copy(); }

Array Array::copy() const {
  Array a = uninitialized(dtype_, shape_);
  a.copy_from(*this);
  return a;
}

Array Array::reshaped(Dims shape) const {
  check_dims(shape);
  if (rlx::num_elements(shape) != num_elements_) {
    user_error("an array of shape {} cannot take the shape {}", dims_to_string(shape_),
               dims_to_string(shape));
  }
  rlx::byte_size(dtype_, shape);  // checks the rows of packed dtypes
  Array a = dense();
  a.strides_ = dense_strides(shape);
  a.shape_ = std::move(shape);
  return a;
}

void Array::copy_from(const Array& source) {
  if (source.dtype_ != dtype_ || source.shape_ != shape_) {
    user_error("cannot copy an array of type {} into one of type {}", source.type().to_string(),
               type().to_string());
  }
  auto* to = static_cast<std::byte*>(mutable_raw());
  const auto* from = static_cast<const std::byte*>(source.data_);
  if (num_elements_ == 0) return;
  if (is_dense() && source.is_dense()) {
    std::memmove(to, from, size_t(byte_size()));
    return;
  }
  if (is_packed(dtype_)) {
    const auto bytes = size_t(bytes_of(dtype_, shape_.back()));
    for_each_row(shape_, strides_, source.strides_, [&](int64_t it, int64_t is) {
      std::memcpy(to + bytes_of(dtype_, it), from + bytes_of(dtype_, is), bytes);
    });
    return;
  }
  const int64_t size = size_of(dtype_);
  const int64_t row = shape_.empty() ? 1 : shape_.back();
  const int64_t step_to = shape_.empty() ? 1 : strides_.back();
  const int64_t step_from = shape_.empty() ? 1 : source.strides_.back();
  for_each_row(shape_, strides_, source.strides_, [&](int64_t it, int64_t is) {
    for (int64_t i = 0; i < row; ++i) {
      std::memcpy(to + (it + i * step_to) * size, from + (is + i * step_from) * size, size_t(size));
    }
  });
}

bool Array::same_bits(const Array& other) const {
  if (defined_ != other.defined_ || dtype_ != other.dtype_ || shape_ != other.shape_) return false;
  const Array a = dense(), b = other.dense();
  return num_elements_ == 0 || std::memcmp(a.data_, b.data_, size_t(a.byte_size())) == 0;
}

double Array::at(int64_t index) const {
  if (index < 0 || index >= num_elements_) {
    user_error("element {} of an array with {} elements", index, num_elements_);
  }
  int64_t offset = 0;
  for (size_t i = shape_.size(); i-- > 0;) {
    offset += index % shape_[i] * strides_[i];
    index /= shape_[i];
  }
  return visit_dtype(dtype_, [&]<class T>() -> double {
    const T v = static_cast<const T*>(data_)[offset];
    if constexpr (std::is_same_v<T, std::complex<float>> ||
                  std::is_same_v<T, std::complex<double>>) {
      return v.real();
    } else {
      return double(v);
    }
  });
}

}  // namespace rlx
