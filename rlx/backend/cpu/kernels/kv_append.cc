#include "rlx/ops/kv_append.h"

#include "rlx/backend/cpu/kernels/update_slice.h"
#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

void refuse(const WindowPlaces::Axis& a, int64_t pos) {
  user_error("{} rows at position {} do not fit into a cache of capacity {}", a.window, pos,
             a.size);
}

PreparedKernel prepare(const KernelCall& call) {
  const int64_t axis = call.as<KvAppendAttrs>().axis;
  const auto batch_dims = int64_t(call.operands[2].dims.size());
  WindowPlaces places(call.operands[0].dims, call.operands[1].dims, {&axis, 1}, batch_dims);
  places.refuse = refuse;
  return prepare_update_slice(call, std::move(places), batch_dims);
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kEntries[] = {
    {.name = "kv_append:rows", .fits = fits, .prepare = prepare, .in_place = 1, .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(KvAppend, Cpu) = {kEntries};

}  // namespace rlx::cpu
