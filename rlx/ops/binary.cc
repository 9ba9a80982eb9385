#include "rlx/ops/binary.h"

#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Binary);

namespace {

DTypeSet accepted(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kSub:
    case BinaryKind::kMul:
    case BinaryKind::kDiv:
      return dtypes::kNumbers;
    case BinaryKind::kMax:
    case BinaryKind::kMin:
    case BinaryKind::kPow:
    case BinaryKind::kMod:
      return dtypes::kReals;
    case BinaryKind::kBitAnd:
    case BinaryKind::kBitOr:
    case BinaryKind::kBitXor:
      return dtypes::kInts | dtypes::kBools;
    case BinaryKind::kShl:
    case BinaryKind::kShr:
      return dtypes::kInts;
    case BinaryKind::kAtan2:
      return dtypes::kFloats;
  }
  __builtin_unreachable();
}

std::vector<TensorType> infer_binary(const InferContext& c) {
  expect_operands(c, 2);
  const BinaryKind kind = c.as<BinaryAttrs>().kind;
  const DTypeSet allowed = accepted(kind);
  if (!allowed.contains(c[0].dtype)) {
    user_error("{} does not accept {}, only: {}", enum_name(kind), to_string(c[0].dtype),
               allowed.to_string());
  }
  expect_same_dtype(c, 0, 1);
  return {{c[0].dtype, broadcast(c[0].shape, c[1].shape)}};
}

// g where x wins the comparison `kind` against y, half of it at a tie, else 0. Selections, so that
// an infinite g does not become NaN where it is not wanted.
Value where_wins(Builder& b, CompareKind kind, Value x, Value y, Value g) {
  const Value zero = zero_of(b, g);
  const Value tie = where(b, equal(b, x, y), mul(b, g, 0.5), zero);
  return where(b, compare(b, kind, x, y), g, tie);
}

// d(x^y)/dx = y x^(y-1). At y = 0 it is 0 also where x^-1 is not finite: there x is replaced, so
// that no NaN reaches the product, nor the derivative of this expression.
Value pow_slope_of_base(Builder& b, Value x, Value y) {
  const DType t = b.dtype(x);
  const Value nonzero =
      compare(b, CompareKind::kGt, activation(b, ActivationKind::kAbs, x), scalar(b, t, 0));
  const Value one = scalar(b, t, 1);
  const Value base = where(b, equal(b, y, scalar(b, t, 0)), where(b, nonzero, x, one), x);
  return mul(b, y, pow(b, base, sub(b, y, 1)));
}

// d(x^y)/dy = x^y ln x, and 0 at x = 0 for y >= 0.
Value pow_slope_of_exponent(Builder& b, Value x, Value y, Value result) {
  const DType t = b.dtype(x);
  const Value one = scalar(b, t, 1);
  const Value nonnegative = compare(b, CompareKind::kGe, y, scalar(b, t, 0));
  const Value base = where(b, equal(b, x, scalar(b, t, 0)), where(b, nonnegative, one, x), x);
  return mul(b, result, log(b, base));
}

// trunc(x/y) for the derivative of Mod: exact, unlike a rounded quotient that is then cut.
Value whole_quotient(Builder& b, Value x, Value y, Value remainder) {
  return activation(b, ActivationKind::kRound, div(b, sub(b, x, remainder), y));
}

struct Slopes {
  Value x, y;
};

// The partial derivatives of the kinds whose tangent is a plain product with them.
Slopes atan2_slopes(Builder& b, Value x, Value y) {
  const Value square = add(b, mul(b, x, x), mul(b, y, y));
  return {div(b, y, square), neg(b, div(b, x, square))};
}

// What operand 0 contributes to the tangent, given its tangent.
Value tangent_of_first(Builder& b, BinaryKind kind, Value x, Value y, Value t) {
  switch (kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kSub:
    case BinaryKind::kMod:
      return t;
    case BinaryKind::kMul:
      return mul(b, t, y);
    case BinaryKind::kDiv:
      return div(b, t, y);
    case BinaryKind::kMax:
      return where_wins(b, CompareKind::kGt, x, y, t);
    case BinaryKind::kMin:
      return where_wins(b, CompareKind::kLt, x, y, t);
    case BinaryKind::kPow:
      return mul(b, t, pow_slope_of_base(b, x, y));
    case BinaryKind::kAtan2:
      return mul(b, t, atan2_slopes(b, x, y).x);
    default:
      return {};  // integers only
  }
}

Value tangent_of_second(Builder& b, BinaryKind kind, Value x, Value y, Value result, Value t) {
  switch (kind) {
    case BinaryKind::kAdd:
      return t;
    case BinaryKind::kSub:
      return neg(b, t);
    case BinaryKind::kMul:
      return mul(b, x, t);
    case BinaryKind::kDiv:
      return neg(b, div(b, mul(b, result, t), y));
    case BinaryKind::kMax:
      return where_wins(b, CompareKind::kGt, y, x, t);
    case BinaryKind::kMin:
      return where_wins(b, CompareKind::kLt, y, x, t);
    case BinaryKind::kPow:
      return mul(b, t, pow_slope_of_exponent(b, x, y, result));
    case BinaryKind::kMod:
      return neg(b, mul(b, whole_quotient(b, x, y, result), t));
    case BinaryKind::kAtan2:
      return mul(b, t, atan2_slopes(b, x, y).y);
    default:
      return {};
  }
}

std::vector<Value> jvp_binary(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const BinaryKind kind = call.as<BinaryAttrs>().kind;
  const Value x = call.operands[0], y = call.operands[1], result = call.results[0];
  Value first, second;
  if (tangents[0].valid()) first = tangent_of_first(b, kind, x, y, tangents[0]);
  if (tangents[1].valid()) second = tangent_of_second(b, kind, x, y, result, tangents[1]);
  const Value t = add_valid(b, first, second);
  return {t.valid() ? expand_to(b, t, b.shape(result)) : t};
}

// The cotangent convention is the conjugate's: the rules are those of the tangents with conjugated
// operands.
std::vector<Value> vjp_binary(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const BinaryKind kind = call.as<BinaryAttrs>().kind;
  const Value g = cotangents[0];
  if (!is_differentiable(b.dtype(g))) return {Value{}, Value{}};
  const Value x = conjugate(b, call.operands[0]), y = conjugate(b, call.operands[1]);
  const Value result = conjugate(b, call.results[0]);
  const Value first = tangent_of_first(b, kind, x, y, g);
  const Value second = tangent_of_second(b, kind, x, y, result, g);
  return {unbroadcast(b, first, b.shape(x)), unbroadcast(b, second, b.shape(y))};
}

bool commutes(const Attrs& attrs) {
  switch (attrs.as<BinaryAttrs>().kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kMul:
    case BinaryKind::kMax:
    case BinaryKind::kMin:
    case BinaryKind::kBitAnd:
    case BinaryKind::kBitOr:
    case BinaryKind::kBitXor:
      return true;
    default:
      return false;
  }
}

Cost cost_binary(const CostContext& c) {
  switch (c.attrs.as<BinaryAttrs>().kind) {
    case BinaryKind::kPow:
      return elementwise_cost(c, 40);
    case BinaryKind::kAtan2:
      return elementwise_cost(c, 20);
    case BinaryKind::kDiv:
    case BinaryKind::kMod:
      return elementwise_cost(c, 4);
    default:
      return elementwise_cost(c, is_complex(c.results[0].dtype) ? 4 : 1);
  }
}

}  // namespace

RLX_DEFINE_OP(Binary) = {
    .name = "Binary",
    .fields = RLX_FIELDS(BinaryAttrs, kind),
    .flags = kElementwise,
    .doc =
        R"(z = x o y element by element; the shapes broadcast as in NumPy.
Operands: x, y of one dtype (mixed dtypes are the front end's to promote). Result: that dtype and
the broadcast shape.
Kinds and dtypes:
  Add Sub Mul Div         numbers
  Max Min Pow Mod         floats and integers
  BitAnd BitOr BitXor     integers and bool
  Shl Shr                 integers
  Atan2                   floats
Floats follow IEEE 754, rounded once (f16, bf16: computed in f32). Max and Min give NaN if either
operand is NaN, and order -0 below +0. Pow has the special values of C's pow (x^0 = 1 and 1^y = 1
also with NaN; a negative base needs a whole exponent). Mod is C's fmod: the remainder has the sign
of x, and is exact. Atan2(x, y) is the angle of the point with ordinate x and abscissa y.
Integers wrap. Div truncates toward zero; x / 0 has all bits set (-1, or the largest unsigned
number) and smallest / -1 is the smallest number again. Mod is the remainder of that division, with
x mod 0 = x. Pow multiplies with wrapping; a negative exponent gives 1 for base 1, the sign by parity
for base -1, else 0. Shift counts are read as unsigned numbers; from the width of the dtype on, Shl
gives 0 and Shr gives 0 (unsigned) or the sign in all bits (signed, where Shr keeps the sign).
Complex products and quotients are those of the textbook; parts that are infinite or NaN have no
special treatment.
Derivatives: Max and Min share by halves at ties. Pow: 0 for x at y = 0, and 0 for y at x = 0 with
y >= 0; NaN for y at x < 0. Mod: 1 for x, -trunc(x/y) for y. Integers and bits: none. Complex
cotangents are those of the conjugate: Mul gives g conj(y).
Errors: a dtype that the kind does not accept, different dtypes, shapes that do not broadcast.)",
    .infer = infer_binary,
    .jvp = jvp_binary,
    .vjp = vjp_binary,
    .batching = batch_elementwise,
    .commutes = commutes,
    .cost = cost_binary,
};

Value binary(Builder& b, BinaryKind kind, Value x, Value y) {
  return b.op(kBinaryOp, BinaryAttrs{kind}, {x, y});
}

Value add(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kAdd, x, y); }
Value sub(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kSub, x, y); }
Value mul(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kMul, x, y); }
Value div(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kDiv, x, y); }
Value maximum(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kMax, x, y); }
Value minimum(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kMin, x, y); }
Value pow(Builder& b, Value x, Value y) { return binary(b, BinaryKind::kPow, x, y); }

Value add(Builder& b, Value x, double y) { return add(b, x, scalar(b, b.dtype(x), y)); }
Value sub(Builder& b, Value x, double y) { return sub(b, x, scalar(b, b.dtype(x), y)); }
Value mul(Builder& b, Value x, double y) { return mul(b, x, scalar(b, b.dtype(x), y)); }
Value div(Builder& b, Value x, double y) { return div(b, x, scalar(b, b.dtype(x), y)); }

}  // namespace rlx
