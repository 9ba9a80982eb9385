// rlx diff: two runs that should agree, value by value.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/runtime/session.h"
#include "tools/rlx/bound_graph.h"
#include "tools/rlx/commands.h"
#include "tools/rlx/compare.h"
#include "tools/rlx/graph_file.h"

namespace rlx::cli {
namespace {

constexpr int kListed = 10;  // values that differ

using Values = std::vector<std::pair<std::string, Value>>;

// Results of calls, named so that a reader finds them; leaves are equal in both runs.
Values all_values(const Graph& graph) {
  Values values;
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op->has(kLeaf)) continue;
    for (uint32_t i = 0; i < n.results.size(); ++i) {
      std::string name = fmt::format("node {} ({}", id, n.op->name);
      if (!n.label.empty()) name += " at " + n.label;
      name += n.results.size() > 1 ? fmt::format("), result {}", i) : ")";
      values.emplace_back(std::move(name), Value{id, i});
    }
  }
  return values;
}

// Those that only one call of their label and op gives.
std::map<std::string, Value> labelled_values(const Graph& graph) {
  std::map<std::string, Value> values;
  std::set<std::string> ambiguous;
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.label.empty()) continue;
    for (uint32_t i = 0; i < n.results.size(); ++i) {
      const std::string name = fmt::format("{} at {}, result {}", n.op->name, n.label, i);
      if (!values.emplace(name, Value{id, i}).second) ambiguous.insert(name);
    }
  }
  for (const std::string& name : ambiguous) values.erase(name);
  return values;
}

// Values that both graphs have, in the order of the first.
std::pair<Values, Values> common_values(const Graph& a, const Graph& b) {
  std::pair<Values, Values> common;
  const auto others = labelled_values(b);
  std::map<Value, std::string> names;
  for (const auto& [name, value] : labelled_values(a)) names.emplace(value, name);
  for (const auto& [value, name] : names) {
    const auto it = others.find(name);
    if (it == others.end() || a.type(value) != b.type(it->second)) continue;
    common.first.emplace_back(name, value);
    common.second.emplace_back(name, it->second);
  }
  return common;
}

std::vector<std::string> names_of(const Graph& graph, const std::vector<Value>& leaves) {
  std::vector<std::string> names;
  names.reserve(leaves.size());
  for (Value v : leaves) names.push_back(graph.name_of(v) + " " + graph.type(v).to_string());
  return names;
}

// The other graph with the sizes of the first, whose values it must take.
Graph load_other(const DiffArgs& args, const BoundGraph& bound) {
  SymbolBindings dims = parse_dims(args.dims);
  Graph other = load(args.other);
  const std::vector<std::string> symbols = free_symbols(other);
  std::erase_if(dims, [&](const auto& dim) {
    return std::ranges::find(symbols, dim.first) == symbols.end();
  });
  other = bind_dims(other, dims);
  std::map<std::string, Array> given;
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    given.emplace(bound.graph.name_of(bound.graph.inputs()[i]), bound.inputs[i]);
  }
  other = bind_given(other, given);
  require_static(other);
  if (names_of(other, other.inputs()) != names_of(bound.graph, bound.graph.inputs()) ||
      names_of(other, other.params()) != names_of(bound.graph, bound.graph.params())) {
    user_error("'{}' does not take the same inputs and params as '{}'", args.other, args.graph);
  }
  return other;
}

// The graph with only these values as outputs, after the updates' values.
struct Shown {
  Graph graph;
  std::vector<std::string> names;
};
Shown show(const Graph& graph, const Values& intermediate) {
  Shown shown{graph, {}};
  Values values = intermediate;
  for (const Output& o : graph.outputs()) shown.names.push_back("output " + o.name);
  for (const Update& u : graph.updates()) values.emplace_back("update of " + u.param, u.value);
  for (const auto& [name, value] : values) {
    std::string output = "%" + name;  // any name that is free
    while (shown.graph.has_output(output)) output += "%";
    shown.graph.add_output(output, value);
    shown.names.push_back(name);
  }
  return shown;
}

std::vector<Array> run_on_cpu(const Graph& graph, const BoundGraph& values, int threads,
                              CompileOptions options) {
  SessionOptions session_options;
  session_options.threads = threads;
  ThreadPool pool(threads - 1);
  session_options.executor = &pool;
  Session session(cpu_device(), session_options);
  std::map<std::string, Array> params;  // a run may update them
  for (const auto& [name, array] : values.params) params.emplace(name, array.copy());
  session.weights().set(params);
  return session.compile(graph, std::move(options)).run(values.inputs);
}

std::vector<Array> run_reference(const Graph& graph, const BoundGraph& values) {
  std::map<std::string, reference::Tensor> inputs, params;
  for (size_t i = 0; i < values.inputs.size(); ++i) {
    inputs.emplace(graph.name_of(graph.inputs()[i]), reference::widen(values.inputs[i]));
  }
  for (const auto& [name, array] : values.params) params.emplace(name, reference::widen(array));
  std::vector<Array> outputs;
  for (const reference::Tensor& t : reference::evaluate(graph, inputs, params)) {
    outputs.push_back(reference::narrow(t));
  }
  return outputs;
}

struct Pair {
  Shown first, second;
};

Pair graphs_to_run(const DiffArgs& args, const BoundGraph& bound) {
  if (args.other.empty()) {
    const Values values = args.intermediate ? all_values(bound.graph) : Values();
    return {show(bound.graph, values), show(bound.graph, values)};
  }
  const Graph other = load_other(args, bound);
  std::pair<Values, Values> values;
  if (args.intermediate) values = common_values(bound.graph, other);
  Pair pair{show(bound.graph, values.first), show(other, values.second)};
  const auto types = [](const Shown& s) {
    std::vector<std::string> list;
    for (size_t i = 0; i < s.names.size(); ++i) {
      list.push_back(s.names[i] + " " + s.graph.type(s.graph.outputs()[i].value).to_string());
    }
    return list;
  };
  if (types(pair.first) != types(pair.second)) {
    user_error("'{}' does not give the same outputs and updates as '{}'", args.other, args.graph);
  }
  return pair;
}

// Values in the order in which the first graph computes them.
std::vector<size_t> order_of(const Graph& graph) {
  std::vector<size_t> order(graph.outputs().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t x, size_t y) {
    return graph.outputs()[x].value < graph.outputs()[y].value;
  });
  return order;
}

}  // namespace

bool diff(const DiffArgs& args) {
  const bool differs = !args.other.empty() || args.no_optimize || args.no_fuse ||
                       args.strict_rounding || args.decompose || args.reference || args.threads > 0;
  if (!differs) {
    throw UsageError(
        "the two runs are the same: give another graph, --no-optimize, --no-fuse, "
        "--strict-rounding, "
        "--decompose, --threads or --reference");
  }
  const BoundGraph bound = bind_values(args);
  const Pair pair = graphs_to_run(args, bound);
  CompileOptions options;
  options.optimize = !args.no_optimize;
  options.fuse = !args.no_fuse;
  options.strict_rounding = args.strict_rounding;
  options.legalize.force_decompose = args.decompose;
  const std::vector<Array> a = run_on_cpu(pair.first.graph, bound, 1, {});
  const std::vector<Array> b =
      args.reference ? run_reference(pair.second.graph, bound)
                     : run_on_cpu(pair.second.graph, bound, std::max(args.threads, 1), options);
  int different = 0, beyond = 0;
  for (size_t i : order_of(pair.first.graph)) {
    const Difference d = compare(a[i], b[i], args.ulps);
    beyond += d.beyond;
    if (d.different == 0 || ++different > kListed) continue;
    fmt::print("{}{} {}: {}{}\n", different == 1 ? "first: " : "", pair.first.names[i],
               a[i].type().to_string(), d.to_string(a[i].shape()),
               d.beyond ? "" : ", within the tolerance");
  }
  if (different > kListed) fmt::print("and {} more\n", different - kListed);
  fmt::print("{} values compared: {} differ, {} of them beyond the tolerance\n", a.size(),
             different, beyond);
  return beyond == 0;
}

}  // namespace rlx::cli
