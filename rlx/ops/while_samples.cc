#include "rlx/ops/control_samples.h"

namespace rlx {

RLX_USE_OP(While);

namespace {

const TensorType kCount{DType::kI64, {}};

// Carries (left, x), captures (y): left rounds of x = f(x, y).
WhileAttrs counted(const TensorType& x, const TensorType& y, const BodyFn& fn,
                   std::optional<int64_t> max_iterations) {
  WhileAttrs a;
  a.condition = make_body("condition", {kCount, x, y}, [](Builder& b, const auto& v) {
    return std::vector{less(b, scalar(b, DType::kI64, 0), v[0])};
  });
  a.body = make_body("body", {kCount, x, y}, [&](Builder& b, const auto& v) {
    return std::vector{sub(b, v[0], 1), fn(b, {v[1], v[2]})[0]};
  });
  a.num_carries = 2;
  a.max_iterations = max_iterations;
  return a;
}

const BodyFn kMix = [](Builder& b, const std::vector<Value>& v) {
  return std::vector{mix(b, v[0], v[1])};
};

SampleOperand rounds(double low, double high) { return {DType::kI64, {}, integers(low, high)}; }

Sample while_sample(std::string name, SampleOperand left, SampleOperand x, SampleOperand y,
                    std::optional<int64_t> max_iterations, const BodyFn& fn = kMix) {
  Sample s{std::move(name),
           Attrs::of(kWhileOp.fields, counted(type_of(x), type_of(y), fn, max_iterations)),
           {std::move(left), std::move(x), std::move(y)}};
  allow_steps(s, 16, 32);
  return s;
}

void add_dtypes(std::vector<Sample>& list) {
  for (DType t : members(dtypes::kAny)) {
    const std::string name(to_string(t));
    list.push_back(while_sample(name, rounds(1, 4), {t, {3, 5}}, {t, {3, 5}}, 5));
    if (is_differentiable(t)) continue;  // unbounded loops have no reverse mode
    list.push_back(while_sample(name + "_unbounded", rounds(0, 6), {t, {7}}, {t, {7}}, {}));
  }
}

void add_counts(std::vector<Sample>& list) {
  const SampleOperand x{DType::kF64, {3}, {}};
  list.push_back(while_sample("zero_trips", rounds(0, 0), x, x, 3));
  list.push_back(while_sample("at_most_zero", rounds(3, 3), x, x, 0));
  list.push_back(while_sample("one_trip", rounds(1, 1), x, x, 3));
  list.push_back(while_sample("stopped", rounds(9, 9), x, x, 4));
  list.push_back(while_sample("any_trips", rounds(0, 4), x, x, 3));
  const SampleOperand i{DType::kI32, {3}, {}};
  list.push_back(while_sample("many_trips", rounds(1000, 1000), i, i, {}));
}

void add_shapes(std::vector<Sample>& list) {
  const DType f = DType::kF32;
  list.push_back(while_sample("scalars", rounds(0, 3), {f, {}}, {f, {}}, 4));
  list.push_back(while_sample("empty", rounds(0, 3), {f, {0, 3}}, {f, {0, 3}}, 4));
  list.push_back(while_sample("large", rounds(2, 3), {f, {4099}}, {f, {4099}}, 4));
  list.push_back(while_sample("ones", rounds(0, 3), {f, {1}}, {f, {1, 1}}, 4,
                              [](Builder& b, const std::vector<Value>& v) {
                                return std::vector{mix(b, v[0], reshape(b, v[1], {1}))};
                              }));
  // A derivative of dead iterations would be NaN: x reaches the pole of log at 0.
  list.push_back(while_sample("singular_when_over", rounds(1, 1), {DType::kF64, {2}, given({1, 1})},
                              {DType::kF64, {2}}, 3, [](Builder& b, const std::vector<Value>& v) {
                                return std::vector{mul(b, log(b, v[0]), v[1])};
                              }));
}

// Newton's iteration for a square root, up to a residual: the condition depends on floats. One
// carry, no counter; a second loop without captures.
void add_conditions(std::vector<Sample>& list) {
  const TensorType f{DType::kF64, {}};
  WhileAttrs newton;
  newton.condition = make_body("condition", {f, f}, [](Builder& b, const auto& v) {
    const Value error = sub(b, mul(b, v[0], v[0]), v[1]);
    return std::vector{less(b, scalar(b, DType::kF64, 1e-3), mul(b, error, error))};
  });
  newton.body = make_body("body", {f, f}, [](Builder& b, const auto& v) {
    return std::vector{mul(b, add(b, v[0], div(b, v[1], v[0])), 0.5)};
  });
  newton.max_iterations = 20;
  list.push_back({"newton",
                  Attrs::of(kWhileOp.fields, newton),
                  {{DType::kF64, {}, uniform(1, 2)}, {DType::kF64, {}, uniform(3, 9)}}});
  list.back().extra_ulps = 64;

  WhileAttrs doubling;
  doubling.condition = make_body("condition", {f}, [](Builder& b, const auto& v) {
    return std::vector{less(b, v[0], scalar(b, DType::kF64, 50))};
  });
  doubling.body = make_body(
      "body", {f}, [](Builder& b, const auto& v) { return std::vector{add(b, v[0], v[0])}; });
  doubling.max_iterations = 20;
  list.push_back(
      {"no_captures", Attrs::of(kWhileOp.fields, doubling), {{DType::kF64, {}, uniform(1, 1.5)}}});
}

// Carries change places: the next ones must be read before the old are overwritten.
void add_exchange(std::vector<Sample>& list) {
  const TensorType f{DType::kF32, {5}};
  WhileAttrs a;
  a.condition = make_body("condition", {kCount, f, f, f}, [](Builder& b, const auto& v) {
    return std::vector{less(b, scalar(b, DType::kI64, 0), v[0])};
  });
  a.body = make_body("body", {kCount, f, f, f}, [](Builder& b, const auto& v) {
    return std::vector{sub(b, v[0], 1), v[2], v[3], v[1]};
  });
  a.num_carries = 4;
  a.max_iterations = 8;
  const SampleOperand x{DType::kF32, {5}, {}};
  list.push_back({"exchange", Attrs::of(kWhileOp.fields, a), {rounds(5, 5), x, x, x}});
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  add_dtypes(list);
  add_counts(list);
  add_shapes(list);
  add_conditions(list);
  add_exchange(list);
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType x{DType::kF32, {3}};
  const std::vector<TensorType> operands{kCount, x, x};
  const auto changed = [&](const auto& change) {
    WhileAttrs a = counted(x, x, kMix, 3);
    change(a);
    return Attrs::of(kWhileOp.fields, std::move(a));
  };
  const BodyFn pass = [](Builder&, const std::vector<Value>& v) { return v; };
  return {
      {"no_carries", changed([](auto& a) { a.num_carries = 0; }), operands,
       "num_carries is 0, expected 1 to the number of operands, 3"},
      {"carries", changed([](auto& a) { a.num_carries = 4; }), operands,
       "num_carries is 4, expected 1 to the number of operands, 3"},
      {"no_operand", changed([](auto&) {}), {}, "expected 1 to the number of operands, 0"},
      {"negative", changed([](auto& a) { a.max_iterations = -1; }), operands,
       "max_iterations is -1, it cannot be negative"},
      {"no_condition", changed([](auto& a) { a.condition = nullptr; }), operands,
       "the condition is missing"},
      {"no_body", changed([](auto& a) { a.body = nullptr; }), operands, "the body is missing"},
      {"inputs",
       changed([](auto&) {}),
       {kCount, x, x, x},
       "the condition takes 3 inputs, the operands make 4"},
      {"condition", changed([&](auto& a) { a.condition = make_body("c", operands, pass); }),
       operands, "the condition must have one output, bool[]; it has 3, the first is i64[]"},
      {"outputs", changed([&](auto& a) { a.body = make_body("b", operands, pass); }), operands,
       "the body has 3 outputs for 2 carries"},
      {"carry", changed([&](auto& a) {
         a.body = make_body("b", operands, [](Builder& b, const auto& v) {
           return std::vector{v[0], sum(b, v[1], {0})};
         });
       }),
       operands, "carry 1 is f32[3], the body makes it f32[]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(While) = {samples, wrong_calls};

}  // namespace rlx
