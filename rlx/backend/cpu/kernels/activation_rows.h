// Row functions of Activation and its derivative, for the instruction set of the machine.
#pragma once

#include "rlx/backend/cpu/kernels/elementwise_loop.h"
#include "rlx/ops/activation.h"

namespace rlx::cpu {

// Operands: x. f32 or f64.
RowFn activation_row(ActivationKind kind, DType dtype);
// Operands: x, dy. f32 or f64.
RowFn activation_backward_row(ActivationKind kind, DType dtype);

// The parts of which these are made, each compiled by itself: null for a kind of another part.
RowFn activation_row_exp(ActivationKind kind, DType dtype);
RowFn activation_row_log(ActivationKind kind, DType dtype);
RowFn activation_row_trig(ActivationKind kind, DType dtype);
RowFn activation_row_simple(ActivationKind kind, DType dtype);
RowFn activation_backward_row_exp(ActivationKind kind, DType dtype);
RowFn activation_backward_row_log(ActivationKind kind, DType dtype);
RowFn activation_backward_row_trig(ActivationKind kind, DType dtype);
RowFn activation_backward_row_simple(ActivationKind kind, DType dtype);

// Neg Abs Sign Relu Round Floor Ceil of integers; Neg Recip Exp of complex numbers.
RowFn activation_integer_row(ActivationKind kind, DType dtype);
RowFn activation_complex_row(ActivationKind kind, DType dtype);
RowFn activation_backward_complex_row(ActivationKind kind, DType dtype);
// dx = (x <= 0 ? 0 : dy), and dx = dy.
RowFn relu_backward_row(DType dtype);
RowFn second_operand_row(DType dtype);

}  // namespace rlx::cpu
