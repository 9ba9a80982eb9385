#pragma once

#include "rlx/ir/field.h"

namespace rlx {

enum class ActivationKind : uint8_t {
  kGelu,
  kGeluApprox,
  kSilu,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kNeg,
  kAbs,
  kSin,
  kCos,
  kTan,
  kAtan,
  kRecip,
  kRound,
  kFloor,
  kCeil,
  kSign,
  kSoftplus,
  kElu,
  kErf,
  kHardSwish,
  kHardSigmoid,
  kMish,
  kSoftsign,
  kLogSigmoid,
};

// Of Activation and ActivationBackward.
struct ActivationAttrs {
  ActivationKind kind = ActivationKind::kRelu;
  bool straight_through = false;  // Round only: gradient 1 instead of 0
};

}  // namespace rlx

RLX_ENUM(rlx::ActivationKind, "Gelu", "GeluApprox", "Silu", "Relu", "Sigmoid", "Tanh", "Exp", "Log",
         "Sqrt", "Rsqrt", "Neg", "Abs", "Sin", "Cos", "Tan", "Atan", "Recip", "Round", "Floor",
         "Ceil", "Sign", "Softplus", "Elu", "Erf", "HardSwish", "HardSigmoid", "Mish", "Softsign",
         "LogSigmoid");
