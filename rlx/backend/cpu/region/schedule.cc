#include "rlx/backend/cpu/region/schedule.h"

#include <algorithm>
#include <functional>

#include "rlx/backend/cpu/region/native.h"
#include "rlx/ir/leaf.h"

namespace rlx::cpu::region {
namespace {

class Scheduler {
 public:
  Scheduler(const Graph& body, const RegionOptions& options, bool wide, bool as_columns)
      : body_(body), options_(options), wide_(wide), as_columns_(as_columns) {}

  Schedule run() {
    for (size_t i = 0; i < body_.inputs().size(); ++i) s_.inputs.push_back(input_of(i));
    find_roots();
    fold_products();
    s_.uses.assign(body_.size(), 0);
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      const uint32_t root = s_.roots[body_.outputs()[i].value.node];
      s_.results.push_back({root, stored(i)});
      ++s_.uses[root];
    }
    find_order();
    find_last_read();
    return std::move(s_);
  }

 private:
  DType dtype(uint32_t id) const { return body_.node(id).results[0].dtype; }
  bool leaf(uint32_t id) const { return is_leaf(body_.node(id)); }

  RegionInput input_of(size_t i) const {
    RegionInput in{RegionForm::kColumns, body_.type(body_.inputs()[i]).dtype};
    if (!options_.inputs.empty()) in = options_.inputs[i];
    if (as_columns_ && in.form == RegionForm::kRow) in.form = RegionForm::kColumns;
    return in;
  }

  DType stored(size_t result) const {
    return options_.stored_results.empty() ? body_.type(body_.outputs()[result].value).dtype
                                           : options_.stored_results[result];
  }

  // A cast to 16 bits that only results read: their store rounds (or they want no rounding).
  bool rounds_at_store(uint32_t id, std::span<const uint32_t> readers) const {
    if (!is_half(dtype(id)) || readers[id] != 0) return false;
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      const bool same = stored(i) == dtype(id) || stored(i) == DType::kF32;
      if (body_.outputs()[i].value.node == id && !same) return false;
    }
    return true;
  }

  void find_roots() {
    std::vector<uint32_t> readers(body_.size(), 0);
    for (const Node& n : body_.nodes()) {
      for (Value v : n.operands) ++readers[v.node];
    }
    s_.roots.resize(body_.size());
    for (uint32_t id = 0; id < body_.size(); ++id) {
      const Node& n = body_.node(id);
      s_.roots[id] = id;
      if (n.operands.size() != 1) continue;
      const uint32_t operand = n.operands[0].node;
      const DType from = dtype(operand);
      const bool stored = is_cast(n) && from == DType::kF32 && rounds_at_store(id, readers);
      if (forwards(n, from) || stored) s_.roots[id] = s_.roots[operand];
    }
  }

  std::vector<uint32_t> operands_of(uint32_t id) const {
    return region::operands_of(body_, s_, id);
  }

  StageOp stage_of(uint32_t id) const {
    const Node& n = body_.node(id);
    if (n.operands.size() != 2 || is_half(dtype(id))) return StageOp::kCount;
    const DType types[] = {dtype(n.operands[0].node), dtype(n.operands[1].node)};
    return native_op(n, types, wide_).forms[0];
  }

  // x + a b and the like, where x is computed: the product needs no place of its own.
  void fold_products() {
    s_.folded.assign(body_.size(), 0);
    std::vector<uint32_t> readers(body_.size(), 0);
    for (uint32_t id = 0; id < body_.size(); ++id) {
      if (s_.roots[id] != id) continue;
      for (Value v : body_.node(id).operands) ++readers[s_.roots[v.node]];
    }
    for (const Output& o : body_.outputs()) ++readers[s_.roots[o.value.node]];
    const auto is_product = [&](uint32_t id) {
      if (readers[id] != 1 || stage_of(id) != StageOp::kMul) return false;
      const auto& v = body_.node(id).operands;
      return leaf(s_.roots[v[0].node]) && leaf(s_.roots[v[1].node]);
    };
    for (uint32_t id = 0; id < body_.size(); ++id) {
      const StageOp op = stage_of(id);
      if (op != StageOp::kAdd && op != StageOp::kSub) continue;
      const auto& v = body_.node(id).operands;
      const uint32_t o[] = {s_.roots[v[0].node], s_.roots[v[1].node]};
      const size_t p = is_product(o[1]) ? 1 : 0;
      if (is_product(o[p]) && !leaf(o[1 - p])) s_.folded[o[p]] = 1;
    }
  }

  // Sethi and Ullman: how many values a node needs at once, if the hungriest operand goes first.
  std::vector<int> needs() const {
    std::vector<int> need(body_.size(), 0), of;
    for (uint32_t id = 0; id < body_.size(); ++id) {
      if (leaf(id) || s_.roots[id] != id) continue;
      of.clear();
      for (uint32_t o : operands_of(id)) {
        if (!leaf(o)) of.push_back(need[o]);
      }
      std::sort(of.begin(), of.end(), std::greater<>());
      need[id] = 1;
      for (size_t i = 0; i < of.size(); ++i) need[id] = std::max(need[id], of[i] + int(i));
    }
    return need;
  }

  void find_order() {
    enum : uint8_t { kNew, kOpen, kDone };
    const std::vector<int> need = needs();
    std::vector<uint8_t> state(body_.size(), kNew);
    std::vector<uint32_t> stack;
    for (const ScheduledResult& r : s_.results) {
      stack.push_back(r.node);
      while (!stack.empty()) {
        const uint32_t id = stack.back();
        if (state[id] == kDone || leaf(id)) {
          stack.pop_back();
          continue;
        }
        std::vector<uint32_t> operands = operands_of(id);
        if (state[id] == kOpen) {
          state[id] = kDone;
          stack.pop_back();
          s_.order.push_back(id);
          for (uint32_t o : operands) ++s_.uses[o];
          continue;
        }
        state[id] = kOpen;
        // The last one pushed comes first.
        std::stable_sort(operands.begin(), operands.end(),
                         [&](uint32_t a, uint32_t b) { return need[a] < need[b]; });
        for (uint32_t o : operands) {
          if (state[o] == kNew && !leaf(o)) stack.push_back(o);
        }
      }
    }
  }

  void find_last_read() {
    for (size_t k = 0; k < s_.order.size(); ++k) {
      for (uint32_t o : operands_of(s_.order[k])) {
        if (may_hold_result(o)) s_.last_read = k;
      }
    }
    for (size_t r = 1; r < s_.results.size(); ++r) {
      if (may_hold_result(s_.results[r].node)) s_.last_read = s_.order.size();
    }
  }

  bool may_hold_result(uint32_t id) const {
    if (!is_signature_leaf(body_.node(id))) return false;
    const auto& inputs = body_.inputs();
    const auto i = size_t(std::find(inputs.begin(), inputs.end(), Value{id, 0}) - inputs.begin());
    return s_.inputs[i].form == RegionForm::kColumns &&
           stored_size(s_.inputs[i].stored) == stored_size(s_.results[0].stored);
  }

  const Graph& body_;
  const RegionOptions& options_;
  const bool wide_, as_columns_;
  Schedule s_;
};

}  // namespace

bool is_leaf(const Node& node) { return is_signature_leaf(node) || is_constant(node); }

Schedule schedule(const Graph& body, const RegionOptions& options, bool wide, bool as_columns) {
  return Scheduler(body, options, wide, as_columns).run();
}

std::vector<uint32_t> operands_of(const Graph& body, const Schedule& s, uint32_t id) {
  std::vector<uint32_t> list;
  for (Value v : body.node(id).operands) {
    const uint32_t root = s.roots[v.node];
    if (!s.folded[root]) {
      list.push_back(root);
      continue;
    }
    for (Value f : body.node(root).operands) list.push_back(s.roots[f.node]);
  }
  return list;
}

}  // namespace rlx::cpu::region
