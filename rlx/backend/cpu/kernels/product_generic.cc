// Integer and complex products by blocked loops, compiled for every instruction set.
#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>
#include <utility>

#include "rlx/backend/cpu/kernels/product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/product_generic.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

#ifndef RLX_PRODUCT_BLOCKS
#define RLX_PRODUCT_BLOCKS
namespace rlx::cpu {

// A chunk is a block of the result; B is copied to panels of kInner rows, in the type of the sums.
inline constexpr int64_t kRows = 32, kColumns = 64, kInner = 128;

struct ProductBlock {
  Product p;
  DType dtype;
  int64_t row_blocks = 0, column_blocks = 0;
  bool swapped = false;  // computes the transposed product: vectors run along columns
};

// Real and imaginary parts lie in planes of their own: plain loops over them vectorize.
template <class T>
struct SumType {
  // Sums of integers are wanted modulo 2^bits only, so 32 bits do for the narrow ones.
  using Plane = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;
  static constexpr int kPlanes = 1;
};
template <class R>
struct SumType<std::complex<R>> {
  using Plane = R;
  static constexpr int kPlanes = 2;
};

template <class T>
inline constexpr int64_t kPanelBytes =
    int64_t(sizeof(typename SumType<T>::Plane)) * SumType<T>::kPlanes* kColumns*(kInner + kRows);

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

// One row of the result block += a times one row of the panel.
template <class P>
HWY_INLINE void add_product(P a, const P* HWY_RESTRICT b, P* HWY_RESTRICT sum) {
  for (int64_t j = 0; j < kColumns; ++j) sum[j] += a * b[j];
}
template <class R>
HWY_INLINE void add_product(std::complex<R> a, const R* HWY_RESTRICT b, R* HWY_RESTRICT sum) {
  const R re = a.real(), im = a.imag();
  const R *br = b, *bi = b + kColumns;
  R *sr = sum, *si = sum + kColumns;
  for (int64_t j = 0; j < kColumns; ++j) {
    sr[j] += re * br[j] - im * bi[j];
    si[j] += re * bi[j] + im * br[j];
  }
}

template <class T>
void run_block(const ProductBlock& s, const T* a, const T* b, T* c, void* scratch, int64_t chunk) {
  using Plane = typename SumType<T>::Plane;
  constexpr int kPlanes = SumType<T>::kPlanes;
  constexpr int64_t kWidth = kPlanes * kColumns;
  const Product& p = s.p;
  const int64_t column = chunk % s.column_blocks * kColumns;
  chunk /= s.column_blocks;
  const int64_t row = chunk % s.row_blocks * kRows;
  const size_t item = size_t(chunk / s.row_blocks);
  const int64_t rows = std::min(kRows, p.row.size - row);
  const int64_t columns = std::min(kColumns, p.column.size - column);
  a += p.a_offset[item] + row * p.row.a;
  b += p.b_offset[item] + column * p.column.b;
  c += p.c_offset[item] + row * p.row.c + column * p.column.c;

  Plane* sums = static_cast<Plane*>(scratch);
  Plane* panel = sums + kRows * kWidth;
  std::memset(sums, 0, size_t(rows * kWidth) * sizeof(Plane));
  std::memset(panel, 0, size_t(kInner * kWidth) * sizeof(Plane));
  for (int64_t k = 0; k < p.inner.size; k += kInner) {
    const int64_t depth = std::min(kInner, p.inner.size - k);
    for (int64_t i = 0; i < depth; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const T v = b[(k + i) * p.inner.b + j * p.column.b];
        if constexpr (kPlanes == 2) {
          panel[i * kWidth + j] = v.real();
          panel[i * kWidth + kColumns + j] = v.imag();
        } else {
          panel[i * kWidth + j] = Plane(v);
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = a + r * p.row.a + k * p.inner.a;
      for (int64_t i = 0; i < depth; ++i, from += p.inner.a) {
        if constexpr (kPlanes == 2) {
          add_product(*from, panel + i * kWidth, sums + r * kWidth);
        } else {
          add_product(Plane(*from), panel + i * kWidth, sums + r * kWidth);
        }
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      T& out = c[r * p.row.c + j * p.column.c];
      if constexpr (kPlanes == 2) {
        out = T(sums[r * kWidth + j], sums[r * kWidth + kColumns + j]);
      } else {
        out = T(sums[r * kWidth + j]);
      }
    }
  }
}

// Signed types share the code of the unsigned ones: bits modulo 2^n are the same.
void run_any(const ProductBlock& s, const void* a, const void* b, void* c, void* scratch,
             int64_t chunk) {
  if (s.swapped) std::swap(a, b);
  const auto run = [&]<class T>(T) {
    run_block(s, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c), scratch,
              chunk);
  };
  switch (s.dtype) {
    case DType::kI8:
    case DType::kU8:
      return run(uint8_t{});
    case DType::kI16:
    case DType::kU16:
      return run(uint16_t{});
    case DType::kI32:
    case DType::kU32:
      return run(uint32_t{});
    case DType::kI64:
    case DType::kU64:
      return run(uint64_t{});
    case DType::kC64:
      return run(std::complex<float>{});
    default:
      return run(std::complex<double>{});
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(run_any);

PreparedKernel prepare_product_generic(const KernelCall& call, Product p) {
  if (p.empty()) return {};
  const DType t = call.results[0].dtype;
  ProductBlock s{std::move(p), t};
  if (s.p.column.size < 8 && s.p.row.size > s.p.column.size) {
    s.swapped = true;
    std::swap(s.p.row, s.p.column);
    std::swap(s.p.a_offset, s.p.b_offset);
    for (ProductAxis* x : {&s.p.row, &s.p.column, &s.p.inner}) std::swap(x->a, x->b);
  }
  s.row_blocks = (s.p.row.size + kRows - 1) / kRows;
  s.column_blocks = (s.p.column.size + kColumns - 1) / kColumns;
  const int64_t chunks = s.p.items() * s.row_blocks * s.column_blocks;
  const double per_chunk = double(std::min(kRows, s.p.row.size)) * double(kColumns) *
                           double(s.p.inner.size + 8) * (is_complex(t) ? 0.3 : 0.1);
  PreparedKernel k = PreparedKernel::single(
      std::move(s), chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(run_any)
        (*static_cast<const ProductBlock*>(state), args.operands[0], args.operands[1],
         args.results[0], args.thread_scratch, chunk);
      },
      double(chunks) * per_chunk);
  k.thread_scratch_bytes = kPanelBytes<std::complex<double>>;
  return k;
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
