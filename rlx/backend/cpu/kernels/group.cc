// Group, by kind of root. See rlx/backend/cpu/group/.
#include "rlx/backend/cpu/group/group_kernels.h"

namespace rlx {

RLX_USE_OP(Conv);
RLX_USE_OP(DotGeneral);
RLX_USE_OP(MatMul);

namespace cpu {
namespace {

using enum StrideForm;
// The root's own operands come first.
constexpr StrideForm kAnyForms[] = {kAny};
constexpr StrideForm kDense1[] = {kDense, kAny};
constexpr StrideForm kDense2[] = {kDense, kDense, kAny};
constexpr StrideForm kDense3[] = {kDense, kDense, kDense, kAny};

template <const OpDef& kRoot>
std::string_view fits_product(const KernelCall& call) {
  return fits_group_product(call, kRoot);
}
template <size_t kDirect>
std::string_view fits_rows(const KernelCall& call) {
  return fits_group_rows(call, kDirect);
}

constexpr KernelEntry kEntries[] = {
    {.name = "group:matmul",
     .fits = fits_product<kMatMulOp>,
     .prepare = prepare_group_product,
     .operand_forms = kAnyForms,
     .vector = true},
    {.name = "group:dot_general",
     .fits = fits_product<kDotGeneralOp>,
     .prepare = prepare_group_product,
     .operand_forms = kDense2,
     .vector = true},
    {.name = "group:conv",
     .fits = fits_product<kConvOp>,
     .prepare = prepare_group_product,
     .operand_forms = kDense2,
     .vector = true},
    {.name = "group:rows",
     .fits = fits_rows<0>,
     .prepare = prepare_group_rows,
     .operand_forms = kAnyForms,
     .vector = true},
    {.name = "group:rows1",
     .fits = fits_rows<1>,
     .prepare = prepare_group_rows,
     .operand_forms = kDense1,
     .vector = true},
    {.name = "group:rows2",
     .fits = fits_rows<2>,
     .prepare = prepare_group_rows,
     .operand_forms = kDense2,
     .vector = true},
    {.name = "group:rows3",
     .fits = fits_rows<3>,
     .prepare = prepare_group_rows,
     .operand_forms = kDense3,
     .vector = true},
};

}  // namespace

RLX_DEFINE_KERNELS(Group, Cpu) = {kEntries};

}  // namespace cpu
}  // namespace rlx
