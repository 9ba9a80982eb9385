// The gradients of keys, values and bias; see attention_backward.h.
#include "rlx/backend/cpu/kernels/attention_backward.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/attention_backward_keys.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

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

void AttentionBackwardKeys(const AttentionBackwardState& s, const StepArgs& args,
                           AttentionKeyPhase phase, int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() {
    if (phase == AttentionKeyPhase::kKeys) return KeyChunk<S>(s, args, chunk);
    return BiasChunk<S>(s, args, chunk);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AttentionBackwardKeys);

void attention_backward_keys(const AttentionBackwardState& s, const StepArgs& args,
                             AttentionKeyPhase phase, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionBackwardKeys)(s, args, phase, chunk);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
