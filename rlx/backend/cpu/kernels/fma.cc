#include "rlx/backend/cpu/kernels/elementwise_rows.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/fma.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void FloatRow(const Row& r) {
  const RowTag<T> d;
  for (int64_t k = 0; k < r.count; k += int64_t(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, r.at<T>(0, k)), y = hn::LoadU(d, r.at<T>(1, k));
    const auto z = hn::LoadU(d, r.at<T>(2, k));
    hn::StoreU(VectorMath<RowTag<T>>::fma(x, y, z), d, r.result<T>(k));
  }
}

// Of unsigned numbers: wrapping is the same for signed ones.
template <class T>
struct IntegerFn {
  using Word = std::conditional_t<(sizeof(T) < 4), uint32_t, T>;
  HWY_INLINE T operator()(T x, T y, T z) const { return T(Word(x) * Word(y) + Word(z)); }
};
template <class T>
constexpr RowFn kIntegerRow = PlainRow3<T, T, T, T, IntegerFn<T>>;

RowFn FmaRow(DType dtype) {
  if (dtype == DType::kF64) return FloatRow<double>;
  if (is_float(dtype)) return FloatRow<float>;  // 16 bits are widened to it
  switch (size_of(dtype)) {
    case 1:
      return kIntegerRow<uint8_t>;
    case 2:
      return kIntegerRow<uint16_t>;
    case 4:
      return kIntegerRow<uint32_t>;
    default:
      return kIntegerRow<uint64_t>;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(FmaRow);

RowFn fma_row(DType dtype) { return HWY_DYNAMIC_DISPATCH(FmaRow)(dtype); }

namespace {

constexpr KernelEntry kEntries[] = {
    {
        .name = "fma:any",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare =
            [](const KernelCall& c) {
              const DType t = c.results[0].dtype;
              return prepare_elementwise(c, fma_row(t), 0.025 * double(size_of(t)));
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 7,
        .vector = true,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Fma, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
