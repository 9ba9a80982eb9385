#pragma once

#include "rlx/ops/norm.h"

namespace rlx {

using RmsNormAttrs = NormAttrs;

// gamma and beta may be left out.
Value rms_norm(Builder& b, Value x, Value gamma, Value beta, int64_t axis = -1, double eps = 1e-5);
// {dx, dgamma, dbeta} of rms_norm; gamma may be invalid (1 everywhere).
std::vector<Value> rms_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                     const RmsNormAttrs& attrs);

}  // namespace rlx
