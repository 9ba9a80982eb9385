// Tiles of attention: packed operands, scores, probabilities and products over ranges, on the
// register tiles of the matrix product. Include after "hwy/foreach_target.h"; lives in
// rlx::cpu::HWY_NAMESPACE.
//
// S is the storage type, T = Wide<S> that of all sums. A score is one chain of fused multiply-adds
// over the width, a sum over keys one chain through a block of keys, and blocks are added up in
// ascending order through a segment, whose sums are joined in ascending order. So a row's result
// depends on its own keys alone: not on the rows, heads and batch entries around it.

#if defined(RLX_BACKEND_CPU_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_ATTENTION_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_ATTENTION_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_ATTENTION_INL_H_
#endif

#include <cstring>
#include <limits>

#include "hwy/highway.h"

#include "rlx/backend/cpu/gemm/gemm_tile-inl.h"
#include "rlx/backend/cpu/kernels/attention_call.h"
#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr int64_t kPanelWidth = kPanelBytes / int64_t(sizeof(T));

// A factor of a product: element (row, step).
template <class T>
struct LeftFactor {
  const T* data;
  int64_t row, step;  // strides
  const T* at(int64_t r, int64_t s) const { return data + r * row + s * step; }
};

// C[rows, columns] = or += A[rows, k] * B[k, columns], one chain each (sum_block steps each, if
// stored); rows is kTileRows at most and columns a multiple of the lanes. In attention_product.cc.
void ProductF32(const LeftFactor<float>& a, int64_t rows, int64_t k, const float* b, int64_t b_step,
                int64_t columns, float* c, int64_t c_row, Result result);
void ProductF64(const LeftFactor<double>& a, int64_t rows, int64_t k, const double* b,
                int64_t b_step, int64_t columns, double* c, int64_t c_row, Result result);

template <class T>
HWY_INLINE void Product(const LeftFactor<T>& a, int64_t rows, int64_t k, const T* b, int64_t b_step,
                        int64_t columns, T* c, int64_t c_row, Result result) {
  if constexpr (std::is_same_v<T, float>) {
    ProductF32(a, rows, k, b, b_step, columns, c, c_row, result);
  } else {
    ProductF64(a, rows, k, b, b_step, columns, c, c_row, result);
  }
}

template <class T>
HWY_INLINE int64_t WholeVectors(int64_t columns) {
  constexpr auto kLanes = int64_t(hn::MaxLanes(hn::ScalableTag<T>()));
  return (columns + kLanes - 1) / kLanes * kLanes;
}

// C[r] += the sum of A[r, s] * B[s] over the steps s of ranges[r], one chain from 0 each. Ranges
// need not be the same: what is outside of a row's range is not read, so NaN there has no
// influence. At most kTileRows rows; `sums` holds as many rows of C.
template <class T>
void AddProduct(const LeftFactor<T>& a, const Range* ranges, int64_t rows, const T* b,
                int64_t b_step, int64_t columns, T* c, int64_t c_row, T* sums) {
  Range common = ranges[0], any = ranges[0];
  for (int64_t r = 1; r < rows; ++r) {
    common = common & ranges[r];
    any = {std::min(any.begin, ranges[r].begin), std::max(any.end, ranges[r].end)};
  }
  if (any.empty()) return;
  const auto part = [&](int64_t r, int64_t count, Range steps, T* to, int64_t to_row,
                        Result result) {
    if (steps.empty()) return;
    Product<T>({a.at(r, steps.begin), a.row, a.step}, count, steps.end - steps.begin,
               b + steps.begin * b_step, b_step, columns, to, to_row, result);
  };
  if (common.begin == any.begin && common.end == any.end) {
    return part(0, rows, common, c, c_row, Result::kAdd);
  }
  std::fill(sums, sums + rows * columns, T(0));
  const auto one = [&](int64_t r, Range steps) {
    part(r, 1, steps, sums + r * columns, columns, Result::kContinue);
  };
  const bool split = !common.empty();
  for (int64_t r = 0; r < rows; ++r) {
    one(r, split ? Range{ranges[r].begin, common.begin} : ranges[r]);
  }
  if (split) {
    part(0, rows, common, sums, columns, Result::kContinue);
    for (int64_t r = 0; r < rows; ++r) one(r, {common.end, ranges[r].end});
  }
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < rows; ++r) {
    if (ranges[r].empty()) continue;
    for (int64_t i = 0; i < columns; i += int64_t(hn::Lanes(d))) {
      T* to = c + r * c_row + i;
      hn::StoreU(hn::Add(hn::LoadU(d, to), hn::LoadU(d, sums + r * columns + i)), d, to);
    }
  }
}

// One row widened to `padded` numbers, zeros behind.
template <class S, class T = Wide<S>>
HWY_INLINE void WidenRow(const S* from, int64_t width, T* to, int64_t padded) {
  const hn::ScalableTag<T> d;
  ForRow(d, size_t(width), [&](size_t i, size_t count) HWY_ATTR {
    StoreCount(LoadCount(d, from + i, count), d, to + i, count);
  });
  std::fill(to + width, to + padded, T(0));
}

template <class T>
HWY_INLINE void TransposeToPanels(const T* from, int64_t row_stride, int64_t rows, int64_t width,
                                  T* panels) {
  for (int64_t r = 0; r < rows; r += kPanelWidth<T>) {
    pack_strip<T>(from + r * row_stride, row_stride, 1, std::min(kPanelWidth<T>, rows - r),
                  kPanelWidth<T>, width, panels + r * width);
  }
}

// Which rows of a block of keys stay: null if all.
struct KeyFlags {
  const uint8_t* flags = nullptr;
  bool operator[](int64_t j) const { return flags == nullptr || flags[j] != 0; }
};

// Rows of keys or values, widened; those that are hidden are 0.
template <class S, class T = Wide<S>>
void PackRows(const S* from, int64_t row_stride, int64_t rows, int64_t width, KeyFlags keep, T* to,
              int64_t padded) {
  for (int64_t r = 0; r < rows; ++r) {
    if (keep[r]) {
      WidenRow(from + r * row_stride, width, to + r * padded, padded);
    } else {
      std::fill(to + r * padded, to + (r + 1) * padded, T(0));
    }
  }
}

// The same in panels of kPanelWidth rows, [panel][width][row]; `rows_buffer` holds them widened.
template <class S, class T = Wide<S>>
void PackPanels(const S* from, int64_t row_stride, int64_t rows, int64_t width, KeyFlags keep,
                T* panels, T* rows_buffer) {
  if constexpr (std::is_same_v<S, T>) {
    if (keep.flags == nullptr) return TransposeToPanels(from, row_stride, rows, width, panels);
  }
  PackRows(from, row_stride, rows, width, keep, rows_buffer, width);
  TransposeToPanels<T>(rows_buffer, width, rows, width, panels);
}

// x[r, j] = <a_r, key j> for the keys of `span` of a block in panels.
template <class T>
void DotKeys(const LeftFactor<T>& a, int64_t rows, int64_t width, const T* panels, Range span, T* x,
             int64_t x_row) {
  constexpr auto kLanes = int64_t(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int64_t kStep = std::min(2 * kLanes, kPanelWidth<T>);
  for (int64_t j = span.begin / kStep * kStep; j < span.end; j += kStep) {
    const T* b = panels + j / kPanelWidth<T> * kPanelWidth<T> * width + j % kPanelWidth<T>;
    Product<T>(a, rows, width, b, kPanelWidth<T>, std::min(kStep, WholeVectors<T>(span.end - j)),
               x + j, x_row, Result::kStore);
  }
}

// The bias of one row from some key on; null if there is none.
template <class S>
struct BiasRow {
  const S* data = nullptr;
  int64_t step = 0;  // 0 or 1
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, size_t i, size_t count) const {
    if (step == 0) return hn::Set(d, hn::TFromD<D>(*data));
    return LoadCount(d, data + i, count);
  }
};

// Products to scores, in place: scale, softcap, bias, mask. Returns the largest. `slope`, if given,
// gets the derivative of the cap.
template <class S>
Wide<S> FinishScores(const AttentionProblem& p, Wide<S>* x, size_t n, const BiasRow<S>& bias,
                     const uint8_t* keep, Wide<S>* slope) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const auto scale = hn::Set(d, T(p.scale)), cap = hn::Set(d, T(p.softcap));
  auto largest = lowest;
  ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    auto v = hn::Mul(LoadCount(d, x + i, count), scale);
    if (p.softcap != 0) {
      const auto t = Tanh(d, hn::Div(v, cap));
      v = hn::Mul(t, cap);
      if (slope) StoreCount(hn::Sub(hn::Set(d, T(1)), hn::Mul(t, t)), d, slope + i, count);
    }
    if (bias.data) v = hn::Add(v, bias.load(d, i, count));
    if (keep) {
      HWY_ALIGN T kept[hn::MaxLanes(d)];
      for (size_t l = 0; l < count; ++l) kept[l] = keep[i + l] ? T(1) : T(0);
      for (size_t l = count; l < hn::Lanes(d); ++l) kept[l] = 0;
      v = hn::IfThenElse(hn::Gt(hn::Load(d, kept), hn::Zero(d)), v, lowest);
    }
    StoreCount(v, d, x + i, count);
    if (count < hn::Lanes(d)) v = hn::IfThenElse(hn::FirstN(d, count), v, lowest);
    largest = hn::Max(largest, v);
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// e^x for x <= 0 (or NaN) to 2 ulp; what would be subnormal is 0. Half the work of Exp: nothing
// overflows, and 2^k needs no second factor.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNonPositive(D /*d*/, V x) {
  using P = VectorMath<D>;
  using F = MathFormat<P>;
  constexpr double kLowest = F::kF32 ? -87.33 : -708.39;
  constexpr double kBias = F::kF32 ? 127 : 1023;
  // The low bits of t are the exponent field of 2^k.
  const V t = P::fma(x, P::set(1.4426950408889634), P::set(F::kMagic + kBias));
  const V k = t - P::set(F::kMagic + kBias);
  const V power = P::from_bits(P::template shl<F::kMantissaBits>(P::bits(t)));
  const V r = P::fnma(k, P::set(F::kLn2Lo), P::fnma(k, P::set(F::kLn2Hi), x));
  const V tail = P::fma(r * r, exp_polynomial<P>(r), r);
  return hn::IfThenZeroElse(x < P::set(kLowest), P::fma(power, tail, power));
}

// x = exp(x - m), m their maximum; returns the sum. Inlined whole: calls would keep the
// exponentials of neighbouring vectors from overlapping.
template <class T>
HWY_INLINE T Exponentials(T* x, size_t n, T m) {
  const hn::ScalableTag<T> d;
  const auto shift = hn::Set(d, m);
  const auto term = [&](size_t i, size_t count) HWY_ATTR __attribute__((always_inline)) {
    const auto v = ExpOfNonPositive(d, hn::Sub(LoadCount(d, x + i, count), shift));
    StoreCount(v, d, x + i, count);
    return v;
  };
  return SumRow(d, n, term);
}

template <class T>
HWY_INLINE T ExpOne(T x) {
  const hn::ScalableTag<T> d;
  return hn::GetLane(ExpOfNonPositive(d, hn::Set(d, x)));
}

template <class T>
HWY_INLINE void ScaleRow(T* x, int64_t n, T factor) {
  const hn::ScalableTag<T> d;
  const auto f = hn::Set(d, factor);
  ForRow(d, size_t(n), [&](size_t i, size_t count) HWY_ATTR {
    StoreCount(hn::Mul(LoadCount(d, x + i, count), f), d, x + i, count);
  });
}

// to += from
template <class T>
HWY_INLINE void AddRow(const T* from, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  ForRow(d, size_t(n), [&](size_t i, size_t count) HWY_ATTR {
    StoreCount(hn::Add(LoadCount(d, to + i, count), LoadCount(d, from + i, count)), d, to + i,
               count);
  });
}

// Sums of rows so far: the maximum, the sum of exponentials and the weighted sum of values.
template <class T>
struct Softmaxes {
  T* max;
  T* sum;
  T* out;  // [rows][padded]
  int64_t padded;

  void take(ScratchLayout& s, int64_t rows, int64_t width) {
    padded = padded_width<T>(width);
    max = s.take<T>(rows);
    sum = s.take<T>(rows);
    out = s.take<T>(rows * padded);
  }
  void clear(int64_t rows) const {
    std::fill(max, max + rows, -std::numeric_limits<T>::infinity());
    std::fill(sum, sum + rows, T(0));
    std::fill(out, out + rows * padded, T(0));
  }
  // What is subtracted: a maximum of -inf, or none, counts as 0.
  static T base(T m) { return m > -std::numeric_limits<T>::infinity() ? m : T(0); }

  // The scores of one row become exponentials, and the row's sums are scaled to the new maximum.
  void take_scores(int64_t r, T* x, size_t n, T largest) const {
    const T before = max[r];
    const T m = before > largest ? before : largest;
    const T shift = base(m), added = Exponentials(x, n, shift);
    max[r] = m;
    if (m == before || before == -std::numeric_limits<T>::infinity()) {
      sum[r] += added;  // the factor is 1, or the sums are 0
    } else {
      const T factor = ExpOne<T>(before - shift);
      sum[r] = sum[r] * factor + added;
      ScaleRow(out + r * padded, padded, factor);
    }
  }

  // Joins the sums of a later segment.
  void join(int64_t r, T part_max, T part_sum, const T* part_out) const {
    if (part_sum == T(0)) return;
    const hn::ScalableTag<T> d;
    const T m = max[r] > part_max ? max[r] : part_max;
    const T shift = base(m), mine = ExpOne<T>(max[r] - shift), its = ExpOne<T>(part_max - shift);
    max[r] = m;
    sum[r] = sum[r] * mine + part_sum * its;
    T* to = out + r * padded;
    ForRow(d, size_t(padded), [&](size_t i, size_t count) HWY_ATTR {
      const auto a = hn::Mul(LoadCount(d, to + i, count), hn::Set(d, mine));
      const auto b = hn::Mul(LoadCount(d, part_out + i, count), hn::Set(d, its));
      StoreCount(hn::Add(a, b), d, to + i, count);
    });
  }
};

// Rows that share their keys: rows first, first + 1, ... of `heads` query heads from `head` on, a
// query's heads together.
struct RowGroup {
  const AttentionProblem& p;
  const StepArgs& args;
  int64_t batch, kv_head, head, heads;
  int64_t first, count;
  Lengths lengths;

  RowGroup(const AttentionProblem& problem, const StepArgs& step, int64_t b, int64_t kv,
           int64_t first_row, int64_t rows)
      : p(problem),
        args(step),
        batch(b),
        kv_head(kv),
        head(kv * problem.group),
        heads(problem.group),
        first(first_row),
        count(rows),
        lengths(problem.lengths(step, b)) {}

  // A query head alone, without rows.
  RowGroup(const AttentionProblem& problem, const StepArgs& step, int64_t b, int64_t query_head)
      : RowGroup(problem, step, b, query_head / problem.group, 0, 0) {
    head = query_head;
    heads = 1;
  }
  // Other rows of the same heads.
  RowGroup(const RowGroup& other, int64_t first_row, int64_t rows) : RowGroup(other) {
    first = first_row;
    count = rows;
  }

  int64_t query(int64_t r) const { return (first + r) / heads; }
  int64_t head_of(int64_t r) const { return head + (first + r) % heads; }
  Range keys(int64_t r) const { return p.keys_of(lengths, query(r)); }
  template <class S>
  const S* row(size_t operand, const HeadStrides& s, int64_t r) const {
    return args.in<S>(operand) + s.at(batch, query(r), head_of(r));
  }
  template <class S>
  const S* key(size_t operand, const HeadStrides& s, int64_t j) const {
    return args.in<S>(operand) + s.at(batch, j, kv_head);
  }
  template <class S>
  BiasRow<S> bias(int64_t r, int64_t j) const {
    if (p.bias_at < 0) return {};
    const S* row = args.in<S>(size_t(p.bias_at)) + p.bias_offset(batch, head_of(r), query(r));
    return {row + j * p.bias_key, p.bias_key};
  }
  // Flags of the keys of a block, in `buffer`.
  KeyFlags flags(Range keys, uint8_t* buffer) const {
    if (p.mask_at < 0) return {};
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      buffer[j - keys.begin] = p.hidden(args, batch, j) ? 0 : 1;
    }
    return {buffer};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
