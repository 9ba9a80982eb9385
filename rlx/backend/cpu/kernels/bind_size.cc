// Checks a size that a run sets; the runner takes it from the operand afterwards.
#include "rlx/ir/bind_size.h"

#include <string>

#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

struct Size {
  std::string symbol;
  int64_t bound;
};

void run(const void* state, const StepArgs& args, int64_t) {
  const auto& size = *static_cast<const Size*>(state);
  const int64_t count = *args.in<int64_t>(0);
  if (count < 0 || count > size.bound) {
    user_error("the size '{}' is set to {}; it must be from 0 to its bound {}", size.symbol, count,
               size.bound);
  }
  if (args.out<int64_t>(0)) *args.out<int64_t>(0) = count;
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "bind_size:check",
        .fits = [](const KernelCall& c) -> std::string_view {
          return c.as<BindSizeAttrs>().bound.is_static() ? "" : "the bound is not a number";
        },
        .prepare =
            [](const KernelCall& c) {
              const auto& a = c.as<BindSizeAttrs>();
              return PreparedKernel::single(Size{a.symbol, a.bound.value()}, 1, run, 5);
            },
    },
};

}  // namespace

RLX_DEFINE_KERNELS(BindSize, Cpu) = {kEntries};

}  // namespace rlx::cpu
