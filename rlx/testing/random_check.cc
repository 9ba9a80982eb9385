#include "rlx/testing/random_check.h"

#include <algorithm>
#include <cmath>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

struct Outcome {
  std::vector<Array> outputs;  // of both runs
  std::map<std::string, Array> params;
};

ThreadPool& two_threads() {
  static ThreadPool pool(2);
  return pool;
}

// Params go on from run to run.
Outcome run_twice(const RandomGraph& c, Session& session, Executable& e) {
  for (const auto& [name, value] : c.params) session.weights().set(name, value.copy());
  Outcome r;
  for (int i = 0; i < 2; ++i) {
    for (Array& a : e.run(c.inputs)) r.outputs.push_back(std::move(a));
  }
  for (const auto& [name, value] : c.params) r.params[name] = session.weights().get(name);
  return r;
}

Outcome run_twice(const RandomGraph& c, const CompileOptions& compile, int threads) {
  SessionOptions options;
  options.threads = threads;
  options.executor = &two_threads();
  Session session(cpu_device(), options);
  for (const auto& [name, value] : c.params) session.weights().set(name, value.copy());
  Executable e = session.compile(c.graph, compile);
  return run_twice(c, session, e);
}

RandomGraph at_size(const RandomGraph& c, int64_t n) {
  RandomGraph fixed = c;
  fixed.sizes = {{std::string(kRandomSymbol), n}};
  fixed.inputs = random_inputs(c.graph, uint64_t(n), fixed.sizes);
  fixed.graph = substitute_symbols(c.graph, fixed.sizes);
  return fixed;
}

std::string difference_beyond_rounding(const Array& got, const Array& wanted) {
  if (!(got.type() == wanted.type())) return "another type";
  if (got.dtype() != DType::kF64) return {};
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double x = got.at(i), y = wanted.at(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!(std::abs(x - y) <= 1e-7 * std::max(1.0, std::abs(y)))) {
      return fmt::format("element {}: {:.17g}, not {:.17g}", i, x, y);
    }
  }
  return {};
}

using Difference = std::string (*)(const Array& got, const Array& wanted);

std::string difference(const Outcome& got, const Outcome& wanted, const Graph& graph,
                       Difference compare = difference_of_bits) {
  for (size_t i = 0; i < wanted.outputs.size(); ++i) {
    const std::string text = compare(got.outputs[i], wanted.outputs[i]);
    const size_t outputs = graph.outputs().size();
    if (!text.empty()) {
      return fmt::format("output {} of run {}: {}", graph.outputs()[i % outputs].name, i / outputs,
                         text);
    }
  }
  for (const auto& [name, value] : wanted.params) {
    const std::string text = compare(got.params.at(name), value);
    if (!text.empty()) return fmt::format("param {}: {}", name, text);
  }
  return {};
}

CompileOptions plain_options() {
  CompileOptions options;
  options.optimize = false;
  options.layout = LayoutPolicy::kAlwaysCopy;
  return options;
}

class Check {
 public:
  Check(const RandomGraph& c, const RandomChecks& checks) : c_(c), checks_(checks) {}

  std::string run() {
    verify(c_.graph);
    if (checks_.round_trips) {
      if (!(parse(print(c_.graph), find_op) == c_.graph)) return "text form: another graph";
      if (!(deserialize(serialize(c_.graph), find_op) == c_.graph)) {
        return "binary form: another graph";
      }
    }
    if (!c_.sizes.empty()) return all_sizes();
    return compare(c_, run_twice(c_, plain_options(), 1));
  }

 private:
  std::string compare(const RandomGraph& c, const Outcome& wanted) const {
    CompileOptions strict;
    strict.strict_rounding = true;
    const auto matches = [&](const CompileOptions& options, int threads, std::string_view what) {
      const std::string text = difference(run_twice(c, options, threads), wanted, c.graph);
      return text.empty() ? text : fmt::format("{}: {}", what, text);
    };
    std::string text = matches(strict, 1, "optimized");
    if (!text.empty()) return text;
    strict.guard_zones = true;
    strict.layout = LayoutPolicy::kNeverCopy;
    return matches(strict, checks_.threads ? 2 : 1, "guarded");
  }

  // At fixed sizes, then one symbolic executable for all of them.
  std::string all_sizes() {
    CompileOptions strict;
    strict.strict_rounding = true;
    Session session(cpu_device(), {.threads = 1});
    Executable symbolic = session.compile(c_.graph, strict);
    for (const int64_t n : {c_.sizes.begin()->second, int64_t(0), int64_t(1), int64_t(5)}) {
      const RandomGraph fixed = at_size(c_, n);
      const Outcome wanted = run_twice(fixed, plain_options(), 1);
      std::string text = compare(fixed, wanted);
      const Outcome got = run_twice(fixed, session, symbolic);
      if (text.empty()) text = difference(got, wanted, c_.graph);
      if (!text.empty()) return fmt::format("{} = {}: {}", kRandomSymbol, n, text);
    }
    return {};
  }

  const RandomGraph& c_;
  const RandomChecks& checks_;
};

}  // namespace

std::string difference_of_bits(const Array& got, const Array& wanted) {
  if (!(got.type() == wanted.type())) {
    return fmt::format("{}, not {}", got.type().to_string(), wanted.type().to_string());
  }
  if (got.same_bits(wanted)) return {};
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double x = got.at(i), y = wanted.at(i);
    if ((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y))) {
      continue;
    }
    return fmt::format("element {}: {:.17g}, not {:.17g}", i, x, y);
  }
  return {};
}

std::string check_random_graph(const RandomGraph& c, const RandomChecks& checks) {
  try {
    return Check(c, checks).run();
  } catch (const Error& e) {
    return fmt::format("error: {}", e.what());
  }
}

std::string check_bounded_sizes(const RandomGraph& c, bool* supported) {
  *supported = false;
  try {
    CompileOptions options;
    options.strict_rounding = true;
    options.fuse_always = true;
    options.guard_zones = true;
    options.bounds = {{std::string(kRandomSymbol), kRandomSymbolMost}};
    SessionOptions threads;
    threads.threads = 2;
    threads.executor = &two_threads();
    Session session(cpu_device(), threads);
    for (const auto& [name, value] : c.params) session.weights().set(name, value.copy());
    Executable bounded = session.compile(c.graph, options);
    options.fuse = false;
    Executable alone = session.compile(c.graph, options);
    for (const int64_t n : {kRandomSymbolMost, int64_t(4), int64_t(1), int64_t(0), int64_t(5)}) {
      const RandomGraph fixed = at_size(c, n);
      const Outcome wanted = run_twice(fixed, plain_options(), 1);
      const Outcome got = run_twice(fixed, session, bounded);
      std::string text =
          difference(got, wanted, c.graph,
                     c.sums_over_symbol ? difference_beyond_rounding : difference_of_bits);
      if (text.empty()) {
        text = difference(got, run_twice(fixed, session, alone), c.graph);
        if (!text.empty()) text = "fused: " + text;
      }
      *supported = true;
      if (!text.empty()) return fmt::format("bounded, {} = {}: {}", kRandomSymbol, n, text);
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) return fmt::format("error: {}", e.what());
  }
  return {};
}

}  // namespace rlx
