#include <cstdio>

#include "rlx/base/dtype.h"
#include "rlx/base/error.h"

int main() {
  try {
    rlx::promote(rlx::DType::kI64, rlx::DType::kU64);
  } catch (const rlx::Error& error) {
    return error.kind() == rlx::ErrorKind::kUser ? 0 : 1;
  }
  std::puts("an impossible promotion was accepted");
  return 1;
}
