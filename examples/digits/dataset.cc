#include "examples/digits/dataset.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>

#include "examples/digits/model.h"
#include "rlx/base/error.h"
#include "rlx/base/philox.h"

namespace digits {
namespace {

constexpr int64_t kPixels = kSide * kSide;
constexpr int kDarkest = 16;

using Row = std::array<int, kPixels + 1>;  // the pixels, then the label

bool parse_row(std::string_view line, Row& row) {
  const char* next = line.data();
  const char* end = next + line.size();
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0 && (next == end || *next++ != ',')) return false;
    const auto [stop, error] = std::from_chars(next, end, row[i]);
    if (error != std::errc()) return false;
    const int largest = i < kPixels ? kDarkest : int(kClasses) - 1;
    if (row[i] < 0 || row[i] > largest) return false;
    next = stop;
  }
  return next == end || *next == '\n' || *next == '\r';
}

Dataset take(const Dataset& data, std::span<const int64_t> rows) {
  Dataset part = make_batch(int64_t(rows.size()));
  copy_examples(data, rows, part);
  return part;
}

}  // namespace

Dataset load_digits(const std::string& folder) {
  const std::string path = folder + "/digits.csv.gz";
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) {
    rlx::fail(rlx::ErrorKind::kIo, "can't open {}: {} (is --data right?)", path,
              std::strerror(errno));
  }
  std::vector<Row> rows;
  std::array<char, 1024> line;
  while (gzgets(file.get(), line.data(), int(line.size())) != nullptr) {
    if (!parse_row(line.data(), rows.emplace_back())) {
      rlx::fail(rlx::ErrorKind::kIo, "{}, line {}: not 64 pixels (0 to 16) and a digit", path,
                rows.size());
    }
  }
  int zlib_error = Z_OK;
  const char* reason = gzerror(file.get(), &zlib_error);
  if (zlib_error != Z_OK && zlib_error != Z_STREAM_END) {
    rlx::fail(rlx::ErrorKind::kIo, "{}: {}", path, reason);
  }

  Dataset data = make_batch(int64_t(rows.size()));
  float* pixel = data.images.mutable_data<float>().data();
  int64_t* label = data.labels.mutable_data<int64_t>().data();
  for (const Row& row : rows) {
    for (int64_t i = 0; i < kPixels; ++i) *pixel++ = float(row[size_t(i)]) / kDarkest;
    *label++ = row[kPixels];
  }
  return data;
}

Dataset make_batch(int64_t count) {
  return {rlx::Array::zeros(rlx::DType::kF32, {count, 1, kSide, kSide}),
          rlx::Array::zeros(rlx::DType::kI64, {count})};
}

void copy_examples(const Dataset& from, std::span<const int64_t> rows, Dataset& batch) {
  const auto pixels = from.images.data<float>();
  const auto labels = from.labels.data<int64_t>();
  const auto out_pixels = batch.images.mutable_data<float>();
  const auto out_labels = batch.labels.mutable_data<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto image = pixels.subspan(size_t(rows[i] * kPixels), kPixels);
    std::copy(image.begin(), image.end(), out_pixels.begin() + int64_t(i) * kPixels);
    out_labels[i] = labels[size_t(rows[i])];
  }
}

Split split_by_class(const Dataset& data, uint64_t seed) {
  std::vector<int64_t> order(size_t(data.size()));
  shuffle(seed, order);

  const auto labels = data.labels.data<int64_t>();
  std::array<std::vector<int64_t>, kClasses> classes;
  for (const int64_t row : order) classes[size_t(labels[size_t(row)])].push_back(row);

  std::vector<int64_t> train, held_out;
  for (const std::vector<int64_t>& rows : classes) {
    const auto fifth = rows.begin() + int64_t((rows.size() + 2) / 5);  // rounded
    held_out.insert(held_out.end(), rows.begin(), fifth);
    train.insert(train.end(), fifth, rows.end());
  }
  return {take(data, train), take(data, held_out)};
}

void shuffle(uint64_t seed, std::span<int64_t> order) {
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    // The library's own counter-based bits: the same on every machine, unlike std::shuffle.
    const uint64_t bits = rlx::philox_block(seed, 0, i).word[0];
    std::swap(order[i - 1], order[size_t(bits * i >> 32)]);
  }
}

}  // namespace digits
