#include "rlx/compile/group_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/elementwise_region.h"
#include "rlx/ops/group.h"

namespace rlx {

RLX_USE_OP(ElementwiseRegion);
RLX_USE_OP(Group);

namespace {

constexpr uint32_t kNoRoot = ~uint32_t(0);

bool repeats_one_element(const Node& n) {
  return is_constant(n) && n.attrs.as<ConstantAttrs>().value.num_elements() == 1 &&
         !is_packed(n.results[0].dtype);
}

class BodyMaker {
 public:
  BodyMaker(const GroupUnits& units, std::span<const uint32_t> parts, uint32_t root, bool strict)
      : units_(units), graph_(units.graph()), parts_(parts), root_(root), strict_(strict) {}

  UnitCall run() {
    for (uint32_t u : parts_) {
      nodes_.insert(nodes_.end(), units_.members(u).begin(), units_.members(u).end());
    }
    std::sort(nodes_.begin(), nodes_.end());
    call_.results = units_.results(parts_);
    if (root_ != kNoRoot) {
      make(true);
      return finish(kGroupOp, Attrs::of(kGroupOp.fields, GroupAttrs{std::move(body_), strict_}));
    }
    make(true);
    if (!has_shape()) make(false);
    return finish(
        kElementwiseRegionOp,
        Attrs::of(kElementwiseRegionOp.fields, ElementwiseRegionAttrs{std::move(body_), strict_}));
  }

 private:
  UnitCall finish(const OpDef& op, Attrs attrs) {
    for (Value v : call_.operands) call_.operand_types.push_back(graph_.type(v));
    InferredCall inferred = infer_call(op, std::move(attrs), call_.operand_types);
    call_.op = &op;
    call_.attrs = std::move(inferred.attrs);
    call_.result_types = std::move(inferred.results);
    return std::move(call_);
  }

  // The operands alone give the shape of the region.
  bool has_shape() const {
    Shape shape;
    for (Value v : call_.operands) shape = broadcast(shape, graph_.type(v).shape);
    return shape == graph_.type(call_.results[0]).shape;
  }

  Value add_input(Builder& b, Value v) {
    const TensorType& t = graph_.type(v);
    const std::string name = fmt::format("x{}", call_.operands.size());
    call_.operands.push_back(v);
    return input(b, name, t.dtype, t.shape);
  }

  // The value within the body of one that a member reads.
  Value reach(Builder& b, Value v, bool pull_splats) {
    const auto it = map_.find(v);
    if (it != map_.end()) return it->second;
    const Node& n = graph_.node(v);
    const bool one = n.results[0].shape.num_elements().is(1);
    const Value made =
        repeats_one_element(n) && (one || pull_splats) ? copy_node(b, n, {})[0] : add_input(b, v);
    map_.emplace(v, made);
    return made;
  }

  void make(bool pull_splats) {
    auto body = std::make_shared<Graph>("body");
    Builder b(*body);
    map_.clear();
    call_.operands.clear();
    if (root_ != kNoRoot) {
      for (Value v : graph_.node(root_).operands) {
        root_inputs_.push_back(is_member(v.node) ? Value{} : add_input(b, v));
        if (root_inputs_.back().valid()) map_.emplace(v, root_inputs_.back());
      }
    }
    for (uint32_t id : nodes_) {
      const Node& n = graph_.node(id);
      std::vector<Value> operands;
      for (size_t i = 0; i < n.operands.size(); ++i) {
        const bool own = id == root_ && root_inputs_[i].valid();
        operands.push_back(own ? root_inputs_[i] : reach(b, n.operands[i], pull_splats));
      }
      b.set_label(n.label);
      map_[{id, 0}] = copy_node(b, n, operands)[0];
    }
    for (size_t i = 0; i < call_.results.size(); ++i) {
      body->add_output(fmt::format("y{}", i), map_.at(call_.results[i]));
    }
    body_ = std::move(body);
  }

  bool is_member(uint32_t id) const { return std::binary_search(nodes_.begin(), nodes_.end(), id); }

  const GroupUnits& units_;
  const Graph& graph_;
  const std::span<const uint32_t> parts_;
  const uint32_t root_;
  const bool strict_;
  std::vector<uint32_t> nodes_;
  std::vector<Value> root_inputs_;
  std::unordered_map<Value, Value> map_;
  GraphRef body_;
  UnitCall call_;
};

}  // namespace

bool is_fusable(const Graph& graph, const Node& n) {
  if (!n.op->has(kElementwise) || n.op->has(kIdentity) || n.results.size() != 1 ||
      n.op == &kElementwiseRegionOp) {
    return false;
  }
  const auto is_plain = [](DType t) { return !is_complex(t) && !is_packed(t); };
  for (Value v : n.operands) {
    if (!is_plain(graph.type(v).dtype)) return false;
  }
  return n.results[0].shape.is_static() && is_plain(n.results[0].dtype);
}

UnitCall unit_call(const GroupUnits& units, std::span<const uint32_t> parts, bool strict_rounding) {
  return BodyMaker(units, parts, kNoRoot, strict_rounding).run();
}

UnitCall unit_call(const GroupUnits& units, std::span<const uint32_t> parts, uint32_t root,
                   bool strict_rounding) {
  return BodyMaker(units, parts, root, strict_rounding).run();
}

}  // namespace rlx
