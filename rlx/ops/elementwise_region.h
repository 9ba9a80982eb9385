#pragma once

#include <span>
#include <vector>

#include "rlx/ir/builder.h"
#include "rlx/ir/field.h"

namespace rlx {

struct ElementwiseRegionAttrs {
  GraphRef body;                 // its inputs are the operands, its outputs the results, in order
  bool strict_rounding = false;  // 16-bit floats are rounded after every node of the body
};

// Whether a call may stand in the body of a region: an elementwise kind with one result, or a
// constant of one element.
bool fits_in_region(const Node& node);

// The body in normal form: every value is a scalar (rank 0), so that one body serves all shapes;
// inputs are named in0, in1, ..., outputs out0, out1, ...; nodes that no output needs are gone.
// Throws Error(kUser) on what does not fit.
GraphRef scalar_body(const GraphRef& body);

// A scalar body with f16 and bf16 widened: inputs are cast to f32, every node computes in f32,
// results are cast back once. A Cast of the body still rounds.
GraphRef widened_body(const GraphRef& body);
// What a region with these attributes computes, node by node, each rounded to its own dtype.
GraphRef rounding_body(const ElementwiseRegionAttrs& attrs);

}  // namespace rlx
