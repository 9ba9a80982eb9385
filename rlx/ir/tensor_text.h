// Internal to rlx/ir: numbers and tensors in the text form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rlx/base/array.h"
#include "rlx/ir/lexer.h"

namespace rlx {

// The shortest decimal that reads back to the same bits; inf, -inf; nan for the quiet NaN without
// payload, else nan(0x<bits>).
std::string print_double(double v);
double parse_double(std::string_view text);  // throws Error(kUser)

// f32[2, 3] {1, 2, 3, 4, 5, 6}, or base64 "..." of the little-endian bytes for long tensors and
// packed dtypes.
// Tensors over max_elements (if not negative) are cut and end in "...".
std::string print_tensor(const Array& array, int64_t max_elements);
// Memory is bounded by the length of the text. `budget` is how many bytes of tensors the text may
// still hold; it is reduced.
Array parse_tensor(Lexer& in, int64_t& budget);

// Bytes of bools other than 0 and 1 would be undefined behaviour in every kernel.
bool valid_bytes(const Array& array);

}  // namespace rlx
