// What the phases of attention's gradients share. They are, as far as they are needed:
//   rows    maximum, sum and <dy, y> of every row
//   dq      by rows, over blocks of keys
//   dk, dv  by blocks of keys, over blocks of rows
//   dbias   by tiles of the bias, over what it repeats
#pragma once

#include "rlx/backend/cpu/kernels/attention_call.h"

namespace rlx::cpu {

struct AttentionBackwardScratch {
  int64_t shared = 0, thread = 0;  // bytes
};

struct AttentionBackwardState {
  AttentionProblem p;
  int64_t chunk_rows = 0, row_chunks = 0;  // of rows that share keys
  int64_t key_blocks = 0;
  Dims bias;                                         // its sizes
  int64_t bias_row_blocks = 0, bias_key_blocks = 0;  // tiles; a repeated axis is one block
  bool dk = false, dv = false;

  // What the first phase leaves of row (batch, head, i).
  template <class T>
  struct Rows {
    T *max, *inverse, *mean;
    size_t at(const AttentionProblem& p, int64_t batch, int64_t head, int64_t i) const {
      return size_t((batch * p.n.heads + head) * p.n.queries + i);
    }
  };
  template <class T>
  Rows<T> rows(ScratchLayout& s) const {
    const int64_t count = p.n.batch * p.n.heads * p.n.queries;
    return {s.take<T>(count), s.take<T>(count), s.take<T>(count)};
  }
};

// One chunk of the first phase, and what it wants: bytes for all phases and bytes of each thread.
void attention_backward_rows(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk);
AttentionBackwardScratch attention_backward_rows_bytes(const AttentionBackwardState& s);

// One chunk of the phase on keys or on the bias.
enum class AttentionKeyPhase : uint8_t { kKeys, kBias };
void attention_backward_keys(const AttentionBackwardState& s, const StepArgs& args,
                             AttentionKeyPhase phase, int64_t chunk);

}  // namespace rlx::cpu
