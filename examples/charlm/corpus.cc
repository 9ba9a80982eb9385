#include "examples/charlm/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "rlx/base/error.h"

namespace charlm {
namespace {

// counts[context][token] of the training part become the loss of the held-out part. One is added to
// each count, so that nothing is impossible.
template <class Context>
double count_loss(const Split& split, int64_t vocabulary, int64_t contexts, Context context) {
  std::vector<double> counts(size_t(contexts * vocabulary), 1), totals(size_t(contexts), 0);
  const auto at = [&](std::span<const int64_t> tokens, size_t i) {
    return size_t(context(tokens[i - 1]) * vocabulary + tokens[i]);
  };
  for (size_t i = 1; i < split.train.size(); ++i) counts[at(split.train, i)] += 1;
  for (size_t i = 0; i < counts.size(); ++i) totals[i / size_t(vocabulary)] += counts[i];
  double loss = 0;
  for (size_t i = 1; i < split.held_out.size(); ++i) {
    const size_t index = at(split.held_out, i);
    loss -= std::log(counts[index] / totals[index / size_t(vocabulary)]);
  }
  return loss / double(split.held_out.size() - 1);
}

}  // namespace

std::string read_text(const std::string& path) {
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) rlx::fail(rlx::ErrorKind::kIo, "can't open {}: {}", path, std::strerror(errno));
  std::string text;
  std::array<char, 1 << 14> part;
  int count = 0;
  while ((count = gzread(file.get(), part.data(), unsigned(part.size()))) > 0) {
    text.append(part.data(), size_t(count));
  }
  if (count < 0) {
    int code = 0;
    rlx::fail(rlx::ErrorKind::kIo, "can't read {}: {}", path, gzerror(file.get(), &code));
  }
  return text;
}

std::string alphabet_of(std::string_view text) {
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  std::string alphabet;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) alphabet += char(i);
  }
  return alphabet;
}

std::vector<int64_t> encode(std::string_view text, std::string_view alphabet) {
  std::array<int64_t, 256> token_of;
  token_of.fill(-1);
  for (size_t i = 0; i < alphabet.size(); ++i) {
    token_of[static_cast<unsigned char>(alphabet[i])] = int64_t(i);
  }
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) {
    tokens.push_back(token_of[static_cast<unsigned char>(c)]);
    if (tokens.back() < 0) {
      rlx::user_error("character {} (code {}) is none of the model's {} characters", tokens.size(),
                      int(static_cast<unsigned char>(c)), alphabet.size());
    }
  }
  return tokens;
}

Split split_tail(std::span<const int64_t> tokens) {
  const size_t held_out = tokens.size() / 10;
  return {tokens.first(tokens.size() - held_out), tokens.last(held_out)};
}

double unigram_loss(const Split& split, int64_t vocabulary) {
  return count_loss(split, vocabulary, 1, [](int64_t) { return int64_t(0); });
}

double bigram_loss(const Split& split, int64_t vocabulary) {
  return count_loss(split, vocabulary, vocabulary, [](int64_t before) { return before; });
}

}  // namespace charlm
