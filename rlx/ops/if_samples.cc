#include "rlx/ops/control_samples.h"

namespace rlx {

RLX_USE_OP(If);
RLX_USE_OP(While);

namespace {

Attrs if_attrs(const std::vector<TensorType>& captures, const BodyFn& then_fn,
               const BodyFn& else_fn) {
  return Attrs::of(kIfOp.fields, IfAttrs{make_body("then", captures, then_fn),
                                         make_body("else", captures, else_fn)});
}

SampleOperand predicate(double value) { return {DType::kBool, {}, given({value})}; }
SampleOperand either() { return {DType::kBool, {}, integers(0, 1)}; }

Sample if_sample(std::string name, SampleOperand chosen, std::vector<SampleOperand> captures,
                 const BodyFn& then_fn, const BodyFn& else_fn) {
  Sample s{std::move(name), if_attrs(types_of(captures), then_fn, else_fn), {std::move(chosen)}};
  for (SampleOperand& o : captures) s.operands.push_back(std::move(o));
  allow_steps(s, 8, 8);
  return s;
}

const BodyFn kMix = [](Builder& b, const std::vector<Value>& v) {
  return std::vector{mix(b, v[0], v[1])};
};
const BodyFn kMixSwapped = [](Builder& b, const std::vector<Value>& v) {
  return std::vector{mix(b, mix(b, v[1], v[0]), v[1])};
};

void add_dtypes(std::vector<Sample>& list) {
  for (DType t : members(dtypes::kAny)) {
    const std::vector<SampleOperand> captures{{t, {3, 5}}, {t, {3, 5}}};
    const std::string name(to_string(t));
    list.push_back(if_sample(name + "_then", predicate(1), captures, kMix, kMixSwapped));
    list.push_back(if_sample(name + "_else", predicate(0), captures, kMix, kMixSwapped));
  }
}

void add_shapes(std::vector<Sample>& list) {
  const DType f = DType::kF32;
  list.push_back(if_sample("scalars", either(), {{f, {}}, {f, {}}}, kMix, kMixSwapped));
  list.push_back(if_sample("empty", either(), {{f, {0, 3}}, {f, {0, 3}}}, kMix, kMixSwapped));
  list.push_back(if_sample("one", either(), {{f, {1}}, {f, {1}}}, kMix, kMixSwapped));
  list.push_back(if_sample("large", either(), {{f, {4099}}, {f, {4099}}}, kMix, kMixSwapped));
}

// Results that are captures, constants, or one value twice.
void add_results(std::vector<Sample>& list) {
  const DType f = DType::kF64;
  list.push_back(if_sample(
      "several_results", either(), {{f, {2, 3}}, {f, {3}}},
      [](Builder& b, const std::vector<Value>& v) {
        return std::vector{exp(b, v[0]), v[1], sum(b, v[0], {0, 1})};
      },
      [](Builder& b, const std::vector<Value>& v) {
        const Value s = sum(b, v[0], {0});
        return std::vector{add(b, v[0], v[1]), s, scalar(b, DType::kF64, 7)};
      }));
  list.push_back(if_sample(
      "captures_pass", either(), {{f, {5}}, {f, {5}}},
      [](Builder&, const std::vector<Value>& v) {
        return std::vector{v[0], v[1], v[0]};
      },
      [](Builder&, const std::vector<Value>& v) {
        return std::vector{v[1], v[0], v[0]};
      }));
  for (const double chosen : {0.0, 1.0}) {
    list.push_back(if_sample(
        chosen != 0 ? "no_captures_then" : "no_captures_else", predicate(chosen), {},
        [](Builder& b, const std::vector<Value>&) {
          return std::vector{splat(b, DType::kF32, {3}, 2), scalar(b, DType::kI64, -1)};
        },
        [](Builder& b, const std::vector<Value>&) {
          return std::vector{iota(b, DType::kF32, {3}, 0), scalar(b, DType::kI64, 1)};
        }));
  }
  // The other branch would give infinities, and NaN in its derivative.
  list.push_back(if_sample(
      "the_other_is_singular", predicate(1), {{f, {3}, given({0, 1, 2})}},
      [](Builder& b, const std::vector<Value>& v) { return std::vector{mul(b, v[0], v[0])}; },
      [](Builder& b, const std::vector<Value>& v) {
        return std::vector{mul(b, log(b, v[0]), v[0])};
      }));
  // One predicate for all lanes: with one for each, Where would let the NaN through.
  list.back().grad = GradCheck::kNo;
}

// An If in each branch, and a loop in one of them.
void add_nested(std::vector<Sample>& list) {
  const DType f = DType::kF64;
  const TensorType x{f, {3}}, flag{DType::kBool, {}}, count{DType::kI64, {}};
  const BodyFn nested = [=](Builder& b, const std::vector<Value>& v) {
    return b.call(kIfOp, if_attrs({x, x}, kMix, kMixSwapped), {v[0], v[1], v[2]});
  };
  const BodyFn loop = [=](Builder& b, const std::vector<Value>& v) {
    WhileAttrs a;
    a.condition = make_body("condition", {count, x, x}, [](Builder& c, const auto& w) {
      return std::vector{less(c, w[0], scalar(c, DType::kI64, 3))};
    });
    a.body = make_body("body", {count, x, x}, [](Builder& c, const auto& w) {
      return std::vector{add(c, w[0], 1), mix(c, w[1], w[2])};
    });
    a.num_carries = 2;
    a.max_iterations = 4;
    const Value start = scalar(b, DType::kI64, 0);
    return std::vector{
        b.call(kWhileOp, Attrs::of(kWhileOp.fields, std::move(a)), {start, v[1], v[2]})[1]};
  };
  for (const double chosen : {0.0, 1.0}) {
    list.push_back(if_sample(chosen != 0 ? "nested_if" : "nested_while", predicate(chosen),
                             {either(), {f, {3}}, {f, {3}}}, nested, loop));
  }
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  add_dtypes(list);
  add_shapes(list);
  add_results(list);
  add_nested(list);
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType flag{DType::kBool, {}}, x{DType::kF32, {3}};
  const BodyFn pass = [](Builder&, const std::vector<Value>& v) { return v; };
  const BodyFn nothing = [](Builder&, const std::vector<Value>&) { return std::vector<Value>(); };
  const BodyFn twice = [](Builder&, const std::vector<Value>& v) {
    return std::vector{v[0], v[0]};
  };
  const BodyFn rounded = [](Builder& b, const std::vector<Value>& v) {
    return std::vector{cast(b, v[0], DType::kF16)};
  };
  const BodyFn weighted = [](Builder& b, const std::vector<Value>& v) {
    return std::vector{add(b, v[0], param(b, "w", DType::kF32, {3}))};
  };
  IfAttrs half;
  half.then_branch = make_body("then", {x}, pass);
  return {
      {"no_operand", if_attrs({x}, pass, pass), {}, "expected a predicate, got no operand"},
      {"predicate_dtype",
       if_attrs({x}, pass, pass),
       {{DType::kI64, {}}, x},
       "the predicate must be bool[], it is i64[]"},
      {"predicate_shape",
       if_attrs({x}, pass, pass),
       {{DType::kBool, {3}}, x},
       "the predicate must be bool[], it is bool[3]"},
      {"missing", Attrs::of(kIfOp.fields, half), {flag, x}, "the else branch is missing"},
      {"captures",
       if_attrs({x}, pass, pass),
       {flag, x, x},
       "the then branch takes 1 inputs, the operands make 2"},
      {"capture_type",
       if_attrs({x}, pass, pass),
       {flag, {DType::kF64, {3}}},
       "input 0 of the then branch ('in0') is f32[3], its operand makes f64[3]"},
      {"no_output", if_attrs({x}, nothing, pass), {flag, x}, "the then branch has no outputs"},
      {"outputs",
       if_attrs({x}, pass, twice),
       {flag, x},
       "the then branch has 1 outputs, the else branch 2"},
      {"output_type",
       if_attrs({x}, pass, rounded),
       {flag, x},
       "output 0 of the then branch is f32[3], that of the else branch f16[3]"},
      {"param", if_attrs({x}, weighted, pass), {flag, x}, "the then branch has the param 'w'"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(If) = {samples, wrong_calls};

}  // namespace rlx
