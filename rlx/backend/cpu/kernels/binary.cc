#include "rlx/ops/binary.h"

#include "rlx/backend/cpu/kernels/binary_rows.h"

namespace rlx::cpu {
namespace {

double nanoseconds(const KernelCall& call) {
  const bool integers = is_integer(call.results[0].dtype);
  const double size = double(size_of(call.results[0].dtype));
  switch (call.as<BinaryAttrs>().kind) {
    case BinaryKind::kPow:
      return integers ? 20 : 0.4 * size;
    case BinaryKind::kMod:
      return integers ? 3 : 0.2 * size;
    case BinaryKind::kAtan2:
      return 0.3 * size;
    case BinaryKind::kDiv:
      return integers ? 3 : 0.06 * size;
    default:
      return 0.03 * size;
  }
}

template <RowFn (*kSelect)(BinaryKind, DType)>
PreparedKernel prepare(const KernelCall& call) {
  const RowFn row = kSelect(call.as<BinaryAttrs>().kind, call.results[0].dtype);
  return prepare_elementwise(call, row, nanoseconds(call));
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "binary:float",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_float(c.operands[0].dtype) ? "" : "not a float";
        },
        .prepare = prepare<binary_float_row>,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
        .vector = true,
    },
    {
        .name = "binary:complex",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_complex(c.operands[0].dtype) ? "" : "not a complex number";
        },
        .prepare = prepare<binary_complex_row>,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
        .vector = true,
    },
    {
        .name = "binary:integer",
        .fits = [](const KernelCall& c) -> std::string_view {
          const DType t = c.operands[0].dtype;
          return is_integer(t) || t == DType::kBool ? "" : "not an integer or bool";
        },
        .prepare = prepare<binary_integer_row>,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Binary, Cpu) = {kEntries};

}  // namespace rlx::cpu
