// Gather and GatherBackward over table[b, o, n, t] and indices[b, k], all dense.
#include "rlx/ops/gather.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "rlx/backend/cpu/kernels/packed_codec.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kChunkBytes = 64 << 10;
constexpr int64_t kIndexBlock = 256;  // indices that are resolved at a time

struct Sizes {
  int64_t b = 1, o = 1, n = 1, t = 1, k = 1;
};

Sizes sizes_of(const Dims& table, const Dims& indices, int64_t axis, int64_t batch_dims) {
  Sizes s;
  for (int64_t a = 0; a < int64_t(table.size()); ++a) {
    int64_t& group = a < batch_dims ? s.b : a < axis ? s.o : a == axis ? s.n : s.t;
    group *= table[size_t(a)];
  }
  for (size_t a = size_t(batch_dims); a < indices.size(); ++a) s.k *= indices[a];
  return s;
}

[[noreturn]] void throw_range(std::string index, int64_t size) {
  user_error("index {} is out of range for axis size {}", index, size);
}

// rows[i] = the row that indices[first + i] names. Throws if there is none.
using ResolveFn = void (*)(const void* indices, int64_t first, int64_t count, int64_t size,
                           int64_t* rows);

template <class I>
void resolve(const void* indices, int64_t first, int64_t count, int64_t size, int64_t* rows) {
  const I* from = static_cast<const I*>(indices) + first;
  for (int64_t i = 0; i < count; ++i) {
    const I given = from[i];
    // Above the range of i64 it is above every size.
    const bool huge = std::is_same_v<I, uint64_t> && given > I(INT64_MAX);
    const int64_t row = int64_t(given);
    if (huge || row < -size || row >= size) throw_range(std::to_string(given), size);
    rows[i] = row < 0 ? row + size : row;
  }
}

ResolveFn resolve_for(DType t) {
  return visit_dtype(t, []<class I>() -> ResolveFn {
    if constexpr (std::is_integral_v<I> && !std::is_same_v<I, bool>) {
      return resolve<I>;
    } else {
      internal_error("indices of a dtype that is no integer");
    }
  });
}

// --- Gather

struct GatherState {
  Sizes s;
  DType from, to;       // `from` is packed if they differ
  int64_t slice_bytes;  // of t elements in the table
  int64_t result_bytes;
  int64_t slices;  // of the result: b * o * k
  int64_t slices_per_chunk;
  ResolveFn resolve;
};

void copy_slices(const char* table, const int64_t* rows, int64_t count, int64_t bytes, char* out) {
  const auto copy_elements = [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * int64_t(sizeof(T)), table + rows[i] * int64_t(sizeof(T)), sizeof(T));
    }
  };
  switch (bytes) {
    case 1:
      return copy_elements(uint8_t{});
    case 2:
      return copy_elements(uint16_t{});
    case 4:
      return copy_elements(uint32_t{});
    case 8:
      return copy_elements(uint64_t{});
    default:
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(out + i * bytes, table + rows[i] * bytes, size_t(bytes));
      }
  }
}

// Slices of a packed table, decoded.
void decode_slices(const GatherState& g, const char* table, const int64_t* rows, int64_t count,
                   char* out) {
  for (int64_t i = 0; i < count; ++i) {
    decode_row(g.from, table + rows[i] * g.slice_bytes, g.s.t, g.to, out + i * g.result_bytes);
  }
}

void run_gather(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& g = *static_cast<const GatherState*>(state);
  const Sizes& s = g.s;
  const int64_t end = std::min(g.slices, (chunk + 1) * g.slices_per_chunk);
  int64_t rows[kIndexBlock];
  for (int64_t at = chunk * g.slices_per_chunk; at < end;) {
    const int64_t k = at % s.k, outer = at / s.k;  // outer: (b, o)
    const int64_t count = std::min({kIndexBlock, s.k - k, end - at});
    g.resolve(args.operands[1], outer / s.o * s.k + k, count, s.n, rows);
    const char* table = args.in<char>(0) + outer * s.n * g.slice_bytes;
    char* out = args.out<char>(0) + at * g.result_bytes;
    if (g.from == g.to) {
      copy_slices(table, rows, count, g.slice_bytes, out);
    } else {
      decode_slices(g, table, rows, count, out);
    }
    at += count;
  }
}

PreparedKernel prepare_gather(const KernelCall& call) {
  const auto& a = call.as<GatherAttrs>();
  const TensorDesc &table = call.operands[0], &indices = call.operands[1];
  GatherState g;
  g.s = sizes_of(table.dims, indices.dims, a.axis, a.batch_dims);
  g.from = table.dtype;
  g.to = call.results[0].dtype;
  g.slice_bytes = bytes_of(g.from, g.s.t);
  g.result_bytes = bytes_of(g.to, g.s.t);
  // Empty slices still have their indices checked.
  g.slices = g.s.b * g.s.o * g.s.k;
  g.slices_per_chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(g.result_bytes, 8));
  g.resolve = resolve_for(indices.dtype);
  const double nanoseconds = double(g.slices) * (2 + double(g.result_bytes) * 0.12);
  const int64_t chunks = ceil_div(g.slices, g.slices_per_chunk);
  return PreparedKernel::single(g, chunks, run_gather, nanoseconds);
}

// --- GatherBackward. A chunk owns part of the table, rows or columns of slices, and adds to it in
// the order of the indices: deterministic without atomics.

struct BackwardState {
  Sizes s;
  int64_t width, widths;    // elements of t in a chunk, chunks along t
  int64_t height, heights;  // rows of the table in a chunk, chunks along n
  ResolveFn resolve;
};

template <class T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<f16> {
  using type = float;
};
template <>
struct SumOf<bf16> {
  using type = float;
};
template <class T>
using Sum = typename SumOf<T>::type;

template <class T>
Sum<T> widened(T v) {
  return static_cast<Sum<T>>(v);
}

template <class S, class T>
void add_slice(S* __restrict to, const T* __restrict from, int64_t n) {
  if constexpr (std::is_integral_v<S>) {
    using U = std::make_unsigned_t<S>;
    for (int64_t i = 0; i < n; ++i) to[i] = S(U(to[i]) + U(from[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] += widened(from[i]);
  }
}

// The part of the table [rows begin..end) x [columns first..first+width) of one (b, o).
template <class T>
void run_backward(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& g = *static_cast<const BackwardState*>(state);
  const Sizes& s = g.s;
  const int64_t first = chunk % g.widths * g.width;
  chunk /= g.widths;
  const int64_t begin = chunk % g.heights * g.height, end = std::min(s.n, begin + g.height);
  const int64_t outer = chunk / g.heights;
  const int64_t width = std::min(g.width, s.t - first);
  const T* dy = args.in<T>(0) + outer * s.k * s.t + first;
  T* out = args.out<T>(0) + outer * s.n * s.t + first;
  // 16-bit floats are summed in f32 beside the result and rounded once.
  constexpr bool kWide = !std::is_same_v<Sum<T>, T>;
  Sum<T>* sums;
  if constexpr (kWide) {
    sums = static_cast<Sum<T>*>(args.scratch) + outer * s.n * s.t + first;
  } else {
    sums = out;
  }
  for (int64_t r = begin; r < end; ++r) std::fill_n(sums + r * s.t, width, Sum<T>(0));
  int64_t rows[kIndexBlock];
  for (int64_t k = 0; k < s.k; k += kIndexBlock) {
    const int64_t count = std::min(kIndexBlock, s.k - k);
    g.resolve(args.operands[1], outer / s.o * s.k + k, count, s.n, rows);
    for (int64_t i = 0; i < count; ++i) {
      if (rows[i] < begin || rows[i] >= end) continue;
      add_slice(sums + rows[i] * s.t, dy + (k + i) * s.t, width);
    }
  }
  if constexpr (kWide) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = 0; i < width; ++i) out[r * s.t + i] = T(sums[r * s.t + i]);
    }
  }
}

PreparedKernel prepare_backward(const KernelCall& call) {
  constexpr int64_t kWidth = 256;           // elements of a slice that pay for reading the indices
  constexpr int64_t kEnough = 16;           // chunks
  constexpr int64_t kTableElements = 4096;  // of a chunk that takes part of the rows
  const auto& a = call.as<GatherBackwardAttrs>();
  const TensorDesc &dy = call.operands[0], &indices = call.operands[1];
  BackwardState g;
  g.s = sizes_of(call.results[0].dims, indices.dims, a.axis, a.batch_dims);
  const Sizes& s = g.s;
  g.width = std::clamp<int64_t>(s.t, 1, kWidth);
  g.widths = std::max<int64_t>(1, ceil_div(s.t, g.width));
  const int64_t parts = s.b * s.o * g.widths;
  const int64_t splits =
      parts == 0 ? 1
                 : std::clamp<int64_t>(s.n * g.width / kTableElements, 1, ceil_div(kEnough, parts));
  g.height = std::max<int64_t>(1, ceil_div(s.n, splits));
  g.heights = std::max<int64_t>(1, ceil_div(s.n, g.height));
  g.resolve = resolve_for(indices.dtype);
  PreparedKernel k;
  const bool wide = is_float(dy.dtype) && size_of(dy.dtype) == 2;
  const int64_t elements = call.results[0].num_elements();
  if (wide) k.scratch_bytes = checked_mul(elements, int64_t(sizeof(float)));
  const int64_t chunks = parts * g.heights;
  k.nanoseconds =
      double(elements) * 0.2 + double(dy.num_elements()) * 0.4 + double(chunks) * double(s.k) * 1.5;
  visit_dtype(dy.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) k.phases = {{chunks, run_backward<T>}};
  });
  k.state = std::make_shared<BackwardState>(g);
  return k;
}

constexpr KernelEntry kGatherEntries[] = {
    {
        .name = "gather:blocks",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_packed(c.operands[0].dtype) ? "" : "only packed dtypes";
        },
        .prepare = prepare_gather,
        .vector = true,
    },
    {
        .name = "gather:slices",
        .fits = [](const KernelCall& c) -> std::string_view {
          return is_packed(c.operands[0].dtype) ? "packed dtypes are decoded" : "";
        },
        .prepare = prepare_gather,
    },
};
constexpr KernelEntry kBackwardEntries[] = {{
    .name = "gather_backward:owned",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare_backward,
}};

}  // namespace

RLX_DEFINE_KERNELS(Gather, Cpu) = {kGatherEntries};
RLX_DEFINE_KERNELS(GatherBackward, Cpu) = {kBackwardEntries};

}  // namespace rlx::cpu
