// rlx devices: what this machine runs graphs on.
#include <fmt/core.h>
#include <hwy/targets.h>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/cpu_info.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {

void devices() {
  // Highway numbers better targets lower, and takes the best that is both built and supported.
  const int64_t usable = HWY_TARGETS & hwy::SupportedTargets();
  const int64_t best = usable & -usable;
  fmt::print("{}: {} threads, {}, {} KiB L2 cache per core\n", cpu_device().name(), default_width(),
             hwy::TargetName(best), l2_bytes() / 1024);
}

}  // namespace rlx::cli
