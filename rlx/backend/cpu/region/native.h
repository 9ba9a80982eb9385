// Which nodes have stages of their own, and which run as functions on memory.
#pragma once

#include <span>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/region/stages.h"
#include "rlx/base/dtype.h"
#include "rlx/ir/graph.h"

namespace rlx::cpu::region {

bool is_cast(const Node& n);
// The result is the operand's lanes as they are.
bool forwards(const Node& n, DType from);
// Registers hold values of the dtype: 16-bit floats as f32, bool as masks.
bool is_native(DType t, bool wide);
inline int64_t stored_size(DType t) { return size_of(t); }

struct NativeOp {
  StageOp unary = StageOp::kCount;
  bool is_long = false;  // some tens of instructions per vector
  bool rounds = false;   // no more than the rounding to 16 bits that follows
  // By the operand that is in the registers; the others follow in order.
  StageOp forms[3] = {StageOp::kCount, StageOp::kCount, StageOp::kCount};
};
// Whether there is a stage or a row function.
bool can_run(const Node& n, std::span<const DType> operands);
// kCount everywhere: no stage.
NativeOp native_op(const Node& n, std::span<const DType> operands, bool wide);

// x + (-y) as x - y and so on: the same bits, and no negation.
Graph absorb_negations(const Graph& body);

// Per element of 4 bytes, measured with AVX-512.
double stage_nanoseconds(StageOp op);
double call_nanoseconds(const Node& n);

}  // namespace rlx::cpu::region
