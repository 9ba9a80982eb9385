// Arrays of a run: from files, drawn, summarized, and written under safe names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/base/array.h"

namespace rlx::cli {

// Where the value of an input or param comes from.
struct Source {
  bool random = false;
  std::string file;  // if not random
};

// Which of `names` get which source. `option` ("-i") and `what` ("input") are for error texts.
// Throws UsageError on an argument that is not NAME=FILE.npy or NAME=random, Error(kUser) on an
// unknown or repeated name, and on names that no argument covers.
std::map<std::string, Source> assign_sources(const std::vector<std::string>& arguments,
                                             const std::vector<std::string>& names,
                                             std::string_view option, std::string_view what);

// Floats (and both parts of complex numbers) uniform in [-1, 1), integers in 0 ... 9, bools.
// A function of (seed, name) alone: the same values whatever else the graph takes.
Array draw(DType dtype, Dims shape, uint64_t seed, std::string_view name);

// .npy files have no bf16: such values travel as f32 there.
Array f32_of_bf16(const Array& array);
Array bf16_of_f32(const Array& array);

// "f32[2, 3] {1, 2, ...}; min 1, max 6, mean 3.5", with the number of NaNs if there are any.
std::string summary(const Array& array);

// File names (without extension) for values of these names: letters, digits, '-', '_' and inner
// dots stay, everything else becomes '_'; distinct, none hidden and none with a path.
std::vector<std::string> file_names(const std::vector<std::string>& names);

}  // namespace rlx::cli
