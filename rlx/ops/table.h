// The op table at run time: one row per line of ops.def.
#pragma once

#include <span>
#include <string_view>

#include "rlx/base/dtype.h"
#include "rlx/ir/op.h"

namespace rlx {

enum class RowClass : uint8_t {
  kOp,          // a kernel on every backend
  kStructural,  // a leaf, a view, a control step, or a kernel of the user's own
  kAlias,       // rewritten to other kinds by canonicalize
  kPrimitive,   // internal, not one of the public kinds
  kPlanned,     // a name and nothing else
};

struct OpRow {
  const OpDef* def;  // null if planned
  std::string_view name;
  std::string_view family;
  DTypeSet dtypes;
  RowClass cls;
};

inline constexpr int kNumPublicKinds = 183;

std::span<const OpRow> op_table();  // in the order of ops.def
// The built op of that name, or null.
const OpDef* find_op(std::string_view name);
const OpRow* find_row(std::string_view name);
const OpRow& row_of(const OpDef& op);
// Position in ops.def: a decomposition uses only smaller ones.
int order_of(const OpDef& op);

// Text with all ops of the table. See rlx/ir/text.h.
Graph parse_graph(std::string_view text);

}  // namespace rlx
