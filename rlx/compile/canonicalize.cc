#include <cmath>

#include "rlx/base/error.h"
#include "rlx/compile/bodies.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/dim_size.h"
#include "rlx/ops/extent.h"
#include "rlx/ops/shape_ops.h"
#include "rlx/ops/table.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(Binary);
RLX_USE_OP(Cast);
RLX_USE_OP(Concat);
RLX_USE_OP(Constant);
RLX_USE_OP(DimSize);
RLX_USE_OP(Expand);
RLX_USE_OP(Extent);
RLX_USE_OP(Narrow);
RLX_USE_OP(Reshape);
RLX_USE_OP(Transpose);

namespace {

using Values = std::optional<std::vector<Value>>;

// The value is this number in every element (a Constant of one element, or a splat, perhaps
// expanded or reshaped).
bool is_number(const Builder& b, Value v, double number) {
  const Node* n = &b.node_of(v);
  while (n->op == &kExpandOp || n->op == &kReshapeOp) n = &b.node_of(n->operands[0]);
  if (n->op != &kConstantOp) return false;
  const ConstantAttrs& c = n->attrs.as<ConstantAttrs>();
  if (c.value.num_elements() != 1 || is_complex(c.value.dtype())) return false;
  const double x = c.value.at(0);
  return x == number && std::signbit(x) == std::signbit(number);
}

// x*1, x/1, x-0, x+(-0), and for integers x+0. (In floats x+0 turns -0 into +0.)
Values simplify_binary(Builder& b, const Node& n, std::span<const Value> v) {
  const BinaryKind kind = n.attrs.as<BinaryAttrs>().kind;
  const auto is_neutral = [&](Value x) {
    switch (kind) {
      case BinaryKind::kMul:
      case BinaryKind::kDiv:
        return is_number(b, x, 1);
      case BinaryKind::kAdd:
        return is_number(b, x, -0.0) || (is_integer(b.dtype(x)) && is_number(b, x, 0));
      case BinaryKind::kSub:
        return is_number(b, x, 0);
      default:
        return false;
    }
  };
  const bool swappable = kind == BinaryKind::kMul || kind == BinaryKind::kAdd;
  if (is_neutral(v[1]) && b.type(v[0]) == n.results[0]) return std::vector{v[0]};
  if (swappable && is_neutral(v[0]) && b.type(v[1]) == n.results[0]) return std::vector{v[1]};
  return std::nullopt;
}

Values simplify_transpose(Builder& b, const Node& n, std::span<const Value> v) {
  const auto& perm = n.attrs.as<TransposeAttrs>().perm;
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) identity &= perm[i] == int64_t(i);
  if (identity) return std::vector{v[0]};
  const Node& inner = b.node_of(v[0]);
  if (inner.op != &kTransposeOp) return std::nullopt;
  const auto& first = inner.attrs.as<TransposeAttrs>().perm;
  std::vector<int64_t> both;
  bool both_identity = true;
  for (size_t i = 0; i < perm.size(); ++i) {
    both.push_back(first[size_t(perm[i])]);
    both_identity &= both.back() == int64_t(i);
  }
  if (both_identity) return std::vector{inner.operands[0]};
  return std::vector{transpose(b, inner.operands[0], std::move(both))};
}

Values simplify_view(Builder& b, const Node& n, std::span<const Value> v) {
  if (b.type(v[0]) == n.results[0] && n.op != &kTransposeOp) return std::vector{v[0]};
  if (n.op == &kTransposeOp) return simplify_transpose(b, n, v);
  const Node& inner = b.node_of(v[0]);
  if (n.op == &kReshapeOp && inner.op == &kReshapeOp) {
    const Value source = inner.operands[0];
    if (b.type(source) == n.results[0]) return std::vector{source};
    return std::vector{reshape(b, source, n.results[0].shape)};
  }
  return std::nullopt;
}

Values simplify_activation(Builder& b, const Node& n, std::span<const Value> v) {
  const Node& inner = b.node_of(v[0]);
  const bool both_neg = n.attrs.as<ActivationAttrs>().kind == ActivationKind::kNeg &&
                        inner.op == &kActivationOp &&
                        inner.attrs.as<ActivationAttrs>().kind == ActivationKind::kNeg;
  if (both_neg) return std::vector{inner.operands[0]};
  return std::nullopt;
}

// A bound size is a number, whatever x is.
Values simplify_dim_size(Builder& b, const Node& n, std::span<const Value> v) {
  const Dim& size = b.shape(v[0])[n.attrs.as<DimSizeAttrs>().axis];
  if (!size.is_static()) return std::nullopt;
  return std::vector{constant(b, Array::scalar(size.value()))};
}

Values simplify(Builder& b, const Node& n, std::span<const Value> v) {
  if (row_of(*n.op).cls == RowClass::kAlias) {
    std::vector<TensorType> types;
    for (Value x : v) types.push_back(b.type(x));
    return inline_graph(b, expand_to_graph(*n.op, n.attrs, types), v, simplify);
  }
  if (n.op->has(kControl)) return copy_with_bodies(b, n, v, canonicalize);
  if (n.op->has(kIdentity)) return std::vector{v[0]};
  if (n.op == &kBinaryOp) return simplify_binary(b, n, v);
  if (n.op == &kExtentOp) {
    const Dim& size = n.attrs.as<ExtentAttrs>().size;
    if (size.is_static()) return std::vector{constant(b, Array::scalar(size.value()))};
  }
  if (n.op == &kActivationOp) return simplify_activation(b, n, v);
  if (n.op == &kCastOp && b.type(v[0]) == n.results[0]) return std::vector{v[0]};
  if (n.op == &kDimSizeOp) return simplify_dim_size(b, n, v);
  if (n.op == &kConcatOp && v.size() == 1) return std::vector{v[0]};
  if (n.op->has(kView) && v.size() == 1) return simplify_view(b, n, v);
  return std::nullopt;
}

}  // namespace

Graph canonicalize(const Graph& graph) { return rewrite(graph, simplify); }

}  // namespace rlx
