#pragma once

#include "rlx/ops/norm.h"

namespace rlx {

using LayerNormAttrs = NormAttrs;

// {dx, dgamma, dbeta} of layer_norm; gamma may be invalid (1 everywhere).
std::vector<Value> layer_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                       const LayerNormAttrs& attrs);

}  // namespace rlx
