// Attributes of the leaves: Graph itself must know them (their OpDefs stand in rlx/ops/leaf.cc).
#pragma once

#include <string>

#include "rlx/base/array.h"
#include "rlx/ir/field.h"

namespace rlx {

struct Node;

// A value that the caller binds at run time.
struct InputAttrs {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

// A persistent value: frozen (folded and packed) or mutable (updated in place by runs).
struct ParamAttrs {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  bool is_mutable = false;
};

// A literal. `splat` repeats the one element of `value` over `shape`.
struct ConstantAttrs {
  Array value;
  Shape shape;  // of the result; equals the array's unless splat
  bool splat = false;
};

// Input or Param: part of a graph's signature, bound by name or position.
bool is_signature_leaf(const Node& node);
bool is_constant(const Node& node);

}  // namespace rlx
