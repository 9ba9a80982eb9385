#include "rlx/ops/cast.h"

#include "rlx/backend/cpu/kernels/cast_rows.h"

namespace rlx::cpu {
namespace {

RowFn select(DType from, DType to) {
  if (is_complex(from) || is_complex(to)) return cast_complex_row(from, to);
  return is_float(to) ? cast_to_float_row(from, to) : cast_to_integer_row(from, to);
}

PreparedKernel prepare(const KernelCall& call) {
  const DType from = call.operands[0].dtype, to = call.as<CastAttrs>().to;
  // Between floats and integers some pairs have no vector instruction.
  const double per_byte = is_float(from) != is_float(to) ? 0.05 : 0.01;
  const double bytes = double(size_of(from) + size_of(to));
  return prepare_elementwise(call, select(from, to), per_byte * bytes);
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "cast:any",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare = prepare,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 1,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Cast, Cpu) = {kEntries};

}  // namespace rlx::cpu
