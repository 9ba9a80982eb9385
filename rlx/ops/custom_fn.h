#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// Graphs as those of If, While and Scan: no params, no updates, bound by position.
struct CustomFnAttrs {
  GraphRef forward;  // [operands...] to [results...]
  // [operands..., results..., cotangents of the differentiable results...] to [cotangents of the
  // differentiable operands...]; null: that of `forward`.
  GraphRef vjp;
  // [operands..., results..., tangents of the differentiable operands...] to [tangents of the
  // differentiable results...]; null: that of `forward`.
  GraphRef jvp;
};

}  // namespace rlx
