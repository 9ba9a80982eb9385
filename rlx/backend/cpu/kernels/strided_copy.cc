#include "rlx/backend/cpu/kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/transpose_tile.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kChunkBytes = 64 << 10;
constexpr int64_t kBlockBytes = 32 << 10;  // of a task that does not transpose

struct Bytes16 {
  uint64_t low, high;
};

template <class F>
void visit_bytes(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<Bytes16>();
  }
}

struct Strides {
  int64_t row, column;
};

// to[r, c] = from[r, c]
template <class T>
void copy_block(const T* from, Strides f, T* to, Strides t, int64_t rows, int64_t columns) {
  constexpr int64_t kShort = 64 / int64_t(sizeof(T));
  for (int64_t r = 0; r < rows; ++r, from += f.row, to += t.row) {
    if (f.column == 1 && t.column == 1) {
      if (columns > kShort) {
        std::memcpy(to, from, size_t(columns) * sizeof(T));
      } else {
        for (int64_t c = 0; c < columns; ++c) to[c] = from[c];
      }
    } else if (f.column == 0 && t.column == 1) {
      std::fill_n(to, columns, *from);
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c * t.column] = from[c * f.column];
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(int64_t element_bytes, std::span<const int64_t> dims,
                         std::span<const int64_t> from, std::span<const int64_t> to)
    : bytes_(element_bytes) {
  if (num_elements(dims) == 0) return;
  for (size_t a = 0; a < dims.size(); ++a) {
    if (dims[a] != 1) outer_.push_back({dims[a], from[a], to[a]});
  }
  collapse();
  choose_axes();
  choose_chunks();
}

// In the order of the destination, with axes joined that are one on both sides.
void StridedCopy::collapse() {
  std::stable_sort(outer_.begin(), outer_.end(),
                   [](const Axis& a, const Axis& b) { return a.to > b.to; });
  std::vector<Axis> joined;
  for (const Axis& a : outer_) {
    if (!joined.empty() && joined.back().from == a.size * a.from &&
        joined.back().to == a.size * a.to) {
      joined.back() = {joined.back().size * a.size, a.from, a.to};
    } else {
      joined.push_back(a);
    }
  }
  outer_ = std::move(joined);
}

void StridedCopy::choose_axes() {
  if (outer_.empty()) return;  // one element
  columns_ = outer_.back();
  outer_.pop_back();
  if (outer_.empty()) return;
  auto rows = outer_.end() - 1;
  if (columns_.to == 1 && columns_.from > 1 && columns_.size >= 4 && bytes_ <= 8) {
    const auto contiguous =
        std::find_if(outer_.begin(), outer_.end(), [](const Axis& a) { return a.from == 1; });
    transposed_ = contiguous != outer_.end() && contiguous->size >= 4;
    if (transposed_) rows = contiguous;
  }
  rows_ = *rows;
  outer_.erase(rows);
}

void StridedCopy::choose_chunks() {
  if (transposed_) {
    row_tile_ = std::min(rows_.size, kTileRowBytes / bytes_);
    column_tile_ = std::min(columns_.size, kTileColumnBytes / bytes_);
  } else {
    column_tile_ = std::min(columns_.size, kBlockBytes / bytes_);
    row_tile_ = std::clamp<int64_t>(kBlockBytes / (column_tile_ * bytes_), 1, rows_.size);
  }
  row_tiles_ = ceil_div(rows_.size, row_tile_);
  column_tiles_ = ceil_div(columns_.size, column_tile_);
  tasks_ = checked_mul(row_tiles_, column_tiles_);
  for (const Axis& a : outer_) tasks_ = checked_mul(tasks_, a.size);
  tasks_per_chunk_ = std::max<int64_t>(1, kChunkBytes / (row_tile_ * column_tile_ * bytes_));
  chunks_ = ceil_div(tasks_, tasks_per_chunk_);
}

double StridedCopy::nanoseconds() const {
  const bool streams = columns_.to == 1 && columns_.from <= 1;
  const double per_byte = streams ? 0.12 : transposed_ ? 0.3 : 1.0 / double(bytes_);
  const double bytes = double(row_tile_ * column_tile_ * bytes_);
  return double(tasks_) * (4 + double(row_tile_) + bytes * per_byte);
}

void StridedCopy::run(int64_t chunk, const void* from, void* to) const {
  const int64_t end = std::min(tasks_, (chunk + 1) * tasks_per_chunk_);
  for (int64_t task = chunk * tasks_per_chunk_; task < end; ++task) {
    run_task(task, static_cast<const char*>(from), static_cast<char*>(to));
  }
}

void StridedCopy::run_task(int64_t task, const char* from, char* to) const {
  // Row tiles innermost: neighbouring tasks read neighbouring lines.
  const int64_t row = task % row_tiles_ * row_tile_;
  task /= row_tiles_;
  const int64_t column = task % column_tiles_ * column_tile_;
  task /= column_tiles_;
  int64_t from_at = row * rows_.from + column * columns_.from;
  int64_t to_at = row * rows_.to + column * columns_.to;
  for (size_t a = outer_.size(); a-- > 0;) {
    const int64_t i = task % outer_[a].size;
    task /= outer_[a].size;
    from_at += i * outer_[a].from;
    to_at += i * outer_[a].to;
  }
  from += from_at * bytes_;
  to += to_at * bytes_;
  const int64_t columns = std::min(column_tile_, columns_.size - column);
  const int64_t rows = std::min(row_tile_, rows_.size - row);
  if (transposed_) {
    transpose_tile(bytes_, from, columns_.from, to, rows_.to, rows, columns);
    return;
  }
  visit_bytes(bytes_, [&]<class T>() {
    copy_block(reinterpret_cast<const T*>(from), {rows_.from, columns_.from},
               reinterpret_cast<T*>(to), {rows_.to, columns_.to}, rows, columns);
  });
}

}  // namespace rlx::cpu
