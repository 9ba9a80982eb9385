// The commonest ends of a matrix product, which a device may hard-wire into the product's stores.
#pragma once

#include <cstddef>
#include <optional>

#include "rlx/ir/graph.h"
#include "rlx/ops/activation.h"

namespace rlx {

// sum = A B, before = sum + bias, result = activation(before) + residual; all f32, each part but
// the product may be missing.
struct ProductEpilogue {
  std::optional<ActivationKind> activation;  // Relu, Gelu or GeluApprox
  // Inputs of the body. The bias has one number per column, the residual the product's shape.
  std::optional<size_t> bias, residual;
  // Outputs of the body: the result, and what the activation is taken of, if that is kept.
  size_t result = 0;
  std::optional<size_t> before;
};

// That of a group's body with a MatMul or DotGeneral as root; none if it is any other.
std::optional<ProductEpilogue> product_epilogue(const Graph& body);

}  // namespace rlx
