// Quantize and Dequantize: elementwise with one scale for a row, or one for each of its elements.
#include "rlx/ops/quantize.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/packed_codec.h"
#include "rlx/base/checked.h"
#include "rlx/base/half.h"
#include "rlx/compile/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/quantize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/packed_codec-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_QUANTIZE_TYPES_
#define RLX_CPU_QUANTIZE_TYPES_
namespace rlx::cpu {

// Rows of `length` elements. Row r has the channel r mod channels, or (`per_element`) element i of
// every row has the channel i.
struct QuantizeState {
  int64_t rows = 1, length = 1;
  bool per_element = false;
  bool away = false;
  DType codes = DType::kI8, floats = DType::kF32;
  int64_t low = 0, high = 0;
  std::vector<float> scales;
  std::vector<double> wide_scales;
  std::vector<int32_t> zero_points;
  // A chunk is some rows, or a piece of one.
  int64_t piece = 1, pieces = 1, rows_per_chunk = 1;
};

// Some elements that follow each other.
struct QuantizePiece {
  const void* from;
  void* to;
  int64_t begin, count;  // in the whole tensor
  int64_t channel;       // of the first
};

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// Tags with as many lanes as W has: i32, and the codes.
template <class D>
using IntTag = hn::Rebind<int32_t, D>;

template <class D>
HWY_INLINE hn::Vec<IntTag<D>> ToInt(D d, hn::Vec<D> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::ConvertTo(IntTag<D>(), v);
  } else {
    (void)d;
    return hn::DemoteTo(IntTag<D>(), v);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> FromInt(D d, hn::Vec<IntTag<D>> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::ConvertTo(d, v);
  } else {
    return hn::PromoteTo(d, v);
  }
}

template <class DI>
HWY_INLINE hn::Vec<DI> LoadInts(DI di, const int32_t* from, size_t count) {
  if (count == hn::Lanes(di)) return hn::LoadU(di, from);
  return hn::MaskedLoad(hn::FirstN(di, count), di, from);
}

// One vector, or a part of it, of element i on; scale and zero point follow i if STEP is 1.
template <class S, class Q, int STEP>
void QuantizeRow(const QuantizeState& s, const S* x, Q* q, int64_t count, const Wide<S>* scale,
                 const int32_t* zero) {
  const hn::ScalableTag<Wide<S>> d;
  const IntTag<decltype(d)> di;
  const hn::Rebind<Q, decltype(d)> dq;
  using T = Wide<S>;
  const auto most = hn::Set(d, T(1 << 18));  // beyond every code, whatever the zero point
  const auto low = hn::Set(di, int32_t(s.low)), high = hn::Set(di, int32_t(s.high));
  const bool away = s.away;
  ForRow(d, size_t(count), [&](size_t i, size_t n) HWY_ATTR {
    const auto v = LoadCount(d, x + i, n);
    auto by = hn::Set(d, scale[0]);
    auto z = hn::Set(di, zero[0]);
    if constexpr (STEP == 1) {
      by = hn::IfThenElse(hn::FirstN(d, n), LoadCount(d, scale + i, n), hn::Set(d, T(1)));
      z = LoadInts(di, zero + i, n);
    }
    const auto number = hn::IfThenElseZero(hn::Eq(v, v), hn::Div(v, by));
    const auto whole = away ? RoundAway(d, number) : hn::Round(number);
    const auto inside = hn::Min(hn::Max(whole, hn::Neg(most)), most);
    const auto code = hn::Min(hn::Max(hn::Add(ToInt(d, inside), z), low), high);
    const auto narrow = hn::DemoteTo(dq, code);
    if (n == hn::Lanes(d)) {
      hn::StoreU(narrow, dq, q + i);
    } else {
      HWY_ALIGN Q lanes[hn::MaxLanes(d)];
      hn::StoreU(narrow, dq, lanes);
      for (size_t k = 0; k < n; ++k) q[i + k] = lanes[k];
    }
  });
}

template <class S, class Q, int STEP>
void DequantizeRow(const Q* q, S* x, int64_t count, const Wide<S>* scale, const int32_t* zero) {
  const hn::ScalableTag<Wide<S>> d;
  const IntTag<decltype(d)> di;
  const hn::Rebind<Q, decltype(d)> dq;
  ForRow(d, size_t(count), [&](size_t i, size_t n) HWY_ATTR {
    HWY_ALIGN Q lanes[hn::MaxLanes(d)] = {};
    const Q* from = q + i;
    if (n < hn::Lanes(d)) {
      for (size_t k = 0; k < n; ++k) lanes[k] = q[i + k];
      from = lanes;
    }
    auto by = hn::Set(d, scale[0]);
    auto z = hn::Set(di, zero[0]);
    if constexpr (STEP == 1) {
      by = LoadCount(d, scale + i, n);
      z = LoadInts(di, zero + i, n);
    }
    const auto code = hn::Sub(hn::PromoteTo(di, hn::LoadU(dq, from)), z);
    StoreCount(hn::Mul(FromInt(d, code), by), d, x + i, n);
  });
}

template <class S>
const Wide<S>* ScalesOf(const QuantizeState& s) {
  if constexpr (std::is_same_v<S, double>) {
    return s.wide_scales.data();
  } else {
    return s.scales.data();
  }
}

template <class F>
HWY_INLINE void WithCodeType(DType t, F f) {
  switch (t) {
    case DType::kI8:
      return f.template operator()<int8_t>();
    case DType::kU8:
      return f.template operator()<uint8_t>();
    default:
      return f.template operator()<int16_t>();
  }
}

}  // namespace

void QuantizePieceOf(const QuantizeState& s, const QuantizePiece& p) {
  WithFloatType(s.floats, [&]<class S>() {
    WithCodeType(s.codes, [&]<class Q>() {
      const S* x = static_cast<const S*>(p.from) + p.begin;
      Q* q = static_cast<Q*>(p.to) + p.begin;
      const auto* scale = ScalesOf<S>(s) + p.channel;
      const int32_t* zero = s.zero_points.data() + p.channel;
      if (s.per_element) {
        QuantizeRow<S, Q, 1>(s, x, q, p.count, scale, zero);
      } else {
        QuantizeRow<S, Q, 0>(s, x, q, p.count, scale, zero);
      }
    });
  });
}

void DequantizePieceOf(const QuantizeState& s, const QuantizePiece& p) {
  WithFloatType(s.floats, [&]<class S>() {
    WithCodeType(s.codes, [&]<class Q>() {
      const Q* q = static_cast<const Q*>(p.from) + p.begin;
      S* x = static_cast<S*>(p.to) + p.begin;
      const auto* scale = ScalesOf<S>(s) + p.channel;
      const int32_t* zero = s.zero_points.data() + p.channel;
      if (s.per_element) {
        DequantizeRow<S, Q, 1>(q, x, p.count, scale, zero);
      } else {
        DequantizeRow<S, Q, 0>(q, x, p.count, scale, zero);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(QuantizePieceOf);
HWY_EXPORT(DequantizePieceOf);

namespace {

constexpr int64_t kChunkElements = 8192;

template <class S>
QuantizeState state_of(const S& a, const Dims& dims, DType codes, DType floats) {
  QuantizeState s;
  s.codes = codes;
  s.floats = floats;
  s.low = code_range(codes).low;
  s.high = code_range(codes).high;
  s.scales.assign(a.scales.begin(), a.scales.end());
  s.wide_scales = a.scales;
  s.zero_points.assign(a.zero_points.begin(), a.zero_points.end());
  s.length = num_elements(dims);
  if (a.axis) {
    const auto axis = size_t(*a.axis);
    s.length = num_elements(std::span(dims).subspan(axis + 1));
    s.per_element = s.length == 1;
    if (s.per_element) s.length = dims[axis];
    s.rows = num_elements(dims) / std::max<int64_t>(s.length, 1);
  }
  s.piece = std::clamp<int64_t>(s.length, 1, kChunkElements);
  s.pieces = ceil_div(s.length, s.piece);
  s.rows_per_chunk = s.pieces > 1 ? 1 : std::max<int64_t>(1, kChunkElements / s.piece);
  return s;
}

// Calls run(piece) for the pieces of a chunk.
template <class F>
void for_each_piece(const QuantizeState& s, const StepArgs& args, int64_t chunk, F&& run) {
  const auto channels = int64_t(s.zero_points.size());
  const int64_t at = chunk % s.pieces * s.piece;
  const int64_t first = chunk / s.pieces * s.rows_per_chunk;
  for (int64_t row = first; row < std::min(s.rows, first + s.rows_per_chunk); ++row) {
    run(QuantizePiece{args.operands[0], args.results[0], row * s.length + at,
                      std::min(s.piece, s.length - at), s.per_element ? at : row % channels});
  }
}

void run_quantize(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const QuantizeState*>(state);
  for_each_piece(s, args, chunk, [&](const QuantizePiece& p) {
    HWY_DYNAMIC_DISPATCH(QuantizePieceOf)(s, p);
  });
}

void run_dequantize(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const QuantizeState*>(state);
  for_each_piece(s, args, chunk, [&](const QuantizePiece& p) {
    HWY_DYNAMIC_DISPATCH(DequantizePieceOf)(s, p);
  });
}

PreparedKernel prepare(QuantizeState s, int64_t elements,
                       void (*run)(const void*, const StepArgs&, int64_t)) {
  if (elements == 0) return {};
  const int64_t chunks = s.pieces * ceil_div(s.rows, s.rows_per_chunk);
  return PreparedKernel::single(std::move(s), chunks, run, double(elements) * 0.3);
}

struct PackedState {
  DType packed, floats;
  int64_t elements;
};

template <bool kEncode>
void run_packed(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const PackedState*>(state);
  const int64_t begin = chunk * kChunkElements;
  const int64_t count = std::min(kChunkElements, s.elements - begin);
  const int64_t blocks = bytes_of(s.packed, begin), floats = begin * size_of(s.floats);
  if (kEncode) {
    encode_row(s.packed, s.floats, args.in<char>(0) + floats, count, args.out<char>(0) + blocks);
  } else {
    decode_row(s.packed, args.in<char>(0) + blocks, count, s.floats, args.out<char>(0) + floats);
  }
}

template <bool kEncode>
PreparedKernel prepare_packed(const KernelCall& call) {
  const TensorDesc &x = call.operands[0], &y = call.results[0];
  const int64_t n = x.num_elements();
  const PackedState s{kEncode ? y.dtype : x.dtype, kEncode ? x.dtype : y.dtype, n};
  return PreparedKernel::single(s, ceil_div(n, kChunkElements), run_packed<kEncode>,
                                double(n) * (kEncode ? 0.5 : 0.2));
}

constexpr KernelEntry kQuantizeEntries[] = {
    {.name = "quantize:blocks",
     .fits = [](const KernelCall& c) -> std::string_view {
       return is_packed(c.results[0].dtype) ? "" : "only packed dtypes";
     },
     .prepare = prepare_packed<true>,
     .vector = true},
    {.name = "quantize:rows",
     .fits = [](const KernelCall& c) -> std::string_view {
       return is_packed(c.results[0].dtype) ? "only integers" : "";
     },
     .prepare =
         [](const KernelCall& c) {
           const auto& a = c.as<QuantizeAttrs>();
           QuantizeState s =
               state_of(a, c.operands[0].dims, c.results[0].dtype, c.operands[0].dtype);
           s.away = a.rounding == QuantizeRounding::kAway;
           return prepare(std::move(s), c.operands[0].num_elements(), run_quantize);
         },
     .vector = true},
};

constexpr KernelEntry kDequantizeEntries[] = {
    {.name = "dequantize:blocks",
     .fits = [](const KernelCall& c) -> std::string_view {
       return is_packed(c.operands[0].dtype) ? "" : "only packed dtypes";
     },
     .prepare = prepare_packed<false>,
     .vector = true},
    {.name = "dequantize:rows",
     .fits = [](const KernelCall& c) -> std::string_view {
       return is_packed(c.operands[0].dtype) ? "only integers" : "";
     },
     .prepare =
         [](const KernelCall& c) {
           return prepare(state_of(c.as<DequantizeAttrs>(), c.operands[0].dims, c.operands[0].dtype,
                                   c.results[0].dtype),
                          c.operands[0].num_elements(), run_dequantize);
         },
     .vector = true},
};

}  // namespace

RLX_DEFINE_KERNELS(Quantize, Cpu) = {kQuantizeEntries};
RLX_DEFINE_KERNELS(Dequantize, Cpu) = {kDequantizeEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
