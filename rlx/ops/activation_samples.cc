#include "rlx/ops/activation.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(ReluBackward);
RLX_USE_OP(ActivationBackward);

namespace {

using Kind = ActivationKind;

Attrs attrs(Kind kind, bool straight_through = false) {
  return Attrs::of(kActivationOp.fields, ActivationAttrs{kind, straight_through});
}
Attrs backward_attrs(Kind kind, bool straight_through = false) {
  return Attrs::of(kActivationBackwardOp.fields, ActivationAttrs{kind, straight_through});
}

bool of_integers(Kind k) {
  return k == Kind::kNeg || k == Kind::kAbs || k == Kind::kSign || k == Kind::kRelu ||
         k == Kind::kRound || k == Kind::kFloor || k == Kind::kCeil;
}
bool of_complexes(Kind k) { return k == Kind::kNeg || k == Kind::kRecip || k == Kind::kExp; }

// Correctly rounded; the others are within a few ulp of the accumulation type.
bool is_exact(Kind k) { return of_integers(k) || k == Kind::kSqrt || k == Kind::kRecip; }

// Where f is smooth (up to second order) and bounded.
Draw smooth_draw(Kind k) {
  switch (k) {
    case Kind::kLog:
    case Kind::kSqrt:
    case Kind::kRsqrt:
      return uniform(0.2, 4);
    case Kind::kRecip:
      return uniform(0.5, 3);
    case Kind::kTan:
      return uniform(-1.2, 1.2);
    case Kind::kRound:
    case Kind::kFloor:
    case Kind::kCeil:
      return uniform(0.1, 0.4);
    case Kind::kAbs:
    case Kind::kRelu:
    case Kind::kSign:
    case Kind::kElu:
    case Kind::kSoftsign:
      return distinct(-2.03, 1.9);
    default:
      return uniform(-2, 2);
  }
}

Draw integer_draw(DType t) {
  return class_of(t) == DTypeClass::kUnsigned ? special(0, 9) : special(-9, 9);
}

Sample forward(std::string name, Kind kind, DType t, Dims shape, Draw draw) {
  Sample s{std::move(name), attrs(kind), {{t, std::move(shape), std::move(draw)}}};
  s.grad = grad_for(t);
  s.extra_ulps = is_complex(t) ? 8 : (is_exact(kind) ? 0 : 4);
  // The error of the inner argument is multiplied by its size, 17 at the end of the range drawn.
  if (kind == Kind::kGeluApprox) s.extra_ulps = 64;
  return s;
}

Sample backward(std::string name, Kind kind, DType t, Dims shape, Draw draw) {
  Sample s{std::move(name),
           backward_attrs(kind),
           {{t, shape, std::move(draw)}, {t, shape, uniform(-2, 2)}}};
  s.grad = grad_for(t);
  s.extra_ulps = is_complex(t) ? 16 : 8;
  // Sums of terms of size up to 2 that vanish somewhere.
  s.reduction = 2;
  s.scale = 2;
  return s;
}

std::vector<Sample> shapes_of(Sample (*make)(std::string, Kind, DType, Dims, Draw), Kind kind) {
  const DType f32 = DType::kF32;
  const Draw draw = uniform(-2, 2);
  return {
      make("scalar", kind, f32, {}, draw),
      make("empty", kind, f32, {0}, draw),
      make("empty_axis", kind, f32, {3, 0}, draw),
      make("one", kind, f32, {1, 1}, draw),
      make("prime", kind, f32, {7, 13}, draw),
      make("large", kind, f32, {4099}, draw),
      make("large_f64", kind, DType::kF64, {4099}, draw),
      make("large_f16", kind, DType::kF16, {4099}, draw),
      make("large_bf16", kind, DType::kBF16, {4099}, draw),
  };
}

std::vector<Sample> samples() {
  std::vector<Sample> list = shapes_of(forward, Kind::kSilu);
  for (size_t k = 0; k < kEnumCount<Kind>; ++k) {
    const auto kind = Kind(k);
    const auto add = [&](std::string_view what, DType t, Draw draw, Dims shape, bool grad) {
      list.push_back(forward(fmt::format("{}{}_{}", what, enum_name(kind), to_string(t)), kind, t,
                             std::move(shape), std::move(draw)));
      if (!grad) list.back().grad = GradCheck::kNo;
    };
    for (DType t : members(dtypes::kFloats)) {
      add("", t, smooth_draw(kind), {2, 5}, true);
      const double range = kind == Kind::kGeluApprox ? 5 : 30;
      add("special_", t, special(-range, range), {61}, false);
    }
    if (of_integers(kind)) {
      for (DType t : members(dtypes::kInts)) add("", t, integer_draw(t), {67}, false);
    }
    if (of_complexes(kind)) {
      for (DType t : members(dtypes::kComplexes)) add("", t, uniform(0.5, 2), {2, 5}, true);
    }
  }
  Sample ties = forward("ties", Kind::kRound, DType::kF32, {8},
                        given({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609}));
  ties.grad = GradCheck::kNo;
  list.push_back(ties);
  Sample straight = forward("straight_through", Kind::kRound, DType::kF32, {2, 5}, uniform(-2, 2));
  straight.attrs = attrs(Kind::kRound, true);
  straight.grad = GradCheck::kConvention;
  list.push_back(straight);
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, i32{DType::kI32, {2}};
  const TensorType boolean{DType::kBool, {2}}, c64{DType::kC64, {2}};
  return {
      {"two_operands", attrs(Kind::kRelu), {f32, f32}, "expected 1 operand, got 2"},
      {"exp_of_integer",
       attrs(Kind::kExp),
       {i32},
       "Exp does not accept i32, only: f16 bf16 f32 f64 c64 c128"},
      {"gelu_of_complex", attrs(Kind::kGelu), {c64}, "Gelu does not accept c64"},
      {"neg_of_bool", attrs(Kind::kNeg), {boolean}, "Neg does not accept bool"},
      {"straight_through",
       attrs(Kind::kFloor, true),
       {f32},
       "straight_through is for Round, not for Floor"},
  };
}

// ---- ActivationBackward ----

std::vector<Sample> backward_samples() {
  std::vector<Sample> list = shapes_of(backward, Kind::kGelu);
  for (size_t k = 0; k < kEnumCount<Kind>; ++k) {
    const auto kind = Kind(k);
    for (DType t : members(dtypes::kFloats)) {
      const std::string name = fmt::format("{}_{}", enum_name(kind), to_string(t));
      list.push_back(backward(name, kind, t, {2, 5}, smooth_draw(kind)));
      Sample s = backward("special_" + name, kind, t, {61}, special(-9, 9));
      s.grad = GradCheck::kNo;
      list.push_back(std::move(s));
    }
    if (!of_complexes(kind)) continue;
    for (DType t : members(dtypes::kComplexes)) {
      list.push_back(backward(fmt::format("{}_{}", enum_name(kind), to_string(t)), kind, t, {2, 5},
                              uniform(0.5, 2)));
    }
  }
  Sample straight = backward("straight_through", Kind::kRound, DType::kF32, {2, 5}, uniform(-2, 2));
  straight.attrs = backward_attrs(Kind::kRound, true);
  list.push_back(std::move(straight));
  Sample edges =
      backward("hard_edges", Kind::kHardSwish, DType::kF32, {4}, given({-3, 3, -3.5, 3.5}));
  edges.grad = GradCheck::kNo;
  list.push_back(std::move(edges));
  return list;
}

std::vector<WrongCall> backward_wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, f64{DType::kF64, {2}}, i32{DType::kI32, {2}};
  return {
      {"one_operand", backward_attrs(Kind::kGelu), {f32}, "expected 2 operands, got 1"},
      {"integers", backward_attrs(Kind::kAbs), {i32, i32}, "Abs does not accept i32"},
      {"types",
       backward_attrs(Kind::kGelu),
       {f32, f64},
       "operands 0 and 1 must have one type, they are f32[2] and f64[2]"},
      {"shapes",
       backward_attrs(Kind::kGelu),
       {f32, {DType::kF32, {1}}},
       "operands 0 and 1 must have one type"},
      {"straight_through",
       backward_attrs(Kind::kExp, true),
       {f32, f32},
       "straight_through is for Round, not for Exp"},
  };
}

// ---- ReluBackward ----

std::vector<Sample> relu_samples() {
  std::vector<Sample> list;
  const Attrs none = Attrs::of(kReluBackwardOp.fields, NoAttrs{});
  const auto add = [&](std::string name, DType t, Dims shape, Draw x, Draw dy, bool grad) {
    Sample s{std::move(name), none, {{t, shape, std::move(x)}, {t, shape, std::move(dy)}}};
    s.grad = grad ? grad_for(t) : GradCheck::kNo;
    list.push_back(std::move(s));
  };
  for (DType t : members(dtypes::kReals)) {
    const std::string name(to_string(t));
    add("of_" + name, t, {3, 6}, distinct(-2, 1.9), uniform(-2, 2), true);
    add("special_" + name, t, {97}, special(-9, 9), special(-9, 9), false);
    add("large_" + name, t, {4099}, integers(-3, 3), integers(0, 3), false);
  }
  add("scalar", DType::kF32, {}, uniform(0.5, 1), uniform(-2, 2), true);
  add("empty", DType::kF32, {3, 0}, uniform(-2, 2), uniform(-2, 2), true);
  add("one", DType::kF32, {1}, uniform(0.5, 1), uniform(-2, 2), true);
  return list;
}

std::vector<WrongCall> relu_wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, c64{DType::kC64, {2}};
  const Attrs none = Attrs::of(kReluBackwardOp.fields, NoAttrs{});
  return {
      {"one_operand", none, {f32}, "expected 2 operands, got 1"},
      {"complex", none, {c64, c64}, "x is c64, expected one of"},
      {"shapes",
       none,
       {f32, {DType::kF32, {3}}},
       "operands 0 and 1 must have one type, they are f32[2] and f32[3]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Activation) = {samples, wrong_calls};
RLX_DEFINE_SAMPLES(ActivationBackward) = {backward_samples, backward_wrong_calls};
RLX_DEFINE_SAMPLES(ReluBackward) = {relu_samples, relu_wrong_calls};

}  // namespace rlx
