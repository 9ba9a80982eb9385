// Attributes of control flow. A body is a graph without params and updates; its inputs are bound by
// position, whatever their names, and its outputs are read by position.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// Operands [predicate bool [], captures...]. Both branches take the captures.
struct IfAttrs {
  GraphRef then_branch;
  GraphRef else_branch;
};

// Operands [carries..., captures...]; both graphs take all of them. `condition` gives one bool [],
// `body` the next carries.
struct WhileAttrs {
  GraphRef condition;
  GraphRef body;
  int64_t num_carries = 1;
  std::optional<int64_t> max_iterations;  // the loop stops there, whatever the condition says
};

// Operands [carries..., captures..., xs...], every x with a leading axis of size `length`. The body
// takes [index i64 [], carries..., captures..., slices of xs...] and gives [carries..., slices of
// ys...].
struct ScanAttrs {
  GraphRef body;
  int64_t num_carries = 0;
  int64_t num_captures = 0;
  Dim length;
  bool reverse = false;     // from index length - 1 down to 0
  int64_t checkpoints = 0;  // segments of the reverse sweep; 0: every step keeps its carries
};

// Checks that inference and rules share; all throw Error(kUser). `what` names the body.
// The body is there, has no params and updates, and takes inputs of these types.
void check_body(const GraphRef& body, std::string_view what, std::span<const TensorType> inputs);
std::vector<TensorType> output_types(const Graph& body);
// Result types of a Scan.
std::vector<TensorType> infer_scan_results(const ScanAttrs& a,
                                           std::span<const TensorType> operands);
// The type with a leading axis of that size; and without its leading axis.
TensorType stacked(TensorType type, const Dim& length);
TensorType slice_of(TensorType type);

}  // namespace rlx
