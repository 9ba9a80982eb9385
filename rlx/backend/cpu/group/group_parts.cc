#include "rlx/backend/cpu/group/group_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/leaf.h"
#include "rlx/ops/build.h"
#include "rlx/ops/group.h"

namespace rlx {

RLX_USE_OP(Cast);
RLX_USE_OP(Constant);

namespace cpu {
namespace {

class Splitter {
 public:
  explicit Splitter(const GroupAttrs& attrs) : body_(*attrs.body), strict_(attrs.strict_rounding) {}

  SplitGroup run() {
    SplitGroup split;
    if (body_.size() > 128) return refuse("the body has more than 128 values");
    for (const Node& n : body_.nodes()) {
      if (n.results.size() != 1) return refuse("a call of the body has several results");
    }
    find_root();
    split.parts.root = &body_.node(root_);
    const auto& root_node = *split.parts.root;
    for (Value v : root_node.operands) {
      const bool is_input = is_signature_leaf(body_.node(v));
      if (!is_input && body_.node(v).op == &kConstantOp) {
        return refuse("the root reads a constant of the body");
      }
      split.parts.root_operands.push_back(is_input ? input_index(v) : GroupPart::kHanded);
    }
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      if (body_.outputs()[i].value.node == root_ && !split.parts.root_result) {
        split.parts.root_result = i;
      }
    }
    if (const std::string_view why = make_part(false, split.parts.before); !why.empty()) {
      return refuse(why);
    }
    if (const std::string_view why = make_part(true, split.parts.after); !why.empty()) {
      return refuse(why);
    }
    return split;
  }

 private:
  static SplitGroup refuse(std::string_view why) { return {{}, why}; }

  void find_root() {
    root_ = uint32_t(body_.size());
    after_.assign(body_.size(), 0);
    for (uint32_t id = 0; id < body_.size(); ++id) {
      const Node& n = body_.node(id);
      if (!n.op->has(kElementwise) && !n.op->has(kLeaf)) root_ = id;
      after_[id] = id == root_;
      for (Value v : n.operands) after_[id] |= after_[v.node];
    }
  }

  size_t input_index(Value v) const {
    const auto& inputs = body_.inputs();
    return size_t(std::find(inputs.begin(), inputs.end(), v) - inputs.begin());
  }

  bool is_computed(uint32_t id, bool after) const {
    return id != root_ && !body_.node(id).op->has(kLeaf) && (after_[id] != 0) == after;
  }

  // The outputs of a part: (value, result of the group or kHanded).
  std::vector<std::pair<Value, size_t>> outputs_of(bool after) const {
    std::vector<std::pair<Value, size_t>> outputs;
    if (!after) {
      Value handed{};
      for (Value v : body_.node(root_).operands) {
        if (!body_.node(v).op->has(kLeaf)) handed = v;
      }
      if (handed.valid()) outputs.emplace_back(handed, GroupPart::kHanded);
    }
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      const Value v = body_.outputs()[i].value;
      if (v.node == root_ ? after : is_computed(v.node, after)) outputs.emplace_back(v, i);
    }
    return outputs;
  }

  Value wide(Builder& b, Value v) const {
    return !strict_ && is_half(b.dtype(v)) ? cast(b, v, DType::kF32) : v;
  }

  // The value in the part's graph of a value of the body, made on first use.
  std::string_view reach(Builder& b, Value v, bool after, GroupPart& part,
                         std::vector<Value>& map) {
    Value& to = map[v.node];
    if (to.valid()) return {};
    const Node& n = body_.node(v);
    const DType t = n.results[0].dtype;
    if (is_signature_leaf(n) || v.node == root_) {
      const bool handed = v.node == root_;
      part.inputs.push_back(handed ? GroupPart::kHanded : input_index(v));
      const Value in =
          input(b, fmt::format("in{}", part.inputs.size() - 1), handed ? wide_dtype(t) : t, {});
      to = handed && strict_ ? cast(b, in, t) : wide(b, in);
      return {};
    }
    if (n.op == &kConstantOp) {
      const Array& value = n.attrs.as<ConstantAttrs>().value;
      if (value.num_elements() != 1) return "a constant of several elements in the body";
      const bool widen = !strict_ && is_half(t);
      to = widen ? scalar(b, DType::kF32, value.at(0)) : constant(b, value.reshaped({}));
      return {};
    }
    if (!is_computed(v.node, after)) return "the calls after the root read one before it";
    std::vector<Value> operands;
    for (Value x : n.operands) {
      if (const std::string_view why = reach(b, x, after, part, map); !why.empty()) return why;
      operands.push_back(map[x.node]);
    }
    map[v.node] = wide(b, b.call(*n.op, n.attrs, operands)[0]);
    return {};
  }

  std::string_view make_part(bool after, GroupPart& part) {
    const auto outputs = outputs_of(after);
    size_t handed = 0;
    for (Value v : body_.node(root_).operands) handed += !body_.node(v).op->has(kLeaf);
    if (!after && handed > 1) return "the root reads two computed operands";
    if (outputs.empty()) return {};
    auto graph = std::make_shared<Graph>("part");
    Builder b(*graph);
    std::vector<Value> map(body_.size());
    for (const auto& [v, result] : outputs) {
      if (const std::string_view why = reach(b, v, after, part, map); !why.empty()) return why;
      Value out = map[v.node];
      // A result is rounded where it is stored; what the root reads, only if it is everywhere.
      if (result != GroupPart::kHanded) out = cast(b, out, body_.type(v).dtype);
      graph->add_output(fmt::format("out{}", part.outputs.size()), out);
      part.outputs.push_back(result);
    }
    if (const std::string_view why = TileProgram::refuses(*graph); !why.empty()) return why;
    part.body = std::move(graph);
    return {};
  }

  const Graph& body_;
  const bool strict_;
  uint32_t root_ = 0;
  std::vector<uint8_t> after_;
};

}  // namespace

DType wide_dtype(DType t) { return is_half(t) ? DType::kF32 : t; }

SplitGroup split_group(const KernelCall& call) { return Splitter(call.as<GroupAttrs>()).run(); }

PartProgram part_program(const KernelCall& call, const GroupPart& part, const Dims& dims,
                         size_t over_input) {
  std::vector<std::optional<TensorDesc>> inputs;
  std::vector<uint8_t> handed;
  for (size_t i : part.inputs) {
    inputs.push_back(i == GroupPart::kHanded ? std::nullopt : std::optional(call.operands[i]));
  }
  for (size_t i : part.outputs) handed.push_back(i == GroupPart::kHanded);
  return PartProgram(*part.body, dims, inputs, handed, over_input);
}

std::string_view part_reason(const KernelCall& call, const GroupPart& part, const Dims& dims) {
  for (size_t i : part.inputs) {
    if (i == GroupPart::kHanded) continue;
    const Dims& own = call.operands[i].dims;
    bool fits = own.size() <= dims.size();
    for (size_t a = 0; fits && a < own.size(); ++a) {
      fits = own[a] == 1 || own[a] == dims[a + dims.size() - own.size()];
    }
    if (!fits) return "an operand does not broadcast to the shape of the calls around the root";
  }
  for (size_t i : part.outputs) {
    if (i != GroupPart::kHanded && call.results[i].dims != dims) {
      return "a result has another shape than the calls around the root";
    }
  }
  return {};
}

}  // namespace cpu
}  // namespace rlx
