// The forward pass of attention over a group of rows: what the forward kernel and the gradients'
// first phase share. Include after "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_ATTENTION_ROWS_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_ATTENTION_ROWS_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_ATTENTION_ROWS_INL_H_
#endif

#include "rlx/backend/cpu/kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

// Few rows read values where they lie, if they can, even if these lie far apart: packing would cost
// more than it saves.
constexpr int64_t kFewRows = 8;

template <class S>
class AttentionRows {
 public:
  using T = Wide<S>;

  // `rows`: the most that a group has.
  AttentionRows(const AttentionProblem& p, int64_t rows, ScratchLayout& s) : p_(p) {
    const int64_t width = std::max<int64_t>(p.n.width, 1);
    q_ = s.take<T>(rows * width);
    ranges_ = s.take<Range>(rows);
    panels_ = s.take<T>(kKeyBlock * width);
    values_ = s.take<T>(kKeyBlock * padded_width<T>(p.n.v_width));
    widened_ = s.take<T>(kKeyBlock * width);
    scores_ = s.take<T>(kTileRows * kKeyBlock);
    sums_ = s.take<T>(kTileRows * padded_width<T>(p.n.v_width));
    flags_ = s.take<uint8_t>(kKeyBlock);
    total_.take(s, rows, p.n.v_width);
    part_.take(s, rows, p.n.v_width);
  }

  // All keys of the group's rows; the sums are in total().
  void run(const RowGroup& g) {
    const Range all = start(g);
    total_.clear(g.count);
    if (p_.n.keys <= kSumSegment) return add_segment(g, all, total_);
    for (int64_t k = all.begin / kSumSegment * kSumSegment; k < all.end; k += kSumSegment) {
      part_.clear(g.count);
      add_segment(g, all & Range{k, k + kSumSegment}, part_);
      for (int64_t r = 0; r < g.count; ++r) {
        total_.join(r, part_.max[r], part_.sum[r], part_.out + r * part_.padded);
      }
    }
  }

  // One segment of keys alone; the sums are in total().
  void run_segment(const RowGroup& g, int64_t segment) {
    const int64_t k = segment * kSumSegment;
    const Range keys = start(g) & Range{k, k + kSumSegment};
    total_.clear(g.count);
    add_segment(g, keys, total_);
  }

  const Softmaxes<T>& total() const { return total_; }

 private:
  // Takes the rows, widened if need be; returns the keys that any of them may see.
  Range start(const RowGroup& g) {
    bool in_place = false;
    rows_ = {q_, p_.n.width, 1};
    if constexpr (std::is_same_v<S, T>) {
      in_place = g.heads == 1;
      if (in_place) rows_ = {g.template row<S>(0, p_.q, 0), p_.q.row, 1};
    }
    Range all{p_.n.keys, 0};
    for (int64_t r = 0; r < g.count; ++r) {
      ranges_[r] = g.keys(r);
      if (ranges_[r].empty()) continue;
      all = {std::min(all.begin, ranges_[r].begin), std::max(all.end, ranges_[r].end)};
      if (!in_place) {
        WidenRow(g.template row<S>(0, p_.q, r), p_.n.width, q_ + r * p_.n.width, p_.n.width);
      }
    }
    return all;
  }

  void add_segment(const RowGroup& g, Range keys, const Softmaxes<T>& sums) {
    while (!keys.empty()) {
      const int64_t next = (keys.begin / kKeyBlock + 1) * kKeyBlock;
      const Range block{keys.begin, std::min(keys.end, next)};
      keys.begin = next;
      if (g.count <= kFewRows) {
        Prefetch(g.template key<S>(2, p_.v, block.begin), p_.v.row, block, p_.n.v_width);
        const Range following = keys & Range{next, next + kKeyBlock};
        if (!following.empty()) {
          Prefetch(g.template key<S>(1, p_.k, next), p_.k.row, following, p_.n.width);
        }
      }
      add_block(g, block, sums);
    }
  }

  // Rows that lie apart are no sequence that the machine could foresee.
  static void Prefetch(const S* from, int64_t row_stride, Range rows, int64_t width) {
    constexpr auto kLine = int64_t(64 / sizeof(S));
    if (row_stride == width) return;
    for (int64_t r = 0; r < rows.end - rows.begin; ++r) {
      for (int64_t i = 0; i < width; i += kLine) prefetch_far(from + r * row_stride + i);
    }
  }

  void add_block(const RowGroup& g, Range keys, const Softmaxes<T>& sums) {
    const int64_t n = keys.end - keys.begin, width = p_.n.width, v_width = p_.n.v_width;
    const KeyFlags keep = g.flags(keys, flags_);
    PackPanels(g.template key<S>(1, p_.k, keys.begin), p_.k.row, n, width, keep, panels_, widened_);
    const T* values = values_;
    int64_t value_step = padded_width<T>(v_width);
    const S* v = g.template key<S>(2, p_.v, keys.begin);
    bool in_place = false;
    if constexpr (std::is_same_v<S, T>) {
      const bool close = g.count <= kFewRows || p_.v.row == v_width;
      if (close && !keep.flags && WholeVectors<T>(v_width) == v_width) {
        values = v;
        value_step = p_.v.row;
        in_place = true;
      }
    }
    if (!in_place) PackRows(v, p_.v.row, n, v_width, keep, values_, value_step);
    const RowTiles tiles(g.count, (g.count + kTileRows - 1) / kTileRows);
    for (int64_t first = 0; first < g.count;) {
      const int64_t rows = tiles.height(first == 0 ? 0 : tile_at(tiles, first));
      add_tile(g, first, rows, keys, keep, values, value_step, sums);
      first += rows;
    }
  }

  static int64_t tile_at(const RowTiles& tiles, int64_t first) {
    const int64_t longer = tiles.extra * (tiles.base + 1);
    return first < longer ? first / (tiles.base + 1) : tiles.extra + (first - longer) / tiles.base;
  }

  void add_tile(const RowGroup& g, int64_t first, int64_t rows, Range keys, KeyFlags keep,
                const T* values, int64_t value_step, const Softmaxes<T>& sums) {
    Range ranges[kTileRows], span{kKeyBlock, 0};
    for (int64_t r = 0; r < rows; ++r) {
      ranges[r] = (ranges_[first + r] & keys) - keys.begin;
      if (ranges[r].empty()) {
        ranges[r] = {};
        continue;
      }
      span = {std::min(span.begin, ranges[r].begin), std::max(span.end, ranges[r].end)};
    }
    if (span.empty()) return;
    DotKeys<T>({rows_.at(first, 0), rows_.row, 1}, rows, p_.n.width, panels_, span, scores_,
               kKeyBlock);
    for (int64_t r = 0; r < rows; ++r) {
      if (ranges[r].empty()) continue;
      const int64_t j = ranges[r].begin;
      T* x = scores_ + r * kKeyBlock + j;
      const auto n = size_t(ranges[r].end - j);
      const T largest = FinishScores<S>(p_, x, n, g.template bias<S>(first + r, keys.begin + j),
                                        keep.flags ? keep.flags + j : nullptr, nullptr);
      sums.take_scores(first + r, x, n, largest);
    }
    AddProduct<T>({scores_, kKeyBlock, 1}, ranges, rows, values, value_step,
                  WholeVectors<T>(p_.n.v_width), sums.out + first * sums.padded, sums.padded,
                  sums_);
  }

  const AttentionProblem& p_;
  T *q_, *panels_, *values_, *widened_, *scores_, *sums_;
  LeftFactor<T> rows_{};
  Range* ranges_;  // keys of each row
  uint8_t* flags_;
  Softmaxes<T> total_, part_;
};

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
