#include "rlx/backend/cpu/kernels/reduce_ops.h"

#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "rlx/backend/cpu/kernels/convert.h"

namespace rlx::cpu {
namespace {

template <class T>
constexpr bool kIsComplex = false;
template <class R>
constexpr bool kIsComplex<std::complex<R>> = true;

// --- Loading and storing

template <class T>
void load(const void* from, int64_t stride, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i * stride];
}

template <auto Convert>
void load_half(const void* from, int64_t stride, int64_t n, void* to) {
  const uint16_t* x = static_cast<const uint16_t*>(from);
  if (stride == 1) return Convert(x, static_cast<float*>(to), n);
  uint16_t bits[kReduceStage];
  for (int64_t i = 0; i < n; ++i) bits[i] = x[i * stride];
  Convert(bits, static_cast<float*>(to), n);
}

template <class T>
void store(const void* from, int64_t n, bool mean, int64_t length, void* to, int64_t stride) {
  using Acc = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;
  const Acc* acc = static_cast<const Acc*>(from);
  T* y = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) {
    Acc v = acc[i];
    if constexpr (kIsComplex<T>) {
      using R = typename T::value_type;
      if (mean) v = {v.real() / R(length), v.imag() / R(length)};
    } else if constexpr (!std::is_integral_v<T>) {
      if (mean) v /= Acc(length);
    }
    y[i * stride] = T(v);
  }
}

// --- Arithmetic of integers and complex numbers. Sums and products of integers are wanted modulo
// 2^bits, so unsigned arithmetic of the same width does.

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return T(a + b);
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsComplex<T>) {
      // Without the search for infinities that operator* makes.
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    } else {
      return T(uint64_t(a) * uint64_t(b));
    }
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};

template <class Op, class T>
void combine(void* to, const void* from, int64_t n) {
  T* __restrict a = static_cast<T*>(to);
  const T* __restrict b = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) a[i] = Op::apply(a[i], b[i]);
}

template <class Op, class T>
void blocks(void* to, const void* from, int64_t n) {
  T* __restrict lanes = static_cast<T*>(to);
  const T* __restrict x = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i, x += kReduceLanes) {
    for (int64_t l = 0; l < kReduceLanes; ++l) lanes[l] = Op::apply(lanes[l], x[l]);
  }
}

template <class Op, class T>
void set_op(ReduceOps& ops) {
  ops.combine = combine<Op, T>;
  ops.blocks = blocks<Op, T>;
}

template <class T>
void set_identity(ReduceOps& ops, T value) {
  std::memcpy(ops.identity, &value, sizeof(T));
}

template <class T>
void set_float(ReduceKind kind, ReduceOps& ops) {
  set_float_reduce(kind, std::is_same_v<T, double>, ops);
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  set_identity(ops, kind == ReduceKind::kMax    ? -kInfinity
                    : kind == ReduceKind::kMin  ? kInfinity
                    : kind == ReduceKind::kProd ? T(1)
                                                : T(0));
}

template <class T>
void set_integer(ReduceKind kind, ReduceOps& ops) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (kind) {
    case ReduceKind::kMax:
      set_identity(ops, std::numeric_limits<T>::min());
      return set_op<Max, T>(ops);
    case ReduceKind::kMin:
      set_identity(ops, std::numeric_limits<T>::max());
      return set_op<Min, T>(ops);
    case ReduceKind::kProd:
      set_identity(ops, T(1));
      return set_op<Prod, Unsigned>(ops);
    default:
      return set_op<Sum, Unsigned>(ops);
  }
}

// Bytes 0 and 1.
void set_bool(ReduceKind kind, ReduceOps& ops) {
  const bool any = kind == ReduceKind::kMax || kind == ReduceKind::kOr;
  set_identity(ops, uint8_t(any ? 0 : 1));
  any ? set_op<Max, uint8_t>(ops) : set_op<Min, uint8_t>(ops);
}

template <class T>
void set_complex(ReduceKind kind, ReduceOps& ops) {
  if (kind == ReduceKind::kProd) {
    set_identity(ops, T(1));
    set_op<Prod, T>(ops);
  } else {
    set_op<Sum, T>(ops);
  }
}

}  // namespace

ReduceOps reduce_ops(ReduceKind kind, DType dtype) {
  ReduceOps ops;
  ops.element_bytes = ops.acc_bytes = size_of(dtype);
  ops.same_type = true;
  visit_dtype(dtype, [&]<class T>() {
    ops.store = store<T>;
    if constexpr (std::is_same_v<T, bool>) {
      ops.load = load<uint8_t>;
      ops.store = store<uint8_t>;
      set_bool(kind, ops);
    } else if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
      ops.acc_bytes = sizeof(float);
      ops.same_type = false;
      ops.load = std::is_same_v<T, f16> ? load_half<f16_to_f32> : load_half<bf16_to_f32>;
      set_float<float>(kind, ops);
    } else {
      ops.load = load<T>;
      if constexpr (kIsComplex<T>) {
        set_complex<T>(kind, ops);
      } else if constexpr (std::is_integral_v<T>) {
        set_integer<T>(kind, ops);
      } else {
        set_float<T>(kind, ops);
      }
    }
  });
  return ops;
}

}  // namespace rlx::cpu
