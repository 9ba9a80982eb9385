// A compiled graph that can be run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/base/team.h"
#include "rlx/compile/report.h"
#include "rlx/runtime/profile.h"

namespace rlx {

class Program;

struct RunOptions {
  const CancelToken* cancel = nullptr;
  Profile* profile = nullptr;  // takes what the run did; null costs nothing
  // For debugging: the run goes step by step on one thread, and fails with Error(kUser) at the
  // first step that makes a NaN or an infinity which none of its operands has.
  bool check_finite = false;
};

struct NamedArray {
  std::string_view name;
  Array array;
};

// One run at a time: a second run() on the same executable while one is in progress throws
// Error(kUser). clone() gives an independent one; clones of one graph may run at the same time.
//
// Inputs and outputs are dense row-major; arrays with other strides (or an output that shares
// memory with an input, or an input that shares memory with a param that the run updates) are
// copied through a staging buffer, which report() counts. An output must not share memory with a
// param of the graph.
//
// A run that throws leaves outputs undefined. It leaves params as they were, if it failed or was
// cancelled before it began to write them; steps that write params come last, and from then on only
// a While without max_iterations is cancelled. If that happens, or a kernel throws, the error says
// that params may hold new values.
class Executable {
 public:
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  // By position: one array per graph input. Returns fresh arrays, one per graph output.
  std::vector<Array> run(std::span<const Array> inputs, const RunOptions& options = {});
  std::vector<Array> run(std::initializer_list<Array> inputs, const RunOptions& options = {}) {
    return run(std::span<const Array>(inputs.begin(), inputs.size()), options);
  }
  std::vector<Array> run() { return run(std::span<const Array>()); }
  // By name.
  std::vector<Array> run(std::initializer_list<NamedArray> inputs, const RunOptions& options = {});
  std::vector<Array> run(const std::map<std::string, Array>& inputs,
                         const RunOptions& options = {});
  // Writes into the caller's arrays; an undefined one is replaced by a fresh array. After the first
  // call with the same sizes this allocates nothing, unless arrays must be staged. An output whose
  // size the run sets itself (BindSize) must be undefined or have just that size.
  void run_into(std::span<const Array> inputs, std::span<Array> outputs,
                const RunOptions& options = {});

  // An executable with an arena of its own; plans and weights are shared.
  Executable clone() const;

  const std::vector<std::string>& input_names() const;
  const std::vector<std::string>& output_names() const;
  int threads() const;

  // Of the last used plan; for a graph with symbolic sizes there is none before the first run, and
  // these throw.
  MemoryEstimate estimate() const;
  Report report() const;
  const Plan& plan() const;

  // Plans compiled so far by this executable and its clones, and runs that found theirs in the
  // cache after a change of sizes.
  int64_t compiles() const;
  int64_t cache_hits() const;

 private:
  friend class Session;
  struct State;
  explicit Executable(std::shared_ptr<Program> program);
  std::unique_ptr<State> state_;
};

}  // namespace rlx
