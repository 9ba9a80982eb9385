// rlx-conformance MODE [FILTER ...]: every op of the table against the float64 reference.
//   test      kernels against the reference, all entries and layouts; wrong calls; round trips;
//             decompositions against the direct reference
//   grad      derivatives of first and second order, and batching
//   samples   what the samples of each op leave out
//   list      names of all cases
//   export    writes every sampled call with the reference's result into ./oracle (see
//             tests/oracle)
// A filter is a part of a case name ("Softmax/axis1_f32"); several are alternatives. A filter that
// matches nothing is an error.
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ops/table.h"
#include "rlx/testing/export.h"
#include "rlx/testing/grad_check.h"
#include "rlx/testing/kernel_check.h"
#include "rlx/testing/reflect.h"

namespace {

using rlx::OpDef;
using rlx::Sample;

struct Tally {
  int cases = 0, checks = 0, failed = 0;
  void add(const std::string& name, const rlx::CheckResult& r) {
    ++cases;
    checks += r.checks;
    failed += !r.failures.empty();
    for (const std::string& f : r.failures) fmt::print("FAILED {}: {}\n", name, f);
    std::fflush(stdout);
  }
};

class Filter {
 public:
  explicit Filter(std::vector<std::string> parts)
      : parts_(std::move(parts)), used_(parts_.size()) {}
  bool accepts(const std::string& name) {
    bool hit = parts_.empty();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (name.find(parts_[i]) == std::string::npos) continue;
      used_[i] = 1;
      hit = true;
    }
    return hit;
  }
  int unused() const {
    int n = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (used_[i]) continue;
      fmt::print("the filter '{}' matches no case\n", parts_[i]);
      ++n;
    }
    return n;
  }

 private:
  std::vector<std::string> parts_;
  std::vector<char> used_;
};

template <class F>
rlx::CheckResult guarded(F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    return {{fmt::format("unexpected: {}", e.what())}, 0};
  }
}

void merge(rlx::CheckResult& into, rlx::CheckResult from) {
  into.checks += from.checks;
  into.failures.insert(into.failures.end(), from.failures.begin(), from.failures.end());
}

int run(const std::string& mode, Filter filter) {
  Tally tally;
  for (const rlx::OpRow& row : rlx::op_table()) {
    if (!row.def) continue;
    const OpDef& op = *row.def;
    // Input and Param compute nothing; parsing, serialization and sessions test them.
    if (op.has(rlx::kLeaf) && op.name != "Constant") continue;
    if (mode == "export") {
      const std::string name(op.name);
      if (!filter.accepts(name)) continue;
      std::filesystem::create_directories("oracle");
      tally.add(name, guarded([&]() -> rlx::CheckResult {
                  return {{}, rlx::export_samples(op, "oracle")};
                }));
      continue;
    }
    if (mode == "samples") {
      const std::string name(op.name);
      if (filter.accepts(name))
        tally.add(name, guarded([&]() -> rlx::CheckResult {
                    return {rlx::missing_in_samples(op), 1};
                  }));
      continue;
    }
    for (const Sample& s : rlx::samples_of(op).samples()) {
      const std::string name = fmt::format("{}/{}", op.name, s.name);
      if (!filter.accepts(name)) continue;
      if (mode == "list") {
        fmt::print("{}\n", name);
        ++tally.cases;
      } else if (mode == "grad") {
        rlx::CheckResult r = guarded([&] { return rlx::check_derivatives(op, s); });
        merge(r, guarded([&] { return rlx::check_batching(op, s); }));
        tally.add(name, r);
      } else {
        tally.add(name, guarded([&] { return rlx::check_kernels(op, s); }));
      }
    }
    if (mode == "test" && rlx::samples_of(op).wrong_calls) {
      for (const rlx::WrongCall& w : rlx::samples_of(op).wrong_calls()) {
        const std::string name = fmt::format("{}/wrong/{}", op.name, w.name);
        if (filter.accepts(name)) tally.add(name, rlx::check_wrong_call(op, w));
      }
    }
  }
  const int unused = filter.unused();
  fmt::print("{}: {} cases, {} checks, {} failed\n", mode, tally.cases, tally.checks, tally.failed);
  return tally.failed > 0 || unused > 0 || tally.cases == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "test" && mode != "grad" && mode != "samples" && mode != "list" && mode != "export") {
    fmt::print(stderr, "usage: rlx-conformance test|grad|samples|list|export [FILTER ...]\n");
    return 2;
  }
  return run(mode, Filter({argv + 2, argv + argc}));
}
