// A text as numbers, and how well plain counts predict it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace charlm {

// Reads a file, gzip or plain. Throws rlx::Error(kIo).
std::string read_text(const std::string& path);

// The characters of the text, each once, in ascending order. A token is an index into it.
std::string alphabet_of(std::string_view text);
// Throws rlx::Error(kUser) on a character that the alphabet has not.
std::vector<int64_t> encode(std::string_view text, std::string_view alphabet);

// The last tenth of the tokens is held out: training does not see it.
struct Split {
  std::span<const int64_t> train, held_out;
};
Split split_tail(std::span<const int64_t> tokens);

// Mean loss in nats of held-out tokens when each is predicted by counts in the training part:
// alone, or after the token before it.
double unigram_loss(const Split& split, int64_t vocabulary);
double bigram_loss(const Split& split, int64_t vocabulary);

}  // namespace charlm
