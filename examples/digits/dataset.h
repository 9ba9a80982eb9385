// Handwritten digits: loading, splitting, and picking batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rlx/base/array.h"

namespace digits {

struct Dataset {
  rlx::Array images;  // f32[n, 1, 8, 8], from 0 (paper) to 1 (ink)
  rlx::Array labels;  // i64[n], 0 to 9
  int64_t size() const { return images.defined() ? images.shape()[0] : 0; }
};

// Reads `folder`/digits.csv.gz; throws rlx::Error(kIo) if it is missing or malformed.
Dataset load_digits(const std::string& folder);

// Arrays for `count` examples, to be filled by copy_examples.
Dataset make_batch(int64_t count);
// Example rows[i] of `from` becomes example i of `batch`.
void copy_examples(const Dataset& from, std::span<const int64_t> rows, Dataset& batch);

struct Split {
  Dataset train, held_out;
};
// Holds out a fifth of every class, chosen by the seed: both parts have the same mix of digits.
Split split_by_class(const Dataset& data, uint64_t seed);

// Puts 0 .. order.size() - 1 in an order that depends on nothing but the seed.
void shuffle(uint64_t seed, std::span<int64_t> order);

}  // namespace digits
