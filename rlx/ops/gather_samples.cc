#include "rlx/ops/gather.h"

#include "rlx/base/error.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Gather);
RLX_USE_OP(GatherBackward);

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

// Every index that is in range: negative ones too where the type has them.
SampleOperand indices_of(DType t, Dims shape, int64_t size) {
  const double low = class_of(t) == DTypeClass::kSigned ? -double(size) : 0;
  return {t, std::move(shape), {Draw::kInteger, low, double(size - 1)}};
}

// One description for both ops.
struct Case {
  std::string name;
  DType dtype, index_dtype;
  Dims table, indices;
  int64_t axis, batch_dims;
};

std::vector<Case> cases() {
  const DType f = DType::kF32, i = DType::kI64;
  std::vector<Case> c = {
      {"rows", f, i, {7, 3}, {5}, 0, 0},
      {"columns", f, i, {3, 7}, {4}, 1, 0},
      {"negative_axis", f, i, {3, 7, 2}, {4}, -2, 0},
      {"scalar_index", f, i, {5, 3}, {}, 0, 0},
      {"vector_table", f, i, {11}, {3, 2}, 0, 0},
      {"index_matrix", f, i, {4, 6, 3}, {2, 5}, 1, 0},
      {"no_indices", f, i, {4, 3}, {0}, 0, 0},
      {"empty_slices", f, i, {4, 0}, {3}, 0, 0},
      {"one", f, i, {1, 1}, {1}, 0, 0},
      {"many_equal", f, i, {2, 3}, {37}, 0, 0},
      {"batch", f, i, {3, 5, 2}, {3, 4}, 1, 1},
      {"batch_with_outer", f, i, {2, 3, 5, 4}, {2, 6}, 2, 1},
      {"two_batches", f, i, {2, 3, 5}, {2, 3}, 2, 2},
      {"long_slices", f, i, {13, 1031}, {7}, 0, 0},
      {"large", f, i, {500, 64}, {1200}, 0, 0},
      {"large_last", f, i, {60, 300}, {500}, 1, 0},
  };
  for (const DType t : kAllDTypes) {
    c.push_back({"table_" + std::string(to_string(t)), t, i, {6, 5}, {9}, 0, 0});
    c.push_back({"table_last_" + std::string(to_string(t)), t, i, {3, 6}, {5}, 1, 0});
    if (is_integer(t)) {
      c.push_back({"index_" + std::string(to_string(t)), f, t, {6, 5}, {4, 2}, 0, 0});
    }
  }
  return c;
}

void add_packed_gathers(std::vector<Sample>& list) {
  const auto add = [&](std::string name, DType t, std::optional<DType> to, Dims table, Dims indices,
                       int64_t axis, int64_t batch_dims) {
    const int64_t size = table[size_t(axis)];
    list.push_back(
        {.name = std::move(name),
         .attrs = Attrs::of(kGatherOp.fields, GatherAttrs{axis, batch_dims, to}),
         .operands = {{t, std::move(table)}, indices_of(DType::kI64, std::move(indices), size)},
         .grad = GradCheck::kNo});
  };
  for (const DType t : {DType::kQ4_0, DType::kQ8_0}) {
    const std::string n(to_string(t));
    add(n, t, {}, {7, 64}, {5}, 0, 0);
    add(n + "_middle", t, {}, {2, 5, 3, 32}, {4, 2}, 1, 0);
    add(n + "_batch", t, {}, {3, 5, 32}, {3, 4}, 1, 1);
    add(n + "_no_indices", t, {}, {7, 64}, {0}, 0, 0);
    add(n + "_large", t, {}, {101, 256}, {37}, 0, 0);
    for (const DType to : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      add(fmt::format("{}_to_{}", n, to_string(to)), t, to, {7, 96}, {11}, 0, 0);
    }
  }
}

std::vector<Sample> gather_samples() {
  std::vector<Sample> s;
  for (Case& c : cases()) {
    const int64_t size = c.table[size_t(c.axis < 0 ? c.axis + int64_t(c.table.size()) : c.axis)];
    s.push_back({.name = c.name,
                 .attrs = Attrs::of(kGatherOp.fields, GatherAttrs{c.axis, c.batch_dims}),
                 .operands = {{c.dtype, c.table, values_of(c.dtype)},
                              indices_of(c.index_dtype, c.indices, size)},
                 .grad = is_differentiable(c.dtype) ? GradCheck::kYes : GradCheck::kNo});
  }
  add_packed_gathers(s);
  return s;
}

std::vector<Sample> gather_backward_samples() {
  std::vector<Sample> s;
  for (Case& c : cases()) {
    if (c.dtype == DType::kBool) continue;
    const size_t axis = size_t(c.axis < 0 ? c.axis + int64_t(c.table.size()) : c.axis);
    Dims dy(c.table.begin(), c.table.begin() + int64_t(axis));
    dy.insert(dy.end(), c.indices.begin() + c.batch_dims, c.indices.end());
    dy.insert(dy.end(), c.table.begin() + int64_t(axis) + 1, c.table.end());
    Shape shape{std::span<const int64_t>(c.table)};
    s.push_back({.name = c.name,
                 .attrs = Attrs::of(kGatherBackwardOp.fields,
                                    GatherBackwardAttrs{c.axis, c.batch_dims, std::move(shape)}),
                 .operands = {{c.dtype, std::move(dy), values_of(c.dtype)},
                              indices_of(c.index_dtype, c.indices, c.table[axis])},
                 .grad = is_differentiable(c.dtype) ? GradCheck::kYes : GradCheck::kNo,
                 // Up to all indices may be equal; what adds up is far less in the others.
                 .reduction = std::max<int64_t>(num_elements(c.indices), 1)});
  }
  return s;
}

std::vector<WrongCall> wrong_gathers() {
  const auto wrong = [](std::string name, GatherAttrs attrs, TensorType table, TensorType indices,
                        std::string error) {
    return WrongCall{std::move(name),
                     Attrs::of(kGatherOp.fields, attrs),
                     {std::move(table), std::move(indices)},
                     std::move(error)};
  };
  const DType f = DType::kF32, i = DType::kI32;
  return {
      wrong("dtype", {0, 0, DType::kF64}, {f, {2, 3}}, {i, {2}}, "only packed dtypes are gathered"),
      wrong("packed_dtype", {0, 0, DType::kI8}, {DType::kQ8_0, {2, 32}}, {i, {2}}, "dtype is i8"),
      wrong("packed_last", {1, 0}, {DType::kQ8_0, {2, 32}}, {i, {2}},
            "q8_0 is gathered as whole rows: axis 1 is the last"),
      wrong("scalar", {0, 0}, {f, {}}, {i, {2}}, "axis 0 is out of range for rank 0"),
      wrong("axis", {2, 0}, {f, {2, 3}}, {i, {2}}, "axis 2 is out of range for rank 2"),
      wrong("float_indices", {0, 0}, {f, {2, 3}}, {f, {2}}, "indices is f32"),
      wrong("batch_above_axis", {0, 1}, {f, {2, 3}}, {i, {2}}, "batch_dims 1 must be"),
      wrong("batch_above_rank", {1, 1}, {f, {2, 3}}, {i, {}}, "the rank of indices 0"),
      wrong("batch_sizes", {1, 1}, {f, {2, 3}}, {i, {3, 1}}, "differ on the shared axis 0"),
  };
}

std::vector<WrongCall> wrong_gather_backwards() {
  const auto wrong = [](std::string name, GatherBackwardAttrs attrs, TensorType dy,
                        TensorType indices, std::string error) {
    return WrongCall{std::move(name),
                     Attrs::of(kGatherBackwardOp.fields, std::move(attrs)),
                     {std::move(dy), std::move(indices)},
                     std::move(error)};
  };
  const DType f = DType::kF32, i = DType::kI32;
  return {
      wrong("shape", {0, 0, {4, 3}}, {f, {2, 2}}, {i, {2}}, "from a table [4, 3] gives [2, 3]"),
      wrong("bool", {0, 0, {4}}, {DType::kBool, {2}}, {i, {2}}, "dy is bool"),
      wrong("float_indices", {0, 0, {4}}, {f, {2}}, {f, {2}}, "indices is f32"),
      wrong("axis", {1, 0, {4}}, {f, {2}}, {i, {2}}, "axis 1 is out of range for rank 1"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Gather) = {gather_samples, wrong_gathers};
RLX_DEFINE_SAMPLES(GatherBackward) = {gather_backward_samples, wrong_gather_backwards};

}  // namespace rlx
