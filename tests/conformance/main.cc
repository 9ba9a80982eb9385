// rlx-conformance MODE [--part I/N] [FILTER ...]: every op of the table against the float64
// reference.
//   test      kernels against the reference, all entries and layouts; wrong calls; round trips;
//             decompositions against the direct reference
//   grad      derivatives of first and second order, and batching
//   samples   what the samples of each op leave out
//   list      names of all cases
//   export    writes every sampled call with the reference's result into ./oracle (see
//             tests/oracle)
// A filter is a part of a case name ("Softmax/axis1_f32"); several are alternatives. A filter that
// matches nothing is an error. --part 2/3 takes every third case, beginning with the second: the
// parts may run at the same time.
#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
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

// Every `of`-th case, beginning with number `index` (from 0).
struct Share {
  int64_t index = 0, of = 1;
};

// From "2/3"; nothing if the text is no such share.
std::optional<Share> share_of(const std::string& text) {
  Share s;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, s.index);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '/') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, s.of);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  if (s.index < 1 || s.index > s.of) return std::nullopt;
  --s.index;
  return s;
}

class Filter {
 public:
  Filter(std::vector<std::string> parts, Share share)
      : parts_(std::move(parts)), used_(parts_.size()), share_(share) {}
  bool accepts(const std::string& name) {
    return matches(name) && matched_++ % share_.of == share_.index;
  }
  // Of all shares.
  int64_t matched() const { return matched_; }
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
  bool matches(const std::string& name) {
    bool hit = parts_.empty();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (name.find(parts_[i]) == std::string::npos) continue;
      used_[i] = 1;
      hit = true;
    }
    return hit;
  }

  std::vector<std::string> parts_;
  std::vector<char> used_;
  Share share_;
  int64_t matched_ = 0;
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
  return tally.failed > 0 || unused > 0 || filter.matched() == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "test" && mode != "grad" && mode != "samples" && mode != "list" && mode != "export") {
    fmt::print(stderr,
               "usage: rlx-conformance test|grad|samples|list|export [--part I/N] [FILTER ...]\n");
    return 2;
  }
  std::vector<std::string> filters(argv + 2, argv + argc);
  Share share;
  if (!filters.empty() && filters[0] == "--part") {
    const std::optional<Share> asked = filters.size() > 1 ? share_of(filters[1]) : std::nullopt;
    if (!asked) {
      fmt::print(stderr, "--part takes I/N with 1 <= I <= N, for instance 2/3\n");
      return 2;
    }
    share = *asked;
    filters.erase(filters.begin(), filters.begin() + 2);
  }
  return run(mode, Filter(std::move(filters), share));
}
