// The operators that the samples of Custom call: their definitions and CPU kernels. The reference
// knows their formulas by name (rlx/backend/reference/custom.cc).
#pragma once

#include "rlx/ops/custom.h"
#include "rlx/runtime/session.h"

namespace rlx {

// y = a * x + b for any shape and dtype (bool: x); `attributes` are the bytes a and b, signed.
// Chunks, in place, LeadingAxes; only a vjp.
const CustomDefinition& sample_affine();
// (s * x, sum of x * x) of x [n] and s []: f32 and f64. Serial with scratch, Loop; only a jvp.
const CustomDefinition& sample_scale_norm();
// The number of equal elements for each element of x [n], of any dtype: i64. No gradient, Loop.
const CustomDefinition& sample_matches();
// 0, 1, ..., n - 1 without operands; `attributes` are the dtype's name and n: "f32 7". Cannot be
// batched.
const CustomDefinition& sample_ramp();

void add_sample_kernels(Session& session);

}  // namespace rlx
