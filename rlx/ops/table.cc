#include "rlx/ops/table.h"

#include <algorithm>
#include <unordered_map>

#include "rlx/base/error.h"
#include "rlx/ir/text.h"
#include "rlx/ops/dtype_sets.h"

namespace rlx {

#define RLX_OP(K, F, D) RLX_USE_OP(K);
#define RLX_STRUCTURAL(K, F, D) RLX_USE_OP(K);
#define RLX_ALIAS(K, F, D) RLX_USE_OP(K);
#define RLX_PRIMITIVE(K, D) RLX_USE_OP(K);
#include "rlx/ops/ops.def"

namespace {

constexpr OpRow kRows[] = {
#define RLX_OP(K, F, D) {&k##K##Op, #K, #F, dtypes::D, RowClass::kOp},
#define RLX_STRUCTURAL(K, F, D) {&k##K##Op, #K, #F, dtypes::D, RowClass::kStructural},
#define RLX_ALIAS(K, F, D) {&k##K##Op, #K, #F, dtypes::D, RowClass::kAlias},
#define RLX_PRIMITIVE(K, D) {&k##K##Op, #K, "Internal", dtypes::D, RowClass::kPrimitive},
#define RLX_PLANNED(K, F) {nullptr, #K, #F, {}, RowClass::kPlanned},
#include "rlx/ops/ops.def"
};

constexpr int kPublic = [] {
  int n = 0;
  for (const OpRow& r : kRows) n += r.cls != RowClass::kPrimitive;
  return n;
}();
static_assert(kPublic == kNumPublicKinds, "ops.def must list every public kind once");

}  // namespace

std::span<const OpRow> op_table() { return kRows; }

const OpRow* find_row(std::string_view name) {
  static const auto* map = [] {
    auto* m = new std::unordered_map<std::string_view, const OpRow*>();
    for (const OpRow& r : kRows) m->emplace(r.name, &r);
    return m;
  }();
  const auto it = map->find(name);
  return it == map->end() ? nullptr : it->second;
}

const OpDef* find_op(std::string_view name) {
  const OpRow* row = find_row(name);
  return row ? row->def : nullptr;
}

const OpRow& row_of(const OpDef& op) {
  const OpRow* row = find_row(op.name);
  if (!row) internal_error("the op {} is not in ops.def", op.name);
  return *row;
}

int order_of(const OpDef& op) { return int(&row_of(op) - kRows); }

Graph parse_graph(std::string_view text) { return parse(text, find_op); }

}  // namespace rlx
