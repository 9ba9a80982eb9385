// The CPU backend.
#pragma once

#include <memory>

#include "rlx/runtime/device.h"

namespace rlx {

const Device& cpu_device();

namespace cpu {

const KernelTable& kernel_table();

// Runs any plan whose kernels compute in host memory: also plans of tables other than kernel_table.
std::unique_ptr<Runner> make_runner(std::shared_ptr<const Plan> plan);

}  // namespace cpu
}  // namespace rlx
