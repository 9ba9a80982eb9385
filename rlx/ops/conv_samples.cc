#include "rlx/ops/conv.h"

#include <cmath>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Conv);
RLX_USE_OP(Conv3d);
RLX_USE_OP(Conv2dBackwardInput);
RLX_USE_OP(Conv2dBackwardWeight);

namespace {

struct Case {
  std::string name;
  DType dtype;
  Dims x, w;
  ConvAttrs attrs{};
};

void add_geometries(std::vector<Case>& all) {
  const DType t = DType::kF32, d = DType::kF64;
  all.push_back({"plain", t, {2, 3, 8, 9}, {4, 3, 3, 3}});
  all.push_back({"padded", t, {2, 3, 7, 7}, {5, 3, 3, 3}, {{}, {1, 1}, {}}});
  all.push_back({"padded_wide", d, {1, 2, 4, 5}, {3, 2, 3, 2}, {{}, {3, 2}, {}}});
  all.push_back({"asymmetric", t, {1, 2, 6, 5}, {3, 2, 3, 2}, {{}, {0, 1, 2, 0}, {}}});
  all.push_back({"stride2", t, {2, 3, 9, 10}, {4, 3, 3, 3}, {{2, 2}, {1, 1}, {}}});
  all.push_back({"stride_mixed", d, {1, 2, 11, 7}, {3, 2, 2, 3}, {{3, 1}, {1, 0, 0, 2}, {}}});
  all.push_back({"stride_over_kernel", d, {1, 2, 10, 9}, {3, 2, 2, 1}, {{4, 3}, {}, {}}});
  all.push_back({"uncovered_tail", d, {1, 1, 8, 8}, {2, 1, 3, 3}, {{4, 4}, {}, {}}});
  all.push_back({"dilated", t, {1, 3, 9, 11}, {2, 3, 3, 3}, {{}, {2, 2}, {2, 2}}});
  all.push_back(
      {"dilated_strided", d, {1, 2, 13, 11}, {3, 2, 3, 2}, {{2, 3}, {1, 2, 3, 0}, {2, 4}}});
  all.push_back({"groups2", t, {2, 4, 6, 6}, {6, 2, 3, 3}, {{}, {1, 1}, {}, 2}});
  all.push_back({"groups3_strided", d, {1, 6, 7, 7}, {3, 2, 3, 3}, {{2, 2}, {1, 0, 0, 1}, {}, 3}});
  all.push_back({"depthwise", t, {2, 8, 9, 9}, {8, 1, 3, 3}, {{}, {1, 1}, {}, 8}});
  all.push_back({"depthwise_wide", t, {1, 3, 12, 37}, {3, 1, 5, 3}, {{1, 1}, {2, 1}, {}, 3}});
  all.push_back(
      {"depthwise_multiplier", d, {1, 3, 7, 8}, {6, 1, 3, 2}, {{2, 1}, {1, 1}, {1, 2}, 3}});
  all.push_back({"pointwise", t, {2, 7, 5, 6}, {11, 7, 1, 1}});
  all.push_back({"pointwise_groups", t, {2, 6, 4, 5}, {4, 3, 1, 1}, {{}, {}, {}, 2}});
  all.push_back({"pointwise_strided", t, {1, 3, 7, 7}, {4, 3, 1, 1}, {{2, 2}, {}, {}}});
  all.push_back({"pointwise_padded", t, {1, 3, 4, 4}, {2, 3, 1, 1}, {{}, {1, 1}, {}}});
  all.push_back({"whole_image", t, {5, 3, 6, 6}, {7, 3, 6, 6}});
  all.push_back({"one_by_one_image", t, {3, 5, 1, 1}, {4, 5, 3, 3}, {{}, {1, 1}, {}}});
  all.push_back({"line", t, {2, 3, 17}, {5, 3, 3}, {{}, {1}, {}}});
  all.push_back({"line_strided", d, {1, 2, 23}, {3, 2, 4}, {{3}, {2, 1}, {2}}});
  all.push_back({"depthwise_many_taps", t, {1, 2, 26, 25}, {2, 1, 24, 23}, {{}, {}, {}, 2}});
  all.push_back({"line_depthwise", t, {2, 5, 19}, {5, 1, 4}, {{}, {3, 0}, {}, 5}});
  all.push_back({"volume", t, {2, 2, 4, 5, 6}, {3, 2, 2, 3, 3}, {{}, {1, 1, 1}, {}}});
  all.push_back({"volume_strided",
                 d,
                 {1, 4, 5, 6, 7},
                 {2, 2, 2, 3, 2},
                 {{2, 1, 2}, {0, 1, 1, 1, 0, 2}, {1, 2, 1}, 2}});
  all.push_back({"one_cell", d, {1, 1, 1, 1}, {1, 1, 1, 1}});
  all.push_back({"empty_line", t, {2, 3, 5, 0}, {4, 3, 3, 2}, {{}, {1, 1}, {}}});
  all.push_back({"batch0", t, {0, 3, 5, 5}, {4, 3, 3, 3}, {{}, {1, 1}, {}}});
  all.push_back({"no_outputs", t, {2, 3, 5, 5}, {0, 3, 3, 3}});
  all.push_back({"no_inputs", t, {2, 0, 5, 5}, {4, 0, 3, 3}});
  all.push_back({"digits", t, {64, 1, 8, 8}, {16, 1, 3, 3}, {{}, {1, 1}, {}}});
  all.push_back({"large", t, {5, 17, 28, 28}, {33, 17, 3, 3}, {{}, {1, 1}, {}}});
  all.push_back({"large_strided", t, {9, 16, 28, 27}, {32, 16, 3, 3}, {{2, 2}, {1, 1}, {}}});
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(to_string(t));
    all.push_back({name, t, {2, 5, 7, 8}, {6, 5, 3, 3}, {{}, {1, 1}, {}}});
    all.push_back({name + "_pointwise", t, {2, 5, 4, 4}, {3, 5, 1, 1}});
    all.push_back({name + "_depthwise", t, {2, 3, 8, 8}, {3, 1, 3, 3}, {{}, {1, 1}, {}, 3}});
    all.push_back({name + "_groups", t, {3, 4, 6, 5}, {4, 2, 2, 3}, {{2, 1}, {1, 0, 0, 2}, {}, 2}});
  }
  add_geometries(all);
  return all;
}

Dims result_of(const Case& c) {
  ConvAttrs a = c.attrs;
  normalize_conv(a, int64_t(c.x.size()) - 2);
  return conv_shape({c.dtype, Shape(std::span<const int64_t>(c.x))},
                    {c.dtype, Shape(std::span<const int64_t>(c.w))}, a)
      .static_dims();
}

int64_t area_of(const Dims& shape) {
  return num_elements(std::span<const int64_t>(shape).subspan(2));
}

ConvBackwardAttrs backward(const Case& c, const Dims& shape) {
  return {c.attrs.stride, c.attrs.padding, c.attrs.dilation, c.attrs.groups,
          Shape(std::span<const int64_t>(shape))};
}

Sample make(std::string name, Attrs attrs, std::vector<SampleOperand> operands, int64_t length) {
  return {.name = std::move(name),
          .attrs = std::move(attrs),
          .operands = std::move(operands),
          .reduction = std::max<int64_t>(length, 1),
          .scale = 4 * std::sqrt(double(length))};  // products are up to 4 and cancel
}

std::vector<Sample> samples_conv() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    all.push_back(make(c.name, Attrs::of(kConvOp.fields, c.attrs), {{c.dtype, c.x}, {c.dtype, c.w}},
                       c.w[1] * area_of(c.w)));
  }
  return all;
}

std::vector<Sample> samples_conv3d() {
  std::vector<Sample> all;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const ConvAttrs a{{1, 2, 1}, {1, 0, 1}, {}, 2};
    all.push_back(make(std::string(to_string(t)), Attrs::of(kConv3dOp.fields, a),
                       {{t, {1, 4, 3, 5, 4}}, {t, {2, 2, 2, 3, 2}}}, 24));
  }
  const DType t = DType::kF32;
  all.push_back(make("batch0", Attrs::of(kConv3dOp.fields, ConvAttrs{}),
                     {{t, {0, 1, 3, 3, 3}}, {t, {1, 1, 2, 2, 2}}}, 8));
  all.push_back(make("one_cell", Attrs::of(kConv3dOp.fields, ConvAttrs{}),
                     {{t, {1, 1, 1, 1, 1}}, {t, {1, 1, 1, 1, 1}}}, 1));
  all.push_back(make("large", Attrs::of(kConv3dOp.fields, ConvAttrs{{}, {1, 1, 1}, {}}),
                     {{t, {2, 7, 9, 11, 13}}, {t, {8, 7, 3, 3, 3}}}, 189));
  return all;
}

std::vector<Sample> samples_input() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    const int64_t outputs = c.w[0] / c.attrs.groups.value();
    all.push_back(make(c.name, Attrs::of(kConv2dBackwardInputOp.fields, backward(c, c.x)),
                       {{c.dtype, result_of(c)}, {c.dtype, c.w}}, outputs * area_of(c.w)));
  }
  return all;
}

std::vector<Sample> samples_weight() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    const Dims y = result_of(c);
    all.push_back(make(c.name, Attrs::of(kConv2dBackwardWeightOp.fields, backward(c, c.w)),
                       {{c.dtype, c.x}, {c.dtype, y}}, y[0] * area_of(y)));
  }
  return all;
}

std::vector<WrongCall> wrong_conv() {
  const auto with = [](ConvAttrs a) { return Attrs::of(kConvOp.fields, std::move(a)); };
  const DType t = DType::kF32;
  const TensorType x{t, {1, 4, 5, 5}}, w{t, {6, 4, 3, 3}};
  return {
      {"operands", with({}), {x}, "expected 2 operands, got 1"},
      {"dtypes",
       with({}),
       {x, {DType::kF64, {6, 4, 3, 3}}},
       "operands 0 and 1 have the dtypes f32 and f64"},
      {"integers",
       with({}),
       {{DType::kI32, {1, 4, 5, 5}}, {DType::kI32, {6, 4, 3, 3}}},
       "x is i32"},
      {"rank",
       with({}),
       {{t, {4, 5}}, {t, {6, 4}}},
       "x must be [N, C, spatial...] with 1 to 3 spatial axes"},
      {"rank6",
       with({}),
       {{t, {1, 1, 1, 1, 1, 1}}, {t, {1, 1, 1, 1, 1, 1}}},
       "1 to 3 spatial axes"},
      {"weight_rank", with({}), {x, {t, {6, 4, 3}}}, "the weight must have rank 4 as x has"},
      {"channels",
       with({}),
       {x, {t, {6, 3, 3, 3}}},
       "the weight has 3 input channels a group, expected 4"},
      {"groups", with({{}, {}, {}, 3}), {x, w}, "4 channels of x can't be split into 3 groups"},
      {"output_groups",
       with({{}, {}, {}, 4}),
       {x, {t, {6, 1, 3, 3}}},
       "6 output channels can't be split into 4 groups"},
      {"groups0", with({{}, {}, {}, 0}), {x, w}, "groups is 0, expected at least 1"},
      {"stride_length", with({{1, 1, 1}, {}, {}}), {x, w}, "stride has 3 values, expected 2"},
      {"stride0", with({{1, 0}, {}, {}}), {x, w}, "stride has the value 0, expected at least 1"},
      {"dilation0",
       with({{}, {}, {0, 1}}),
       {x, w},
       "dilation has the value 0, expected at least 1"},
      {"padding_length", with({{}, {1, 1, 1}, {}}), {x, w}, "padding has 3 values, expected 4"},
      {"padding_negative",
       with({{}, {0, -1}, {}}),
       {x, w},
       "padding has the value -1, expected at least 0"},
      {"padding_huge",
       with({{}, {1 << 20, (1 << 20) + 1}, {}}),
       {x, w},
       "padding has the value 1048577, expected at most 1048576"},
      {"kernel0",
       with({}),
       {x, {t, {6, 4, 0, 3}}},
       "kernel_size has the value 0, expected at least 1"},
      {"window",
       with({{}, {}, {3, 1}}),
       {x, w},
       "a window that spans 7 cells does not fit spatial axis 0 of padded size 5"},
      {"symbolic_kernel",
       with({}),
       {x, {t, {6, 4, Dim::symbol("k"), 3}}},
       "kernel sizes must be static"},
  };
}

std::vector<WrongCall> wrong_conv3d() {
  const DType t = DType::kF32;
  return {{"rank",
           Attrs::of(kConv3dOp.fields, ConvAttrs{}),
           {{t, {1, 4, 5, 5}}, {t, {6, 4, 3, 3}}},
           "x must have rank 5"}};
}

std::vector<WrongCall> wrong_input() {
  const auto with = [](Shape shape) {
    return Attrs::of(kConv2dBackwardInputOp.fields,
                     ConvBackwardAttrs{{2, 2}, {}, {}, 1, std::move(shape)});
  };
  const DType t = DType::kF32;
  const TensorType dy{t, {1, 6, 2, 2}}, w{t, {6, 4, 3, 3}};
  return {
      {"operands", with({1, 4, 5, 5}), {dy}, "expected 2 operands, got 1"},
      {"dy",
       with({1, 4, 7, 5}),
       {dy, w},
       "dy is [1, 6, 2, 2], but the convolution of [1, 4, 7, 5] with [6, 4, 3, 3] gives [1, 6, 3, "
       "2]"},
      {"rank", with({4, 5}), {dy, w}, "1 to 3 spatial axes"},
      {"dtypes",
       with({1, 4, 5, 5}),
       {{DType::kF16, {1, 6, 2, 2}}, w},
       "have the dtypes f16 and f32"},
  };
}

std::vector<WrongCall> wrong_weight() {
  const auto with = [](Shape shape) {
    return Attrs::of(kConv2dBackwardWeightOp.fields,
                     ConvBackwardAttrs{{}, {}, {}, 1, std::move(shape)});
  };
  const DType t = DType::kF32;
  const TensorType x{t, {2, 4, 5, 5}}, dy{t, {2, 6, 3, 3}};
  return {
      {"operands", with({6, 4, 3, 3}), {x}, "expected 2 operands, got 1"},
      {"dy",
       with({6, 4, 2, 3}),
       {x, dy},
       "dy is [2, 6, 3, 3], but the convolution of [2, 4, 5, 5] with [6, 4, 2, 3] gives [2, 6, 4, "
       "3]"},
      {"channels",
       with({6, 3, 3, 3}),
       {x, dy},
       "the weight has 3 input channels a group, expected 4"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Conv) = {samples_conv, wrong_conv};
RLX_DEFINE_SAMPLES(Conv3d) = {samples_conv3d, wrong_conv3d};
RLX_DEFINE_SAMPLES(Conv2dBackwardInput) = {samples_input, wrong_input};
RLX_DEFINE_SAMPLES(Conv2dBackwardWeight) = {samples_weight, wrong_weight};

}  // namespace rlx
