#include "rlx/ops/reduce.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

// Offsets in x of the first element of every sum, and of the elements of one sum relative to it.
struct Plan {
  std::vector<int64_t> starts, offsets;
};

Plan plan_of(const Tensor& x, const std::vector<int64_t>& axes) {
  const Dims strides = dense_strides(x.shape);
  Dims kept, kept_strides, reduced, reduced_strides;
  for (size_t a = 0; a < x.shape.size(); ++a) {
    bool is_reduced = false;
    for (const int64_t r : axes) is_reduced |= size_t(r) == a;
    (is_reduced ? reduced : kept).push_back(x.shape[a]);
    (is_reduced ? reduced_strides : kept_strides).push_back(strides[a]);
  }
  Plan plan;
  for_each_index(
      kept, [&](int64_t, const Dims& i) { plan.starts.push_back(offset_of(i, kept_strides)); });
  for_each_index(reduced, [&](int64_t, const Dims& i) {
    plan.offsets.push_back(offset_of(i, reduced_strides));
  });
  return plan;
}

template <class T, class Step>
void fold(const Plan& plan, const T* x, T* y, T first, Step step) {
  for (size_t i = 0; i < plan.starts.size(); ++i) {
    T total = first;
    for (const int64_t o : plan.offsets) total = step(total, x[plan.starts[i] + o]);
    y[i] = total;
  }
}

void reduce_floats(const Call& call, ReduceKind kind, const Plan& plan) {
  const double* x = call.operands[0].f.data();
  double* y = call.results[0].f.data();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (kind) {
    case ReduceKind::kMax:
      return fold(plan, x, y, -kInfinity, [](double a, double v) {
        return std::isnan(a) || std::isnan(v) ? NAN : v > a ? v : a;
      });
    case ReduceKind::kMin:
      return fold(plan, x, y, kInfinity, [](double a, double v) {
        return std::isnan(a) || std::isnan(v) ? NAN : v < a ? v : a;
      });
    case ReduceKind::kProd:
      return fold(plan, x, y, 1.0, [](double a, double v) { return a * v; });
    default:
      break;
  }
  // Sums in long double, so that the oracle's own rounding does not count.
  for (size_t i = 0; i < plan.starts.size(); ++i) {
    long double total = 0;
    for (const int64_t o : plan.offsets) total += x[plan.starts[i] + o];
    if (kind == ReduceKind::kMean) total /= static_cast<long double>(plan.offsets.size());
    y[i] = double(total);
  }
}

void reduce_complex(const Call& call, ReduceKind kind, const Plan& plan) {
  using C = std::complex<double>;
  const C* x = call.operands[0].c.data();
  C* y = call.results[0].c.data();
  if (kind == ReduceKind::kProd) {
    return fold(plan, x, y, C(1), [](C a, C v) { return a * v; });
  }
  fold(plan, x, y, C(0), [](C a, C v) { return a + v; });
  if (kind != ReduceKind::kMean) return;
  for (C& v : call.results[0].c) v /= double(plan.offsets.size());
}

// u64 travels as its bit pattern: flipping the top bit makes signed comparison the unsigned one.
void reduce_integers(const Call& call, ReduceKind kind, const Plan& plan) {
  const DType dtype = call.operands[0].dtype;
  const int64_t* x = call.operands[0].i.data();
  int64_t* y = call.results[0].i.data();
  const uint64_t flip = dtype == DType::kU64 ? uint64_t(1) << 63 : 0;
  const auto key = [&](int64_t v) { return int64_t(uint64_t(v) ^ flip); };
  int64_t lowest = 0, highest = 1;
  if (dtype != DType::kBool) {
    visit_dtype(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        lowest = int64_t(std::numeric_limits<T>::min());
        highest = int64_t(std::numeric_limits<T>::max());
      }
    });
  }
  switch (kind) {
    case ReduceKind::kProd:
      return fold(plan, x, y, int64_t(1),
                  [](int64_t a, int64_t v) { return int64_t(uint64_t(a) * uint64_t(v)); });
    case ReduceKind::kMax:
    case ReduceKind::kOr:
      return fold(plan, x, y, lowest,
                  [&](int64_t a, int64_t v) { return key(v) > key(a) ? v : a; });
    case ReduceKind::kMin:
    case ReduceKind::kAnd:
      return fold(plan, x, y, highest,
                  [&](int64_t a, int64_t v) { return key(v) < key(a) ? v : a; });
    default:
      return fold(plan, x, y, int64_t(0),
                  [](int64_t a, int64_t v) { return int64_t(uint64_t(a) + uint64_t(v)); });
  }
}

void reduce(const Call& call) {
  const auto& a = call.as<ReduceAttrs>();
  const Tensor& x = call.operands[0];
  const Plan plan = plan_of(x, a.axes);
  if (x.is_float()) {
    reduce_floats(call, a.kind, plan);
  } else if (is_complex(x.dtype)) {
    reduce_complex(call, a.kind, plan);
  } else {
    reduce_integers(call, a.kind, plan);
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(Reduce) = reduce;

}  // namespace rlx::reference
