#include "examples/charlm/saved_model.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include "rlx/base/error.h"
#include "rlx/io/npy.h"

namespace charlm {
namespace {

std::string path_of(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".npy";
}

}  // namespace

Config SavedModel::config() const {
  Config config;
  config.vocabulary = int64_t(alphabet.size());
  return config;
}

void save_model(const SavedModel& model, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) rlx::fail(rlx::ErrorKind::kIo, "can't make {}: {}", folder, error.message());
  rlx::Array alphabet =
      rlx::Array::uninitialized(rlx::DType::kU8, {int64_t(model.alphabet.size())});
  std::memcpy(alphabet.mutable_raw(), model.alphabet.data(), model.alphabet.size());
  rlx::save_npy(path_of(folder, "alphabet"), alphabet);
  for (const auto& [name, value] : model.weights) rlx::save_npy(path_of(folder, name), value);
}

SavedModel load_model(const std::string& folder) {
  SavedModel model;
  const rlx::Array alphabet = rlx::load_npy(path_of(folder, "alphabet"));
  for (const uint8_t c : alphabet.data<uint8_t>()) model.alphabet += char(c);
  for (const std::string& name : weight_names(model.config())) {
    model.weights[name] = rlx::load_npy(path_of(folder, name));
  }
  return model;
}

}  // namespace charlm
