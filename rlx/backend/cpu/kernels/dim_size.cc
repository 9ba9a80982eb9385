#include "rlx/ops/dim_size.h"

#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr StrideForm kForms[] = {StrideForm::kAny};

// For calls that come past canonicalize, which makes them constants.
constexpr KernelEntry kEntries[] = {{
    .name = "dim_size:write",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare =
        [](const KernelCall& call) {
          const auto axis = size_t(call.as<DimSizeAttrs>().axis);
          return PreparedKernel::single(
              call.operands[0].dims[axis], 1,
              [](const void* state, const StepArgs& args, int64_t) {
                *args.out<int64_t>(0) = *static_cast<const int64_t*>(state);
              },
              5);
        },
    .operand_forms = kForms,
}};

}  // namespace

RLX_DEFINE_KERNELS(DimSize, Cpu) = {kEntries};

}  // namespace rlx::cpu
