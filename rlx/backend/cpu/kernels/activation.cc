#include "rlx/ops/activation.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/activation_rows.h"

namespace rlx::cpu {
namespace {

using PartFn = RowFn (*)(ActivationKind, DType);

// Per element, measured on one core with AVX-512. f64 has half the lanes and longer polynomials.
double nanoseconds(const KernelCall& call) {
  const double scale = double(size_of(call.results[0].dtype)) / 4;
  switch (call.as<ActivationAttrs>().kind) {
    case ActivationKind::kRelu:
    case ActivationKind::kNeg:
    case ActivationKind::kAbs:
    case ActivationKind::kRound:
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
    case ActivationKind::kSign:
      return 0.05 * scale;
    case ActivationKind::kSqrt:
    case ActivationKind::kRsqrt:
    case ActivationKind::kRecip:
    case ActivationKind::kHardSwish:
    case ActivationKind::kHardSigmoid:
    case ActivationKind::kSoftsign:
      return 0.25 * std::max(1.0, 1.5 * scale);
    default:
      return 0.7 * std::max(1.0, 1.2 * scale);
  }
}

template <PartFn kSelect>
PreparedKernel prepare(const KernelCall& call) {
  const RowFn row = kSelect(call.as<ActivationAttrs>().kind, call.results[0].dtype);
  return prepare_elementwise(call, row, nanoseconds(call));
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "activation:float",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_float(c.operands[0].dtype) ? "" : "not a float";
        },
        .prepare = prepare<activation_row>,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 1,
        .vector = true,
    },
    {
        .name = "activation:complex",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_complex(c.operands[0].dtype) ? "" : "not a complex number";
        },
        .prepare = prepare<activation_complex_row>,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 1,
        .vector = true,
    },
    {
        .name = "activation:integer",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_integer(c.operands[0].dtype) ? "" : "not an integer";
        },
        .prepare = prepare<activation_integer_row>,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 1,
    },
};

}  // namespace

RowFn activation_row(ActivationKind kind, DType dtype) {
  for (PartFn part :
       {activation_row_simple, activation_row_exp, activation_row_log, activation_row_trig}) {
    if (const RowFn row = part(kind, dtype)) return row;
  }
  return nullptr;
}

RLX_DEFINE_KERNELS(Activation, Cpu) = {kEntries};

}  // namespace rlx::cpu
