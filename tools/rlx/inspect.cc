// rlx inspect: what a graph takes, gives, contains and costs; conversion between file formats.
#include <map>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/ir/text.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "tools/rlx/commands.h"
#include "tools/rlx/graph_file.h"

namespace rlx {

RLX_USE_OP(Custom);

namespace cli {
namespace {

struct KindTotals {
  int64_t calls = 0;
  Cost cost;
};

// Leaves and views move no data of their own, and control steps only in their bodies.
Cost node_cost(const Graph& graph, const Node& n) {
  if (row_of(*n.op).cls == RowClass::kStructural && n.op != &kCustomOp) return {};
  std::vector<TensorType> operands;
  for (Value v : n.operands) operands.push_back(graph.type(v));
  return cost_of(*n.op, {n.attrs, operands, n.results});
}

void print_signature(const Graph& graph) {
  fmt::print("graph {}\n", graph.name());
  for (Value v : graph.inputs()) {
    fmt::print("input {} {}\n", graph.name_of(v), graph.type(v).to_string());
  }
  for (Value v : graph.params()) {
    const bool is_mutable = std::get<bool>(graph.node(v).attrs.field("is_mutable"));
    fmt::print("param {} {}{}\n", graph.name_of(v), graph.type(v).to_string(),
               is_mutable ? " mutable" : "");
  }
  for (const Output& o : graph.outputs()) {
    fmt::print("output {} {}\n", o.name, graph.type(o.value).to_string());
  }
  for (const Update& u : graph.updates()) fmt::print("update {}\n", u.param);
}

struct Census {
  std::map<std::string_view, KindTotals> kinds;
  KindTotals total;
  bool bodies = false;
};

// Calls in bodies count once, whatever the number of trips.
void count_ops(const Graph& graph, bool costs, Census& census) {
  for (const Node& n : graph.nodes()) {
    for (const Field& f : n.attrs.table()->fields) {
      if (!n.op->has(kControl) || f.type != FieldType::kGraph) continue;
      const FieldValue value = f.get(n.attrs.get());
      if (const auto* body = std::get_if<GraphRef>(&value); body && *body) {
        census.bodies = true;
        count_ops(**body, costs, census);
      }
    }
    const Cost cost = costs ? node_cost(graph, n) : Cost();
    for (KindTotals* t : {&census.kinds[n.op->name], &census.total}) {
      ++t->calls;
      t->cost.flops += cost.flops;
      t->cost.bytes += cost.bytes;
    }
  }
}

void print_ops(const Graph& graph, bool costs) {
  Census census;
  count_ops(graph, costs, census);
  const auto row = [&](std::string_view name, const KindTotals& t) {
    fmt::print("{:32} {:>8}", name, t.calls);
    if (costs) fmt::print(" {:>12.4g} {:>12.4g}", t.cost.flops, t.cost.bytes);
    fmt::print("\n");
  };
  fmt::print("{:32} {:>8}{}\n", "op", "calls",
             costs ? fmt::format(" {:>12} {:>12}", "flops", "bytes") : "");
  for (const auto& [name, totals] : census.kinds) row(name, totals);
  row("total", census.total);
  if (census.bodies) fmt::print("calls in the bodies of control flow are counted once\n");
}

void print_overview(const Graph& graph) {
  print_signature(graph);
  const std::vector<std::string> symbols = free_symbols(graph);
  for (const std::string& s : symbols) fmt::print("symbol {}\n", s);
  print_ops(graph, symbols.empty());
  if (!symbols.empty()) fmt::print("flops and bytes depend on the sizes: give them with --dims\n");
}

}  // namespace

void inspect(const InspectArgs& args) {
  const Graph graph = bind_dims(load(args.graph), parse_dims(args.dims));
  if (!args.save.empty()) save(graph, args.save);
  if (args.text) fmt::print("{}", print(graph));
  if (args.plan || args.report) {
    require_static(graph);
    Session session(cpu_device());
    const Executable executable = session.compile(graph);
    if (args.plan) fmt::print("{}", to_string(executable.plan()));
    if (args.report) fmt::print("{}", executable.report().to_string());
  }
  if (args.save.empty() && !args.text && !args.plan && !args.report) print_overview(graph);
}

}  // namespace cli
}  // namespace rlx
