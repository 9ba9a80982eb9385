// Sessions: a device, its threads, a weight store, and the executables compiled for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rlx/base/thread_pool.h"
#include "rlx/compile/custom_kernel.h"
#include "rlx/compile/pipeline.h"
#include "rlx/ir/graph.h"
#include "rlx/runtime/device.h"
#include "rlx/runtime/executable.h"
#include "rlx/runtime/weights.h"

namespace rlx {

struct SessionOptions {
  int threads = 0;               // most threads of one run; 0: default_width()
  int64_t memory_limit = -1;     // bytes of weights, packed weights, arenas, staging; below 0: none
  Executor* executor = nullptr;  // must outlive the session's executables; null: the shared pool
  // Bounds of the plans kept for graphs with symbolic sizes.
  size_t plan_cache_entries = 64;
  int64_t plan_cache_bytes = int64_t(64) << 20;
};

struct SessionCore;

// Thread-safe. Executables keep what they need alive: they may outlive their session.
class Session {
 public:
  explicit Session(const Device& device, SessionOptions options = {});

  WeightStore& weights();

  // For calls of Custom in graphs that are compiled from now on. Throws Error(kUser) if the kernel
  // is not complete or its operator has one on its device. Executables keep the kernels of their
  // time, also beyond the session.
  void add_kernel(CustomKernel kernel);

  // Verifies the graph. Compiles at once if all shapes are static, else once per set of sizes that
  // it is called with. Frozen params are packed if they are in the weight store by then.
  Executable compile(const Graph& graph, CompileOptions options = {});

  const Device& device() const;
  int threads() const;
  int64_t memory_in_use() const;  // what counts against memory_limit
  size_t cached_plans() const;
  int64_t cached_plan_bytes() const;

 private:
  std::shared_ptr<SessionCore> core_;
};

}  // namespace rlx
