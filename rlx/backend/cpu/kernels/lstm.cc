#include "rlx/ops/lstm.h"

#include <algorithm>

#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/backend/cpu/kernels/lstm_plan.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

// Products with the inputs are kept for so many bytes of steps at once, but for some steps at
// least.
constexpr int64_t kInputBytes = int64_t{8} << 20;
constexpr int64_t kFewestSteps = 32;
constexpr int64_t kMostRows = 32;  // of a chunk: enough to use the weights that it reads
constexpr int64_t kFewestRows = 4;
constexpr int64_t kSequenceChunks = 8;
// Multiply-adds. A step is shared if it is worth a barrier, by chunks of about so many.
constexpr int64_t kSharedStep = int64_t{1} << 19;
constexpr int64_t kSharedChunk = int64_t{1} << 18;
constexpr int64_t kMostSharedSteps = 65536;

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t p = 1;
  for (const int64_t f : factors) p = checked_mul(p, f);
  return p;
}

LstmPlan sizes_of(const KernelCall& call) {
  LstmPlan p;
  p.attrs = call.as<LstmAttrs>();
  p.operands = LstmOperands(p.attrs);
  p.n = LstmSizes<int64_t>(p.attrs, call.operands[0].dims);
  p.dtype = call.operands[0].dtype;
  p.element_bytes = p.dtype == DType::kF64 ? 8 : 4;
  return p;
}

void place_blocks(LstmPlan& p, LstmWeights& w, bool hidden) {
  int64_t at = 0;
  for (int64_t block = 0; block < p.n.blocks(); ++block) {
    w.block_offset.push_back(at);
    const int64_t inputs = hidden ? p.n.hidden : p.n.layer_input(block / p.n.directions);
    const int64_t bytes = hidden && p.apart
                              ? checked_mul(4, p.gate_packed_bytes())
                              : int64_t(GemmPlan::packed_b_bytes(p.element(), p.n.gates(), inputs));
    at = checked_add(at, bytes);
  }
  w.block_offset.push_back(at);
}

// Whether all threads share each step.
bool shares_steps(const LstmPlan& p) {
  const int64_t groups = checked_mul(p.n.directions, ceil_div(p.n.batch, kMostRows));
  const int64_t work = product({p.n.directions, p.n.batch, p.n.gates(), p.n.hidden});
  return work >= kSharedStep && groups < kSequenceChunks &&
         checked_mul(p.n.layers, p.n.steps) <= kMostSharedSteps;
}

void choose_parts(LstmPlan& p, bool shared) {
  p.units = p.n.hidden;
  if (!shared) {
    const int64_t groups = std::max<int64_t>(1, kSequenceChunks / p.n.directions);
    p.rows = std::clamp(ceil_div(p.n.batch, groups), kFewestRows, kMostRows);
    p.rows = std::min(p.rows, p.n.batch);
    return;
  }
  p.rows = std::min(p.n.batch, 2 * kMostRows);
  const int64_t of_unit = product({4, p.n.hidden, p.rows});
  p.units = std::min(p.n.hidden,
                     round_up(ceil_div(kSharedChunk, of_unit), panel_columns(p.element_bytes)));
}

// The products of a block of so many steps with the inputs of a layer.
GemmPlan project_plan(const LstmPlan& p, int64_t inputs, int64_t steps) {
  GemmShape s;
  s.n = s.c_row_stride = p.n.gates();
  s.k = s.a_row_stride = inputs;
  s.m = steps;
  if (steps == p.n.steps) {
    s.m = checked_mul(steps, p.n.batch);
  } else {
    s.a_offset.clear();
    s.c_offset.clear();
    for (int64_t b = 0; b < p.n.batch; ++b) {
      s.a_offset.push_back(product({b, p.n.steps, inputs}));
      s.c_offset.push_back(product({b, p.block_steps, p.n.gates()}));
    }
    s.b_offset.assign(size_t(p.n.batch), 0);
  }
  return GemmPlan(p.element(), std::move(s), true);
}

GemmPlan recurrent_plan(const LstmPlan& p, int64_t rows, int64_t units) {
  GemmShape s;
  s.m = rows;
  s.n = s.c_row_stride = 4 * units;
  s.k = s.a_row_stride = p.n.hidden;
  if (!p.apart) return GemmPlan(p.element(), std::move(s), true);
  s.n = units;
  s.a_offset.assign(4, 0);
  const int64_t gate = p.gate_packed_bytes() / p.element_bytes;
  s.b_offset = {0, gate, 2 * gate, 3 * gate};
  s.c_offset = {0, units, 2 * units, 3 * units};
  return GemmPlan(p.element(), std::move(s), true);
}

int64_t last_part(int64_t size, int64_t part) { return size - (ceil_div(size, part) - 1) * part; }

void make_plans(LstmPlan& p) {
  for (const int64_t rows : {p.rows, last_part(p.n.batch, p.rows)}) {
    for (const int64_t units : {p.units, last_part(p.n.hidden, p.units)}) {
      p.recurrent.push_back(recurrent_plan(p, rows, units));
    }
  }
  if (p.n.steps == 0) return;
  for (const int64_t layer : {0, 1}) {
    if (layer == p.n.layers) break;
    for (const int64_t steps : {p.block_steps, last_part(p.n.steps, p.block_steps)}) {
      p.project.push_back(project_plan(p, p.n.layer_input(layer), steps));
    }
  }
}

void add_stage(LstmPlan& p, LstmStage stage) {
  if (stage.chunks == 0) return;
  p.first.push_back(p.first.empty() ? 0 : p.first.back() + p.stages.back().chunks);
  p.stages.push_back(stage);
}

void add_steps(LstmPlan& p, int64_t layer, int64_t begin, int64_t end, bool shared) {
  LstmStage stage{.kind = LstmStage::kProject, .layer = layer, .begin = begin, .end = end};
  stage.plan = (layer > 0 ? 2 : 0) + (end - begin < p.block_steps ? 1 : 0);
  const GemmPlan& plan = p.project[stage.plan];
  for (stage.phase = 0; stage.phase < plan.phases(); ++stage.phase) {
    stage.chunks = checked_mul(p.n.directions, plan.chunks(stage.phase));
    add_stage(p, stage);
  }
  stage.kind = LstmStage::kSteps;
  stage.chunks = product({p.n.directions, p.row_groups(), p.unit_groups()});
  const int64_t at_once = shared ? 1 : end - begin;
  for (int64_t s = begin; s < end; s += at_once) {
    stage.begin = s;
    stage.end = s + at_once;
    add_stage(p, stage);
  }
}

void add_stages(LstmPlan& p, bool shared) {
  LstmStage prepare{.kind = LstmStage::kPrepare};
  prepare.chunks = p.n.blocks() + lstm_widen_chunks(p);
  if (!p.input_weights.frozen) prepare.chunks += lstm_panels(p, p.input_weights, false);
  if (!p.hidden_weights.frozen) prepare.chunks += lstm_panels(p, p.hidden_weights, true);
  add_stage(p, prepare);
  for (int64_t layer = 0; layer < p.n.layers; ++layer) {
    for (int64_t s = 0; s < p.n.steps; s += p.block_steps) {
      add_steps(p, layer, s, std::min(s + p.block_steps, p.n.steps), shared);
    }
  }
  add_stage(p, {.kind = LstmStage::kFinish, .chunks = p.n.blocks()});
}

// Regions of scratch, one after another.
class Regions {
 public:
  int64_t take(int64_t bytes) {
    const int64_t at = size_;
    size_ = checked_add(size_, round_up(bytes, 64));
    return at;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

void place_scratch(LstmPlan& p, PreparedKernel& k) {
  const int64_t bytes = p.element_bytes, blocks = p.n.blocks();
  const int64_t steps = checked_mul(p.n.batch, p.n.steps);
  Regions all;
  all.take(int64_t(sizeof(int64_t)));  // the count of chunks
  if (p.is_narrow()) {
    p.x_at = all.take(product({steps, p.n.input, bytes}));
    p.bias_at = all.take(product({blocks, p.n.gates(), bytes}));
  }
  for (int64_t i = 0; i < std::min<int64_t>(p.n.layers - 1, 2); ++i) {
    p.sequence_at[i] = all.take(product({steps, p.n.output(), bytes}));
  }
  p.z_at = all.take(checked_mul(p.n.directions, p.block_z()));
  p.h_at = all.take(product({2, blocks, p.state_bytes()}));
  p.c_at = all.take(checked_mul(blocks, p.state_bytes()));
  for (LstmWeights* w : {&p.input_weights, &p.hidden_weights}) {
    if (!w->frozen) w->at = all.take(w->block_offset.back());
  }
  int64_t own = 0, shared = 0;
  for (const GemmPlan& plan : p.project) {
    p.gemm_bytes = std::max(p.gemm_bytes, round_up(int64_t(plan.scratch_bytes()), 64));
    own = std::max(own, int64_t(plan.thread_scratch_bytes()));
  }
  p.gemm_at = all.take(checked_mul(p.n.directions, p.gemm_bytes));
  for (const GemmPlan& plan : p.recurrent) {
    own = std::max(own, int64_t(plan.thread_scratch_bytes()));
    shared = std::max(shared, int64_t(plan.scratch_bytes()));
  }
  Regions thread;
  const int64_t widest = std::max({p.n.input, p.n.output(), p.n.hidden});
  const bool widens = p.is_narrow() && !(p.input_weights.frozen && p.hidden_weights.frozen);
  thread.take(std::max(own, widens ? product({panel_columns(bytes), widest, bytes}) : 0));
  p.own_shared_at = thread.take(shared);
  p.own_gates_at = thread.take(product({p.rows, 4, p.units, bytes}));
  k.scratch_bytes = all.size();
  k.thread_scratch_bytes = thread.size();
}

Packing packing_of(const LstmPlan& p, bool hidden) {
  const LstmWeights& w = hidden ? p.hidden_weights : p.input_weights;
  LstmPlan sizes;  // what packing needs, without the plans
  sizes.attrs = p.attrs;
  sizes.n = p.n;
  sizes.dtype = p.dtype;
  sizes.element_bytes = p.element_bytes;
  sizes.apart = p.apart;
  sizes.input_weights.block_offset = p.input_weights.block_offset;
  sizes.hidden_weights.block_offset = p.hidden_weights.block_offset;
  Packing packing;
  packing.operand = hidden ? 2 : 1;
  packing.key =
      fmt::format("lstm:{}:{}x{}x{}x{}",
                  !hidden   ? "input"
                  : p.apart ? "gates"
                            : "hidden",
                  p.n.layers, p.n.directions, p.n.hidden, hidden ? p.n.hidden : p.n.input);
  packing.bytes = w.block_offset.back();
  packing.pack = [sizes = std::make_shared<const LstmPlan>(std::move(sizes)), hidden](
                     const void* source, void* packed) {
    const LstmPlan& s = *sizes;
    const int64_t widest = std::max({s.n.input, s.n.output(), s.n.hidden});
    std::vector<float> wide(s.is_narrow() ? size_t(panel_columns(s.element_bytes) * widest)
                                          : size_t(0));
    const LstmWeights& w = hidden ? s.hidden_weights : s.input_weights;
    for (int64_t i = 0; i < lstm_panels(s, w, hidden); ++i) {
      lstm_pack_panel(s, hidden, i, source, packed, wide.data());
    }
  };
  return packing;
}

double nanoseconds(const LstmPlan& p) {
  const double steps = double(p.n.steps), sequences = double(p.n.batch) * steps;
  const double speed = p.dtype == DType::kF64 ? 2 : 1;
  double sum = 0;
  for (int64_t layer = 0; layer < p.n.layers; ++layer) {
    const double hidden = double(p.n.gates()) * double(p.n.hidden);
    const double inputs = double(p.n.gates()) * double(p.n.layer_input(layer));
    sum += sequences * ((hidden + inputs) / 30 + 5 * double(p.n.hidden) + 50);
    sum += (inputs + steps * double(p.row_groups()) * hidden) / 8;  // reads of weights
  }
  return speed * double(p.n.directions) * sum;
}

PreparedKernel prepare(const KernelCall& call) {
  PreparedKernel k;
  LstmPlan p = sizes_of(call);
  if (p.n.batch == 0) return k;
  const bool shared = shares_steps(p);
  choose_parts(p, shared);
  p.apart = p.units < p.n.hidden;
  place_blocks(p, p.input_weights, false);
  place_blocks(p, p.hidden_weights, true);
  const auto freeze = [&](LstmWeights& w, bool hidden) {
    w.frozen = call.is_frozen(hidden ? 2 : 1) && w.block_offset.back() > 0;
    if (w.frozen) k.packings.push_back(packing_of(p, hidden));
  };
  freeze(p.input_weights, false);
  freeze(p.hidden_weights, true);
  const int64_t of_step = product({p.n.directions, p.n.batch, p.n.gates(), p.element_bytes});
  p.block_steps = std::min(std::max(kInputBytes / of_step, kFewestSteps), p.n.steps);
  p.block_steps = std::max<int64_t>(p.block_steps, 1);
  make_plans(p);
  add_stages(p, shared);
  place_scratch(p, k);
  k.nanoseconds = nanoseconds(p);
  k.phases.push_back({1, lstm_begin});
  for (const LstmStage& stage : p.stages) k.phases.push_back({stage.chunks, lstm_stage});
  k.state = std::make_shared<const LstmPlan>(std::move(p));
  return k;
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "lstm:steps",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare = prepare,
        .vector = true,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Lstm, Cpu) = {kEntries};

}  // namespace rlx::cpu
