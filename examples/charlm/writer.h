// Writes a text, one character after the other, with keys and values of all characters so far
// resident in the session.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/charlm/saved_model.h"
#include "rlx/runtime/session.h"

namespace charlm {

struct Written {
  std::string text;           // without the prompt
  std::vector<float> logits;  // of all steps
  double seconds = 0;         // from the first new character on
};

class Writer {
 public:
  // Compiles the step. The session's store gets the model's weights and caches.
  Writer(rlx::Session& session, const SavedModel& model);

  // Goes on from the prompt by `count` characters. Throws rlx::Error(kUser) if the prompt is empty
  // or both together have no place in the caches.
  Written write(std::string_view prompt, int64_t count, float temperature, uint64_t seed);

  const rlx::Executable& step() const { return step_; }

 private:
  // The character after `token`, which stands at `pos`.
  int64_t next(int64_t token, int64_t pos);

  const std::string alphabet_;
  const Config config_;
  rlx::Executable step_;
  rlx::Array token_, pos_, temperature_, seed_;
  std::array<rlx::Array, 4> inputs_;   // these
  std::array<rlx::Array, 2> outputs_;  // the next token, the logits
};

}  // namespace charlm
