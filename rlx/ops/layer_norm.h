#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// Of LayerNorm and its gradients: statistics over the axes axis, ..., rank - 1 together. gamma,
// beta and their gradients have the shape x.shape[:batch_axes] + x.shape[axis:].
struct LayerNormAttrs {
  int64_t axis = -1;
  double eps = 1e-5;
  int64_t batch_axes = 0;
};

// {dx, dgamma, dbeta} of layer_norm; gamma may be invalid (1 everywhere).
std::vector<Value> layer_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                       const LayerNormAttrs& attrs);

}  // namespace rlx
