// What the attention kernels know about a call before any data is seen.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"
#include "rlx/ops/attention.h"

namespace rlx::cpu {

// Keys are read in blocks, at multiples of this, and sums over keys (and, in gradients, over rows)
// are cut into segments, at multiples of that: so the order of a row's sums depends on the range of
// its keys alone.
inline constexpr int64_t kKeyBlock = 128;
inline constexpr int64_t kSumSegment = 1024;
inline constexpr int64_t kRowBlock = 64;  // rows that a gradient takes at a time

// Elements between neighbours along an axis; along the width it is 1.
struct HeadStrides {
  int64_t batch = 0, row = 0, head = 0;
  int64_t at(int64_t b, int64_t i, int64_t h) const { return b * batch + i * row + h * head; }
};

struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return end <= begin; }
  Range operator&(const Range& o) const { return {std::max(begin, o.begin), std::min(end, o.end)}; }
  Range operator-(int64_t shift) const { return {begin - shift, end - shift}; }
};

// Live lengths of one batch entry.
struct Lengths {
  int64_t keys = 0, queries = 0;
};

struct AttentionProblem {
  DType dtype = DType::kF32;
  AttentionSizes<int64_t> n;
  int64_t group = 1;  // query heads of a head of keys
  AttentionMask mask = AttentionMask::kNone;
  int64_t window = 0;
  double pairs = 0;               // of a query and a key, about: lengths are not known yet
  double scale = 1, softcap = 0;  // softcap 0: none
  HeadStrides q, k, v, dy;
  HeadStrides y, dq, dk, dv;  // results, dense
  int mask_at = -1, bias_at = -1, kv_len_at = -1, q_len_at = -1;
  int64_t mask_batch = 0, mask_key = 0;
  // bias_repeats batch entries in turn share a bias; strides are 0 where it is repeated.
  int64_t bias_repeats = 1, bias_batch = 0, bias_head = 0, bias_row = 0, bias_key = 0;
  int64_t kv_len_stride = 0, q_len_stride = 0;

  int64_t rows() const { return n.queries * group; }  // of a head of keys

  // Throws on a length that the buffers do not hold.
  Lengths lengths(const StepArgs& args, int64_t batch) const;

  // The keys that row i may see, the rows that may see key j: both grow with i and j.
  Range keys_of(const Lengths& l, int64_t i) const {
    if (i >= l.queries) return {};
    Range r{0, l.keys};
    const int64_t last = i + l.keys - l.queries;
    if (mask == AttentionMask::kCausal || mask == AttentionMask::kSlidingWindow) {
      r.end = std::min(r.end, last + 1);
    }
    if (mask == AttentionMask::kSlidingWindow) {
      r.begin = std::max<int64_t>(0, last - window);
    }
    return r.empty() ? Range{} : r;
  }
  Range rows_of(const Lengths& l, int64_t j) const {
    if (j >= l.keys) return {};
    Range r{0, l.queries};
    const int64_t first = j - l.keys + l.queries;
    if (mask == AttentionMask::kCausal || mask == AttentionMask::kSlidingWindow) {
      r.begin = std::max<int64_t>(0, first);
    }
    if (mask == AttentionMask::kSlidingWindow) r.end = std::min(r.end, first + window + 1);
    return r.empty() ? Range{} : r;
  }

  // Whether key j of the entry is hidden by the mask operand.
  bool hidden(const StepArgs& args, int64_t batch, int64_t j) const {
    return mask_at >= 0 && !args.in<bool>(size_t(mask_at))[batch * mask_batch + j * mask_key];
  }
  // Elements from the first of the bias to that of (batch, head, row, key 0).
  int64_t bias_offset(int64_t batch, int64_t head, int64_t row) const {
    return batch / bias_repeats * bias_batch + head * bias_head + row * bias_row;
  }
};

AttentionProblem attention_problem(const KernelCall& call, int inputs);

// Rows of a chunk: fewer where that gives too few chunks.
int64_t attention_chunk_rows(const AttentionProblem& p);

// Lays out scratch: once without memory, to count, and again in each chunk.
class ScratchLayout {
 public:
  explicit ScratchLayout(void* base = nullptr) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ = round_up(checked_add(bytes_, checked_mul(count, int64_t(sizeof(T)))), 64);
    return p;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t bytes_ = 0;
};

// Columns of a row buffer: whole panels of 128 bytes.
template <class T>
int64_t padded_width(int64_t width) {
  return round_up(std::max<int64_t>(width, 1), int64_t(128 / sizeof(T)));
}

}  // namespace rlx::cpu
