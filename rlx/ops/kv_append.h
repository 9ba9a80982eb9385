#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

struct KvAppendAttrs {
  int64_t axis = 1;  // of the positions
};

Value kv_append(Builder& b, Value cache, Value rows, Value pos, int64_t axis = 1);

}  // namespace rlx
