#include "rlx/backend/cpu/kernels/elementwise_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/conjugate.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class U>
struct Parts {
  U re, im;
};

// Turns the sign bit of the imaginary part.
template <class U>
struct TurnSign {
  HWY_INLINE Parts<U> operator()(Parts<U> x) const {
    return {x.re, U(x.im ^ (U(1) << (8 * sizeof(U) - 1)))};
  }
};

RowFn ConjugateRow(DType dtype) {
  if (dtype == DType::kC64) {
    return PlainRow1<Parts<uint32_t>, Parts<uint32_t>, TurnSign<uint32_t>>;
  }
  return PlainRow1<Parts<uint64_t>, Parts<uint64_t>, TurnSign<uint64_t>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(ConjugateRow);

RowFn conjugate_row(DType dtype) { return HWY_DYNAMIC_DISPATCH(ConjugateRow)(dtype); }

namespace {

constexpr KernelEntry kEntries[] = {
    {
        .name = "conjugate:complex",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare =
            [](const KernelCall& c) {
              const DType t = c.results[0].dtype;
              return prepare_elementwise(c, conjugate_row(t), 0.02 * double(size_of(t)));
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 1,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Conjugate, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
