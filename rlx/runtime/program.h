// What the clones of an executable share: the graph, its options, and how to get a plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "rlx/compile/pipeline.h"
#include "rlx/runtime/budget.h"
#include "rlx/runtime/device.h"
#include "rlx/runtime/plan_cache.h"
#include "rlx/runtime/session.h"
#include "rlx/runtime/weights.h"

namespace rlx {

// What a session and its executables share.
struct SessionCore {
  SessionCore(const Device& session_device, const SessionOptions& options);

  const Device& device;
  Executor& executor;
  const int threads;
  const std::shared_ptr<MemoryBudget> budget;
  WeightStore weights;
  PlanCache plans;
  std::atomic<uint64_t> next_program{0};
  // Replaced as a whole, under the mutex.
  std::mutex custom_mutex;
  std::shared_ptr<const CustomKernels> custom = std::make_shared<const CustomKernels>();
};

// Sizes of the graph's symbols from the shapes of its inputs. A dim that is an expression in one
// symbol is solved for it if it is linear. Throws Error(kUser) naming the input, its declared and
// given type.
SymbolBindings bind_symbols(const Graph& graph, std::span<const Array> inputs);

// The size in terms of its symbol.
Dim size_of(const Plan& plan, const PlanExtent& extent);

// Throws Error(kUser) unless the arrays are as the plan (a static graph's) declares.
void check_inputs(const Plan& plan, std::span<const Array> inputs);
// The extents of the plan's bounded symbols from the inputs' shapes (the bounds of those that steps
// set); false if the arrays are not as the plan declares. Allocates nothing.
bool solve_extents(const Plan& plan, std::span<const Array> inputs, std::span<int64_t> extents);
void check_input_count(std::string_view graph, std::span<const std::string> names, size_t given);

class Program {
 public:
  Program(std::shared_ptr<SessionCore> core, const Graph& graph, CompileOptions options);
  ~Program();

  // The plan for these inputs, from the cache or compiled now.
  std::shared_ptr<CachedPlan> plan_for(std::span<const Array> inputs);
  // Of a static graph; null otherwise.
  const std::shared_ptr<CachedPlan>& static_plan() const { return static_plan_; }

  SessionCore& core() const { return *core_; }
  const std::string& name() const { return graph_.name(); }
  const std::vector<std::string>& input_names() const { return input_names_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  int64_t compiles() const { return compiles_.load(std::memory_order_relaxed); }
  int64_t hits() const { return hits_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<const Plan> compile(const Graph& graph);

  const std::shared_ptr<SessionCore> core_;
  const Graph graph_;
  CompileOptions options_;
  const uint64_t id_;
  const std::vector<std::string> symbols_;
  std::vector<std::string> input_names_, output_names_;
  std::shared_ptr<CachedPlan> static_plan_;
  std::mutex compiling_;  // so that clones that come with the same sizes compile them once
  std::atomic<int64_t> compiles_{0}, hits_{0};
};

}  // namespace rlx
