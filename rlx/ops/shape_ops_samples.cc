#include "rlx/ops/shape_ops.h"

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Reshape);
RLX_USE_OP(Transpose);
RLX_USE_OP(Expand);
RLX_USE_OP(Narrow);
RLX_USE_OP(Copy);

namespace {

constexpr DType kAllDTypes[] = {
#define RLX_DTYPE(E, name, bytes, cls, T) DType::E,
#include "rlx/base/dtypes.def"
};

constexpr DType kPackedDTypes[] = {
#define RLX_PACKED_DTYPE(E, name, elements, bytes) DType::E,
#include "rlx/base/dtypes.def"
};

SampleOperand operand(DType t, Dims shape) {
  if (t == DType::kBool) return {t, std::move(shape), {Draw::kInteger, 0, 1}};
  if (is_integer(t)) return {t, std::move(shape), {Draw::kInteger, 0, 100}};
  return {t, std::move(shape)};
}

Sample sample(std::string name, const OpDef& op, auto attrs, DType t, Dims shape) {
  Sample s{std::move(name), Attrs::of(op.fields, std::move(attrs)), {operand(t, std::move(shape))}};
  s.grad = is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo;
  return s;
}

WrongCall wrong(std::string name, const OpDef& op, auto attrs, Dims shape, std::string error) {
  return {std::move(name),
          Attrs::of(op.fields, std::move(attrs)),
          {{DType::kF32, Shape(std::span<const int64_t>(shape))}},
          std::move(error)};
}

WrongCall wrong_packed(std::string name, const OpDef& op, auto attrs, Dims shape,
                       std::string error) {
  return {std::move(name),
          Attrs::of(op.fields, std::move(attrs)),
          {{DType::kQ8_0, Shape(std::span<const int64_t>(shape))}},
          std::move(error)};
}

std::string named(const char* prefix, DType t) { return prefix + std::string(to_string(t)); }

// --- Reshape

std::vector<Sample> reshape_samples() {
  const auto make = [](std::string name, Shape to, DType t, Dims from) {
    return sample(std::move(name), kReshapeOp, ReshapeAttrs{std::move(to)}, t, std::move(from));
  };
  std::vector<Sample> s = {
      make("infer", {-1, 6}, DType::kF32, {2, 3, 4}),
      make("to_scalar", {}, DType::kF32, {1, 1}),
      make("from_scalar", {1}, DType::kF32, {}),
      make("empty", {0, 5}, DType::kF32, {3, 0}),
      make("infer_empty", {-1, 2}, DType::kF32, {0, 4}),
      make("prime", {13, 7}, DType::kF32, {91}),
      make("large", {128, 300}, DType::kF32, {300, 128}),
  };
  for (const DType t : kAllDTypes) s.push_back(make(named("", t), {3, 2}, t, {2, 3}));
  for (const DType t : kPackedDTypes) {
    s.push_back(make(named("", t), {3, 2, 64}, t, {6, 64}));
    s.push_back(make(named("empty_", t), {4, 0, 32}, t, {0, 32}));
  }
  return s;
}

std::vector<WrongCall> wrong_reshapes() {
  const auto make = [](std::string name, Shape to, Dims from, std::string error) {
    return wrong(std::move(name), kReshapeOp, ReshapeAttrs{std::move(to)}, std::move(from),
                 std::move(error));
  };
  return {
      make("count", {2, 2}, {5}, "cannot reshape [5] to [2, 2]: 5 elements against 4"),
      make("two_open", {-1, -1}, {4}, "more than one size open"),
      make("no_multiple", {-1, 3}, {4}, "4 elements are not a multiple of 3"),
      make("open_beside_zero", {-1, 0}, {0}, "has no size"),
      make("negative", {-2, 2}, {4}, "negative size -2"),
      wrong_packed("packed_rows", kReshapeOp, ReshapeAttrs{{4, 32}}, {2, 64},
                   "q8_0 moves as whole rows: the last axis 64 cannot become that of [4, 32]"),
      wrong_packed("packed_block", kReshapeOp, ReshapeAttrs{{33}}, {33},
                   "its last axis must be whole blocks of 32 elements"),
  };
}

// --- Transpose

std::vector<Sample> transpose_samples() {
  const auto make = [](std::string name, std::vector<int64_t> perm, DType t, Dims from) {
    return sample(std::move(name), kTransposeOp, TransposeAttrs{std::move(perm)}, t,
                  std::move(from));
  };
  std::vector<Sample> s = {
      make("scalar", {}, DType::kF32, {}),
      make("identity", {0, 1}, DType::kF32, {3, 4}),
      make("negative", {-1, 0, 1}, DType::kF32, {2, 3, 5}),
      make("middle", {0, 2, 1, 3}, DType::kF32, {2, 3, 4, 5}),
      make("reverse", {3, 2, 1, 0}, DType::kF32, {2, 3, 4, 5}),
      make("empty", {1, 0}, DType::kF32, {0, 3}),
      make("ones", {1, 2, 0}, DType::kF32, {1, 1, 5}),
      make("prime", {1, 0}, DType::kF32, {37, 53}),
      make("large", {1, 0}, DType::kF32, {257, 300}),
  };
  for (const DType t : kAllDTypes) s.push_back(make(named("", t), {1, 0}, t, {17, 9}));
  for (const DType t : kAllDTypes) s.push_back(make(named("batch_", t), {0, 2, 1}, t, {2, 33, 18}));
  for (const DType t : kPackedDTypes) {
    s.push_back(make(named("", t), {1, 0, 2}, t, {5, 7, 96}));
    s.push_back(make(named("lead_", t), {2, 0, 1, 3}, t, {2, 3, 5, 32}));
  }
  return s;
}

std::vector<WrongCall> wrong_transposes() {
  const auto make = [](std::string name, std::vector<int64_t> perm, std::string error) {
    return wrong(std::move(name), kTransposeOp, TransposeAttrs{std::move(perm)}, {2, 3},
                 std::move(error));
  };
  return {
      make("length", {0, 1, 2}, "[0, 1, 2] has 3 entries for an operand of rank 2"),
      make("twice", {1, -1}, "not a permutation: axis 1 stands twice"),
      make("range", {0, 2}, "axis 2 is out of range for rank 2"),
      wrong_packed("packed", kTransposeOp, TransposeAttrs{{1, 0}}, {2, 32},
                   "the permutation [1, 0] moves the last axis"),
  };
}

// --- Expand

std::vector<Sample> expand_samples() {
  const auto make = [](std::string name, Shape to, DType t, Dims from) {
    Sample s = sample(std::move(name), kExpandOp, ExpandAttrs{std::move(to)}, t, std::move(from));
    return s;
  };
  std::vector<Sample> s = {
      make("scalar", {2, 3}, DType::kF32, {}),
      make("same", {2, 3}, DType::kF32, {2, 3}),
      make("lead", {4, 2, 3}, DType::kF32, {2, 3}),
      make("inner", {2, 5, 3}, DType::kF32, {2, 1, 3}),
      make("last", {3, 7}, DType::kF32, {3, 1}),
      make("keep", {4, -1, 3}, DType::kF32, {2, 1}),
      make("to_empty", {0, 3}, DType::kF32, {1, 3}),
      make("large", {300, 128}, DType::kF32, {1, 128}),
  };
  for (const DType t : kAllDTypes) s.push_back(make(named("", t), {2, 3, 4}, t, {3, 1}));
  for (const DType t : kPackedDTypes) s.push_back(make(named("", t), {2, 3, 64}, t, {3, 64}));
  for (const DType t : kPackedDTypes) s.push_back(make(named("row_", t), {4, 64}, t, {1, 64}));
  return s;
}

std::vector<WrongCall> wrong_expands() {
  const auto make = [](std::string name, Shape to, Dims from, std::string error) {
    return wrong(std::move(name), kExpandOp, ExpandAttrs{std::move(to)}, std::move(from),
                 std::move(error));
  };
  return {
      make("fewer_axes", {3}, {2, 3}, "the target has fewer axes"),
      make("not_one", {4, 3}, {2, 3}, "axis 0 has size 2, and only size 1 stretches"),
      make("shrink", {1, 3}, {2, 3}, "cannot expand [2, 3] to [1, 3]"),
      make("keep_missing", {-1, 2, 3}, {2, 3}, "keeps (-1) the size of axis 0"),
  };
}

// --- Narrow

std::vector<Sample> narrow_samples() {
  const auto make = [](std::string name, int64_t axis, int64_t start, int64_t length, DType t,
                       Dims from) {
    return sample(std::move(name), kNarrowOp, NarrowAttrs{axis, start, length}, t, std::move(from));
  };
  std::vector<Sample> s = {
      make("first", 0, 1, 2, DType::kF32, {4, 3}),
      make("negative_axis", -1, 1, 2, DType::kF32, {4, 3}),
      make("all", 1, 0, 3, DType::kF32, {4, 3}),
      make("empty", 1, 3, 0, DType::kF32, {4, 3}),
      make("of_empty", 0, 0, 0, DType::kF32, {0, 3}),
      make("middle", 1, 2, 3, DType::kF32, {2, 7, 5}),
      make("one", 0, 0, 1, DType::kF32, {1}),
      make("large", 1, 17, 101, DType::kF32, {300, 128}),
  };
  for (const DType t : kAllDTypes) s.push_back(make(named("", t), 1, 1, 3, t, {3, 5}));
  for (const DType t : kPackedDTypes) s.push_back(make(named("", t), 1, 1, 2, t, {3, 4, 64}));
  return s;
}

std::vector<WrongCall> wrong_narrows() {
  const auto make = [](std::string name, int64_t axis, int64_t start, int64_t length,
                       std::string error) {
    return wrong(std::move(name), kNarrowOp, NarrowAttrs{axis, start, length}, {4, 3},
                 std::move(error));
  };
  return {
      make("past_end", 0, 3, 2, "3 ... 3 + 2 are not within axis 0 of size 4"),
      make("negative_start", 0, -1, 2, "not within axis 0 of size 4"),
      make("negative_length", 1, 1, -1, "not within axis 1 of size 3"),
      make("axis", 2, 0, 1, "axis 2 is out of range for rank 2"),
      wrong_packed("packed", kNarrowOp, NarrowAttrs{1, 0, 32}, {4, 64},
                   "q8_0 moves as whole rows: axis 1 is the last"),
  };
}

// --- Copy

std::vector<Sample> copy_samples() {
  const auto make = [](std::string name, DType t, Dims shape) {
    return sample(std::move(name), kCopyOp, NoAttrs{}, t, std::move(shape));
  };
  std::vector<Sample> s = {
      make("scalar", DType::kF32, {}),        make("empty", DType::kF32, {3, 0}),
      make("ones", DType::kF32, {1, 1, 1}),   make("prime", DType::kF32, {7, 11, 13}),
      make("large", DType::kF32, {300, 257}), make("rank5", DType::kF32, {2, 3, 2, 5, 3}),
  };
  for (const DType t : kAllDTypes) s.push_back(make(named("", t), t, {19, 21}));
  for (const DType t : kAllDTypes) s.push_back(make(named("rank3_", t), t, {5, 17, 9}));
  for (const DType t : kPackedDTypes) {
    s.push_back(make(named("", t), t, {19, 96}));
    s.push_back(make(named("rank3_", t), t, {5, 17, 32}));
    s.push_back(make(named("row_", t), t, {64}));
  }
  return s;
}

std::vector<WrongCall> wrong_copies() {
  return {{"two",
           Attrs::of(kCopyOp.fields, NoAttrs{}),
           {{DType::kF32, {2}}, {DType::kF32, {2}}},
           "expected 1 operand, got 2"}};
}

}  // namespace

RLX_DEFINE_SAMPLES(Reshape) = {reshape_samples, wrong_reshapes};
RLX_DEFINE_SAMPLES(Transpose) = {transpose_samples, wrong_transposes};
RLX_DEFINE_SAMPLES(Expand) = {expand_samples, wrong_expands};
RLX_DEFINE_SAMPLES(Narrow) = {narrow_samples, wrong_narrows};
RLX_DEFINE_SAMPLES(Copy) = {copy_samples, wrong_copies};

}  // namespace rlx
