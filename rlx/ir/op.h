// OpDef: all that one op means. Defined once per op in rlx/ops/<stem>.cc, listed in
// rlx/ops/ops.def.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

class Builder;

// What inference sees of a call.
struct InferContext {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const TensorType> operands;
  template <class S>
  const S& as() const {
    return attrs.as<S>();
  }
  const TensorType& operator[](size_t i) const { return operands[i]; }
};

// What derivative and batching rules see of a call; all values live in the builder's graph.
struct RuleCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const Value> operands;
  std::span<const Value> results;
  template <class S>
  const S& as() const {
    return attrs.as<S>();
  }
};

// Result types of a call; throws Error(kUser) naming the shapes. The builder adds the op's name.
using InferFn = std::vector<TensorType> (*)(const InferContext&);
// Attributes in normal form (axes non-negative, defaults filled in); runs before inference.
using NormalizeFn = Attrs (*)(const InferContext&);
// The call in terms of kinds above the op in ops.def; one value per result.
using ExpandFn = std::vector<Value> (*)(Builder&, const Attrs&, std::span<const Value> operands);
// Tangents of the results from tangents of the operands; an invalid Value is zero.
using JvpFn = std::vector<Value> (*)(Builder&, const RuleCall&, std::span<const Value> tangents);
// Cotangents of the operands from cotangents of the results (at least one valid); an invalid Value
// is zero.
using VjpFn = std::vector<Value> (*)(Builder&, const RuleCall&, std::span<const Value> cotangents);
// Results with a leading batch axis of the given size. batched[i] says whether operand i has that
// axis (always axis 0); at least one has. call.results is empty.
using BatchFn = std::vector<Value> (*)(Builder&, const RuleCall&, std::span<const uint8_t> batched,
                                       const Dim& size);

struct Cost {
  double flops = 0;
  double bytes = 0;  // read and written, each operand and result once
};
struct CostContext {
  const Attrs& attrs;
  std::span<const TensorType> operands;  // static shapes
  std::span<const TensorType> results;
};
using CostFn = Cost (*)(const CostContext&);

// What a call needs of an operand along an axis of bounded size, whose extent is known only when
// the call runs: memory beyond the extent holds anything.
enum class TailRule : uint8_t {
  kRefused,  // the axis must not be bounded
  kIgnored,  // what lies beyond does not reach the live part of any result
  // Likewise, once it is overwritten with this value.
  kZero,
  kOne,
  kLowest,  // -infinity or the least integer
  kHighest,
};
using TailFn = TailRule (*)(const InferContext&, size_t operand, int64_t axis);

struct Decomposition {
  ExpandFn expand = nullptr;
  // A record instead of code: the call is the reverse sweep over the *decomposition* of this op.
  // Operands are that op's primals, then its cotangents; the results are the cotangents of the
  // primals listed in `wrt`.
  const OpDef* derivative_of = nullptr;
  Attrs (*forward_attrs)(const Attrs&) = nullptr;
  std::span<const uint8_t> wrt{};
  explicit operator bool() const { return expand != nullptr || derivative_of != nullptr; }
};

enum OpFlags : uint32_t {
  kNoFlags = 0,
  kElementwise = 1,  // results and broadcast operands correspond element by element
  kLeaf = 2,         // Input, Param, Constant: no operands, no kernel
  kView = 4,         // can be a new description of its operand's memory
  kRandom = 8,       // draws: never folded
  kIdentity = 16,    // forwards its operand (StopGradient)
  kNoGradient = 32,  // cotangents and tangents of all operands are zero by definition
  kControl = 64,     // runs the bodies in its attributes: no kernel, a control step of the plan
};

struct OpDef {
  std::string_view name{};
  const FieldTable* fields = nullptr;
  uint32_t flags = kNoFlags;
  std::string_view doc{};  // formula, shapes, dtypes, edge rules, errors, source
  InferFn infer = nullptr;
  NormalizeFn normalize = nullptr;
  Decomposition decompose{};
  JvpFn jvp = nullptr;
  VjpFn vjp = nullptr;
  BatchFn batching = nullptr;
  // Whether the first two operands may be swapped where their types are equal; none: no.
  bool (*commutes)(const Attrs&) = nullptr;
  CostFn cost = nullptr;  // none: one flop per result element, operands and results once
  TailFn tail = nullptr;  // none: kIgnored for elementwise ops, views and control, else kRefused
  bool has(OpFlags f) const { return (flags & f) != 0; }
};

Cost cost_of(const OpDef& op, const CostContext& context);

// Declares, then defines: a plain const object would have internal linkage, and constinit forbids
// start-up code.
#define RLX_DEFINE_OP(K)              \
  extern const ::rlx::OpDef k##K##Op; \
  constinit const ::rlx::OpDef k##K##Op
// For files that use one op without including a list of all.
#define RLX_USE_OP(K) extern const ::rlx::OpDef k##K##Op

}  // namespace rlx
