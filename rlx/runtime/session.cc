#include "rlx/runtime/session.h"

#include "rlx/compile/out_of_memory.h"
#include "rlx/runtime/program.h"

namespace rlx {

Session::Session(const Device& device, SessionOptions options)
    : core_(std::make_shared<SessionCore>(device, options)) {}

WeightStore& Session::weights() { return core_->weights; }

void Session::add_kernel(CustomKernel kernel) {
  const std::lock_guard lock(core_->custom_mutex);
  core_->custom = core_->custom->with(std::move(kernel));
}

Executable Session::compile(const Graph& graph, CompileOptions options) {
  return convert_memory_errors(graph.name(), [&] {
    return Executable(std::make_shared<Program>(core_, graph, std::move(options)));
  });
}

const Device& Session::device() const { return core_->device; }
int Session::threads() const { return core_->threads; }
int64_t Session::memory_in_use() const { return core_->budget->used(); }
size_t Session::cached_plans() const { return core_->plans.entries(); }
int64_t Session::cached_plan_bytes() const { return core_->plans.bytes(); }

}  // namespace rlx
