#include "rlx/compile/epilogue.h"

#include <algorithm>

#include "rlx/ir/leaf.h"
#include "rlx/ir/op.h"
#include "rlx/ops/binary.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(Binary);
RLX_USE_OP(DotGeneral);
RLX_USE_OP(MatMul);

namespace {

class Matcher {
 public:
  explicit Matcher(const Graph& body) : body_(body) {}

  std::optional<ProductEpilogue> run() {
    for (uint32_t id = 0; id < body_.size(); ++id) {
      const Node& n = body_.node(id);
      if (is_signature_leaf(n)) continue;
      if (!(last_.valid() ? take(n) : take_root(n))) return std::nullopt;
      last_ = {id, 0};
    }
    const bool has_end = found_.bias || found_.activation || found_.residual;
    if (!last_.valid() || !has_end || !take_outputs()) return std::nullopt;
    return found_;
  }

 private:
  bool is_f32(Value v) const { return body_.type(v).dtype == DType::kF32; }

  bool take_root(const Node& n) {
    if (n.op != &kMatMulOp && n.op != &kDotGeneralOp) return false;
    shape_ = n.results[0].shape;
    return n.results[0].dtype == DType::kF32 && shape_.rank() >= 2 &&
           std::all_of(n.operands.begin(), n.operands.end(),
                       [&](Value v) { return is_signature_leaf(body_.node(v)); });
  }

  bool take(const Node& n) {
    if (n.op == &kActivationOp) return take_activation(n);
    if (n.op != &kBinaryOp || n.attrs.as<BinaryAttrs>().kind != BinaryKind::kAdd) return false;
    if ((n.operands[0] == last_) == (n.operands[1] == last_)) return false;
    const Value other = n.operands[n.operands[0] == last_ ? 1 : 0];
    if (!is_signature_leaf(body_.node(other)) || !is_f32(other) || found_.residual) return false;
    const auto& inputs = body_.inputs();
    const size_t input = size_t(std::find(inputs.begin(), inputs.end(), other) - inputs.begin());
    const Shape& shape = body_.type(other).shape;
    if (!found_.bias && !found_.activation && is_row(shape)) {
      found_.bias = input;
    } else if (shape == shape_) {
      found_.residual = input;
    } else {
      return false;
    }
    return true;
  }

  bool take_activation(const Node& n) {
    const ActivationKind kind = n.attrs.as<ActivationAttrs>().kind;
    if (n.operands[0] != last_ || found_.activation || found_.residual) return false;
    if (kind != ActivationKind::kRelu && kind != ActivationKind::kGelu &&
        kind != ActivationKind::kGeluApprox) {
      return false;
    }
    found_.activation = kind;
    before_ = last_;
    return true;
  }

  // One number per column.
  bool is_row(const Shape& shape) const {
    if (shape.rank() == 0 || shape.rank() > shape_.rank()) return false;
    if (shape[shape.rank() - 1] != shape_[shape_.rank() - 1]) return false;
    for (int64_t a = 0; a + 1 < shape.rank(); ++a) {
      if (!shape[a].is(1)) return false;
    }
    return true;
  }

  bool take_outputs() {
    std::optional<size_t> result;
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      const Value v = body_.outputs()[i].value;
      if (v == last_ && !result) {
        result = i;
      } else if (found_.activation && v == before_ && !found_.before) {
        found_.before = i;
      } else {
        return false;
      }
    }
    found_.result = result.value_or(0);
    return result.has_value();
  }

  const Graph& body_;
  ProductEpilogue found_;
  Shape shape_;          // of the product
  Value last_, before_;  // the value so far, and that before the activation
};

}  // namespace

std::optional<ProductEpilogue> product_epilogue(const Graph& body) { return Matcher(body).run(); }

}  // namespace rlx
