// From a graph with static shapes to a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "rlx/compile/passes.h"
#include "rlx/compile/plan.h"

namespace rlx {

// What the layout pass does with a view whose strides a kernel accepts.
enum class LayoutPolicy : uint8_t {
  kByCost,      // copy once if that is cheaper than all strided reads together
  kNeverCopy,   // copy only where a kernel refuses the strides: for tests
  kAlwaysCopy,  // copy whatever is not dense: for tests
};

// How the runs of a plan are used; where measurements say so, plans differ.
//   kInference  weights stay the same for many runs: mutable params that the graph does not update
//               are kept in packed forms too, made again when another graph has changed them
//   kTraining   other runs change mutable params in between: only frozen ones are packed
//   kAuto       kTraining if the graph updates a param, else kInference
enum class Purpose : uint8_t { kAuto, kInference, kTraining };

struct CompileOptions {
  Purpose purpose = Purpose::kAuto;
  LegalizeOptions legalize;
  // A Session fills in `evaluate` if it is empty.
  FoldOptions fold;
  bool optimize = true;  // canonicalize, fold, merge and fuse; legalization and planning always run
  bool fuse = true;      // form regions and groups; not where decomposition is forced
  bool fuse_always = false;  // also where it was measured not to pay: for tests
  // f16 and bf16 are rounded after every call within regions and groups, as without them; else they
  // stay in f32 there.
  bool strict_rounding = false;
  bool verify = true;  // the graph after every pass
  LayoutPolicy layout = LayoutPolicy::kByCost;
  // Largest total of estimate(threads); negative: none. Compilation throws Error(kDevice) beyond
  // it.
  int64_t memory_limit = -1;
  // Symbols of the graph that get no size when it is compiled but a bound: one plan then serves all
  // runs up to it. Everything else is as if the graph had been compiled for the sizes of the run.
  SymbolBindings bounds;
  int threads = 1;  // of a run: each needs scratch. A Session fills it in
  // Debugging: all results lie in the arena, in memory of their own that is filled with 0xFF (a
  // NaN) before each run, with canaries between them that are checked after every step.
  bool guard_zones = false;
  // Called with the name of each pass and the graph that it made.
  std::function<void(std::string_view pass, const Graph& graph)> dump;
  // The data of a param that may be packed, if it is known by now: an undefined array if not.
  // Kernels pack only what is known. A Session fills it in.
  std::function<Array(std::string_view name)> frozen_param;
};

// Throws Error(kUser) if a shape is symbolic, Error(kUnsupported) if a call has no kernel.
std::shared_ptr<const Plan> compile_plan(const Graph& static_graph, const KernelTable& kernels,
                                         const CompileOptions& options = {});

}  // namespace rlx
