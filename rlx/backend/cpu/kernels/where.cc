#include "rlx/backend/cpu/kernels/elementwise_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/where.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Chosen {
  HWY_INLINE T operator()(uint8_t condition, T x, T y) const { return condition != 0 ? x : y; }
};

struct Pair {
  uint64_t low, high;
};

// By the size of an element alone: bits are copied.
RowFn WhereRow(int64_t size) {
  switch (size) {
    case 1:
      return PlainRow3<uint8_t, uint8_t, uint8_t, uint8_t, Chosen<uint8_t>>;
    case 2:
      return PlainRow3<uint16_t, uint8_t, uint16_t, uint16_t, Chosen<uint16_t>>;
    case 4:
      return PlainRow3<uint32_t, uint8_t, uint32_t, uint32_t, Chosen<uint32_t>>;
    case 8:
      return PlainRow3<uint64_t, uint8_t, uint64_t, uint64_t, Chosen<uint64_t>>;
    default:
      return PlainRow3<Pair, uint8_t, Pair, Pair, Chosen<Pair>>;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(WhereRow);

RowFn where_row(int64_t size) { return HWY_DYNAMIC_DISPATCH(WhereRow)(size); }

namespace {

constexpr KernelEntry kEntries[] = {
    {
        .name = "where:any",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare =
            [](const KernelCall& c) {
              const int64_t size = size_of(c.results[0].dtype);
              return prepare_elementwise(c, where_row(size), 0.02 * double(size + 1),
                                         HalfMode::kBits);
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 7,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Where, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
