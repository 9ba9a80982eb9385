#include "rlx/ops/rope.h"

#include <algorithm>
#include <string>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_ROPE_TYPES_
#define RLX_CPU_ROPE_TYPES_
namespace rlx::cpu {

// x as `vectors` of head_dim components: of heads within tokens, or of tokens within heads.
struct RopeState {
  int64_t tokens = 1, heads = 1, vectors = 0;
  bool heads_first = false;
  int64_t head_dim = 0, half = 0;  // half: pairs that turn
  bool pairs = false;              // 2i and 2i + 1, else i and i + half
  bool negative = false;           // turn back
  int64_t rows = 0, width = 0;     // of the tables
  int64_t per_chunk = 1;
  DType dtype = DType::kF32, table = DType::kF32;
  // Position i of the operand; null without one. ids: their number; 0: one start for all tokens.
  int64_t (*position)(const void* ids, int64_t i) = nullptr;
  int64_t ids = 0;
};

int64_t rope_row(const RopeState& s, const void* ids, int64_t lead, int64_t token);

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// y0 = x0 * cos - x1 * sin and y1 = x1 * cos + x0 * sin.
template <class V>
HWY_INLINE void Turn(V x0, V x1, V cos, V sin, V& y0, V& y1) {
  y0 = hn::Sub(hn::Mul(x0, cos), hn::Mul(x1, sin));
  y1 = hn::Add(hn::Mul(x1, cos), hn::Mul(x0, sin));
}

template <class D, class S, class T>
HWY_INLINE void TurnHalves(D d, const RopeState& s, hn::Vec<D> flip, const T* cos, const T* sin,
                           const S* x, S* y) {
  ForRow(d, size_t(s.half), [&](size_t i, size_t count) HWY_ATTR {
    const size_t j = i + size_t(s.half);
    hn::Vec<D> y0, y1;
    Turn(LoadCount(d, x + i, count), LoadCount(d, x + j, count), LoadCount(d, cos + i, count),
         hn::Xor(LoadCount(d, sin + i, count), flip), y0, y1);
    StoreCount(y0, d, y + i, count);
    StoreCount(y1, d, y + j, count);
  });
}

template <class D, class S, class T>
HWY_INLINE void TurnPairs(D d, const RopeState& s, hn::Vec<D> flip, const T* cos, const T* sin,
                          const S* x, S* y) {
  using Lane = hn::TFromD<D>;
  ForRow(d, size_t(s.half), [&](size_t i, size_t count) HWY_ATTR {
    // Pairs of other storage types, and those of a tail, pass through here.
    HWY_ALIGN Lane lanes[2 * hn::MaxLanes(D())];
    const size_t first = std::min(2 * count, hn::Lanes(d)), second = 2 * count - first;
    hn::Vec<D> x0, x1, y0, y1;
    const bool direct = sizeof(S) == sizeof(Lane) && second == hn::Lanes(d);
    if (direct) {
      hn::LoadInterleaved2(d, reinterpret_cast<const Lane*>(x + 2 * i), x0, x1);
    } else {
      hn::Store(LoadCount(d, x + 2 * i, first), d, lanes);
      hn::Store(LoadCount(d, x + 2 * i + first, second), d, lanes + hn::Lanes(d));
      hn::LoadInterleaved2(d, lanes, x0, x1);
    }
    Turn(x0, x1, LoadCount(d, cos + i, count), hn::Xor(LoadCount(d, sin + i, count), flip), y0, y1);
    if (direct) {
      hn::StoreInterleaved2(y0, y1, d, reinterpret_cast<Lane*>(y + 2 * i));
    } else {
      hn::StoreInterleaved2(y0, y1, d, lanes);
      StoreCount(hn::Load(d, lanes), d, y + 2 * i, first);
      StoreCount(hn::Load(d, lanes + hn::Lanes(d)), d, y + 2 * i + first, second);
    }
  });
}

template <class S, class T>
void Rows(const RopeState& s, const StepArgs& args, int64_t chunk) {
  const hn::ScalableTag<Wide<S>> d;
  const auto flip = s.negative ? hn::SignBit(d) : hn::Zero(d);
  const int64_t begin = chunk * s.per_chunk, end = std::min(begin + s.per_chunk, s.vectors);
  const int64_t inner = s.heads_first ? s.tokens : s.heads;
  const int64_t outer = s.heads_first ? s.heads : s.tokens;
  int64_t in = begin % inner, out = begin / inner % outer, lead = begin / inner / outer;
  int64_t row = -1, token = -1;
  for (int64_t v = begin; v < end; ++v) {
    const int64_t now = s.heads_first ? in : out;
    if (now != token || in == 0) {
      token = now;
      row = rope_row(s, s.position ? args.operands[3] : nullptr, lead, token);
    }
    const S* x = args.in<S>(0) + v * s.head_dim;
    S* y = args.out<S>(0) + v * s.head_dim;
    const T* cos = args.in<T>(1) + row * s.width;
    const T* sin = args.in<T>(2) + row * s.width;
    if (s.pairs) {
      TurnPairs(d, s, flip, cos, sin, x, y);
    } else {
      TurnHalves(d, s, flip, cos, sin, x, y);
    }
    if (y != x) std::copy(x + 2 * s.half, x + s.head_dim, y + 2 * s.half);
    if (++in == inner) {
      in = 0;
      if (++out == outer) {
        out = 0;
        ++lead;
      }
    }
  }
}

}  // namespace

void RopeChunk(const RopeState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.dtype, [&]<class S>() {
    if constexpr (sizeof(S) == 2) {
      if (s.table == DType::kF32) return Rows<S, float>(s, args, chunk);
    }
    Rows<S, S>(s, args, chunk);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(RopeChunk);

// The table row of a token, checked.
int64_t rope_row(const RopeState& s, const void* ids, int64_t lead, int64_t token) {
  if (!s.position) return token;
  int64_t p;
  if (s.ids == 0) {
    p = s.position(ids, 0);
    if (p <= INT64_MAX - token) p += token;
  } else {
    p = s.position(ids, (lead * s.tokens + token) % s.ids);
  }
  if (p < -s.rows || p >= s.rows) {
    user_error("position {} is out of range for tables of {} rows", p, s.rows);
  }
  return p < 0 ? p + s.rows : p;
}

namespace {

constexpr int64_t kChunkElements = 16384;

void run_chunk(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(RopeChunk)(*static_cast<const RopeState*>(state), args, chunk);
}

template <class I>
int64_t read_position(const void* ids, int64_t i) {
  const I given = static_cast<const I*>(ids)[i];
  if constexpr (std::is_same_v<I, uint64_t>) {
    return int64_t(std::min<uint64_t>(given, INT64_MAX));  // beyond every table
  } else {
    return int64_t(given);
  }
}

void take_positions(RopeState& s, const TensorDesc& ids) {
  s.ids = ids.dims.empty() ? 0 : std::max<int64_t>(ids.num_elements(), 1);
  visit_dtype(ids.dtype, [&]<class I>() {
    if constexpr (std::is_integral_v<I> && !std::is_same_v<I, bool>) s.position = read_position<I>;
  });
}

PreparedKernel prepare(const KernelCall& call) {
  const auto& a = call.as<RopeAttrs>();
  std::vector<TensorType> types;
  for (const TensorDesc& t : call.operands) {
    types.push_back({t.dtype, Shape(std::span<const int64_t>(t.dims))});
  }
  const RopeSizes sizes = rope_sizes(a, types);
  RopeState s;
  s.tokens = sizes.tokens.value();
  s.heads = sizes.heads.value();
  s.heads_first = a.layout == RopeLayout::kBHSD;
  s.head_dim = a.head_dim;
  s.half = a.n_rot / 2;
  s.pairs = a.style == RopeStyle::kGptJ;
  s.negative = call.op.name == "RopeBackward";
  s.rows = sizes.rows.value();
  s.width = sizes.width.value();
  s.dtype = call.operands[0].dtype;
  s.table = call.operands[1].dtype;
  const int64_t elements = call.operands[0].num_elements();
  s.vectors = elements / s.head_dim;
  s.per_chunk = std::max<int64_t>(1, kChunkElements / s.head_dim);
  if (sizes.positions) take_positions(s, call.operands[3]);
  const double per_element = is_float(s.dtype) && size_of(s.dtype) == 2 && s.pairs ? 0.8 : 0.35;
  return PreparedKernel::single(s, ceil_div(s.vectors, s.per_chunk), run_chunk,
                                double(s.vectors) * 3 + double(elements) * per_element);
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kEntries[] = {
    {.name = "rope:row", .fits = fits, .prepare = prepare, .in_place = 1, .vector = true}};
constexpr KernelEntry kBackwardEntries[] = {
    {.name = "rope_backward:row", .fits = fits, .prepare = prepare, .in_place = 1, .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(Rope, Cpu) = {kEntries};
RLX_DEFINE_KERNELS(RopeBackward, Cpu) = {kBackwardEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
