#include "examples/digits/show.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "examples/digits/model.h"

namespace digits {
namespace {

constexpr std::string_view kShades = " .:-=+*#%@";
constexpr int kGap = 4;

}  // namespace

std::vector<int64_t> predictions(const rlx::Array& logits) {
  const auto values = logits.data<float>();
  std::vector<int64_t> best;
  for (auto row = values.begin(); row != values.end(); row += kClasses) {
    best.push_back(std::max_element(row, row + kClasses) - row);
  }
  return best;
}

int64_t count_right(const std::vector<int64_t>& predicted, const Dataset& data) {
  const auto labels = data.labels.data<int64_t>();
  int64_t right = 0;
  for (size_t i = 0; i < predicted.size(); ++i) right += predicted[i] == labels[i] ? 1 : 0;
  return right;
}

void show_examples(const Dataset& data, const std::vector<int64_t>& predicted,
                   std::span<const int64_t> rows) {
  const auto pixels = data.images.data<float>();
  const auto labels = data.labels.data<int64_t>();
  for (int64_t y = 0; y < kSide; ++y) {
    for (const int64_t row : rows) {
      fmt::print("{:{}}", "", kGap);
      for (int64_t x = 0; x < kSide; ++x) {
        const float ink = pixels[size_t((row * kSide + y) * kSide + x)];
        const char shade = kShades[size_t(std::lround(ink * float(kShades.size() - 1)))];
        fmt::print("{0}{0}", shade);  // characters are about twice as high as wide
      }
    }
    fmt::print("\n");
  }
  for (const int64_t row : rows) {
    const int64_t guess = predicted[size_t(row)], label = labels[size_t(row)];
    fmt::print("{:{}}{:<{}}", "", kGap,
               guess == label ? fmt::format("{} (right)", guess)
                              : fmt::format("{} (it is a {})", guess, label),
               2 * kSide);
  }
  fmt::print("\n");
}

}  // namespace digits
