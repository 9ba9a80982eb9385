#include <algorithm>
#include <atomic>
#include <cstring>

#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/lstm_cell.h"
#include "rlx/backend/cpu/kernels/lstm_plan.h"
#include "rlx/base/error.h"

namespace rlx::cpu {

int64_t LstmPlan::gate_packed_bytes() const {
  return int64_t(GemmPlan::packed_b_bytes(element(), n.hidden, n.hidden));
}

int64_t lstm_widen_chunks(const LstmPlan& p) {
  if (!p.is_narrow()) return 0;
  return divide_up(p.n.batch * p.n.steps * p.n.input, kLstmWidenPiece);
}

namespace {

// Rows of the weights that are packed as one matrix, and how wide they are.
struct Matrix {
  int64_t block, row, rows, width, panel;
  int64_t first, at;  // element of the block's weights in the operand; byte of the packed panel
};

int64_t block_panels(const LstmPlan& p, bool hidden) {
  const int64_t columns = panel_columns(p.element_bytes);
  const bool apart = hidden && p.apart;
  return apart ? 4 * divide_up(p.n.hidden, columns) : divide_up(p.n.gates(), columns);
}

Matrix matrix_of(const LstmPlan& p, bool hidden, int64_t index) {
  const int64_t columns = panel_columns(p.element_bytes), panels = block_panels(p, hidden);
  Matrix m{};
  m.block = index / panels;
  m.panel = index % panels;
  m.row = m.panel * columns;
  m.rows = std::min(columns, p.n.gates() - m.row);
  m.width = hidden ? p.n.hidden : p.n.layer_input(m.block / p.n.directions);
  m.first = hidden ? m.block * p.n.gates() * p.n.hidden : p.n.input_offset(m.block);
  if (hidden && p.apart) {
    const int64_t of_gate = panels / 4, unit = m.panel % of_gate * columns;
    m.row = m.panel / of_gate * p.n.hidden + unit;
    m.rows = std::min(columns, p.n.hidden - unit);
  }
  const LstmWeights& w = hidden ? p.hidden_weights : p.input_weights;
  m.at = w.block_offset[size_t(m.block)] + m.panel * kPanelBytes * m.width;
  return m;
}

}  // namespace

int64_t lstm_panels(const LstmPlan& p, const LstmWeights& w, bool hidden) {
  return w.block_offset.back() == 0 ? 0 : p.n.blocks() * block_panels(p, hidden);
}

void lstm_pack_panel(const LstmPlan& p, bool hidden, int64_t panel, const void* weights,
                     void* packed, void* wide) {
  const Matrix m = matrix_of(p, hidden, panel);
  if (m.width == 0) return;
  const void* rows =
      static_cast<const char*>(weights) + (m.first + m.row * m.width) * size_of(p.dtype);
  if (p.is_narrow()) {
    widen_elements(p.dtype, rows, m.rows * m.width, wide);
    rows = wide;
  }
  GemmPlan::pack_b(p.element(), rows, 1, m.width, m.rows, m.width,
                   static_cast<char*>(packed) + m.at);
}

namespace {

// A run of the plan, as one thread sees it.
class Run {
 public:
  Run(const LstmPlan& p, const StepArgs& args) : p_(p), n_(p.n), args_(args) {}

  void chunk(const LstmStage& stage, int64_t chunk) const {
    switch (stage.kind) {
      case LstmStage::kPrepare:
        return prepare(chunk);
      case LstmStage::kProject:
        return project(stage, chunk);
      case LstmStage::kSteps:
        return steps(stage, chunk);
      case LstmStage::kFinish:
        return finish(chunk);
    }
  }

 private:
  char* scratch(int64_t bytes) const { return static_cast<char*>(args_.scratch) + bytes; }
  char* own(int64_t bytes) const { return static_cast<char*>(args_.thread_scratch) + bytes; }
  char* packed(const LstmWeights& w, size_t operand) const {
    return w.frozen ? static_cast<char*>(args_.operands[operand]) : scratch(w.at);
  }
  const char* bias(int64_t block) const {
    const char* all =
        p_.is_narrow() ? scratch(p_.bias_at) : static_cast<const char*>(args_.operands[3]);
    return all + block * n_.gates() * p_.element_bytes;
  }
  // h of a block before or after so many steps.
  char* h(int64_t block, int64_t steps) const {
    return scratch(p_.h_at) + (2 * block + steps % 2) * p_.state_bytes();
  }
  char* c(int64_t block) const { return scratch(p_.c_at) + block * p_.state_bytes(); }
  bool is_last(int64_t layer) const { return layer == n_.layers - 1; }

  // What a layer reads, [B, S, K].
  const char* sequence(int64_t layer) const {
    if (layer > 0) return scratch(p_.sequence_at[(layer - 1) % 2]);
    return p_.is_narrow() ? scratch(p_.x_at) : static_cast<const char*>(args_.operands[0]);
  }

  // The place of computed step s, and of the earliest of the computed steps [begin, end).
  int64_t place(int64_t direction, int64_t s) const {
    return p_.backwards(direction) ? n_.steps - 1 - s : s;
  }
  int64_t earliest(int64_t direction, const LstmStage& stage) const {
    return p_.backwards(direction) ? n_.steps - stage.end : stage.begin;
  }

  void prepare(int64_t chunk) const {
    if (chunk < n_.blocks()) return prepare_block(chunk);
    chunk -= n_.blocks();
    const int64_t pieces = lstm_widen_chunks(p_);
    if (chunk < pieces) {
      const int64_t first = chunk * kLstmWidenPiece;
      const int64_t count = std::min(kLstmWidenPiece, n_.batch * n_.steps * n_.input - first);
      return widen_elements(p_.dtype, args_.in<uint16_t>(0) + first, count,
                            scratch(p_.x_at) + first * p_.element_bytes);
    }
    chunk -= pieces;
    const int64_t panels = p_.input_weights.frozen ? 0 : lstm_panels(p_, p_.input_weights, false);
    const bool hidden = chunk >= panels;
    const LstmWeights& w = hidden ? p_.hidden_weights : p_.input_weights;
    lstm_pack_panel(p_, hidden, hidden ? chunk - panels : chunk, args_.operands[hidden ? 2 : 1],
                    scratch(w.at), own(0));
  }

  void prepare_block(int64_t block) const {
    const int64_t count = n_.batch * n_.hidden, bytes = size_of(p_.dtype);
    for (const auto& [operand, to] :
         {std::pair{p_.operands.h0, h(block, 0)}, std::pair{p_.operands.c0, c(block)}}) {
      if (operand < 0) {
        std::memset(to, 0, size_t(p_.state_bytes()));
      } else {
        widen_elements(p_.dtype, args_.in<char>(size_t(operand)) + block * count * bytes, count,
                       to);
      }
    }
    if (!p_.is_narrow()) return;
    const int64_t first = block * n_.gates();
    widen_elements(p_.dtype, args_.in<uint16_t>(3) + first, n_.gates(),
                   scratch(p_.bias_at) + first * p_.element_bytes);
  }

  void project(const LstmStage& stage, int64_t chunk) const {
    const GemmPlan& plan = p_.project[stage.plan];
    const int64_t chunks = plan.chunks(stage.phase), d = chunk / chunks;
    const int64_t block = stage.layer * n_.directions + d;
    GemmArgs a;
    a.a =
        sequence(stage.layer) + earliest(d, stage) * n_.layer_input(stage.layer) * p_.element_bytes;
    a.b = packed(p_.input_weights, 1) + p_.input_weights.block_offset[size_t(block)];
    a.c = scratch(p_.z_at) + d * p_.block_z();
    a.scratch = scratch(p_.gemm_at) + d * p_.gemm_bytes;
    a.thread_scratch = args_.thread_scratch;
    plan.run(stage.phase, chunk % chunks, a);
  }

  // Some sequences and hidden units of one direction.
  struct Part {
    int64_t layer, direction, block;
    int64_t row, rows, unit, units;
    int64_t first_place;  // of the inputs that are multiplied
  };

  void steps(const LstmStage& stage, int64_t chunk) const {
    const int64_t across = p_.unit_groups(), per_direction = p_.row_groups() * across;
    Part part{};
    part.layer = stage.layer;
    part.direction = chunk / per_direction;
    part.block = stage.layer * n_.directions + part.direction;
    part.row = chunk % per_direction / across * p_.rows;
    part.rows = std::min(p_.rows, n_.batch - part.row);
    part.unit = chunk % across * p_.units;
    part.units = std::min(p_.units, n_.hidden - part.unit);
    // A block of inputs may be longer than the stage.
    LstmStage inputs = stage;
    inputs.begin = stage.begin / p_.block_steps * p_.block_steps;
    inputs.end = std::min(inputs.begin + p_.block_steps, n_.steps);
    part.first_place = earliest(part.direction, inputs);
    for (int64_t s = stage.begin; s < stage.end; ++s) {
      multiply(part, s);
      for (int64_t row = part.row; row < part.row + part.rows; ++row) cell(part, s, row);
    }
  }

  // Gates [rows, 4, units] of h times the hidden weights, in the thread's scratch.
  void multiply(const Part& part, int64_t s) const {
    const size_t which = (part.rows < p_.rows ? 2 : 0) + (part.units < p_.units ? 1 : 0);
    const GemmPlan& plan = p_.recurrent[which];
    GemmArgs a;
    a.a = h(part.block, s) + part.row * n_.hidden * p_.element_bytes;
    a.b = packed(p_.hidden_weights, 2) + p_.hidden_weights.block_offset[size_t(part.block)] +
          part.unit * p_.element_bytes * n_.hidden;
    a.c = own(p_.own_gates_at);
    a.scratch = own(p_.own_shared_at);
    a.thread_scratch = args_.thread_scratch;
    for (int phase = 0; phase < plan.phases(); ++phase) {
      for (int64_t k = 0; k < plan.chunks(phase); ++k) plan.run(phase, k, a);
    }
  }

  void cell(const Part& part, int64_t s, int64_t row) const {
    const int64_t t = place(part.direction, s), bytes = p_.element_bytes;
    const int64_t state = (row * n_.hidden + part.unit) * bytes;
    const bool last = is_last(part.layer);
    char* y = last ? args_.out<char>(0) : scratch(p_.sequence_at[part.layer % 2]);
    const int64_t y_bytes = last ? size_of(p_.dtype) : bytes;
    if (y) {
      y += ((row * n_.steps + t) * n_.output() + part.direction * n_.hidden + part.unit) * y_bytes;
    }
    if (p_.operands.lengths >= 0 && t >= args_.in<int64_t>(size_t(p_.operands.lengths))[row]) {
      std::memcpy(h(part.block, s + 1) + state, h(part.block, s) + state,
                  size_t(part.units * bytes));
      if (y) std::memset(y, 0, size_t(part.units * y_bytes));
      return;
    }
    const int64_t input = row * p_.block_steps + t - part.first_place;
    LstmCell cell{};
    cell.inputs =
        scratch(p_.z_at) + part.direction * p_.block_z() + (input * n_.gates() + part.unit) * bytes;
    cell.bias = bias(part.block) + part.unit * bytes;
    cell.recurrent = own(p_.own_gates_at) + (row - part.row) * 4 * part.units * bytes;
    cell.input_stride = n_.hidden;
    cell.recurrent_stride = part.units;
    cell.c = c(part.block) + state;
    cell.h = h(part.block, s + 1) + state;
    cell.y = y;
    cell.count = part.units;
    lstm_cell(y_bytes == bytes && p_.is_narrow() ? DType::kF32 : p_.dtype, cell);
  }

  void finish(int64_t block) const {
    const int64_t count = n_.batch * n_.hidden, at = block * count * size_of(p_.dtype);
    const auto store = [&](size_t result, const char* from) {
      if (char* to = args_.out<char>(result)) narrow_elements(p_.dtype, from, count, to + at);
    };
    store(1, h(block, n_.steps));
    store(2, c(block));
  }

  const LstmPlan& p_;
  const LstmSizes<int64_t>& n_;
  const StepArgs& args_;
};

std::atomic_ref<int64_t> chunk_count(const StepArgs& args) {
  return std::atomic_ref<int64_t>(*static_cast<int64_t*>(args.scratch));
}

}  // namespace

void lstm_begin(const void* state, const StepArgs& args, int64_t) {
  const auto& p = *static_cast<const LstmPlan*>(state);
  chunk_count(args).store(0, std::memory_order_relaxed);
  if (p.operands.lengths < 0) return;
  const int64_t* lengths = args.in<int64_t>(size_t(p.operands.lengths));
  for (int64_t b = 0; b < p.n.batch; ++b) {
    if (lengths[b] < 0 || lengths[b] > p.n.steps) {
      user_error("lengths[{}] is {}, expected 0 to {}", b, lengths[b], p.n.steps);
    }
  }
}

void lstm_stage(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& p = *static_cast<const LstmPlan*>(state);
  const int64_t before = chunk_count(args).fetch_add(1, std::memory_order_relaxed);
  const auto next = std::upper_bound(p.first.begin(), p.first.end(), before);
  Run(p, args).chunk(p.stages[size_t(next - p.first.begin()) - 1], chunk);
}

}  // namespace rlx::cpu
