#include "examples/charlm/writer.h"

#include <chrono>

#include "examples/charlm/corpus.h"
#include "rlx/base/error.h"

namespace charlm {
namespace {

rlx::Executable compile_step(rlx::Session& session, const SavedModel& model) {
  session.weights().set(model.weights);
  session.weights().set(empty_caches(model.config()));
  return session.compile(decoding_graph(model.config()));
}

}  // namespace

Writer::Writer(rlx::Session& session, const SavedModel& model)
    : alphabet_(model.alphabet),
      config_(model.config()),
      step_(compile_step(session, model)),
      token_(rlx::Array::scalar(int64_t(0))),
      pos_(rlx::Array::scalar(int64_t(0))),
      temperature_(rlx::Array::scalar(0.0f)),
      seed_(rlx::Array::scalar(uint64_t(0))),
      inputs_{token_, pos_, temperature_, seed_},
      outputs_{rlx::Array::scalar(int64_t(0)),
               rlx::Array::zeros(rlx::DType::kF32, {config_.vocabulary})} {}

Written Writer::write(std::string_view prompt, int64_t count, float temperature, uint64_t seed) {
  const std::vector<int64_t> tokens = encode(prompt, alphabet_);
  if (tokens.empty()) rlx::user_error("the prompt is empty");
  // The last character is not read again, so it needs no place.
  if (int64_t(tokens.size()) + count - 1 > config_.context) {
    rlx::user_error("{} characters after a prompt of {} are too many for {} positions", count,
                    tokens.size(), config_.context);
  }
  temperature_.mutable_data<float>()[0] = temperature;
  seed_.mutable_data<uint64_t>()[0] = seed;
  Written written;
  written.logits.reserve((tokens.size() + size_t(count)) * alphabet_.size());
  const auto step = [&](int64_t token, int64_t pos) {
    const int64_t result = next(token, pos);
    const auto logits = outputs_[1].data<float>();
    written.logits.insert(written.logits.end(), logits.begin(), logits.end());
    return result;
  };
  // The prompt fills the caches; what is drawn on the way is not used.
  int64_t pos = 0, token = 0;
  for (const int64_t known : tokens) token = step(known, pos++);
  const auto start = std::chrono::steady_clock::now();
  while (int64_t(written.text.size()) < count) {
    written.text += alphabet_[size_t(token)];
    if (int64_t(written.text.size()) < count) token = step(token, pos++);
  }
  written.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return written;
}

int64_t Writer::next(int64_t token, int64_t pos) {
  token_.mutable_data<int64_t>()[0] = token;
  pos_.mutable_data<int64_t>()[0] = pos;
  step_.run_into(inputs_, outputs_);
  return outputs_[0].data<int64_t>()[0];
}

}  // namespace charlm
