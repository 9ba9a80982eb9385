// Joins the op table with the CPU's kernel lists. A built op without a list is a link error.
#include <unordered_map>

#include "rlx/backend/cpu/cpu.h"

namespace rlx {

#define RLX_OP(K, F, D) RLX_USE_OP(K);
#define RLX_PRIMITIVE(K, D) RLX_USE_OP(K);
#include "rlx/ops/ops.def"

namespace cpu {

#define RLX_OP(K, F, D) extern const KernelList k##K##CpuKernels;
#define RLX_PRIMITIVE(K, D) extern const KernelList k##K##CpuKernels;
#include "rlx/ops/ops.def"

namespace {

class CpuKernels final : public KernelTable {
 public:
  std::string_view name() const override { return "cpu"; }
  const KernelList* find(const OpDef& op) const override {
    const auto it = lists_.find(&op);
    return it == lists_.end() ? nullptr : it->second;
  }

 private:
  const std::unordered_map<const OpDef*, const KernelList*> lists_ = {
#define RLX_OP(K, F, D) {&k##K##Op, &k##K##CpuKernels},
#define RLX_PRIMITIVE(K, D) {&k##K##Op, &k##K##CpuKernels},
#include "rlx/ops/ops.def"
  };
};

}  // namespace

const KernelTable& kernel_table() {
  // Never destroyed: destructors of static objects may still compile and run graphs.
  static const auto& table = *new CpuKernels;
  return table;
}

}  // namespace cpu
}  // namespace rlx
