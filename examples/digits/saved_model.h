// A trained model in a folder: graph.rlx, and one NumPy file for each weight.
#pragma once

#include <string>

#include "examples/digits/model.h"
#include "rlx/ir/graph.h"

namespace digits {

struct SavedModel {
  rlx::Graph graph;
  Weights weights;  // one for each param of the graph
};

// Both throw rlx::Error(kIo) with the path that failed. The folder is made if there is none.
void save_model(const SavedModel& model, const std::string& folder);
SavedModel load_model(const std::string& folder);

// A fresh folder for temporary files, removed with all that it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace digits
