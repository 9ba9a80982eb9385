#include <algorithm>

#include "rlx/backend/cpu/kernels/activation_rows.h"

namespace rlx::cpu {
namespace {

using PartFn = RowFn (*)(ActivationKind, DType);

RowFn float_row(const ActivationAttrs& a, DType dtype) {
  if (a.kind == ActivationKind::kRelu) return relu_backward_row(dtype);
  if (a.straight_through) return second_operand_row(dtype);
  return activation_backward_row(a.kind, dtype);
}

bool is_cheap(ActivationKind kind) {
  return kind == ActivationKind::kRelu || kind == ActivationKind::kNeg ||
         kind == ActivationKind::kAbs || kind == ActivationKind::kHardSigmoid ||
         kind == ActivationKind::kHardSwish || kind == ActivationKind::kRound ||
         kind == ActivationKind::kFloor || kind == ActivationKind::kCeil ||
         kind == ActivationKind::kSign;
}

// Per element, as for Activation.
double nanoseconds(const KernelCall& call) {
  const double scale = double(size_of(call.results[0].dtype)) / 4;
  if (is_cheap(call.as<ActivationAttrs>().kind)) return 0.08 * scale;
  return 0.7 * std::max(1.0, 1.2 * scale);
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "activation_backward:float",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_float(c.operands[0].dtype) ? "" : "not a float";
        },
        .prepare =
            [](const KernelCall& c) {
              const RowFn row = float_row(c.as<ActivationAttrs>(), c.results[0].dtype);
              return prepare_elementwise(c, row, nanoseconds(c));
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
        .vector = true,
    },
    {
        .name = "activation_backward:complex",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_complex(c.operands[0].dtype) ? "" : "not a complex number";
        },
        .prepare =
            [](const KernelCall& c) {
              const ActivationKind kind = c.as<ActivationAttrs>().kind;
              const RowFn row = activation_backward_complex_row(kind, c.results[0].dtype);
              return prepare_elementwise(c, row, nanoseconds(c));
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
        .vector = true,
    },
};

constexpr KernelEntry kReluEntries[] = {
    {
        .name = "relu_backward:any",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare =
            [](const KernelCall& c) {
              const DType t = c.results[0].dtype;
              return prepare_elementwise(c, relu_backward_row(t), 0.02 * double(size_of(t)));
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
    },
};

}  // namespace

RowFn activation_backward_row(ActivationKind kind, DType dtype) {
  for (PartFn part : {activation_backward_row_simple, activation_backward_row_exp,
                      activation_backward_row_log, activation_backward_row_trig}) {
    if (const RowFn row = part(kind, dtype)) return row;
  }
  return nullptr;
}

RLX_DEFINE_KERNELS(ActivationBackward, Cpu) = {kEntries};
RLX_DEFINE_KERNELS(ReluBackward, Cpu) = {kReluEntries};

}  // namespace rlx::cpu
