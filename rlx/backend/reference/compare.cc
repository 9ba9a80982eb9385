#include "rlx/ops/compare.h"

#include "rlx/backend/reference/elementwise.h"

namespace rlx::reference {
namespace {

template <class T>
bool ordered(CompareKind kind, T a, T b) {
  switch (kind) {
    case CompareKind::kEq:
      return a == b;
    case CompareKind::kNe:
      return a != b;
    case CompareKind::kLt:
      return a < b;
    case CompareKind::kLe:
      return a <= b;
    case CompareKind::kGt:
      return a > b;
    case CompareKind::kGe:
      return a >= b;
  }
  __builtin_unreachable();
}

void compare(const Call& call) {
  const CompareKind kind = call.as<CompareAttrs>().kind;
  const Tensor &x = call.operands[0], &y = call.operands[1];
  Tensor& z = call.results[0];
  const bool is_unsigned = class_of(x.dtype) == DTypeClass::kUnsigned;
  for_each_broadcast(call, [&](size_t k, const std::vector<size_t>& at) {
    if (!x.f.empty()) {
      z.i[k] = ordered(kind, x.f[at[0]], y.f[at[1]]);
    } else if (!x.c.empty()) {
      z.i[k] = (x.c[at[0]] == y.c[at[1]]) == (kind == CompareKind::kEq);
    } else if (is_unsigned) {
      z.i[k] = ordered(kind, uint64_t(x.i[at[0]]), uint64_t(y.i[at[1]]));
    } else {
      z.i[k] = ordered(kind, x.i[at[0]], y.i[at[1]]);
    }
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Compare) = compare;

}  // namespace rlx::reference
