#include "rlx/ops/fused.h"

#include <fmt/format.h>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(FusedConvBiasAct);
RLX_USE_OP(FusedMatMulBiasAct);
RLX_USE_OP(FusedMatMulResidual);
RLX_USE_OP(FusedResidualLN);
RLX_USE_OP(FusedResidualRmsNorm);
RLX_USE_OP(FusedSwiGLU);

namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

Sample make(std::string name, Attrs attrs, std::vector<SampleOperand> operands, int64_t reduction) {
  Sample s;
  s.name = std::move(name);
  s.attrs = std::move(attrs);
  s.operands = std::move(operands);
  s.reduction = reduction;
  // A composition of several rounded steps, of sums up to 4.
  s.extra_ulps = 16;
  s.scale = 4;
  // Each step may round to 16 bits, far coarser than the sums that tolerances are made for.
  if (!s.operands.empty() && s.operands[0].dtype == DType::kF16) s.scale *= 0x1p13;
  if (!s.operands.empty() && s.operands[0].dtype == DType::kBF16) s.scale *= 0x1p16;
  return s;
}

// Sums that are in the domain of every kind, and away from the corners of their derivatives and
// from the jumps of Round, Floor, Ceil and Sign.
struct Domain {
  Draw matrix{Draw::kUniform, 0.1, 0.15}, bias{Draw::kUniform, 0.3, 0.4};
};

bool is_step(ActivationKind kind) {
  return kind == ActivationKind::kRound || kind == ActivationKind::kFloor ||
         kind == ActivationKind::kCeil || kind == ActivationKind::kSign;
}

std::string activation_name(ActivationKind kind, DType t) {
  return fmt::format("{}_{}", enum_name(kind), to_string(t));
}

// Long sums are judged against what their terms add up to.
Sample large(Attrs attrs, std::vector<SampleOperand> operands, int64_t reduction) {
  Sample s = make("large", std::move(attrs), std::move(operands), reduction);
  s.scale = 16;
  return s;
}

// --- FusedMatMulBiasAct

Attrs matmul_attrs(std::optional<ActivationKind> kind) {
  return Attrs::of(kFusedMatMulBiasActOp.fields, FusedMatMulBiasActAttrs{kind});
}

std::vector<Sample> samples_matmul() {
  std::vector<Sample> all;
  const Domain d;
  for (size_t k = 0; k < kEnumCount<ActivationKind>; ++k) {
    const auto kind = ActivationKind(k);
    for (DType t : kFloats) {
      Sample s = make(activation_name(kind, t), matmul_attrs(kind),
                      {{t, {3, 4}, d.matrix}, {t, {4, 5}, d.matrix}, {t, {5}, d.bias}}, 4);
      if (is_step(kind)) s.grad = GradCheck::kNo;
      all.push_back(std::move(s));
    }
  }
  for (DType t : kFloats) {
    const std::string name(to_string(t));
    all.push_back(make(name, matmul_attrs(ActivationKind::kGelu),
                       {{t, {7, 13}}, {t, {13, 11}}, {t, {11}}}, 13));
    all.push_back(
        make(name + "_linear", matmul_attrs({}), {{t, {2, 3, 8}}, {t, {8, 6}}, {t, {6}}}, 8));
  }
  const DType f = DType::kF32;
  const Attrs silu = matmul_attrs(ActivationKind::kSilu);
  all.push_back(make("batched", silu, {{f, {2, 3, 4}}, {f, {2, 4, 5}}, {f, {5}}}, 4));
  all.push_back(make("no_rows", silu, {{f, {0, 4}}, {f, {4, 5}}, {f, {5}}}, 4));
  all.push_back(make("no_sum", silu, {{f, {2, 0}}, {f, {0, 5}}, {f, {5}}}, 1));
  all.push_back(make("one", silu, {{f, {1, 1}}, {f, {1, 1}}, {f, {1}}}, 1));
  all.push_back(large(silu, {{f, {129, 260}}, {f, {260, 270}}, {f, {270}}}, 260));
  return all;
}

std::vector<WrongCall> wrong_matmul() {
  const DType f = DType::kF32;
  const Attrs a = matmul_attrs({});
  return {
      {"bias", a, {{f, {2, 3}}, {f, {3, 4}}, {f, {3}}}, "bias must be f32[4], it is f32[3]"},
      {"vector", a, {{f, {3}}, {f, {3, 4}}, {f, {4}}}, "x"},
      {"inner", a, {{f, {2, 3}}, {f, {5, 4}}, {f, {4}}}, "cannot multiply"},
      {"integers", a, {{DType::kI32, {2, 3}}, {DType::kI32, {3, 4}}, {DType::kI32, {4}}}, "x"},
  };
}

// --- FusedMatMulResidual

Attrs no_attrs(const OpDef& op) { return Attrs::of(op.fields, NoAttrs{}); }

std::vector<Sample> samples_residual() {
  std::vector<Sample> all;
  const Attrs a = no_attrs(kFusedMatMulResidualOp);
  for (DType t : kFloats) {
    all.push_back(
        make(std::string(to_string(t)), a, {{t, {2, 7, 5}}, {t, {5, 11}}, {t, {2, 7, 11}}}, 5));
  }
  const DType f = DType::kF32;
  all.push_back(make("no_columns", a, {{f, {2, 3}}, {f, {3, 0}}, {f, {2, 0}}}, 3));
  all.push_back(make("one", a, {{f, {1, 1}}, {f, {1, 1}}, {f, {1, 1}}}, 1));
  all.push_back(large(a, {{f, {140, 257}}, {f, {257, 150}}, {f, {140, 150}}}, 257));
  return all;
}

std::vector<WrongCall> wrong_residual() {
  const DType f = DType::kF32;
  const Attrs a = no_attrs(kFusedMatMulResidualOp);
  return {
      {"residual", a, {{f, {2, 3}}, {f, {3, 4}}, {f, {4}}}, "residual must be f32[2, 4]"},
      {"two", a, {{f, {2, 3}}, {f, {3, 4}}}, "3"},
  };
}

// --- FusedConvBiasAct

Attrs conv_with(FusedConvBiasActAttrs a) {
  return Attrs::of(kFusedConvBiasActOp.fields, std::move(a));
}

std::vector<Sample> samples_conv() {
  std::vector<Sample> all;
  const Domain d;
  const DType f = DType::kF32;
  for (size_t k = 0; k < kEnumCount<ActivationKind>; ++k) {
    FusedConvBiasActAttrs a;
    a.activation = ActivationKind(k);
    for (DType t : kFloats) {
      Sample s =
          make(activation_name(*a.activation, t), conv_with(a),
               {{t, {1, 1, 3, 3}, d.matrix}, {t, {2, 1, 2, 2}, d.matrix}, {t, {2}, d.bias}}, 4);
      if (is_step(*a.activation)) s.grad = GradCheck::kNo;
      all.push_back(std::move(s));
    }
  }
  for (DType t : kFloats) {
    FusedConvBiasActAttrs a{{1, 2}, {1, 0}, {}, 1, ActivationKind::kTanh, true};
    all.push_back(make(std::string(to_string(t)), conv_with(a),
                       {{t, {2, 3, 5, 7}}, {t, {4, 3, 3, 3}}, {t, {4}}, {t, {2, 4, 5, 3}}}, 27));
  }
  FusedConvBiasActAttrs depthwise;
  depthwise.groups = 5;
  all.push_back(
      make("depthwise", conv_with(depthwise), {{f, {2, 5, 11}}, {f, {5, 1, 3}}, {f, {5}}}, 3));
  FusedConvBiasActAttrs plain;
  all.push_back(make("no_images", conv_with(plain), {{f, {0, 2, 4}}, {f, {3, 2, 1}}, {f, {3}}}, 2));
  all.push_back(large(conv_with(plain), {{f, {2, 8, 33, 37}}, {f, {16, 8, 3, 3}}, {f, {16}}}, 72));
  return all;
}

std::vector<WrongCall> wrong_conv() {
  const DType f = DType::kF32;
  FusedConvBiasActAttrs residual;
  residual.has_residual = true;
  return {
      {"bias", conv_with({}), {{f, {1, 2, 4}}, {f, {3, 2, 2}}, {f, {2}}}, "bias must be f32[3]"},
      {"residual",
       conv_with(residual),
       {{f, {1, 2, 4}}, {f, {3, 2, 2}}, {f, {3}}, {f, {1, 3, 4}}},
       "residual must be f32[1, 3, 3]"},
      {"missing", conv_with(residual), {{f, {1, 2, 4}}, {f, {3, 2, 2}}, {f, {3}}}, "4"},
  };
}

// --- FusedResidualLN

// Of both norms.
Attrs norm_with(const OpDef& op, bool has_bias, double eps = 1e-5) {
  return Attrs::of(op.fields, FusedResidualLNAttrs{has_bias, eps});
}

template <const OpDef& kOp>
std::vector<Sample> samples_norm() {
  std::vector<Sample> all;
  for (DType t : kFloats) {
    const std::string name(to_string(t));
    const SampleOperand x{t, {5, 17}}, row{t, {17}};
    all.push_back(make(name, norm_with(kOp, false), {x, x, row, row}, 17));
    all.push_back(make(name + "_bias", norm_with(kOp, true, 0.1), {x, x, row, row, row}, 17));
  }
  const DType f = DType::kF32;
  const auto rows = [&](int64_t m, int64_t n) {
    const SampleOperand x{f, {m, n}}, row{f, {n}};
    return std::vector<SampleOperand>{x, x, row, row};
  };
  all.push_back(make("no_rows", norm_with(kOp, false), rows(0, 4), 4));
  all.push_back(make("one_column", norm_with(kOp, false, 0.5), rows(3, 1), 1));
  all.push_back(large(norm_with(kOp, false), rows(70, 515), 515));
  return all;
}

template <const OpDef& kOp>
std::vector<WrongCall> wrong_norm() {
  const DType f = DType::kF32;
  const TensorType x{f, {2, 3}}, row{f, {3}};
  return {
      {"residual", norm_with(kOp, false), {x, row, row, row}, "residual must be f32[2, 3]"},
      {"gamma", norm_with(kOp, false), {x, x, x, row}, "gamma must be f32[3]"},
      {"beta", norm_with(kOp, true), {x, x, row, row, x}, "beta must be f32[3]"},
      {"eps", norm_with(kOp, false, -1), {x, x, row, row}, "eps is -1"},
  };
}

// --- FusedSwiGLU

Attrs swiglu_with(std::optional<DType> cast_to, bool gate_first) {
  return Attrs::of(kFusedSwiGLUOp.fields, FusedSwiGLUAttrs{cast_to, gate_first});
}

std::vector<Sample> samples_swiglu() {
  std::vector<Sample> all;
  for (DType t : kFloats) {
    const std::string name(to_string(t));
    all.push_back(make(name, swiglu_with({}, false), {{t, {3, 2, 14}}}, 4));
    all.push_back(make(name + "_first", swiglu_with({}, true), {{t, {5, 34}}}, 4));
    all.push_back(make("to_" + name, swiglu_with(t, false), {{DType::kF32, {7, 10}}}, 4));
    if (t == DType::kF64) all.back().scale *= 0x1p29;  // computed in f32 before
  }
  const DType f = DType::kF32;
  all.push_back(make("none", swiglu_with({}, false), {{f, {3, 0}}}, 4));
  all.push_back(make("one", swiglu_with({}, false), {{f, {2}}}, 4));
  all.push_back(large(swiglu_with({}, true), {{f, {90, 1026}}}, 4));
  return all;
}

std::vector<WrongCall> wrong_swiglu() {
  return {
      {"odd", swiglu_with({}, false), {{DType::kF32, {2, 5}}}, "is odd"},
      {"symbol", swiglu_with({}, false), {{DType::kF32, {2, Dim::symbol("d")}}}, "to be even"},
      {"cast", swiglu_with(DType::kI32, false), {{DType::kF32, {2, 4}}}, "cast_to is i32"},
      {"integers", swiglu_with({}, false), {{DType::kI32, {2, 4}}}, "x"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(FusedMatMulBiasAct) = {samples_matmul, wrong_matmul};
RLX_DEFINE_SAMPLES(FusedMatMulResidual) = {samples_residual, wrong_residual};
RLX_DEFINE_SAMPLES(FusedConvBiasAct) = {samples_conv, wrong_conv};
RLX_DEFINE_SAMPLES(FusedResidualLN) = {samples_norm<kFusedResidualLNOp>,
                                       wrong_norm<kFusedResidualLNOp>};
RLX_DEFINE_SAMPLES(FusedResidualRmsNorm) = {samples_norm<kFusedResidualRmsNormOp>,
                                            wrong_norm<kFusedResidualRmsNormOp>};
RLX_DEFINE_SAMPLES(FusedSwiGLU) = {samples_swiglu, wrong_swiglu};

}  // namespace rlx
