#include "rlx/base/packed_blocks.h"
#include "rlx/ir/leaf.h"
#include "rlx/ops/elementwise_samples.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Input);
RLX_USE_OP(Param);
RLX_USE_OP(Constant);
RLX_USE_OP(Iota);

namespace {

// A run binds inputs and params: there is no call of them to compare, only their types.
std::vector<Sample> no_samples() { return {}; }

std::vector<WrongCall> input_wrong_calls() {
  const auto attrs = [](std::string name, Shape shape) {
    return Attrs::of(kInputOp.fields, InputAttrs{std::move(name), DType::kF32, std::move(shape)});
  };
  return {
      {"no_name", attrs("", {2}), {}, "the name is empty"},
      {"operand", attrs("x", {2}), {{DType::kF32, {2}}}, "expected 0 operands, got 1"},
      {"negative", attrs("x", {2, -1}), {}, "a size is negative in the shape [2, -1]"},
      {"rank",
       attrs("x", Shape(std::vector<Dim>(17, Dim(1)))),
       {},
       "a tensor has at most 16 axes, 17 were given"},
      {"blocks",
       Attrs::of(kInputOp.fields, InputAttrs{"x", DType::kQ4_0, {2, 40}}),
       {},
       "the result is q4_0[2, 40]: its last axis must be whole blocks of 32 elements"},
      {"packed_scalar",
       Attrs::of(kInputOp.fields, InputAttrs{"x", DType::kQ4_0, {}}),
       {},
       "its last axis must be whole blocks of 32 elements"},
      {"overflow", attrs("x", {int64_t(1) << 40, int64_t(1) << 40}), {}, "size overflow"},
  };
}

std::vector<WrongCall> param_wrong_calls() {
  return {
      {"no_name",
       Attrs::of(kParamOp.fields, ParamAttrs{"", DType::kF32, {2}, true}),
       {},
       "the name is empty"},
  };
}

Attrs constant_attrs(Array value, Shape shape, bool splat) {
  return Attrs::of(kConstantOp.fields, ConstantAttrs{std::move(value), std::move(shape), splat});
}

std::vector<Sample> constant_samples() {
  std::vector<Sample> list;
  const auto add = [&](std::string name, Array value, Shape shape, bool splat) {
    Sample s{std::move(name), constant_attrs(std::move(value), std::move(shape), splat), {}};
    s.grad = GradCheck::kNo;
    list.push_back(std::move(s));
  };
  for (DType t : members(dtypes::kAny)) {
    add(fmt::format("of_{}", to_string(t)), Array::full(t, {2, 3}, 1), {2, 3}, false);
    add(fmt::format("splat_{}", to_string(t)), Array::full(t, {}, 1), {5, 7}, true);
  }
  for (DType t : members(dtypes::kPacked)) {
    const Array blocks = pack(Array::full(DType::kF32, {3, 64}, -0.75), t);
    add(fmt::format("of_{}", to_string(t)), blocks, {3, 64}, false);
  }
  add("scalar", Array::scalar(2.5f), {}, false);
  add("empty", Array::zeros(DType::kF32, {0, 3}), {0, 3}, false);
  add("empty_splat", Array::scalar(2.5f), {0, 3}, true);
  add("one", Array::full(DType::kF32, {1}, 0.5), {1}, false);
  add("large", Array::full(DType::kF32, {4099}, 0.5), {4099}, false);
  add("shape_left_out", Array::full(DType::kF32, {2, 3}, 0.5), {}, false);
  return list;
}

std::vector<WrongCall> constant_wrong_calls() {
  return {
      {"no_value", constant_attrs({}, {2}, false), {}, "a constant needs a value"},
      {"shape",
       constant_attrs(Array::zeros(DType::kF32, {2}), {3}, false),
       {},
       "the value has the shape [2], the constant [3]"},
      {"splat_of_two",
       constant_attrs(Array::zeros(DType::kF32, {2}), {3}, true),
       {},
       "a splat repeats one element, its value has 2"},
  };
}

Attrs iota_attrs(DType t, Shape shape, int64_t axis) {
  return Attrs::of(kIotaOp.fields, IotaAttrs{t, std::move(shape), axis});
}

std::vector<Sample> iota_samples() {
  std::vector<Sample> list;
  const auto add = [&](std::string name, DType t, Shape shape, int64_t axis) {
    Sample s{std::move(name), iota_attrs(t, std::move(shape), axis), {}};
    s.grad = GradCheck::kNo;
    list.push_back(std::move(s));
  };
  for (DType t : members(dtypes::kNumbers)) {
    add(fmt::format("of_{}", to_string(t)), t, {3, 7}, 1);
    add(fmt::format("large_{}", to_string(t)), t, {4099}, 0);  // rounds and wraps
  }
  add("first", DType::kI64, {5, 3, 2}, 0);
  add("middle", DType::kF32, {5, 3, 2}, 1);
  add("last_from_the_end", DType::kF32, {5, 3, 2}, -1);
  add("empty", DType::kI64, {0}, 0);
  add("empty_other_axis", DType::kI64, {3, 0}, 0);
  add("one", DType::kI64, {1}, 0);
  return list;
}

std::vector<WrongCall> iota_wrong_calls() {
  return {
      {"bool", iota_attrs(DType::kBool, {2}, 0), {}, "dtype is bool, expected one of: i8"},
      {"axis", iota_attrs(DType::kI64, {2}, 1), {}, "axis 1 is out of range for rank 1"},
      {"scalar", iota_attrs(DType::kI64, {}, 0), {}, "axis 0 is out of range for rank 0"},
      {"operand",
       iota_attrs(DType::kI64, {2}, 0),
       {{DType::kF32, {2}}},
       "expected 0 operands, got 1"},
      {"negative", iota_attrs(DType::kI64, {-2}, 0), {}, "a size is negative in the shape [-2]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Input) = {no_samples, input_wrong_calls};
RLX_DEFINE_SAMPLES(Param) = {no_samples, param_wrong_calls};
RLX_DEFINE_SAMPLES(Constant) = {constant_samples, constant_wrong_calls};
RLX_DEFINE_SAMPLES(Iota) = {iota_samples, iota_wrong_calls};

}  // namespace rlx
