// Running a saved model, here and in a process that never saw the training.
#pragma once

#include <string>

#include "examples/digits/dataset.h"
#include "rlx/runtime/session.h"

namespace digits {

// Writes examples for predict() into the folder of a saved model.
void save_examples(const Dataset& data, const std::string& folder);

// What `example-digits predict FOLDER` does: loads model and examples, shows some of them with the
// model's opinion, and writes all logits.
void predict(const std::string& folder);

// Runs `program predict folder` and waits. Returns the logits that it wrote.
rlx::Array predict_in_new_process(const std::string& program, const std::string& folder);

}  // namespace digits
