#include "rlx/ops/softmax_cross_entropy.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/softmax_cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_CROSS_ENTROPY_TYPES_
#define RLX_CPU_CROSS_ENTROPY_TYPES_
namespace rlx::cpu {

struct CrossEntropyState {
  int64_t rows = 0, classes = 0;
  int64_t rows_per_chunk = 1;
  DType dtype = DType::kF32, label_dtype = DType::kI64;
  std::optional<int64_t> ignore_index;
};

// The label of a row, or -1 if the row is ignored. Throws if it is out of range.
int64_t checked_label(const CrossEntropyState& s, const void* labels, int64_t row);

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class D, class S>
HWY_INLINE hn::TFromD<D> SumOfExp(D d, const S* row, size_t n, hn::TFromD<D> max) {
  const auto m = hn::Set(d, max);
  return SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    return Exp(d, hn::Sub(LoadCount(d, row + i, count), m));
  });
}

template <class S>
void ForwardRow(const S* row, S* loss, size_t n, int64_t label) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const T m = MaxRow(d, row, n);
  const T log_sum = hn::GetLane(Log(d, hn::Set(d, SumOfExp(d, row, n, m))));
  *loss = S(log_sum - (T(row[label]) - m));
}

template <class S>
void BackwardRow(const S* row, S* out, size_t n, int64_t label, Wide<S> d_loss) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const T m = MaxRow(d, row, n), total = SumOfExp(d, row, n, m);
  // The result of the label is computed apart, from a copy: `out` may be `row`.
  const S picked = row[label];
  const auto max = hn::Set(d, m), divisor = hn::Set(d, total), factor = hn::Set(d, d_loss);
  ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto p = hn::Div(Exp(d, hn::Sub(LoadCount(d, row + i, count), max)), divisor);
    StoreCount(hn::Mul(p, factor), d, out + i, count);
  });
  const T p = hn::GetLane(Exp(d, hn::Set(d, T(picked) - m))) / total;
  out[label] = S((p - 1) * d_loss);
}

template <class S>
void Rows(const CrossEntropyState& s, const StepArgs& args, int64_t chunk, bool backward) {
  const int64_t begin = chunk * s.rows_per_chunk, end = std::min(begin + s.rows_per_chunk, s.rows);
  const auto n = size_t(s.classes);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t label = checked_label(s, args.operands[1], row);
    const S* logits = args.in<S>(0) + row * s.classes;
    if (!backward) {
      S* loss = args.out<S>(0) + row;
      if (label < 0) {
        *loss = S(Wide<S>(0));
      } else {
        ForwardRow(logits, loss, n, label);
      }
    } else {
      S* out = args.out<S>(0) + row * s.classes;
      if (label < 0) {
        std::fill(out, out + s.classes, S(Wide<S>(0)));
      } else {
        BackwardRow(logits, out, n, label, Wide<S>(args.in<S>(2)[row]));
      }
    }
  }
}

}  // namespace

void CrossEntropyChunk(const CrossEntropyState& s, const StepArgs& args, int64_t chunk,
                       bool backward) {
  WithFloatType(s.dtype, [&]<class S>() { Rows<S>(s, args, chunk, backward); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(CrossEntropyChunk);

int64_t checked_label(const CrossEntropyState& s, const void* labels, int64_t row) {
  const int64_t label = visit_dtype(s.label_dtype, [&]<class L>() -> int64_t {
    if constexpr (std::is_integral_v<L>) {
      return int64_t(static_cast<const L*>(labels)[row]);
    } else {
      return -1;
    }
  });
  if (s.ignore_index && label == *s.ignore_index) return -1;
  if (label < 0 || label >= s.classes) {
    user_error("the label {} of row {} is not in [0, {})", label, row, s.classes);
  }
  return label;
}

namespace {

constexpr int64_t kChunkElements = 8192;

template <bool kBackward>
PreparedKernel prepare(const KernelCall& call) {
  const TensorDesc& logits = call.operands[0];
  CrossEntropyState s;
  s.rows = call.operands[1].num_elements();
  s.classes = logits.dims.back();
  s.dtype = logits.dtype;
  s.label_dtype = call.operands[1].dtype;
  s.ignore_index = call.as<CrossEntropyAttrs>().ignore_index;
  s.rows_per_chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(s.classes, 1));
  const double per_element = s.dtype == DType::kF64 ? 2.0 : 1.0;
  return PreparedKernel::single(
      s, ceil_div(s.rows, s.rows_per_chunk),
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(CrossEntropyChunk)
        (*static_cast<const CrossEntropyState*>(state), args, chunk, kBackward);
      },
      double(s.rows) * (20 + double(s.classes) * per_element));
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kForward[] = {
    {.name = "softmax_cross_entropy:row", .fits = fits, .prepare = prepare<false>, .vector = true}};
constexpr KernelEntry kBackward[] = {{.name = "softmax_cross_entropy_backward:row",
                                      .fits = fits,
                                      .prepare = prepare<true>,
                                      .in_place = 1,
                                      .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(SoftmaxCrossEntropyWithLogits, Cpu) = {kForward};
RLX_DEFINE_KERNELS(SoftmaxCrossEntropyBackward, Cpu) = {kBackward};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
