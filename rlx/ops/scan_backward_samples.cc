#include "rlx/ops/control_samples.h"

namespace rlx {

RLX_USE_OP(ScanBackward);
RLX_USE_OP(ScanBackwardXs);

namespace {

// With the cotangents of all differentiable results as the last operands.
Sample backward_sample(const OpDef& op, std::string name, const ScanParts& p, const BodyFn& fn) {
  Sample s{std::move(name), scan_attrs(op, p, fn), {}};
  for (const auto* list : {&p.carries, &p.captures, &p.xs}) {
    s.operands.insert(s.operands.end(), list->begin(), list->end());
  }
  const std::vector<TensorType> results =
      infer_scan_results(s.attrs.as<ScanAttrs>(), types_of(s.operands));
  for (const TensorType& t : results) {
    if (is_differentiable(t.dtype)) s.operands.push_back({t.dtype, t.shape.static_dims(), {}});
  }
  allow_steps(s, 8 * std::max<int64_t>(1, p.length), 32);
  return s;
}

std::vector<Sample> samples_of_kind(const OpDef& op) {
  std::vector<Sample> list;
  const auto add = [&](std::string name, const ScanParts& p, const BodyFn& fn) {
    list.push_back(backward_sample(op, std::move(name), p, fn));
  };
  for (DType t : members(dtypes::kFloatsComplexes)) {
    ScanParts p = simple_scan(t, 4, {3});
    add(std::string(to_string(t)), p, kScanStep);
    p.reverse = true;
    p.checkpoints = 2;
    add(fmt::format("{}_reverse_checkpoints", to_string(t)), p, kScanStep);
  }
  for (const int64_t length : {0, 1, 7}) {
    ScanParts p = simple_scan(DType::kF64, length, {2});
    add(fmt::format("length_{}", length), p, kScanStep);
    p.checkpoints = 3;
    add(fmt::format("length_{}_checkpoints", length), p, kScanStep);
  }
  add("empty_elements", simple_scan(DType::kF32, 3, {0, 2}), kScanStep);
  add("large", simple_scan(DType::kF32, 3, {1033}), kScanStep);
  const SampleOperand x{DType::kF64, {5, 3}, {}}, n{DType::kI32, {5}, integers(0, 3)};
  ScanParts map{{}, {{DType::kF64, {3}, {}}}, {n, x}, 5};
  const BodyFn weighted = [](Builder& b, const std::vector<Value>& v) {
    const Value y = mul(b, mul(b, v[1], v[3]), cast(b, v[2], DType::kF64));
    return std::vector{y, v[0]};
  };
  add("map_with_integers", map, weighted);
  map.checkpoints = 2;
  add("map_with_integers_checkpoints", map, weighted);
  return list;
}

std::vector<WrongCall> wrong_calls_of_kind(const OpDef& op) {
  const ScanParts p = simple_scan(DType::kF32, 5, {3});
  const TensorType c{DType::kF32, {3}}, x{DType::kF32, {5, 3}}, i{DType::kI32, {3}},
      xi{DType::kI32, {5, 3}};
  ScanAttrs none = scan_attrs(op, p, kScanStep).as<ScanAttrs>();
  none.body = nullptr;
  ScanAttrs counts = scan_attrs(op, p, kScanStep).as<ScanAttrs>();
  counts.num_captures = 7;
  return {
      {"no_body", Attrs::of(op.fields, none), {c, c, x, c, x}, "the body is missing"},
      {"counts",
       Attrs::of(op.fields, counts),
       {c, c, x, c, x},
       "num_carries 1 and num_captures 7 do not fit a body of 4 inputs"},
      {"forward", scan_attrs(op, p, kScanStep), {c, c}, "the Scan has 3 operands, 2 were given"},
      {"cotangents",
       scan_attrs(op, p, kScanStep),
       {c, c, x, c},
       "the Scan has 2 differentiable results, 1 cotangents were given"},
      {"cotangent",
       scan_attrs(op, p, kScanStep),
       {c, c, x, c, c},
       "cotangent 1 is f32[3], the result is f32[5, 3]"},
      {"scan",
       scan_attrs(op, p, kScanStep),
       {c, x, x, c, x},
       "input 2 of the body ('in2') is f32[3], its operand makes f32[5, 3]"},
      {"integers",
       scan_attrs(op, simple_scan(DType::kI32, 5, {3}), kScanStep),
       {i, i, xi},
       "none of the operands asked for is differentiable"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(ScanBackward) = {[] { return samples_of_kind(kScanBackwardOp); },
                                    [] { return wrong_calls_of_kind(kScanBackwardOp); }};
RLX_DEFINE_SAMPLES(ScanBackwardXs) = {[] { return samples_of_kind(kScanBackwardXsOp); },
                                      [] { return wrong_calls_of_kind(kScanBackwardXsOp); }};

}  // namespace rlx
