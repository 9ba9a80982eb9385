// NumPy's .npy files: one array. All dtypes but bf16, which NumPy has not.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "rlx/base/array.h"

namespace rlx {

// Format versions 1 to 3, C and Fortran order, either byte order; the result is dense and
// row-major. Trusts nothing; throws Error(kIo) on a malformed file, Error(kUnsupported) on a dtype
// that is not ours (objects, strings, records, dates).
Array read_npy(std::span<const std::byte> bytes);
// Version 1, C order, little-endian: the bytes that NumPy writes for the same array. Throws
// Error(kUnsupported) on bf16.
std::vector<std::byte> write_npy(const Array& array);

// Errors name the path.
Array load_npy(const std::string& path);
void save_npy(const std::string& path, const Array& array);

}  // namespace rlx
