#include <fmt/format.h>

#include <filesystem>

#include "rlx/base/file.h"
#include "rlx/io/npy.h"
#include "rlx/ir/text.h"
#include "rlx/testing/random_graph.h"

namespace rlx {
namespace {

// The format has no bf16; the command line takes f32 for it.
Array for_npy(const Array& a) {
  if (a.dtype() != DType::kBF16) return a;
  Array wide = Array::uninitialized(DType::kF32, a.shape());
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    wide.mutable_data<float>()[size_t(i)] = float(a.at(i));
  }
  return wide;
}

}  // namespace

std::string save_for_cli(const RandomGraph& c, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::string text = print(c.graph);
  write_file(folder + "/graph.rlx", std::as_bytes(std::span(text)));
  std::string command = fmt::format("rlx run {}/graph.rlx", folder);
  const auto add = [&](std::string_view option, const std::string& name, const Array& value) {
    const std::string path = fmt::format("{}/{}.npy", folder, name);
    save_npy(path, for_npy(value));
    command += fmt::format(" {} {}={}", option, name, path);
  };
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    add("-i", c.graph.name_of(c.graph.inputs()[i]), c.inputs[i]);
  }
  for (const auto& [name, value] : c.params) add("-p", name, value);
  return command;
}

}  // namespace rlx
