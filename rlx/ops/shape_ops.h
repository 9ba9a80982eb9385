// Attributes of Reshape, Transpose, Expand, Narrow, Concat and Iota.
#pragma once

#include "rlx/ir/field.h"

namespace rlx {

struct ReshapeAttrs {
  Shape shape;  // normalized: no -1 (one -1 is inferred at build)
};
struct TransposeAttrs {
  std::vector<int64_t> perm;  // result axis k is operand axis perm[k]
};
struct ExpandAttrs {
  Shape shape;  // normalized: no -1 (which keeps the operand's size)
};
// Elements start, ..., start + length - 1 along `axis`.
struct NarrowAttrs {
  int64_t axis = 0;
  Dim start;
  Dim length;
};
struct ConcatAttrs {
  int64_t axis = 0;
};
// 0, 1, 2, ... along `axis` of `shape`.
struct IotaAttrs {
  DType dtype = DType::kI64;
  Shape shape;
  int64_t axis = 0;
};

}  // namespace rlx
