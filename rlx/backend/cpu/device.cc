#include "rlx/backend/cpu/cpu.h"

namespace rlx {
namespace {

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  const KernelTable& kernels() const override { return cpu::kernel_table(); }
  std::unique_ptr<Runner> make_runner(std::shared_ptr<const Plan> plan) const override {
    return cpu::make_runner(std::move(plan));
  }
};

}  // namespace

const Device& cpu_device() {
  // Never destroyed: destructors of static objects may still compile and run graphs.
  static const auto& device = *new CpuDevice;
  return device;
}

}  // namespace rlx
