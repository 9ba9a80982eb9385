// Group: a call with its elementwise neighbours, run as one step. The compiler forms groups
// (rlx/compile/group.h) after differentiation; unfusing one is inlining it.
#pragma once

#include <string_view>

#include "rlx/ir/graph.h"

namespace rlx {

struct GroupAttrs {
  GraphRef body;                 // inputs are the operands in order, outputs the results
  bool strict_rounding = false;  // 16-bit values are rounded after every call, as if inlined
};

// What kernels of Group answer that are made for other roots: no reason worth telling.
inline constexpr std::string_view kOtherRoot = "for other roots";

// The call that the group is about: the one node of the body that is neither elementwise nor a
// leaf. Null if there is none or several.
const Node* group_root(const Graph& body);

}  // namespace rlx
