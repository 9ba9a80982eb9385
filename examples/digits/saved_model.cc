#include "examples/digits/saved_model.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "rlx/base/error.h"
#include "rlx/io/npy.h"
#include "rlx/ir/serialize.h"
#include "rlx/ops/table.h"

namespace digits {
namespace {

std::string graph_path(const std::string& folder) { return folder + "/graph.rlx"; }
std::string weight_path(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".npy";
}

}  // namespace

void save_model(const SavedModel& model, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) rlx::fail(rlx::ErrorKind::kIo, "can't make {}: {}", folder, error.message());
  rlx::save_graph(model.graph, graph_path(folder));
  for (const auto& [name, value] : model.weights) rlx::save_npy(weight_path(folder, name), value);
}

SavedModel load_model(const std::string& folder) {
  SavedModel model{rlx::load_graph(graph_path(folder), rlx::find_op), {}};
  // The graph says which weights it needs.
  for (const rlx::Value param : model.graph.params()) {
    const std::string& name = model.graph.name_of(param);
    model.weights[name] = rlx::load_npy(weight_path(folder, name));
  }
  return model;
}

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "rlx-digits-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) {
    rlx::fail(rlx::ErrorKind::kIo, "can't make {}: {}", path_, std::strerror(errno));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a file left behind in a temporary folder harms nobody
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace digits
