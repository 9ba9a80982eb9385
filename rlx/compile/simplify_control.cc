#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "rlx/compile/bodies.h"
#include "rlx/compile/passes.h"
#include "rlx/compile/reduce_control.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"

namespace rlx {

RLX_USE_OP(Constant);
RLX_USE_OP(If);
RLX_USE_OP(Scan);

namespace {

using Values = std::vector<Value>;

// --- Scans over the same operands with the same steps, as one

// Same nodes and next carries; the ys may differ.
bool same_steps(const ScanAttrs& x, const ScanAttrs& y) {
  const Graph &a = *x.body, &b = *y.body;
  if (x.num_carries != y.num_carries || x.num_captures != y.num_captures || x.length != y.length ||
      x.reverse != y.reverse || a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < size_t(x.num_carries); ++i) {
    if (a.outputs()[i].value != b.outputs()[i].value) return false;
  }
  for (uint32_t id = 0; id < a.size(); ++id) {
    const Node &m = a.node(id), &n = b.node(id);
    if (m.op != n.op || m.operands != n.operands || !(m.attrs == n.attrs)) return false;
  }
  return true;
}

size_t hash_of_scan(const Node& n) {
  const auto& a = n.attrs.as<ScanAttrs>();
  size_t h = a.body->size() * 31 + a.length.hash() + size_t(a.reverse);
  for (Value v : n.operands) h = h * 1000003 + std::hash<Value>()(v);
  return h;
}

// A Scan that stands for several: the first of them, with the ys of all.
struct ScanGroup {
  uint32_t first;
  std::vector<uint32_t> members;
};

std::vector<ScanGroup> scan_groups(const Graph& graph) {
  std::vector<ScanGroup> groups;
  std::unordered_multimap<size_t, size_t> seen;
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op != &kScanOp) continue;
    const size_t hash = hash_of_scan(n);
    const auto [begin, end] = seen.equal_range(hash);
    const auto same = std::find_if(begin, end, [&](const auto& entry) {
      const Node& other = graph.node(groups[entry.second].first);
      return other.operands == n.operands &&
             same_steps(other.attrs.as<ScanAttrs>(), n.attrs.as<ScanAttrs>());
    });
    if (same == end) {
      seen.emplace(hash, groups.size());
      groups.push_back({id, {id}});
    } else {
      groups[same->second].members.push_back(id);
    }
  }
  std::erase_if(groups, [](const ScanGroup& g) { return g.members.size() == 1; });
  return groups;
}

// The body of the first member with the ys of all behind its own.
GraphRef joint_body(const Graph& graph, const ScanGroup& group) {
  const auto& a = graph.node(group.first).attrs.as<ScanAttrs>();
  Graph body(a.body->name());
  Builder b(body);
  for (const Node& n : a.body->nodes()) copy_node(b, n, n.operands);
  const auto add = [&](Value v) {
    body.add_output(fmt::format("out{}", body.outputs().size()), v);
  };
  for (const Output& o : a.body->outputs()) add(o.value);
  for (uint32_t id : std::span(group.members).subspan(1)) {
    const Graph& other = *graph.node(id).attrs.as<ScanAttrs>().body;
    for (size_t i = size_t(a.num_carries); i < other.outputs().size(); ++i) {
      add(other.outputs()[i].value);
    }
  }
  return std::make_shared<const Graph>(std::move(body));
}

Graph merge_scans(const Graph& graph) {
  const std::vector<ScanGroup> groups = scan_groups(graph);
  if (groups.empty()) return graph;
  std::unordered_map<uint32_t, Values> results;  // of members that another stands for
  std::unordered_map<uint32_t, const ScanGroup*> of;
  for (const ScanGroup& g : groups) {
    for (uint32_t id : g.members) of[id] = &g;
  }
  uint32_t id = 0;
  return rewrite(
      graph,
      [&](Builder& b, const Node& n, std::span<const Value> operands) -> std::optional<Values> {
        while (&graph.node(id) != &n) ++id;
        const auto it = of.find(id);
        if (it == of.end()) return std::nullopt;
        const ScanGroup& g = *it->second;
        if (id != g.first) return results.at(id);
        ScanAttrs a = n.attrs.as<ScanAttrs>();
        const auto carries = a.num_carries;
        a.body = joint_body(graph, g);
        const Values all = b.call(kScanOp, Attrs::of(kScanOp.fields, std::move(a)), operands);
        auto next = all.begin() + int64_t(n.results.size());
        for (uint32_t member : std::span(g.members).subspan(1)) {
          Values& own = results[member];
          own.assign(all.begin(), all.begin() + carries);
          const auto end = next + int64_t(graph.node(member).results.size()) - carries;
          own.insert(own.end(), next, end);
          next = end;
        }
        return Values(all.begin(), all.begin() + int64_t(n.results.size()));
      });
}

// --- Calls

// For every value, whether outputs and updates need it.
std::vector<std::vector<uint8_t>> used_values(const Graph& graph) {
  std::vector<std::vector<uint8_t>> used(graph.size());
  for (uint32_t id = 0; id < graph.size(); ++id) used[id].assign(graph.node(id).results.size(), 0);
  for (const Output& o : graph.outputs()) used[o.value.node][o.value.index] = 1;
  for (const Update& u : graph.updates()) used[u.value.node][u.value.index] = 1;
  MentionedSizes sizes(graph);
  for (uint32_t id = uint32_t(graph.size()); id-- > 0;) {
    const Node& n = graph.node(id);
    if (sizes.needs(n)) used[id].assign(n.results.size(), 1);
    if (std::find(used[id].begin(), used[id].end(), 1) == used[id].end()) continue;
    sizes.add(n);
    std::vector<uint8_t> needed(n.operands.size(), 1);
    if (n.op->has(kControl)) needed = needed_operands(n, used[id]);
    for (size_t i = 0; i < needed.size(); ++i) {
      if (needed[i]) used[n.operands[i].node][n.operands[i].index] = 1;
    }
  }
  return used;
}

// The value of a constant predicate.
std::optional<bool> known_predicate(const Builder& b, Value v) {
  const Node& n = b.node_of(v);
  if (n.op != &kConstantOp) return std::nullopt;
  return n.attrs.as<ConstantAttrs>().value.at(0) != 0;
}

// A loop that is no loop.
std::optional<Values> run_short_scan(Builder& b, const ControlCall& call) {
  const auto& a = call.attrs.as<ScanAttrs>();
  const auto carries = size_t(a.num_carries), first_x = carries + size_t(a.num_captures);
  if (a.length.is(0)) {
    Values results(call.operands.begin(), call.operands.begin() + a.num_carries);
    for (size_t i = carries; i < a.body->outputs().size(); ++i) {
      const TensorType type = stacked(a.body->type(a.body->outputs()[i].value), 0);
      results.push_back(splat(b, type.dtype, type.shape, 0));
    }
    return results;
  }
  if (!a.length.is(1)) return std::nullopt;
  Values arguments{scalar(b, DType::kI64, 0)};
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Value v = call.operands[i];
    arguments.push_back(i < first_x ? v : squeeze(b, v, 0));
  }
  Values results = inline_graph(b, *a.body, arguments);
  for (size_t i = carries; i < results.size(); ++i) results[i] = unsqueeze(b, results[i], 0);
  return results;
}

// The results of a call that needs no control step.
std::optional<Values> run_now(Builder& b, const ControlCall& call) {
  if (call.op == &kScanOp) return run_short_scan(b, call);
  if (call.op != &kIfOp) return std::nullopt;
  const std::optional<bool> predicate = known_predicate(b, call.operands[0]);
  if (!predicate) return std::nullopt;
  const auto& a = call.attrs.as<IfAttrs>();
  return inline_graph(b, *predicate ? *a.then_branch : *a.else_branch,
                      std::span(call.operands).subspan(1));
}

Values simplify_call(Builder& b, const Node& n, std::span<const Value> operands,
                     const std::vector<uint8_t>& used) {
  ControlCall call{n.op, n.attrs, {operands.begin(), operands.end()}, {}};
  for (size_t i = 0; i < used.size(); ++i) call.results.push_back({used[i] != 0, {}, i});
  const auto is_open = [&] {
    return std::any_of(call.results.begin(), call.results.end(),
                       [](const ReducedResult& r) { return r.used && !r.known.valid(); });
  };
  Values results;
  // First what this call does not need, then, with less to do, its bodies, and what these left.
  reduce_control(b, call);
  if (is_open()) {
    Node node = n;
    node.attrs = call.attrs;
    call.attrs = map_bodies(node, simplify_control).attrs;
    reduce_control(b, call);
  }
  if (is_open()) {
    std::optional<Values> now = run_now(b, call);
    results = now ? std::move(*now) : b.call(*call.op, call.attrs, call.operands);
  }
  Values values;
  for (const ReducedResult& r : call.results) {
    values.push_back(!r.used ? Value{} : r.known.valid() ? r.known : results[r.index]);
  }
  return values;
}

}  // namespace

Graph simplify_control(const Graph& given) {
  const bool any = std::any_of(given.nodes().begin(), given.nodes().end(),
                               [](const Node& n) { return n.op->has(kControl); });
  if (!any) return given;
  const Graph graph = merge_scans(given);
  const auto used = used_values(graph);
  Graph out(graph.name());
  Builder b(out);
  std::vector<Values> map(graph.size());
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    const bool live = std::find(used[id].begin(), used[id].end(), 1) != used[id].end();
    if (!live && !is_signature_leaf(n)) continue;
    Values operands;
    for (Value v : n.operands) {
      // What a control step does not need may be gone; its place is only looked at to drop it.
      operands.push_back(map[v.node].empty() ? Value{} : map[v.node][v.index]);
    }
    b.set_label(n.label);
    map[id] =
        n.op->has(kControl) ? simplify_call(b, n, operands, used[id]) : copy_node(b, n, operands);
  }
  const auto at = [&](Value v) { return map[v.node][v.index]; };
  for (const Output& o : graph.outputs()) out.add_output(o.name, at(o.value));
  for (const Update& u : graph.updates()) out.add_update(u.param, at(u.value));
  return out;
}

}  // namespace rlx
