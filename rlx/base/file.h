// Whole files in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace rlx {

// Both throw Error(kIo) with the path and the system's reason.
std::vector<std::byte> read_file(const std::string& path);
// Readers see the old file or the whole new one: writes beside it, then renames.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace rlx
