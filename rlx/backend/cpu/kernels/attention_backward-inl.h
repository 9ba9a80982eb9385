// The tiles that the phases of attention's gradients work on. Include after
// "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
#endif

#include "rlx/backend/cpu/kernels/attention-inl.h"
#include "rlx/backend/cpu/kernels/attention_backward.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

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

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
