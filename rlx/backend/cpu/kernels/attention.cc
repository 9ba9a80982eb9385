// Attention in tiles: scores and probabilities of a few rows and a block of keys live in the cache;
// memory is linear in the lengths. Rows of the query heads that share keys go together.
#include "rlx/ops/attention.h"

#include "rlx/backend/cpu/kernels/attention_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/attention_rows-inl.h"

#ifndef RLX_CPU_ATTENTION_TYPES_
#define RLX_CPU_ATTENTION_TYPES_
namespace rlx::cpu {

struct AttentionState {
  AttentionProblem p;
  int64_t chunk_rows = 0, row_chunks = 0;
  int64_t segments = 0;  // that are chunks of their own; 0: not split
  int64_t padded = 0;    // columns of a partial sum

  template <class T>
  struct Partials {
    T *max, *sum, *out;  // [batch, kv_heads, segment, row]
  };
  template <class T>
  Partials<T> partials(ScratchLayout& s) const {
    const int64_t count = p.n.batch * p.n.kv_heads * segments * p.rows();
    return {s.take<T>(count), s.take<T>(count), s.take<T>(count * padded)};
  }
};

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// The row's result from its sums.
template <class S, class T = Wide<S>>
void StoreResult(const RowGroup& g, int64_t r, T sum, const T* out) {
  const hn::ScalableTag<T> d;
  S* y = g.args.out<S>(0) + g.p.y.at(g.batch, g.query(r), g.head_of(r));
  const auto factor = hn::Set(d, T(1) / sum);
  ForRow(d, size_t(g.p.n.v_width), [&](size_t i, size_t count) HWY_ATTR {
    const auto v = sum == T(0) ? hn::Zero(d) : hn::Mul(LoadCount(d, out + i, count), factor);
    StoreCount(v, d, y + i, count);
  });
}

template <class S>
void RowChunk(const AttentionState& s, const StepArgs& args, int64_t chunk) {
  ScratchLayout scratch(args.thread_scratch);
  AttentionRows<S> rows(s.p, s.chunk_rows, scratch);
  const int64_t first = chunk % s.row_chunks * s.chunk_rows;
  const int64_t head = chunk / s.row_chunks;
  const RowGroup g(s.p, args, head / s.p.n.kv_heads, head % s.p.n.kv_heads, first,
                   std::min(s.chunk_rows, s.p.rows() - first));
  rows.run(g);
  const auto& sums = rows.total();
  for (int64_t r = 0; r < g.count; ++r) {
    StoreResult<S>(g, r, sums.sum[r], sums.out + r * sums.padded);
  }
}

template <class S>
void SegmentChunk(const AttentionState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  ScratchLayout shared(args.scratch), scratch(args.thread_scratch);
  const auto partials = s.partials<T>(shared);
  AttentionRows<S> rows(s.p, s.chunk_rows, scratch);
  const int64_t head = chunk / s.segments, count = s.p.rows();
  const RowGroup g(s.p, args, head / s.p.n.kv_heads, head % s.p.n.kv_heads, 0, count);
  rows.run_segment(g, chunk % s.segments);
  const auto& sums = rows.total();
  std::copy_n(sums.max, count, partials.max + chunk * count);
  std::copy_n(sums.sum, count, partials.sum + chunk * count);
  std::copy_n(sums.out, count * s.padded, partials.out + chunk * count * s.padded);
}

template <class S>
void JoinChunk(const AttentionState& s, const StepArgs& args, int64_t head) {
  using T = Wide<S>;
  ScratchLayout shared(args.scratch), scratch(args.thread_scratch);
  const auto partials = s.partials<T>(shared);
  const int64_t count = s.p.rows();
  Softmaxes<T> sums;
  sums.take(scratch, count, s.p.n.v_width);
  sums.clear(count);
  for (int64_t k = head * s.segments; k < (head + 1) * s.segments; ++k) {
    for (int64_t r = 0; r < count; ++r) {
      const int64_t at = k * count + r;
      sums.join(r, partials.max[at], partials.sum[at], partials.out + at * s.padded);
    }
  }
  const RowGroup g(s.p, args, head / s.p.n.kv_heads, head % s.p.n.kv_heads, 0, count);
  for (int64_t r = 0; r < count; ++r) {
    StoreResult<S>(g, r, sums.sum[r], sums.out + r * sums.padded);
  }
}

}  // namespace

void AttentionRowChunk(const AttentionState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() { RowChunk<S>(s, args, chunk); });
}

void AttentionSegmentChunk(const AttentionState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() { SegmentChunk<S>(s, args, chunk); });
}

void AttentionJoinChunk(const AttentionState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() { JoinChunk<S>(s, args, chunk); });
}

// Bytes of a thread's scratch.
int64_t AttentionScratch(const AttentionState& s) {
  int64_t bytes = 0;
  WithFloatType(s.p.dtype, [&]<class S>() {
    ScratchLayout scratch;
    AttentionRows<S> rows(s.p, s.chunk_rows, scratch);
    bytes = scratch.bytes();
  });
  return bytes;
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AttentionRowChunk);
HWY_EXPORT(AttentionSegmentChunk);
HWY_EXPORT(AttentionJoinChunk);
HWY_EXPORT(AttentionScratch);

namespace {

constexpr int64_t kEnoughChunks = 16;

void run_rows(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionRowChunk)
  (*static_cast<const AttentionState*>(state), args, chunk);
}

void run_segment(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionSegmentChunk)
  (*static_cast<const AttentionState*>(state), args, chunk);
}

void run_join(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionJoinChunk)
  (*static_cast<const AttentionState*>(state), args, chunk);
}

// A few rows and many keys, with too few heads to share the work: segments of keys become chunks.
bool is_split(const AttentionProblem& p) {
  return p.rows() <= attention_chunk_rows(p) && p.n.keys > kSumSegment &&
         p.n.batch * p.n.kv_heads < kEnoughChunks;
}

AttentionState state_of(const KernelCall& call) {
  AttentionState s;
  s.p = attention_problem(call, kAttentionInputs);
  s.chunk_rows = std::clamp<int64_t>(s.p.rows(), 1, attention_chunk_rows(s.p));
  s.row_chunks = ceil_div(s.p.rows(), s.chunk_rows);
  s.padded = s.p.dtype == DType::kF64 ? padded_width<double>(s.p.n.v_width)
                                      : padded_width<float>(s.p.n.v_width);
  return s;
}

PreparedKernel prepared(const AttentionState& s) {
  const auto& n = s.p.n;
  PreparedKernel k;
  const int64_t heads = checked_mul(n.batch, n.kv_heads);
  if (s.segments > 0) {
    ScratchLayout shared;
    if (s.p.dtype == DType::kF64) {
      s.partials<double>(shared);
    } else {
      s.partials<float>(shared);
    }
    k.scratch_bytes = shared.bytes();
    k.phases = {{checked_mul(heads, s.segments), run_segment}, {heads, run_join}};
  } else {
    k.phases = {{checked_mul(heads, s.row_chunks), run_rows}};
  }
  k.thread_scratch_bytes = HWY_DYNAMIC_DISPATCH(AttentionScratch)(s);
  const double rate = s.p.dtype == DType::kF64 ? 25 : 50;  // flops per nanosecond
  k.nanoseconds = s.p.pairs * (2 * double(n.width + n.v_width) + 40) / rate;
  k.state = std::make_shared<const AttentionState>(s);
  return k;
}

PreparedKernel prepare_rows(const KernelCall& call) { return prepared(state_of(call)); }

PreparedKernel prepare_split(const KernelCall& call) {
  AttentionState s = state_of(call);
  s.segments = ceil_div(s.p.n.keys, kSumSegment);
  return prepared(s);
}

std::string_view fits_split(const KernelCall& call) {
  return is_split(attention_problem(call, kAttentionInputs))
             ? ""
             : "enough rows or heads to share the work without splitting the keys";
}

std::string_view fits_rows(const KernelCall&) { return ""; }

// Of all operands.
constexpr StrideForm kForms[] = {StrideForm::kRows};

constexpr KernelEntry kEntries[] = {
    {.name = "attention:split_keys",
     .fits = fits_split,
     .prepare = prepare_split,
     .operand_forms = kForms,
     .vector = true},
    {.name = "attention:rows",
     .fits = fits_rows,
     .prepare = prepare_rows,
     .operand_forms = kForms,
     .vector = true},
};

}  // namespace

RLX_DEFINE_KERNELS(Attention, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
