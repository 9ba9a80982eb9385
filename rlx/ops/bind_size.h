// Sizes that depend on values: how many rows were kept, how many boxes were found.
#pragma once

#include <string>

#include "rlx/ir/bind_size.h"
#include "rlx/ir/builder.h"

namespace rlx {

// Gives the symbol the value of `count` (i64 []) in every run, at most `bound`, and returns that
// value. What is built later may have the symbol in its shapes: narrow(b, x, 0, 0,
// Dim::symbol("n")) are the first n rows of x, for instance.
Value bind_size(Builder& b, Value count, std::string symbol, Dim bound);

}  // namespace rlx
