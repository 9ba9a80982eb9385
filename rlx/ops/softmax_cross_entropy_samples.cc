#include "rlx/ops/softmax_cross_entropy.h"

#include <limits>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(SoftmaxCrossEntropyWithLogits);
RLX_USE_OP(SoftmaxCrossEntropyBackward);

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  DType dtype;
  Dims rows;
  int64_t classes;
  DType label_dtype = DType::kI64;
  Draw logits{};
  std::optional<int64_t> ignore_index{};
  std::optional<Draw> labels{};
  GradCheck grad = GradCheck::kYes;
  double extra_ulps = 8;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(to_string(t));
    all.push_back({name, t, {7}, 13});
    all.push_back({name + "_long", t, {3}, 1031});
    all.push_back({name + "_leading", t, {2, 3}, 5});
  }
  const DType t = DType::kF32;
  for (const DType l : {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kU8, DType::kU16,
                        DType::kU32, DType::kU64}) {
    all.push_back({"labels_" + std::string(to_string(l)), t, {5}, 11, l});
  }
  all.push_back({"scalar_label", t, {}, 6});
  all.push_back({"batch0", t, {0}, 5});
  all.push_back({"one_class", t, {4}, 1});
  all.push_back({"one_row", DType::kF64, {1}, 10});
  all.push_back({"digits", t, {64}, 10, DType::kI32});
  all.push_back({"large", t, {301}, 1009});
  for (const int64_t c : {2, 15, 16, 17, 63, 64, 65}) {
    all.push_back({"classes" + std::to_string(c), t, {3}, c});
  }
  all.push_back({"ignore_outside",
                 DType::kF64,
                 {5},
                 4,
                 DType::kI32,
                 {},
                 -100,
                 Draw{.kind = Draw::kGiven, .values = {0, -100, 3, -100, 1}}});
  all.push_back({"ignore_inside",
                 t,
                 {5},
                 4,
                 DType::kU8,
                 {},
                 2,
                 Draw{.kind = Draw::kGiven, .values = {0, 2, 3, 2, 1}}});
  all.push_back({"ignore_infinite",
                 t,
                 {2},
                 2,
                 DType::kI64,
                 {.kind = Draw::kGiven, .values = {kInfinity, -kInfinity, 1, 2}},
                 0,
                 Draw{.kind = Draw::kGiven, .values = {0, 1}},
                 GradCheck::kNo});
  // All -inf: NaN. The label at -inf: +inf. +inf: NaN.
  all.push_back({"infinite",
                 t,
                 {4},
                 2,
                 DType::kI64,
                 {.kind = Draw::kGiven,
                  .values = {-kInfinity, -kInfinity, -kInfinity, 1, -kInfinity, 1, kInfinity, 1}},
                 {},
                 Draw{.kind = Draw::kGiven, .values = {0, 0, 1, 1}},
                 GradCheck::kNo});
  all.push_back(
      {"wide", t, {5}, 7, DType::kI64, {.low = -1000, .high = 1000}, {}, {}, GradCheck::kNo, 1100});
  return all;
}

Sample make(const OpDef& op, const Case& c, bool backward) {
  Dims shape = c.rows;
  shape.push_back(c.classes);
  const Draw labels =
      c.labels.value_or(Draw{.kind = Draw::kInteger, .low = 0, .high = double(c.classes - 1)});
  Sample s{.name = c.name,
           .attrs = Attrs::of(op.fields, CrossEntropyAttrs{c.ignore_index}),
           .operands = {{c.dtype, shape, c.logits}, {c.label_dtype, c.rows, labels}},
           .grad = c.grad,
           .reduction = c.classes,
           .extra_ulps = c.extra_ulps,
           .scale = 4};  // log of the sum and the picked logit may cancel
  if (backward) s.operands.push_back({c.dtype, c.rows});
  return s;
}

std::vector<Sample> samples_forward() {
  std::vector<Sample> all;
  for (const Case& c : cases()) all.push_back(make(kSoftmaxCrossEntropyWithLogitsOp, c, false));
  return all;
}

std::vector<Sample> samples_backward() {
  std::vector<Sample> all;
  for (const Case& c : cases()) all.push_back(make(kSoftmaxCrossEntropyBackwardOp, c, true));
  return all;
}

std::vector<WrongCall> wrong_forward() {
  const Attrs plain = Attrs::of(kSoftmaxCrossEntropyWithLogitsOp.fields, CrossEntropyAttrs{});
  const TensorType logits{DType::kF32, {3, 4}};
  return {
      {"operands", plain, {logits}, "expected 2 operands, got 1"},
      {"float_labels", plain, {logits, {DType::kF32, {3}}}, "labels is f32, expected one of"},
      {"integer_logits", plain, {{DType::kI32, {3, 4}}, {DType::kI64, {3}}}, "logits is i32"},
      {"scalar_logits",
       plain,
       {{DType::kF32, {}}, {DType::kI64, {}}},
       "logits must have at least rank 1"},
      {"shapes",
       plain,
       {logits, {DType::kI64, {4}}},
       "labels must have the shape [3] (logits without the last axis), they are i64[4]"},
  };
}

std::vector<WrongCall> wrong_backward() {
  const Attrs plain = Attrs::of(kSoftmaxCrossEntropyBackwardOp.fields, CrossEntropyAttrs{});
  const TensorType logits{DType::kF32, {3, 4}}, labels{DType::kI64, {3}};
  return {
      {"operands", plain, {logits, labels}, "expected 3 operands, got 2"},
      {"d_loss",
       plain,
       {logits, labels, {DType::kF32, {3, 1}}},
       "d_loss must be f32[3], it is f32[3, 1]"},
      {"d_loss_dtype",
       plain,
       {logits, labels, {DType::kF64, {3}}},
       "d_loss must be f32[3], it is f64[3]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(SoftmaxCrossEntropyWithLogits) = {samples_forward, wrong_forward};
RLX_DEFINE_SAMPLES(SoftmaxCrossEntropyBackward) = {samples_backward, wrong_backward};

}  // namespace rlx
