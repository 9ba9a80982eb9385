#include "rlx/ops/bind_size.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(BindSize);

namespace {

Attrs attrs(std::string symbol, Dim bound) {
  return Attrs::of(kBindSizeOp.fields, BindSizeAttrs{std::move(symbol), std::move(bound)});
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (const auto& [name, count, bound] :
       {std::tuple("none", 0, 0), std::tuple("nothing_of_some", 0, 7), std::tuple("some", 3, 7),
        std::tuple("all", 7, 7), std::tuple("large", 1031, 4099)}) {
    Sample s{name, attrs("n", bound), {{DType::kI64, {}, {Draw::kGiven, 0, 0, {double(count)}}}}};
    s.grad = GradCheck::kNo;
    list.push_back(std::move(s));
  }
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType count{DType::kI64, {}};
  return {
      {"operands", attrs("n", 3), {}, "expected 1 operand, got 0"},
      {"float", attrs("n", 3), {{DType::kF32, {}}}, "count is f32, expected one of: i64"},
      {"vector", attrs("n", 3), {{DType::kI64, {1}}}, "count"},
      {"no_name", attrs("", 3), {count}, "the size that it sets has no name"},
      {"odd_name", attrs("a b", 3), {count}, "'a b' is not a name for a symbolic size"},
      {"negative", attrs("n", -1), {count}, "the bound -1 of the size 'n' is negative"},
      {"itself",
       attrs("n", Dim::symbol("n") + 1),
       {count},
       "the bound of the size 'n' depends on the size itself"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(BindSize) = {samples, wrong_calls};

}  // namespace rlx
