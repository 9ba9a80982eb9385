// The gradients of Attention in tiles, memory linear in the lengths: probabilities are computed
// again from each row's maximum and sum. Phases, those that are needed:
//   rows    maximum, sum and <dy, y> of every row
//   dq      by rows, over blocks of keys
//   dk, dv  by blocks of keys, over blocks of rows
//   dbias   by tiles of the bias, over what it repeats
#include "rlx/ops/attention.h"

#include "rlx/backend/cpu/kernels/attention_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/attention_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/attention_rows-inl.h"

#ifndef RLX_CPU_ATTENTION_BACKWARD_TYPES_
#define RLX_CPU_ATTENTION_BACKWARD_TYPES_
namespace rlx::cpu {

enum class AttentionPhase : uint8_t { kRows, kQuery, kKey, kBias };

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

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class S>
void RowsChunk(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const AttentionProblem& p = s.p;
  ScratchLayout shared(args.scratch), scratch(args.thread_scratch);
  const auto stats = s.rows<T>(shared);
  AttentionRows<S> rows(p, s.chunk_rows, scratch);
  const int64_t first = chunk % s.row_chunks * s.chunk_rows, head = chunk / s.row_chunks;
  const RowGroup g(p, args, head / p.n.kv_heads, head % p.n.kv_heads, first,
                   std::min(s.chunk_rows, p.rows() - first));
  rows.run(g);
  const auto& sums = rows.total();
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < g.count; ++r) {
    const size_t at = stats.at(p, g.batch, g.head_of(r), g.query(r));
    const T sum = sums.sum[r];
    stats.max[at] = Softmaxes<T>::base(sums.max[r]);
    stats.inverse[at] = stats.mean[at] = 0;
    if (sum == T(0)) continue;
    stats.inverse[at] = T(1) / sum;
    const S* dy = g.template row<S>(3, p.dy, r);
    const T* out = sums.out + r * sums.padded;
    stats.mean[at] =
        SumRow(d, size_t(p.n.v_width),
               [&](size_t i, size_t count) HWY_ATTR {
                 return hn::Mul(LoadCount(d, dy + i, count), LoadCount(d, out + i, count));
               }) /
        sum;
  }
}

// Blocks of rows and keys, widened, and what follows from them: p and ds of each pair.
template <class S>
class GradientTiles {
 public:
  using T = Wide<S>;
  using State = AttentionBackwardState;

  GradientTiles(const State& s, const StepArgs& args, ScratchLayout& scratch)
      : p_(s.p),
        width_(std::max<int64_t>(s.p.n.width, 1)),
        v_width_(std::max<int64_t>(s.p.n.v_width, 1)) {
    ScratchLayout shared(args.scratch);
    stats_ = s.rows<T>(shared);
    padded_ = padded_width<T>(width_);
    v_padded_ = padded_width<T>(v_width_);
    q_ = scratch.take<T>(kRowBlock * width_);
    dy_ = scratch.take<T>(kRowBlock * v_width_);
    q_rows_ = scratch.take<T>(kRowBlock * padded_);
    dy_rows_ = scratch.take<T>(kRowBlock * v_padded_);
    k_panels_ = scratch.take<T>(kKeyBlock * width_);
    v_panels_ = scratch.take<T>(kKeyBlock * v_width_);
    k_rows_ = scratch.take<T>(kKeyBlock * padded_);
    widened_ = scratch.take<T>(kKeyBlock * std::max(width_, v_width_));
    prob_ = scratch.take<T>(kRowBlock * kKeyBlock);
    ds_ = scratch.take<T>(kRowBlock * kKeyBlock);
    sums_ = scratch.take<T>(kTileRows * std::max(padded_, v_padded_));
    slope_ = scratch.take<T>(kKeyBlock);
    flags_ = scratch.take<uint8_t>(kKeyBlock);
  }

  // Rows without weight count as rows that see nothing.
  void take_rows(const RowGroup& g) {
    for (int64_t r = 0; r < g.count; ++r) {
      const size_t at = stat(g, r);
      ranges_[r] = stats_.inverse[at] == T(0) ? Range{} : g.keys(r);
      T *q = q_rows_ + r * padded_, *dy = dy_rows_ + r * v_padded_;
      if (ranges_[r].empty()) {
        std::fill(q, q + padded_, T(0));
        std::fill(dy, dy + v_padded_, T(0));
      } else {
        WidenRow(g.template row<S>(0, p_.q, r), p_.n.width, q, padded_);
        WidenRow(g.template row<S>(3, p_.dy, r), p_.n.v_width, dy, v_padded_);
      }
      std::copy_n(q, width_, q_ + r * width_);
      std::copy_n(dy, v_width_, dy_ + r * v_width_);
    }
  }

  void take_keys(const RowGroup& g, Range keys, bool rows) {
    keys_ = keys;
    const int64_t n = keys.end - keys.begin;
    keep_ = g.flags(keys, flags_);
    const S* k = g.template key<S>(1, p_.k, keys.begin);
    PackPanels(k, p_.k.row, n, p_.n.width, keep_, k_panels_, widened_);
    PackPanels(g.template key<S>(2, p_.v, keys.begin), p_.v.row, n, p_.n.v_width, keep_, v_panels_,
               widened_);
    if (rows) PackRows(k, p_.k.row, n, p_.n.width, keep_, k_rows_, padded_);
  }

  // p and ds of all pairs of the rows and keys, ds before the slope of the cap if not `capped`.
  // Rows without weight are 0.
  void take_pairs(const RowGroup& g, bool capped) {
    for (int64_t r = 0; r < g.count; ++r) {
      if (!ranges_[r].empty()) continue;
      std::fill_n(prob_ + r * kKeyBlock, kKeyBlock, T(0));
      std::fill_n(ds_ + r * kKeyBlock, kKeyBlock, T(0));
    }
    for (int64_t first = 0; first < g.count; first += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, g.count - first);
      Range span{kKeyBlock, 0};
      for (int64_t r = first; r < first + rows; ++r) {
        const Range seen = columns(r);
        if (!seen.empty()) span = {std::min(span.begin, seen.begin), std::max(span.end, seen.end)};
      }
      if (span.empty()) continue;
      T *x = prob_ + first * kKeyBlock, *dp = ds_ + first * kKeyBlock;
      DotKeys<T>({q_ + first * width_, width_, 1}, rows, p_.n.width, k_panels_, span, x, kKeyBlock);
      DotKeys<T>({dy_ + first * v_width_, v_width_, 1}, rows, p_.n.v_width, v_panels_, span, dp,
                 kKeyBlock);
      for (int64_t r = first; r < first + rows; ++r) {
        if (!columns(r).empty()) take_row(g, r, columns(r), capped);
      }
    }
  }

  // Of row r, relative to the block of keys; empty if none.
  Range columns(int64_t r) const {
    const Range seen = (ranges_[r] & keys_) - keys_.begin;
    return seen.empty() ? Range{} : seen;
  }
  bool hidden(int64_t key) const { return !keep_[key - keys_.begin]; }
  Range range(int64_t r) const { return ranges_[r]; }
  const T* ds(int64_t r) const { return ds_ + r * kKeyBlock; }
  const T* prob(int64_t r) const { return prob_ + r * kKeyBlock; }
  const T* k_rows() const { return k_rows_; }
  const T* q_rows() const { return q_rows_; }
  const T* dy_rows() const { return dy_rows_; }
  T* sums() const { return sums_; }  // of AddProduct
  int64_t padded() const { return padded_; }
  int64_t v_padded() const { return v_padded_; }

 private:
  size_t stat(const RowGroup& g, int64_t r) const {
    return stats_.at(p_, g.batch, g.head_of(r), g.query(r));
  }

  void take_row(const RowGroup& g, int64_t r, Range seen, bool capped) {
    const hn::ScalableTag<T> d;
    const size_t at = stat(g, r);
    const auto n = size_t(seen.end - seen.begin);
    T *x = prob_ + r * kKeyBlock + seen.begin, *dp = ds_ + r * kKeyBlock + seen.begin;
    const uint8_t* keep = keep_.flags ? keep_.flags + seen.begin : nullptr;
    FinishScores<S>(p_, x, n, g.template bias<S>(r, keys_.begin + seen.begin), keep,
                    capped ? slope_ : nullptr);
    const auto max = hn::Set(d, stats_.max[at]), inverse = hn::Set(d, stats_.inverse[at]);
    const auto mean = hn::Set(d, stats_.mean[at]);
    ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto p =
          hn::Mul(ExpOfNonPositive(d, hn::Sub(LoadCount(d, x + i, count), max)), inverse);
      auto g_ij = hn::Mul(p, hn::Sub(LoadCount(d, dp + i, count), mean));
      if (capped) g_ij = hn::Mul(g_ij, LoadCount(d, slope_ + i, count));
      StoreCount(p, d, x + i, count);
      StoreCount(g_ij, d, dp + i, count);
    });
    if (!keep) return;
    for (size_t j = 0; j < n; ++j) {
      if (!keep[j]) x[j] = dp[j] = T(0);
    }
  }

  const AttentionProblem& p_;
  int64_t width_, v_width_, padded_, v_padded_;
  State::Rows<T> stats_;
  T *q_, *dy_, *q_rows_, *dy_rows_, *k_panels_, *v_panels_, *k_rows_, *widened_, *prob_, *ds_,
      *sums_, *slope_;
  uint8_t* flags_;
  KeyFlags keep_;
  Range keys_;
  Range ranges_[kRowBlock];
};

template <class S, class T = Wide<S>>
void StoreScaled(const T* from, int64_t width, T factor, S* to) {
  const hn::ScalableTag<T> d;
  ForRow(d, size_t(width), [&](size_t i, size_t count) HWY_ATTR {
    StoreCount(hn::Mul(LoadCount(d, from + i, count), hn::Set(d, factor)), d, to + i, count);
  });
}

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

// to[j] += sum over the rows of weights[row][j] * rows[row], for the keys j of a block.
template <class T>
void AddToKeys(const T* weights, const Range* ranges, int64_t keys, const T* rows, int64_t padded,
               int64_t width, T* to, T* sums) {
  for (int64_t j = 0; j < keys; j += kTileRows) {
    const int64_t count = std::min<int64_t>(kTileRows, keys - j);
    AddProduct<T>({weights + j, 1, kKeyBlock}, ranges + j, count, rows, padded,
                  WholeVectors<T>(width), to + j * padded, padded, sums);
  }
}

// kKeyBlock rows of dk and dv.
template <class S>
void KeyChunk(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const AttentionProblem& p = s.p;
  ScratchLayout scratch(args.thread_scratch);
  GradientTiles<S> tiles(s, args, scratch);
  const int64_t padded = tiles.padded(), v_padded = tiles.v_padded();
  T *dk = scratch.take<T>(kKeyBlock * padded), *dv = scratch.take<T>(kKeyBlock * v_padded);
  std::fill(dk, dk + kKeyBlock * padded, T(0));
  std::fill(dv, dv + kKeyBlock * v_padded, T(0));
  const int64_t head = chunk / s.key_blocks, begin = chunk % s.key_blocks * kKeyBlock;
  const int64_t batch = head / p.n.kv_heads, kv_head = head % p.n.kv_heads;
  const RowGroup all(p, args, batch, kv_head, 0, p.rows());
  const Range block{begin, std::min(begin + kKeyBlock, p.n.keys)};
  const Range live = block & Range{0, all.lengths.keys};
  const int64_t keys = live.empty() ? 0 : live.end - live.begin;
  Range seen[kKeyBlock];  // rows of each key
  Range span{p.rows(), 0};
  for (int64_t j = 0; j < keys; ++j) {
    const Range r = p.rows_of(all.lengths, live.begin + j);
    seen[j] = {r.begin * p.group, r.end * p.group};
    if (!r.empty()) span = {std::min(span.begin, seen[j].begin), std::max(span.end, seen[j].end)};
  }
  if (!span.empty()) tiles.take_keys(all, live, false);
  for (int64_t r = span.begin / kRowBlock * kRowBlock; r < span.end; r += kRowBlock) {
    const Range rows = span & Range{r, r + kRowBlock};
    const RowGroup g(all, rows.begin, rows.end - rows.begin);
    tiles.take_rows(g);
    tiles.take_pairs(g, p.softcap != 0);
    Range ranges[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) {
      ranges[j] = (seen[j] & rows) - rows.begin;
      if (ranges[j].empty()) ranges[j] = {};
    }
    if (s.dk) {
      AddToKeys(tiles.ds(0), ranges, keys, tiles.q_rows(), padded, p.n.width, dk, tiles.sums());
    }
    if (s.dv) {
      AddToKeys(tiles.prob(0), ranges, keys, tiles.dy_rows(), v_padded, p.n.v_width, dv,
                tiles.sums());
    }
  }
  for (int64_t j = block.begin; j < block.end; ++j) {
    T *dk_row = dk + (j - begin) * padded, *dv_row = dv + (j - begin) * v_padded;
    // Whatever the cotangents are: a hidden key has no gradient.
    if (span.empty() || j >= live.end || tiles.hidden(j)) {
      std::fill_n(dk_row, padded, T(0));
      std::fill_n(dv_row, v_padded, T(0));
    }
    if (s.dk) {
      StoreScaled(dk_row, p.n.width, T(p.scale), args.out<S>(1) + p.dk.at(batch, j, kv_head));
    }
    if (s.dv) StoreScaled(dv_row, p.n.v_width, T(1), args.out<S>(2) + p.dv.at(batch, j, kv_head));
  }
}

// Adds ds of one batch entry and head to a tile of the bias; all rows go to its first if it has
// one.
template <class S, class T = Wide<S>>
void AddBiasTile(GradientTiles<S>& tiles, const RowGroup& head, Range rows, Range keys,
                 bool one_row, T* sums) {
  keys.end = std::min(keys.end, head.lengths.keys);
  if (keys.empty()) return;
  tiles.take_keys(head, keys, false);
  for (int64_t first = rows.begin; first < rows.end; first += kRowBlock) {
    const RowGroup g(head, first, std::min(kRowBlock, rows.end - first));
    tiles.take_rows(g);
    tiles.take_pairs(g, false);
    for (int64_t r = 0; r < g.count; ++r) {
      const Range seen = tiles.columns(r);
      AddRow(tiles.ds(r) + seen.begin, seen.end - seen.begin,
             sums + (one_row ? 0 : r * kKeyBlock) + seen.begin);
    }
  }
}

// One tile of dbias: for each batch entry and head that share it the sum over its rows, then the
// sum of these. A bias that is one number for all keys of a row has no gradient.
template <class S>
void BiasChunk(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const AttentionProblem& p = s.p;
  ScratchLayout scratch(args.thread_scratch);
  GradientTiles<S> tiles(s, args, scratch);
  constexpr int64_t kTile = kRowBlock * kKeyBlock;
  T *part = scratch.take<T>(kTile), *total = scratch.take<T>(kTile);
  std::fill(total, total + kTile, T(0));
  const int64_t key_block = chunk % s.bias_key_blocks;
  chunk /= s.bias_key_blocks;
  const int64_t row_block = chunk % s.bias_row_blocks;
  chunk /= s.bias_row_blocks;
  const int64_t bias_head = chunk % s.bias[1], bias_batch = chunk / s.bias[1];
  const bool one_row = s.bias[2] == 1;
  const Range tile{row_block * kRowBlock, (row_block + 1) * kRowBlock};
  const Range rows = Range{0, p.n.queries} & (one_row ? Range{0, p.n.queries} : tile);
  const Range keys =
      Range{0, s.bias[3]} & Range{key_block * kKeyBlock, (key_block + 1) * kKeyBlock};
  const int64_t heads = s.bias[1] == 1 ? p.n.heads : 1;
  const int64_t entries = s.bias[3] == 1 ? 0 : p.bias_repeats;
  for (int64_t b = bias_batch * entries; b < (bias_batch + 1) * entries; ++b) {
    for (int64_t h = bias_head; h < bias_head + heads; ++h) {
      std::fill(part, part + kTile, T(0));
      AddBiasTile(tiles, RowGroup(p, args, b, h), rows, keys, one_row, part);
      AddRow(part, kTile, total);
    }
  }
  const int64_t plane = (bias_batch * s.bias[1] + bias_head) * s.bias[2];
  const int64_t first = one_row ? 0 : rows.begin, count = one_row ? 1 : rows.end - rows.begin;
  for (int64_t r = 0; r < count; ++r) {
    StoreScaled(total + r * kKeyBlock, keys.end - keys.begin, T(1),
                args.out<S>(3) + (plane + first + r) * s.bias[3] + keys.begin);
  }
}

}  // namespace

void AttentionBackwardChunk(const AttentionBackwardState& s, const StepArgs& args,
                            AttentionPhase phase, int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() {
    switch (phase) {
      case AttentionPhase::kRows:
        return RowsChunk<S>(s, args, chunk);
      case AttentionPhase::kQuery:
        return QueryChunk<S>(s, args, chunk);
      case AttentionPhase::kKey:
        return KeyChunk<S>(s, args, chunk);
      case AttentionPhase::kBias:
        return BiasChunk<S>(s, args, chunk);
    }
  });
}

// Bytes that the threads share and bytes of each.
AttentionBackwardScratch AttentionBackwardBytes(const AttentionBackwardState& s) {
  AttentionBackwardScratch bytes;
  WithFloatType(s.p.dtype, [&]<class S>() {
    using T = Wide<S>;
    ScratchLayout shared, rows, tiles;
    s.rows<T>(shared);
    AttentionRows<S>(s.p, s.chunk_rows, rows);
    const GradientTiles<S> t(s, StepArgs{}, tiles);
    // What the phases keep beside: sums of dk and dv (of dq: less), or of dbias.
    const int64_t keys = kKeyBlock * (t.padded() + t.v_padded()), bias = 2 * kRowBlock * kKeyBlock;
    tiles.take<T>(std::max(keys, bias) + 64);
    bytes = {shared.bytes(), std::max(rows.bytes(), tiles.bytes())};
  });
  return bytes;
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AttentionBackwardChunk);
HWY_EXPORT(AttentionBackwardBytes);

namespace {

template <AttentionPhase kPhase>
void run_phase(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionBackwardChunk)
  (*static_cast<const AttentionBackwardState*>(state), args, kPhase, chunk);
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
  k.phases = {{checked_mul(heads, s.row_chunks), run_phase<AttentionPhase::kRows>}};
  if (call.used(0)) {
    k.phases.push_back(
        {checked_mul(heads, ceil_div(p.rows(), kRowBlock)), run_phase<AttentionPhase::kQuery>});
  }
  if (s.dk || s.dv) {
    k.phases.push_back({checked_mul(heads, s.key_blocks), run_phase<AttentionPhase::kKey>});
  }
  if (bias) {
    s.bias = call.results[3].dims;
    s.bias_row_blocks = s.bias[2] == 1 ? 1 : ceil_div(s.bias[2], kRowBlock);
    s.bias_key_blocks = ceil_div(s.bias[3], kKeyBlock);
    const int64_t planes = checked_mul(s.bias[0], s.bias[1]);
    k.phases.push_back({checked_mul(planes, checked_mul(s.bias_row_blocks, s.bias_key_blocks)),
                        run_phase<AttentionPhase::kBias>});
  }
  const AttentionBackwardScratch bytes = HWY_DYNAMIC_DISPATCH(AttentionBackwardBytes)(s);
  k.scratch_bytes = bytes.shared;
  k.thread_scratch_bytes = bytes.thread;
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
