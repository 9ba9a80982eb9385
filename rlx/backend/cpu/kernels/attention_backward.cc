// The gradients of Attention in tiles, memory linear in the lengths: probabilities are computed
// again from each row's maximum and sum. Here: the gradient of
// the queries, and the call as a whole.
#include "rlx/backend/cpu/kernels/attention_backward.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/attention_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// kRowBlock rows of dq.
template <class S>
void QueryChunk(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const AttentionProblem& p = s.p;
  ScratchLayout scratch(args.thread_scratch);
  GradientTiles<S> tiles(s, args, scratch);
  const int64_t padded = tiles.padded();
  T* sums = scratch.take<T>(kRowBlock * padded);
  std::fill(sums, sums + kRowBlock * padded, T(0));
  const int64_t blocks = (p.rows() + kRowBlock - 1) / kRowBlock, head = chunk / blocks;
  const int64_t first = chunk % blocks * kRowBlock;
  const RowGroup g(p, args, head / p.n.kv_heads, head % p.n.kv_heads, first,
                   std::min(kRowBlock, p.rows() - first));
  tiles.take_rows(g);
  Range all{p.n.keys, 0};
  for (int64_t r = 0; r < g.count; ++r) {
    const Range keys = tiles.range(r);
    if (!keys.empty()) all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  }
  for (int64_t j = all.begin / kKeyBlock * kKeyBlock; j < all.end; j += kKeyBlock) {
    tiles.take_keys(g, all & Range{j, j + kKeyBlock}, true);
    tiles.take_pairs(g, p.softcap != 0);
    for (int64_t r = 0; r < g.count; r += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, g.count - r);
      Range ranges[kTileRows];
      for (int64_t i = 0; i < rows; ++i) ranges[i] = tiles.columns(r + i);
      AddProduct<T>({tiles.ds(r), kKeyBlock, 1}, ranges, rows, tiles.k_rows(), padded,
                    WholeVectors<T>(p.n.width), sums + r * padded, padded, tiles.sums());
    }
  }
  for (int64_t r = 0; r < g.count; ++r) {
    S* dq = args.out<S>(0) + p.dq.at(g.batch, g.query(r), g.head_of(r));
    StoreScaled(sums + r * padded, p.n.width, T(p.scale), dq);
  }
}

}  // namespace

void AttentionBackwardQueries(const AttentionBackwardState& s, const StepArgs& args,
                              int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() { QueryChunk<S>(s, args, chunk); });
}

// Bytes that the phases behind the first one want of each thread.
int64_t AttentionTileBytes(const AttentionBackwardState& s) {
  int64_t bytes = 0;
  WithFloatType(s.p.dtype, [&]<class S>() {
    using T = Wide<S>;
    ScratchLayout tiles;
    const GradientTiles<S> t(s, StepArgs{}, tiles);
    // What the phases keep beside: sums of dk and dv (of dq: less), or of dbias.
    const int64_t keys = kKeyBlock * (t.padded() + t.v_padded()), bias = 2 * kRowBlock * kKeyBlock;
    tiles.take<T>(std::max(keys, bias) + 64);
    bytes = tiles.bytes();
  });
  return bytes;
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AttentionBackwardQueries);
HWY_EXPORT(AttentionTileBytes);

namespace {

const AttentionBackwardState& state_of(const void* state) {
  return *static_cast<const AttentionBackwardState*>(state);
}

void run_rows(const void* state, const StepArgs& args, int64_t chunk) {
  attention_backward_rows(state_of(state), args, chunk);
}

void run_queries(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionBackwardQueries)(state_of(state), args, chunk);
}

template <AttentionKeyPhase kPhase>
void run_keys(const void* state, const StepArgs& args, int64_t chunk) {
  attention_backward_keys(state_of(state), args, kPhase, chunk);
}

PreparedKernel prepare(const KernelCall& call) {
  AttentionBackwardState s;
  s.p = attention_problem(call, kAttentionBackwardInputs);
  const AttentionProblem& p = s.p;
  s.chunk_rows = std::clamp<int64_t>(p.rows(), 1, attention_chunk_rows(p));
  s.row_chunks = ceil_div(p.rows(), s.chunk_rows);
  s.key_blocks = ceil_div(p.n.keys, kKeyBlock);
  s.dk = call.used(1);
  s.dv = call.used(2);
  const bool bias = p.bias_at >= 0 && call.used(3);
  const int64_t heads = checked_mul(p.n.batch, p.n.kv_heads);
  PreparedKernel k;
  k.phases = {{checked_mul(heads, s.row_chunks), run_rows}};
  if (call.used(0)) {
    k.phases.push_back({checked_mul(heads, ceil_div(p.rows(), kRowBlock)), run_queries});
  }
  if (s.dk || s.dv) {
    k.phases.push_back({checked_mul(heads, s.key_blocks), run_keys<AttentionKeyPhase::kKeys>});
  }
  if (bias) {
    s.bias = call.results[3].dims;
    s.bias_row_blocks = s.bias[2] == 1 ? 1 : ceil_div(s.bias[2], kRowBlock);
    s.bias_key_blocks = ceil_div(s.bias[3], kKeyBlock);
    const int64_t planes = checked_mul(s.bias[0], s.bias[1]);
    k.phases.push_back({checked_mul(planes, checked_mul(s.bias_row_blocks, s.bias_key_blocks)),
                        run_keys<AttentionKeyPhase::kBias>});
  }
  const AttentionBackwardScratch rows = attention_backward_rows_bytes(s);
  k.scratch_bytes = rows.shared;
  k.thread_scratch_bytes = std::max(rows.thread, HWY_DYNAMIC_DISPATCH(AttentionTileBytes)(s));
  const double rate = p.dtype == DType::kF64 ? 25 : 50;  // flops per nanosecond
  k.nanoseconds = p.pairs * (7 * double(p.n.width + p.n.v_width) + 120) / rate;
  k.state = std::make_shared<const AttentionBackwardState>(std::move(s));
  return k;
}

constexpr StrideForm kForms[] = {StrideForm::kRows};

constexpr KernelEntry kEntries[] = {{
    .name = "attention_backward:tiles",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare,
    .operand_forms = kForms,
    .vector = true,
}};

}  // namespace

RLX_DEFINE_KERNELS(AttentionBackwardAll, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
