// Names for compositions that run as one step: canonicalize expands them, and fusion groups them
// again where the device's kernels take that. 16-bit weights are not widened on the way.
#pragma once

#include <optional>

#include "rlx/ir/field.h"
#include "rlx/ir/graph.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/conv.h"

namespace rlx {

class Builder;

struct FusedMatMulBiasActAttrs {
  std::optional<ActivationKind> activation{};
};

struct FusedConvBiasActAttrs {  // the first four as in ConvAttrs
  std::vector<int64_t> stride{};
  std::vector<int64_t> padding{};
  std::vector<int64_t> dilation{};
  Dim groups = 1;
  std::optional<ActivationKind> activation{};
  bool has_residual = false;
};

struct FusedResidualLNAttrs {
  bool has_bias = false;
  double eps = 1e-5;
};

using FusedResidualRmsNormAttrs = FusedResidualLNAttrs;

struct FusedSwiGLUAttrs {
  std::optional<DType> cast_to{};
  bool gate_first = false;  // the gate is the first half
};

// activation(x w + bias)
Value fused_matmul_bias_act(Builder& b, Value x, Value w, Value bias,
                            std::optional<ActivationKind> activation = {});
// x w + residual
Value fused_matmul_residual(Builder& b, Value x, Value w, Value residual);
// activation(conv(x, w) + bias + residual); an invalid residual is none
Value fused_conv_bias_act(Builder& b, Value x, Value w, Value bias, Value residual,
                          const ConvAttrs& conv, std::optional<ActivationKind> activation = {});
// The norms of x + residual (+ bias) along the last axis; an invalid bias is none.
Value fused_residual_layer_norm(Builder& b, Value x, Value residual, Value bias, Value gamma,
                                Value beta, double eps = 1e-5);
Value fused_residual_rms_norm(Builder& b, Value x, Value residual, Value bias, Value gamma,
                              Value beta, double eps = 1e-5);
// up gate sigmoid(gate) of the halves of the last axis
Value fused_swiglu(Builder& b, Value x, FusedSwiGLUAttrs attrs = {});

}  // namespace rlx
