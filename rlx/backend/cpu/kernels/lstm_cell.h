#pragma once

#include <cstdint>

#include "rlx/base/dtype.h"

namespace rlx::cpu {

// One step of some neighbouring hidden units of one sequence. Everything but y is of the type that
// the op computes in: f64 for f64, else f32. The gates i, f, g, o stand `stride` elements apart.
struct LstmCell {
  const void* inputs;     // x_t w_ih^T, gates input_stride apart
  const void* bias;       // as inputs
  const void* recurrent;  // h w_hh^T
  int64_t input_stride, recurrent_stride;
  void* c;  // in place
  void* h;
  void* y;  // null: nobody reads it
  int64_t count;
};

void lstm_cell(DType y, const LstmCell& cell);

}  // namespace rlx::cpu
