#include "rlx/ops/build.h"
#include "rlx/ops/elementwise_region.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(BatchElementwiseRegion);

namespace {

// y0 = x^2 + x; without floats also y1 = (x == x). Of bool: x as it is.
Attrs attrs(DType t, bool strict = false, int inputs = 1) {
  auto g = std::make_shared<Graph>("body");
  Builder b(*g);
  std::vector<Value> in;
  in.reserve(size_t(inputs));
  for (int i = 0; i < inputs; ++i) in.push_back(input(b, fmt::format("x{}", i), t, {}));
  const bool logic = t == DType::kBool;
  const Value x = in[0];
  g->add_output("y", logic ? where(b, x, x, equal(b, x, x)) : add(b, mul(b, x, x), x));
  if (!is_float(t)) g->add_output("z", equal(b, x, x));
  return Attrs::of(kBatchElementwiseRegionOp.fields, ElementwiseRegionAttrs{g, strict});
}

Sample sample(std::string name, DType t, std::vector<Dims> planes, bool strict = false) {
  Sample s{std::move(name), attrs(t, strict), {}};
  for (Dims& p : planes) s.operands.push_back({t, std::move(p), integers(0, 7)});
  s.grad = grad_for(t);
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (DType t : members(dtypes::kAny)) {
    const std::string name(to_string(t));
    list.push_back(sample("planes_" + name, t, {{2, 3, 5}, {1, 3, 5}, {4, 3, 5}}, is_float(t)));
    list.push_back(sample("one_" + name, t, {{3, 7}}));
  }
  const DType f32 = DType::kF32;
  list.push_back(sample("empty", f32, {{0, 4}, {2, 4}}));
  list.push_back(sample("large", f32, {{1031}, {13}}));
  list.push_back(sample("image", f32, {{1, 3, 8, 8}, {2, 3, 8, 8}}));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const DType f32 = DType::kF32;
  const TensorType plane{f32, {2, 3}}, other{f32, {2, 4}}, wide{DType::kF64, {2, 3}}, one{f32, {}};
  const Attrs missing = Attrs::of(kBatchElementwiseRegionOp.fields, ElementwiseRegionAttrs{});
  return {
      {"no_body", missing, {plane}, "the body is missing"},
      {"no_plane", attrs(f32), {}, "expected at least 1 operand, got 0"},
      {"two_inputs", attrs(f32, false, 2), {plane}, "the body reads one plane, it has 2 inputs"},
      {"scalar", attrs(f32), {one}, "plane 0"},
      {"sizes", attrs(f32), {plane, other}, "only the first sizes may differ"},
      {"mixed", attrs(f32), {plane, wide}, "operands 0 and 1 have the dtypes f32 and f64"},
      {"dtype", attrs(f32), {wide}, "the planes are f64, the input of the body is f32"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(BatchElementwiseRegion) = {samples, wrong_calls};

}  // namespace rlx
