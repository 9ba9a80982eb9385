// A trained model in a folder: one NumPy file for each weight, and alphabet.npy.
#pragma once

#include <string>

#include "examples/charlm/model.h"

namespace charlm {

struct SavedModel {
  std::string alphabet;
  Arrays weights;
  Config config() const;
};

// Both throw rlx::Error(kIo) with the path that failed. The folder is made if there is none.
void save_model(const SavedModel& model, const std::string& folder);
SavedModel load_model(const std::string& folder);

}  // namespace charlm
