// The first phase of attention's gradients: maximum, sum and <dy, y> of every row.
#include "rlx/backend/cpu/kernels/attention_backward.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/attention_backward_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/attention_rows-inl.h"

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

}  // namespace

void AttentionBackwardRows(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.p.dtype, [&]<class S>() { RowsChunk<S>(s, args, chunk); });
}

AttentionBackwardScratch AttentionBackwardRowsBytes(const AttentionBackwardState& s) {
  AttentionBackwardScratch bytes;
  WithFloatType(s.p.dtype, [&]<class S>() {
    ScratchLayout shared, rows;
    s.rows<Wide<S>>(shared);
    AttentionRows<S>(s.p, s.chunk_rows, rows);
    bytes = {shared.bytes(), rows.bytes()};
  });
  return bytes;
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AttentionBackwardRows);
HWY_EXPORT(AttentionBackwardRowsBytes);

void attention_backward_rows(const AttentionBackwardState& s, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(AttentionBackwardRows)(s, args, chunk);
}

AttentionBackwardScratch attention_backward_rows_bytes(const AttentionBackwardState& s) {
  return HWY_DYNAMIC_DISPATCH(AttentionBackwardRowsBytes)(s);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
