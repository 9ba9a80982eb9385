#include "rlx/backend/cpu/kernels/packed_view.h"
#include "rlx/backend/cpu/kernels/strided_copy.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

PreparedKernel prepare_copy(const KernelCall& call) {
  const TensorDesc &x = call.operands[0], &y = call.results[0];
  StridedCopy copy = copy_between(x, y.strides);
  const int64_t chunks = copy.chunks();
  const double nanoseconds = copy.nanoseconds();
  return PreparedKernel::single(
      std::move(copy), chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        static_cast<const StridedCopy*>(state)->run(chunk, args.operands[0], args.results[0]);
      },
      nanoseconds);
}

constexpr StrideForm kForms[] = {StrideForm::kAny};
constexpr KernelEntry kEntries[] = {{
    .name = "copy:strided",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare_copy,
    .operand_forms = kForms,
    .result_form = StrideForm::kAny,
    .vector = true,
}};

}  // namespace

RLX_DEFINE_KERNELS(Copy, Cpu) = {kEntries};

}  // namespace rlx::cpu
