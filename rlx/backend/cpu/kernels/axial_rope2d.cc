#include "rlx/ops/axial_rope2d.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/axial_rope2d.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_AXIAL_ROPE2D_TYPES_
#define RLX_CPU_AXIAL_ROPE2D_TYPES_
namespace rlx::cpu {

// Of one place along a side: cos of every pair twice, and sin of every pair with both signs, so
// that y = x * cos + (x with the pairs swapped) * sin.
template <class T>
struct AxialTables {
  std::vector<T> cos, sin;
};

// x as `rows` tokens of `heads` times two halves.
struct AxialState {
  int64_t rows = 0, tokens = 1, heads = 1, half = 0;
  int64_t end_x = 1, grid = 1, repeat = 1;
  bool tile = false;
  int64_t per_chunk = 1;
  DType dtype = DType::kF32;
  AxialTables<float> f32;  // for f64 empty, and the other way round
  AxialTables<double> f64;

  template <class T>
  const AxialTables<T>& tables() const {
    if constexpr (std::is_same_v<T, double>) {
      return f64;
    } else {
      return f32;
    }
  }
};

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class D, class S, class T>
HWY_INLINE void TurnHalf(D d, size_t n, const T* cos, const T* sin, const S* x, S* y) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < n; i += 2) {
    const auto a = LoadWide(d, x + i), b = LoadWide(d, x + i + 1);
    const auto c = hn::LoadU(d, cos + i);
    StoreWide(hn::Add(hn::Mul(a, c), hn::Mul(b, hn::LoadU(d, sin + i))), d, y + i);
    StoreWide(hn::Add(hn::Mul(b, c), hn::Mul(a, hn::LoadU(d, sin + i + 1))), d, y + i + 1);
  }
#else
  ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto v = LoadCount(d, x + i, count);
    const auto c = LoadCount(d, cos + i, count), s = LoadCount(d, sin + i, count);
    StoreCount(hn::Add(hn::Mul(v, c), hn::Mul(hn::Reverse2(d, v), s)), d, y + i, count);
  });
#endif
}

template <class S>
void Rows(const AxialState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const T *cos = s.tables<T>().cos.data(), *sin = s.tables<T>().sin.data();
  const int64_t begin = chunk * s.per_chunk, end = std::min(begin + s.per_chunk, s.rows);
  const int64_t width = s.heads * 2 * s.half;
  for (int64_t row = begin; row < end; ++row) {
    const S* x = args.in<S>(0) + row * width;
    S* y = args.out<S>(0) + row * width;
    const int64_t token = row % s.tokens;
    if (token >= s.grid * s.repeat) {
      if (y != x) std::copy(x, x + width, y);
      continue;
    }
    const int64_t p = s.tile ? token % s.grid : token / s.repeat;
    const int64_t column = p % s.end_x * s.half, line = p / s.end_x * s.half;
    for (int64_t head = 0; head < s.heads; ++head) {
      TurnHalf(d, size_t(s.half), cos + column, sin + column, x, y);
      TurnHalf(d, size_t(s.half), cos + line, sin + line, x + s.half, y + s.half);
      x += 2 * s.half;
      y += 2 * s.half;
    }
  }
}

}  // namespace

void AxialRope2dChunk(const AxialState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.dtype, [&]<class S>() { Rows<S>(s, args, chunk); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AxialRope2dChunk);

namespace {

constexpr int64_t kChunkElements = 16384;

template <class T>
AxialTables<T> tables_of(const AxialRope2dAttrs& a) {
  AxialTables<T> t;
  for (const double angle : axial_rope2d_angles(a)) {
    const T cos = T(std::cos(angle)), sin = T(std::sin(angle));
    t.cos.insert(t.cos.end(), {cos, cos});
    t.sin.insert(t.sin.end(), {-sin, sin});
  }
  return t;
}

PreparedKernel prepare(const KernelCall& call) {
  const auto& a = call.as<AxialRope2dAttrs>();
  const int64_t elements = call.operands[0].num_elements();
  AxialState s;
  s.heads = a.num_heads;
  s.half = a.head_dim / 2;
  s.tokens = call.operands[0].dims[call.operands[0].dims.size() - 2];
  s.rows = elements / (s.heads * a.head_dim);
  s.end_x = a.end_x;
  s.grid = a.end_x * a.end_y;
  s.repeat = a.repeat_factor;
  s.tile = a.repeat_mode == AxialRepeat::kTile;
  s.dtype = call.operands[0].dtype;
  s.per_chunk = std::max<int64_t>(1, kChunkElements / (s.heads * a.head_dim));
  const bool wide = s.dtype == DType::kF64;
  if (elements > 0 && wide) s.f64 = tables_of<double>(a);
  if (elements > 0 && !wide) s.f32 = tables_of<float>(a);
  const int64_t chunks = ceil_div(s.rows, s.per_chunk);
  return PreparedKernel::single(
      std::move(s), chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(AxialRope2dChunk)
        (*static_cast<const AxialState*>(state), args, chunk);
      },
      double(elements) * (wide ? 0.4 : 0.2));
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kEntries[] = {
    {.name = "axial_rope2d:row", .fits = fits, .prepare = prepare, .in_place = 1, .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(AxialRope2d, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
