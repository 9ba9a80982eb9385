// What the samples of control flow share: bodies.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

using BodyFn = std::function<std::vector<Value>(Builder&, const std::vector<Value>&)>;

inline GraphRef make_body(std::string name, const std::vector<TensorType>& inputs,
                          const BodyFn& fn) {
  Graph g(std::move(name));
  Builder b(g);
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(input(b, fmt::format("in{}", i), inputs[i].dtype, inputs[i].shape));
  }
  const std::vector<Value> outputs = fn(b, values);
  for (size_t i = 0; i < outputs.size(); ++i) g.add_output(fmt::format("out{}", i), outputs[i]);
  return std::make_shared<const Graph>(std::move(g));
}

inline TensorType type_of(const SampleOperand& o) {
  return {o.dtype, Shape(std::span<const int64_t>(o.shape))};
}
inline std::vector<TensorType> types_of(const std::vector<SampleOperand>& operands) {
  std::vector<TensorType> types;
  types.reserve(operands.size());
  for (const SampleOperand& o : operands) types.push_back(type_of(o));
  return types;
}

// A tolerance for `steps` of arithmetic on values of about `magnitude`: each rounds to the dtype of
// the operands, which for 16-bit floats is far coarser than the sums that tolerances are made for.
inline void allow_steps(Sample& s, int64_t steps, double magnitude) {
  s.reduction = steps;
  s.scale = magnitude;
  for (const SampleOperand& o : s.operands) {
    if (o.dtype == DType::kF16) s.scale = magnitude * 0x1p13;
    if (o.dtype == DType::kBF16) s.scale = magnitude * 0x1p16;
  }
}

// A smooth function of two values of any one dtype, not symmetric, that stays small.
inline Value mix(Builder& b, Value x, Value y) {
  const DType t = b.dtype(x);
  if (t == DType::kBool) return equal(b, x, y);
  if (is_integer(t)) return sub(b, x, y);
  if (is_complex(t)) return sub(b, x, mul(b, mul(b, x, y), 0.25));
  return add(b, tanh(b, mul(b, x, y)), mul(b, y, 0.5));
}

inline const TensorType kIndexType{DType::kI64, {}};

struct ScanParts {
  std::vector<SampleOperand> carries, captures, xs;
  int64_t length = 0;
  bool reverse = false;
  int64_t checkpoints = 0;
};

inline Attrs scan_attrs(const OpDef& op, const ScanParts& p, const BodyFn& fn) {
  ScanAttrs a;
  std::vector<TensorType> inputs{kIndexType};
  for (const auto* list : {&p.carries, &p.captures}) {
    for (const SampleOperand& o : *list) inputs.push_back(type_of(o));
  }
  for (const SampleOperand& o : p.xs) inputs.push_back(slice_of(type_of(o)));
  a.body = make_body("body", inputs, fn);
  a.num_carries = int64_t(p.carries.size());
  a.num_captures = int64_t(p.captures.size());
  a.length = p.length;
  a.reverse = p.reverse;
  a.checkpoints = p.checkpoints;
  return Attrs::of(op.fields, std::move(a));
}

// c = f(f(c, x), y); y_out = f(c, x), for one carry c, one capture y, one x.
inline const BodyFn kScanStep = [](Builder& b, const std::vector<Value>& v) {
  const Value y = mix(b, v[1], v[3]);
  return std::vector{mix(b, y, v[2]), y};
};

inline ScanParts simple_scan(DType t, int64_t length, const Dims& shape) {
  Dims with_length = shape;
  with_length.insert(with_length.begin(), length);
  return {{{t, shape}}, {{t, shape}}, {{t, with_length}}, length};
}

}  // namespace rlx
