// Of DynamicSlice, DynamicUpdateSlice and KvAppend.
#include "rlx/ops/dynamic_slice.h"

#include <algorithm>

#include "rlx/ops/kv_append.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(DynamicSlice);
RLX_USE_OP(DynamicUpdateSlice);
RLX_USE_OP(KvAppend);

namespace {

constexpr DType kAllDTypes[] = {
#define RLX_DTYPE(E, name, bytes, cls, T) DType::E,
#include "rlx/base/dtypes.def"
};

Draw values_of(DType t) {
  if (t == DType::kBool) return {Draw::kInteger, 0, 1};
  if (is_integer(t)) return {Draw::kInteger, 0, 100};
  return {};
}

// One description for both ops. `axes` are given, or all behind the batch axes.
struct Case {
  std::string name;
  DType dtype;
  Dims x, window;
  std::vector<int64_t> axes{};
  int64_t batch_dims = 0;
  std::vector<double> starts{};  // drawn if empty
};

std::vector<Case> cases() {
  const DType f = DType::kF32;
  std::vector<Case> c = {
      {"vector", f, {11}, {3}},
      {"matrix", f, {7, 5}, {3, 2}},
      {"rows", f, {7, 5}, {2, 5}, {0}},
      {"columns", f, {7, 5}, {7, 2}, {1}},
      {"negative_axis", f, {4, 7, 5}, {4, 3, 5}, {-2}},
      {"two_axes", f, {5, 3, 7}, {2, 3, 4}, {0, 2}},
      {"at_end", f, {7, 5}, {3, 2}, {}, 0, {4, 3}},
      {"at_start", f, {7, 5}, {3, 2}, {}, 0, {0, 0}},
      {"whole", f, {3, 4}, {3, 4}},
      {"scalar", f, {}, {}},
      {"empty_window", f, {3, 4}, {3, 0}, {1}},
      {"empty", f, {0, 4}, {0, 2}, {1}},
      {"one", f, {1, 1}, {1, 1}},
      {"batch", f, {3, 7, 5}, {3, 2, 4}, {}, 1},
      {"batch_one_axis", f, {3, 7, 5}, {3, 2, 5}, {1}, 1},
      {"batch_two", f, {2, 3, 7}, {2, 3, 2}, {2}, 2},
      {"batch_all", f, {2, 3}, {2, 3}, {}, 2},
      {"no_batch", f, {0, 7, 5}, {0, 2, 5}, {1}, 1},
      {"large", f, {300, 257}, {200, 131}},
      {"large_rows", DType::kF64, {3, 500, 64}, {3, 2, 64}, {1}, 1},
  };
  for (const DType t : kAllDTypes) c.push_back({std::string(to_string(t)), t, {5, 6}, {2, 3}});
  return c;
}

std::vector<int64_t> axes_of(const Case& c) {
  std::vector<int64_t> axes = c.axes;
  for (int64_t a = c.batch_dims; c.axes.empty() && a < int64_t(c.x.size()); ++a) axes.push_back(a);
  for (int64_t& a : axes) a = normalize_axis(a, int64_t(c.x.size()));
  return axes;
}

SampleOperand starts_of(const Case& c) {
  const std::vector<int64_t> axes = axes_of(c);
  Dims shape(c.x.begin(), c.x.begin() + c.batch_dims);
  shape.push_back(int64_t(axes.size()));
  if (!c.starts.empty()) return {DType::kI64, shape, {.kind = Draw::kGiven, .values = c.starts}};
  int64_t most = axes.empty() ? 0 : INT64_MAX;
  for (int64_t a : axes) most = std::min(most, c.x[size_t(a)] - c.window[size_t(a)]);
  return {DType::kI64, shape, {Draw::kInteger, 0, double(most)}};
}

GradCheck grad_of(DType t) { return is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo; }

std::vector<Sample> slice_samples() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    Shape sizes;
    for (int64_t a : axes_of(c)) sizes.push_back(c.window[size_t(a)]);
    all.push_back({.name = c.name,
                   .attrs = Attrs::of(kDynamicSliceOp.fields,
                                      DynamicSliceAttrs{c.axes, std::move(sizes), c.batch_dims}),
                   .operands = {{c.dtype, c.x, values_of(c.dtype)}, starts_of(c)},
                   .grad = grad_of(c.dtype)});
  }
  return all;
}

std::vector<Sample> update_samples() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    all.push_back({.name = c.name,
                   .attrs = Attrs::of(kDynamicUpdateSliceOp.fields,
                                      DynamicUpdateSliceAttrs{c.axes, c.batch_dims}),
                   .operands = {{c.dtype, c.x, values_of(c.dtype)},
                                {c.dtype, c.window, values_of(c.dtype)},
                                starts_of(c)},
                   .grad = grad_of(c.dtype)});
  }
  return all;
}

std::vector<WrongCall> wrong_slices() {
  const auto with = [](DynamicSliceAttrs a) {
    return Attrs::of(kDynamicSliceOp.fields, std::move(a));
  };
  const TensorType x{DType::kF32, {3, 4, 5}}, one{DType::kI64, {1}};
  return {
      {"operands", with({{0}, {1}}), {x}, "expected 2 operands, got 1"},
      {"axis", with({{3}, {1}}), {x, one}, "axis 3 is out of range for rank 3"},
      {"order", with({{1, 0}, {1, 1}}), {x, {DType::kI64, {2}}}, "the axes [1, 0] must ascend"},
      {"twice", with({{1, -2}, {1, 1}}), {x, {DType::kI64, {2}}}, "the axes [1, 1] must ascend"},
      {"batch_axis", with({{0}, {1}, 1}), {x, one}, "stand behind 1 batch axes"},
      {"batch_dims", with({{0}, {1}, 4}), {x, one}, "batch_dims is 4, expected 0 to 3"},
      {"starts",
       with({{0}, {1}}),
       {x, {DType::kI64, {2}}},
       "starts has the shape [2], expected [1]"},
      {"batch_starts", with({{1}, {1}, 1}), {x, one}, "starts has the shape [1], expected [3, 1]"},
      {"starts_dtype", with({{0}, {1}}), {x, {DType::kI32, {1}}}, "starts is i32"},
      {"sizes", with({{0}, {1, 2}}), {x, one}, "expected one size for each of the axes [0]"},
      {"size", with({{0}, {4}}), {x, one}, "a window of size 4 does not fit axis 0 of [3, 4, 5]"},
      {"negative", with({{0}, {-1}}), {x, one}, "a window of size -1 does not fit axis 0"},
  };
}

std::vector<WrongCall> wrong_updates() {
  const auto with = [](DynamicUpdateSliceAttrs a) {
    return Attrs::of(kDynamicUpdateSliceOp.fields, std::move(a));
  };
  const DType f = DType::kF32;
  const TensorType x{f, {3, 4}}, one{DType::kI64, {1}};
  return {
      {"operands", with({{0}}), {x, x}, "expected 3 operands, got 2"},
      {"dtype", with({{0}}), {x, {DType::kF64, {1, 4}}, one}, "f64"},
      {"rank", with({{0}}), {x, {f, {4}}, one}, "update must have rank 2"},
      {"other_axis", with({{0}}), {x, {f, {1, 3}}, one}, "differ on axis 1, which has no start"},
      {"size", with({{0}}), {x, {f, {4, 4}}, one}, "a window of size 4 does not fit axis 0"},
      {"starts", with({}), {x, {f, {1, 4}}, one}, "starts has the shape [1], expected [2]"},
  };
}

// --- KvAppend

std::vector<Sample> append_samples() {
  std::vector<Sample> all;
  const auto add = [&](std::string name, DType t, Dims cache, int64_t rows, int64_t axis, Dims pos,
                       std::vector<double> given = {}) {
    Dims shape = cache;
    const auto at = size_t(axis < 0 ? axis + int64_t(cache.size()) : axis);
    shape[at] = rows;
    Draw draw{Draw::kInteger, 0, double(cache[at] - rows)};
    if (!given.empty()) draw = {.kind = Draw::kGiven, .values = std::move(given)};
    all.push_back({.name = std::move(name),
                   .attrs = Attrs::of(kKvAppendOp.fields, KvAppendAttrs{axis}),
                   .operands = {{t, std::move(cache), values_of(t)},
                                {t, std::move(shape), values_of(t)},
                                {DType::kI64, std::move(pos), std::move(draw)}},
                   .grad = grad_of(t)});
  };
  const DType f = DType::kF32;
  add("token", f, {2, 7, 3, 4}, 1, 1, {});
  add("tokens", f, {2, 7, 3, 4}, 3, 1, {});
  add("full", f, {2, 7, 3, 4}, 3, 1, {}, {4});
  add("first", f, {2, 7, 3, 4}, 3, 1, {}, {0});
  add("all", f, {2, 5, 3, 4}, 5, 1, {});
  add("none", f, {2, 5, 3, 4}, 0, 1, {}, {5});
  add("each", f, {3, 7, 2, 4}, 2, 1, {3}, {5, 0, 2});
  add("each_token", DType::kF64, {3, 7, 2, 4}, 1, 1, {3});
  add("heads_first", f, {3, 2, 7, 4}, 2, 2, {3});
  add("heads_first_shared", f, {3, 2, 7, 4}, 2, -2, {});
  add("each_head", f, {3, 2, 7, 4}, 2, 2, {3, 2});
  add("axis0", f, {11, 4}, 2, 0, {});
  add("vector", f, {11}, 2, 0, {});
  add("no_batch", f, {0, 7, 4}, 2, 1, {0});
  add("no_capacity", f, {2, 0, 4}, 0, 1, {});
  add("large", f, {2, 601, 4, 32}, 3, 1, {2});
  for (const DType t : kAllDTypes) add(std::string(to_string(t)), t, {2, 5, 3}, 2, 1, {2});
  return all;
}

std::vector<WrongCall> wrong_appends() {
  const auto at = [](int64_t axis) { return Attrs::of(kKvAppendOp.fields, KvAppendAttrs{axis}); };
  const DType f = DType::kF32;
  const TensorType cache{f, {2, 7, 3}}, row{f, {2, 1, 3}}, pos{DType::kI64, {}};
  return {
      {"operands", at(1), {cache, row}, "expected 3 operands, got 2"},
      {"axis", at(3), {cache, row, pos}, "axis 3 is out of range for rank 3"},
      {"dtype", at(1), {cache, {DType::kF16, {2, 1, 3}}, pos}, "f16"},
      {"rank", at(1), {cache, {f, {2, 3}}, pos}, "rows must have rank 3"},
      {"sizes", at(1), {cache, {f, {2, 1, 4}}, pos}, "differ on axis 2: they may differ on axis 1"},
      {"capacity",
       at(1),
       {cache, {f, {2, 8, 3}}, pos},
       "8 rows do not fit into a cache of capacity 7"},
      {"pos_dtype", at(1), {cache, row, {DType::kI32, {}}}, "pos is i32"},
      {"pos_shape", at(1), {cache, row, {DType::kI64, {3}}}, "pos has the shape [3], expected []"},
      {"pos_rank", at(1), {cache, row, {DType::kI64, {2, 7}}}, "pos has the shape [2, 7]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(DynamicSlice) = {slice_samples, wrong_slices};
RLX_DEFINE_SAMPLES(DynamicUpdateSlice) = {update_samples, wrong_updates};
RLX_DEFINE_SAMPLES(KvAppend) = {append_samples, wrong_appends};

}  // namespace rlx
