#include "rlx/ir/bind_size.h"

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

void bind_size(const Call& call) {
  const auto& a = call.as<BindSizeAttrs>();
  const int64_t count = call.operands[0].i[0];
  if (count < 0 || count > a.bound.value()) {
    user_error("the size '{}' is {}, not from 0 to {}", a.symbol, count, a.bound.value());
  }
  call.results[0].i[0] = count;
}

}  // namespace

RLX_DEFINE_REFERENCE(BindSize) = bind_size;

}  // namespace rlx::reference
