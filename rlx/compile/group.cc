#include "rlx/compile/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <utility>

#include "rlx/base/checked.h"
#include "rlx/compile/bodies.h"
#include "rlx/compile/epilogue.h"
#include "rlx/compile/group_body.h"
#include "rlx/compile/group_units.h"
#include "rlx/compile/view.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/group.h"
#include "rlx/ops/table.h"

namespace rlx {

RLX_USE_OP(Concat);
RLX_USE_OP(Conv);
RLX_USE_OP(DotGeneral);
RLX_USE_OP(ElementwiseRegion);
RLX_USE_OP(Group);
RLX_USE_OP(LayerNorm);
RLX_USE_OP(MatMul);
RLX_USE_OP(Reduce);
RLX_USE_OP(RmsNorm);
RLX_USE_OP(Softmax);

namespace {

// Larger regions run out of registers, and gain nothing more.
constexpr size_t kMostNodes = 32, kMostOperands = 12;

bool is_product(const OpDef& op) {
  return &op == &kMatMulOp || &op == &kDotGeneralOp || &op == &kConvOp;
}
bool is_root(const OpDef& op) {
  return is_product(op) || &op == &kLayerNormOp || &op == &kRmsNormOp || &op == &kReduceOp ||
         &op == &kSoftmaxOp;
}

// Of "entry: reason; entry: reason" each reason once, without those of kernels for other roots.
std::string without_other_roots(std::string_view reasons) {
  std::vector<std::string_view> kept;
  while (!reasons.empty()) {
    const size_t end = std::min(reasons.find("; "), reasons.size());
    std::string_view part = reasons.substr(0, end);
    reasons.remove_prefix(std::min(end + 2, reasons.size()));
    const size_t name = part.find(": ");
    if (name != part.npos) part.remove_prefix(name + 2);
    const bool seen = std::find(kept.begin(), kept.end(), part) != kept.end();
    if (!seen && part != kOtherRoot) kept.push_back(part);
  }
  return kept.empty() ? "no kernel is made for such a root"
                      : fmt::format("{}", fmt::join(kept, "; "));
}

class Grouper {
 public:
  Grouper(const Graph& graph, const KernelTable& kernels, const GroupOptions& options,
          const LegalizeOptions& legalize, std::vector<LegalizeNote>* notes)
      : graph_(graph),
        kernels_(kernels),
        options_(options),
        legalize_(legalize),
        notes_(notes),
        units_(graph),
        root_(graph.size(), kNoRoot) {
    if (!legalize.bounds.empty()) at_bounds_ = substitute_symbols(graph, legalize.bounds);
    for (const Node& n : sized().nodes()) fusable_.push_back(is_fusable(sized(), n));
    for (const Update& u : graph.updates()) {
      updated_[u.value.node].push_back(graph.find_leaf(u.param));
    }
  }

  Graph run() {
    for (uint32_t id = 0; id < graph_.size(); ++id) {
      if (fusable_[id]) join_producers(id);
    }
    attach_roots();
    settle();
    return build();
  }

 private:
  static constexpr uint32_t kNoRoot = ~uint32_t(0);

  struct Candidate {
    uint32_t root = 0;
    uint32_t neighbor = 0;  // a node of the unit to attach
    bool epilogue = false;
    int64_t saved = 0;  // bytes
  };

  // The same nodes where bounded sizes have their bounds: what all savings are judged by.
  const Graph& sized() const { return at_bounds_ ? *at_bounds_ : graph_; }
  // Equal ones are so at every extent.
  const Shape& shape(uint32_t id) const { return graph_.node(id).results[0].shape; }
  int64_t bytes(Value v) const {
    return byte_size(sized().type(v).dtype, sized().type(v).shape.static_dims());
  }
  std::string name(uint32_t id) const {
    const Node& n = graph_.node(id);
    return n.label.empty() ? fmt::format("{} {}", n.op->name, id)
                           : fmt::format("{} {} ({})", n.op->name, id, n.label);
  }
  std::string names(std::span<const uint32_t> ids) const {
    std::string list;
    for (uint32_t id : ids) list += (list.empty() ? "" : ", ") + name(id);
    return list;
  }
  void note(std::string_view op, std::string text) {
    if (notes_) notes_->push_back({std::string(op), std::move(text)});
  }

  // --- Regions

  void join_producers(uint32_t id) {
    uint32_t unit = id;
    for (Value v : graph_.node(id).operands) {
      const uint32_t other = units_.unit_of(v.node);
      if (other == unit || !fusable_[v.node] || shape(v.node) != shape(id)) continue;
      const uint32_t both[] = {other, unit};
      if (may_join(both)) unit = units_.merge(both);
    }
  }

  bool may_join(std::span<const uint32_t> both) {
    const size_t nodes = units_.members(both[0]).size() + units_.members(both[1]).size();
    return nodes <= kMostNodes && units_.operands(both).size() <= kMostOperands &&
           units_.is_convex(both) && keeps_updates(both);
  }

  // A value that becomes a param overwrites the old one: readers of that must not come after the
  // unit, or the new value takes a copy.
  bool keeps_updates(std::span<const uint32_t> parts) const {
    for (uint32_t u : parts) {
      for (uint32_t m : units_.members(u)) {
        const auto it = updated_.find(m);
        if (it == updated_.end()) continue;
        for (Value param : it->second) {
          if (read_later(param.node, parts)) return false;
        }
      }
    }
    return true;
  }

  bool read_later(uint32_t node, std::span<const uint32_t> parts) const {
    for (uint32_t r : units_.readers(node)) {
      if (std::count(parts.begin(), parts.end(), units_.unit_of(r)) > 0) continue;
      if (units_.depends(r, parts)) return true;
      if (graph_.node(r).op->has(kView) && read_later(r, parts)) return true;
    }
    return false;
  }

  // --- Groups

  void attach_roots() {
    std::vector<Candidate> candidates;
    for (uint32_t id = 0; id < graph_.size(); ++id) {
      const Node& n = sized().node(id);
      if (is_root(*n.op) && n.results[0].shape.is_static() && is_float(n.results[0].dtype)) {
        add_candidates(id, candidates);
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.saved > b.saved; });
    for (const Candidate& c : candidates) attach(c);
  }

  void add_candidates(uint32_t root, std::vector<Candidate>& candidates) const {
    std::vector<uint32_t> seen;
    for (uint32_t r : units_.readers(root)) {
      const uint32_t unit = units_.unit_of(r);
      if (!fusable_[r] || shape(r) != shape(root)) continue;
      if (std::count(seen.begin(), seen.end(), unit) > 0) continue;
      seen.push_back(unit);
      candidates.push_back({root, r, true, saving(root, {unit})});
    }
    if (is_product(*graph_.node(root).op)) return;
    const Value x = graph_.node(root).operands[0];
    if (fusable_[x.node]) {
      candidates.push_back({root, x.node, false, saving(x.node, {root, units_.unit_of(x.node)})});
    }
  }

  // Bytes that a value no longer takes if its readers in these units get it within the call.
  int64_t saving(uint32_t node, std::vector<uint32_t> parts) const {
    const auto& readers = units_.readers(node);
    const bool all =
        !units_.is_kept(node) && std::all_of(readers.begin(), readers.end(), [&](uint32_t r) {
          return std::count(parts.begin(), parts.end(), units_.unit_of(r)) > 0;
        });
    return bytes({node, 0}) * (all ? 2 : 1);
  }

  // Bytes that the group's results take more than alone.
  int64_t loss(uint32_t root, std::span<const uint32_t> parts) const {
    int64_t lost = 0;
    // Reduce alone reads a view where it lies; a group needs dense rows.
    const Node& r = graph_.node(root);
    if (r.op == &kReduceOp && graph_.node(r.operands[0]).op->has(kView)) {
      lost += 2 * bytes(r.operands[0]);
    }
    const std::vector<Value> operands = units_.operands(parts);
    for (Value v : units_.results(parts)) {
      const auto& readers = units_.readers(v.node);
      // Alone it could be written into its place of the Concat.
      if (!units_.is_kept(v.node) && readers.size() == 1 && v.node != root &&
          graph_.node(readers[0]).op == &kConcatOp) {
        lost += 2 * bytes(v);
      }
      const auto it = updated_.find(v.node);
      if (it == updated_.end() || !is_product(*graph_.node(root).op)) continue;
      // The product stands where the result will, so the old value cannot stand there too.
      for (Value param : it->second) {
        if (std::count(operands.begin(), operands.end(), param) > 0) lost += 2 * bytes(v);
      }
    }
    return lost;
  }

  // Measured (bench training_block): while a value stays in the core's own cache, a second pass
  // over it costs less than pieces of a product, or than a norm that is fed row by row. What the
  // stores of a product do themselves (product_epilogue) costs less at any size.
  std::string_view measured(const Candidate& c, size_t neighbors) const {
    constexpr int64_t kProductBytes = int64_t(3) << 20, kNormBytes = int64_t(1) << 19;
    constexpr int64_t kFewColumns = 16;
    if (options_.always) return {};
    const Node& root = sized().node(c.root);
    const Shape& y = root.results[0].shape;
    if (root.op == &kMatMulOp || root.op == &kDotGeneralOp) {
      const bool narrow = y.rank() > 0 && y[y.rank() - 1].value() <= kFewColumns;
      if (!narrow && bytes({c.root, 0}) < kProductBytes) {
        return "the product stays in the cache, where another pass is cheaper than pieces";
      }
    }
    const bool norm = root.op == &kLayerNormOp || root.op == &kRmsNormOp;
    if (norm && neighbors == 1 && bytes({c.root, 0}) < kNormBytes) {
      return "the rows stay in the cache, where one more pass is cheaper";
    }
    return {};
  }

  void attach(const Candidate& c) {
    const uint32_t unit = units_.unit_of(c.neighbor), root_unit = units_.unit_of(c.root);
    if (unit == root_unit) return;
    const std::vector<uint32_t> members = units_.members(unit);
    const auto refuse = [&](std::string_view why) {
      note("Group", fmt::format("{} with {}: not fused: {}", name(c.root), names(members), why));
    };
    if (root_[unit] != kNoRoot) {
      return refuse(fmt::format("it is fused with {}, which saves no less", name(root_[unit])));
    }
    const std::string_view costly = measured(c, members.size());
    if (!costly.empty() && !is_product(*graph_.node(c.root).op)) return refuse(costly);
    const uint32_t both[] = {root_unit, unit};
    if (!units_.is_convex(both)) return refuse("a call between them would need its result first");
    if (!keeps_updates(both)) return refuse("the old value of a param is read after it");
    const int64_t lost = loss(c.root, both);
    if (lost >= c.saved) {
      return refuse(fmt::format("it would save {} bytes and lose {}", c.saved, lost));
    }
    const UnitCall call = unit_call(units_, both, c.root, options_.strict_rounding);
    if (!costly.empty() && !product_epilogue(*call.attrs.as<GroupAttrs>().body)) {
      return refuse(costly);
    }
    std::string reasons;
    if (!entry_of(call, &reasons)) return refuse(without_other_roots(reasons));
    root_[units_.merge(both)] = c.root;
    note("Group",
         fmt::format("{} with {}: fused, saves {} bytes", name(c.root), names(members), c.saved));
  }

  // Null if the device refuses the call, or if it could run at the bounds only: single calls follow
  // the extents.
  const KernelEntry* entry_of(const UnitCall& call, std::string* reasons) const {
    const KernelEntry* entry = select_entry(kernels_, *call.op, call.attrs, call.operand_types,
                                            call.result_types, legalize_, reasons);
    if (!entry) return nullptr;
    for (const auto& [symbol, bound] : legalize_.bounds) {
      if (bound < 2 || takes_fewer(call, *entry, symbol)) continue;
      *reasons +=
          fmt::format("{}{}: it takes dense memory only, which less than the bound of {} is not",
                      reasons->empty() ? "" : "; ", entry->name, symbol);
      return nullptr;
    }
    return entry;
  }

  // Whether the entry takes a smaller extent with the strides of the bound.
  bool takes_fewer(const UnitCall& call, const KernelEntry& entry,
                   const std::string& symbol) const {
    SymbolBindings fewer = legalize_.bounds;
    fewer[symbol] -= 1;
    const auto desc = [&](const TensorType& t) {
      TensorDesc d = TensorDesc::dense(substitute_symbols(t, legalize_.bounds));
      d.dims = t.shape.substitute(fewer).static_dims();
      return d;
    };
    for (size_t i = 0; i < call.operand_types.size(); ++i) {
      if (!accepts(operand_form(entry, i), desc(call.operand_types[i]))) return false;
    }
    return std::all_of(call.result_types.begin(), call.result_types.end(),
                       [&](const TensorType& t) { return accepts(entry.result_form, desc(t)); });
  }

  // --- What is left

  // A region writes one result over the old value of a param; another one would take a copy. So a
  // second such result leaves the unit, with what only it needs, if it reads nothing else from it.
  void split_updates(uint32_t unit) {
    bool first = true;
    for (uint32_t m : std::vector<uint32_t>(units_.members(unit))) {
      const auto it = updated_.find(m);
      if (it == updated_.end() || !is_operand(unit, it->second)) continue;
      if (std::exchange(first, false)) continue;
      std::vector<uint32_t> part{m};
      for (size_t i = 0; i < part.size(); ++i) {
        for (Value v : graph_.node(part[i]).operands) {
          if (units_.unit_of(v.node) == unit && is_only_for(v.node, part)) part.push_back(v.node);
        }
      }
      if (reads_only_results(unit, part)) units_.split(unit, part);
      if (units_.members(unit).size() < 2) return;
    }
  }

  bool is_operand(uint32_t unit, const std::vector<Value>& params) const {
    const uint32_t one[] = {unit};
    const std::vector<Value> operands = units_.operands(one);
    return std::any_of(params.begin(), params.end(), [&](Value p) {
      return std::find(operands.begin(), operands.end(), p) != operands.end();
    });
  }

  bool is_only_for(uint32_t node, const std::vector<uint32_t>& part) const {
    const auto& readers = units_.readers(node);
    return !units_.is_kept(node) && std::count(part.begin(), part.end(), node) == 0 &&
           std::all_of(readers.begin(), readers.end(),
                       [&](uint32_t r) { return std::count(part.begin(), part.end(), r) > 0; });
  }

  // Of the rest of the unit.
  bool reads_only_results(uint32_t unit, const std::vector<uint32_t>& part) const {
    if (part.size() == units_.members(unit).size()) return false;
    const uint32_t one[] = {unit};
    const std::vector<Value> results = units_.results(one);
    for (uint32_t m : part) {
      for (Value v : graph_.node(m).operands) {
        if (units_.unit_of(v.node) != unit) continue;
        if (std::count(part.begin(), part.end(), v.node) > 0) continue;
        if (std::find(results.begin(), results.end(), v) == results.end()) return false;
      }
    }
    // What stays does not wait for what leaves.
    for (uint32_t m : part) {
      for (uint32_t r : units_.readers(m)) {
        if (units_.unit_of(r) == unit && std::count(part.begin(), part.end(), r) == 0) return false;
      }
    }
    return true;
  }

  // Regions that the device does not run stay single calls.
  void settle() {
    for (uint32_t u = 0; u < graph_.size(); ++u) {
      if (units_.members(u).size() > 1 && root_[u] == kNoRoot) split_updates(u);
    }
    for (uint32_t u = 0; u < graph_.size(); ++u) {
      const std::vector<uint32_t> members = units_.members(u);
      if (members.size() < 2 || root_[u] != kNoRoot) continue;
      const uint32_t one[] = {u};
      std::string reasons;
      if (entry_of(unit_call(units_, one, options_.strict_rounding), &reasons)) {
        note("ElementwiseRegion", fmt::format("{}: fused", names(members)));
        continue;
      }
      units_.dissolve(u);
      note("ElementwiseRegion", fmt::format("{}: not fused: {}", names(members), reasons));
    }
  }

  // --- The new graph

  Graph build() {
    Graph out(graph_.name());
    Builder b(out);
    std::vector<std::vector<Value>> map(graph_.size());
    const auto get = [&](Value v) { return map[v.node][v.index]; };
    for (uint32_t u : unit_order()) {
      const std::vector<uint32_t>& members = units_.members(u);
      if (members.size() == 1) {
        map[u] = copy_single(b, graph_.node(u), get);
        continue;
      }
      const uint32_t one[] = {u};
      const UnitCall call = root_[u] == kNoRoot
                                ? unit_call(units_, one, options_.strict_rounding)
                                : unit_call(units_, one, root_[u], options_.strict_rounding);
      std::vector<Value> operands;
      for (Value v : call.operands) operands.push_back(get(v));
      b.set_label(graph_.node(root_[u] == kNoRoot ? members.back() : root_[u]).label);
      const uint32_t id =
          out.append({call.op, call.attrs, std::move(operands), call.result_types, b.label()});
      for (size_t i = 0; i < call.results.size(); ++i) {
        map[call.results[i].node] = {{id, uint32_t(i)}};
      }
    }
    for (const Output& o : graph_.outputs()) out.add_output(o.name, get(o.value));
    for (const Update& o : graph_.updates()) out.add_update(o.param, get(o.value));
    return out;
  }

  template <class Get>
  std::vector<Value> copy_single(Builder& b, const Node& n, const Get& get) const {
    std::vector<Value> operands;
    for (Value v : n.operands) operands.push_back(get(v));
    b.set_label(n.label);
    if (!n.op->has(kControl)) return copy_node(b, n, operands);
    return copy_with_bodies(b, n, operands, [&](const Graph& body) {
      return form_groups(body, kernels_, options_, legalize_, notes_);
    });
  }

  // Units in topological order, the one that begins first of those that are ready.
  std::vector<uint32_t> unit_order() const {
    std::vector<uint32_t> missing(graph_.size(), 0), order;
    std::vector<std::vector<uint32_t>> after(graph_.size());
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t u = 0; u < graph_.size(); ++u) {
      if (units_.members(u).empty()) continue;
      const uint32_t one[] = {u};
      std::vector<uint32_t> before;
      for (Value v : units_.operands(one)) before.push_back(units_.unit_of(v.node));
      for (uint32_t m : units_.members(u)) {
        for (uint32_t setter : units_.setters(m)) before.push_back(units_.unit_of(setter));
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (uint32_t p : before) after[p].push_back(u);
      missing[u] = uint32_t(before.size());
      if (missing[u] == 0) ready.push(u);
    }
    while (!ready.empty()) {
      const uint32_t u = ready.top();
      ready.pop();
      order.push_back(u);
      for (uint32_t next : after[u]) {
        if (--missing[next] == 0) ready.push(next);
      }
    }
    return order;
  }

  const Graph& graph_;
  std::optional<Graph> at_bounds_;  // none without bounded sizes
  const KernelTable& kernels_;
  const GroupOptions& options_;
  const LegalizeOptions& legalize_;
  std::vector<LegalizeNote>* notes_;
  GroupUnits units_;
  std::vector<uint8_t> fusable_;
  std::vector<uint32_t> root_;                      // of a unit; kNoRoot
  std::map<uint32_t, std::vector<Value>> updated_;  // params that take a node's value
};

bool has_entries(const KernelTable& kernels, const OpDef& op) {
  const KernelList* list = kernels.find(op);
  return list && !list->entries.empty();
}

}  // namespace

Graph form_groups(const Graph& graph, const KernelTable& kernels, const GroupOptions& options,
                  const LegalizeOptions& legalize, std::vector<LegalizeNote>* notes) {
  if (!has_entries(kernels, kGroupOp) && !has_entries(kernels, kElementwiseRegionOp)) return graph;
  return Grouper(graph, kernels, options, legalize, notes).run();
}

}  // namespace rlx
