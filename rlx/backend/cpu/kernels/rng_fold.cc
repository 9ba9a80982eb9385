// Seeds are few: plain code.
#include "rlx/backend/cpu/kernels/elementwise_loop.h"
#include "rlx/base/philox.h"

namespace rlx::cpu {
namespace {

template <class T>
void fold_row(const Row& r) {
  for (int64_t k = 0; k < r.count; ++k) {
    // Repeated operands have a step of 0 and a group of copies.
    const uint64_t seed = *r.at<uint64_t>(0, k);
    r.result<uint64_t>(k)[0] = rng_fold(seed, uint64_t(int64_t(*r.at<T>(1, k))));
  }
}

constexpr KernelEntry kEntries[] = {{
    .name = "rng_fold:any",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare =
        [](const KernelCall& c) {
          const RowFn row = visit_dtype(c.operands[1].dtype, []<class T>() -> RowFn {
            if constexpr (std::is_integral_v<T>) {
              return fold_row<T>;
            } else {
              return nullptr;  // inference accepts integers only
            }
          });
          return prepare_elementwise(c, row, 10);
        },
    .operand_forms = kAnyStrides,
    .result_form = StrideForm::kAny,
    .stride_cost = elementwise_stride_cost,
}};

}  // namespace

RLX_DEFINE_KERNELS(RngFold, Cpu) = {kEntries};

}  // namespace rlx::cpu
