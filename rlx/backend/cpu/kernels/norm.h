// What the kernels of LayerNorm and RmsNorm share beside their vector code (norm-inl.h).
#pragma once

#include <cstdint>

#include "rlx/compile/kernel.h"

namespace rlx::cpu {

struct NormState {
  int64_t groups = 1, rows = 1, n = 1;  // rows of a group share gamma and beta
  int64_t per_chunk = 1;                // rows of a forward chunk, through all groups
  int64_t partials = 0;                 // backward: row r of a group adds to partial sum r mod 64
  double eps = 0;
  DType dtype = DType::kF32;
  bool gamma = false, beta = false;                // operands that are there
  bool dx = false, dgamma = false, dbeta = false;  // results that are read
  bool sums() const { return dgamma || dbeta; }
  int64_t all_rows() const { return groups * rows; }
};

enum class NormStep : uint8_t { kForward, kBackward, kAddPartials };

// Runs a chunk of a step; one function per step, as phases need them.
using NormRun = void (*)(const void* state, const StepArgs& args, int64_t chunk);
struct NormRuns {
  NormRun forward, backward, add_partials;
};

PreparedKernel prepare_norm(const KernelCall& call, const NormRuns& runs);
PreparedKernel prepare_norm_backward(const KernelCall& call, const NormRuns& runs);

}  // namespace rlx::cpu
