// Digits and predictions as text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/digits/dataset.h"

namespace digits {

// The most likely class of each row of logits [n, 10].
std::vector<int64_t> predictions(const rlx::Array& logits);
int64_t count_right(const std::vector<int64_t>& predicted, const Dataset& data);

// Prints the examples `rows` side by side, with prediction and label below.
void show_examples(const Dataset& data, const std::vector<int64_t>& predicted,
                   std::span<const int64_t> rows);

}  // namespace digits
