// How the CPU computes an Lstm. Of each layer, the products with the inputs come first, for all
// steps (or for as many as fit the scratch), then the steps: either each group of sequences goes
// through all of them on its own, or, where sequences are few and products large, all threads
// share each step.
#pragma once

#include <vector>

#include "rlx/backend/cpu/gemm/gemm.h"
#include "rlx/compile/kernel.h"
#include "rlx/ops/lstm.h"

namespace rlx::cpu {

// A step's function does not learn its phase. Every chunk therefore counts itself, and a stage is
// told by how many chunks came before: barriers keep those of earlier stages before it.
struct LstmStage {
  enum Kind : uint8_t {
    kPrepare,  // states and narrow operands in the type of computation, weights packed
    kProject,  // products with the inputs, one phase of the plan
    kSteps,    // steps [begin, end)
    kFinish,   // the last states
  };
  Kind kind = kPrepare;
  int64_t layer = 0;
  int64_t begin = 0, end = 0;  // steps in the order of computation
  size_t plan = 0;             // into `project`
  int phase = 0;
  int64_t chunks = 1;
};

// Where a packed operand stands: in its place, or in scratch.
struct LstmWeights {
  bool frozen = false;
  int64_t at = 0;                     // bytes in scratch
  std::vector<int64_t> block_offset;  // bytes, of each block in the packed form; then their sum
};

struct LstmPlan {
  LstmAttrs attrs;
  LstmOperands operands{LstmAttrs{}};
  LstmSizes<int64_t> n{LstmAttrs{}, Dims{0, 0, 0}};
  DType dtype = DType::kF32;    // of the operands
  int64_t element_bytes = 4;    // of the type of computation
  int64_t block_steps = 1;      // whose inputs are multiplied at once
  int64_t rows = 1, units = 1;  // of a chunk: sequences and hidden units
  // Whether the gates of hidden weights are packed as matrices of their own, of which a chunk can
  // take some units.
  bool apart = false;
  std::vector<LstmStage> stages;
  std::vector<int64_t> first;       // chunk of each stage, counted from the first stage on
  std::vector<GemmPlan> project;    // first layer, others; each for full blocks and the last one
  std::vector<GemmPlan> recurrent;  // full, last group of rows; each for full, last group of units
  LstmWeights input_weights, hidden_weights;
  // Bytes in scratch. States: h twice (read, written) and c for each block, [B, H].
  int64_t x_at = 0, bias_at = 0, sequence_at[2] = {0, 0}, z_at = 0, h_at = 0, c_at = 0;
  int64_t gemm_at = 0, gemm_bytes = 0;  // for each direction
  // Bytes in the scratch of a thread.
  int64_t own_shared_at = 0, own_gates_at = 0;

  bool is_narrow() const { return size_of(dtype) < element_bytes; }
  GemmElement element() const { return element_bytes == 8 ? GemmElement::kF64 : GemmElement::kF32; }
  int64_t block_z() const { return n.batch * block_steps * n.gates() * element_bytes; }
  int64_t state_bytes() const { return n.batch * n.hidden * element_bytes; }
  int64_t row_groups() const { return (n.batch + rows - 1) / rows; }
  int64_t unit_groups() const { return (n.hidden + units - 1) / units; }
  int64_t gate_packed_bytes() const;  // of one gate of a block of hidden weights, if apart
  bool backwards(int64_t direction) const { return direction == 1 || attrs.reverse; }
};

// Chunks of kPrepare: states of the blocks, then pieces of x, then panels of weights.
inline constexpr int64_t kLstmWidenPiece = 65536;
int64_t lstm_widen_chunks(const LstmPlan& p);
int64_t lstm_panels(const LstmPlan& p, const LstmWeights& w, bool hidden);
// Packs panel i of a weight operand, of `dtype`; `wide` holds panel_columns rows.
void lstm_pack_panel(const LstmPlan& p, bool hidden, int64_t panel, const void* weights,
                     void* packed, void* wide);

// Resets the count and checks lengths; then the stages.
void lstm_begin(const void* state, const StepArgs& args, int64_t chunk);
void lstm_stage(const void* state, const StepArgs& args, int64_t chunk);

}  // namespace rlx::cpu
