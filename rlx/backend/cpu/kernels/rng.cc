#include "rlx/ops/rng.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/rng_blocks.h"
#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

// A chunk is a run of calls of the block functions within the draw of one seed.
constexpr int64_t kCallsPerChunk = 32;

struct State {
  DType dtype;
  bool normal, has_seed;
  uint64_t key;
  double scale, offset;  // of the values, as the block functions take them
  double high, below;    // uniform: what must not be reached, and the number before it
  int64_t elements;      // of one draw
  int64_t values;        // of one call
  int64_t chunks;        // of one draw
};

// The number before v in the dtype.
double number_below(DType t, double v) {
  if (t == DType::kF64) return std::nextafter(v, -INFINITY);
  if (t == DType::kF32) return std::nextafterf(float(v), -INFINITY);
  const auto step = [v]<class T>(T) {
    if (v == 0) return -double(T::from_bits(1));
    const uint16_t bits = T(v).bits;
    return double(T::from_bits(uint16_t(v > 0 ? bits - 1 : bits + 1)));
  };
  return t == DType::kF16 ? step(f16{}) : step(bf16{});
}

template <class T>
void keep_below(T* x, int64_t n, T high, T below) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] < high ? x[i] : below;
}

void draw_f64(const State& s, const RngStream& stream, double* out, int64_t count) {
  double values[kRngValuesF64];
  if (s.normal) {
    normal_f64(stream, s.scale, s.offset, values);
  } else {
    uniform_f64(stream, s.scale, s.offset, values);
    keep_below(values, kRngValuesF64, s.high, s.below);
  }
  std::copy_n(values, count, out);
}

void draw_f32(const State& s, const RngStream& stream, void* out, int64_t at, int64_t count) {
  float values[kRngValuesF32];
  if (s.normal) {
    normal_f32(stream, float(s.scale), float(s.offset), values);
  } else {
    const int bits = s.dtype == DType::kF16 ? 11 : s.dtype == DType::kBF16 ? 8 : 24;
    uniform_f32(stream, bits, float(s.scale), float(s.offset), values);
  }
  const float high = float(s.high), below = float(s.below);
  if (s.dtype == DType::kF32) {
    if (!s.normal) keep_below(values, kRngValuesF32, high, below);
    std::copy_n(values, count, static_cast<float*>(out) + at);
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(out) + at;
  const bool is_f16 = s.dtype == DType::kF16;
  (is_f16 ? f32_to_f16 : f32_to_bf16)(values, to, count);
  if (s.normal) return;
  // The limit holds for what rounding made of the values.
  (is_f16 ? f16_to_f32 : bf16_to_f32)(to, values, count);
  keep_below(values, count, high, below);
  (is_f16 ? f32_to_f16 : f32_to_bf16)(values, to, count);
}

void run_draw(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const int64_t draw = chunk / s.chunks, part = chunk % s.chunks;
  RngStream stream{s.has_seed ? args.in<uint64_t>(0)[draw] : 0, s.key, 0};
  for (int64_t call = part * kCallsPerChunk; call < (part + 1) * kCallsPerChunk; ++call) {
    const int64_t first = call * s.values;
    if (first >= s.elements) return;
    const int64_t count = std::min(s.values, s.elements - first);
    stream.block = uint64_t(call * kRngBlocks);
    const int64_t at = draw * s.elements + first;
    if (s.dtype == DType::kF64) {
      draw_f64(s, stream, args.out<double>(0) + at, count);
    } else {
      draw_f32(s, stream, args.results[0], at, count);
    }
  }
}

PreparedKernel prepare_draw(const KernelCall& call, State s, const Shape& shape) {
  s.has_seed = !call.operands.empty();
  s.elements = num_elements(shape.static_dims());
  s.values = s.dtype == DType::kF64 ? kRngValuesF64 : kRngValuesF32;
  s.chunks = std::max<int64_t>(1, ceil_div(s.elements, s.values * kCallsPerChunk));
  const int64_t draws = s.has_seed ? call.operands[0].num_elements() : 1;
  const int64_t chunks = s.elements == 0 ? 0 : checked_mul(draws, s.chunks);
  const double nanoseconds = double(draws) * double(s.elements) * (s.normal ? 3 : 1);
  return PreparedKernel::single(s, chunks, run_draw, nanoseconds);
}

double round_to(DType t, double v) { return Array::full(t, {}, v).at(0); }

PreparedKernel prepare_uniform(const KernelCall& call) {
  const auto& a = call.as<RngUniformAttrs>();
  State s{};
  s.dtype = a.dtype;
  s.key = uint64_t(a.key);
  s.scale = a.high - a.low;
  s.offset = a.low;
  s.high = round_to(a.dtype, a.high);
  s.below = number_below(a.dtype, s.high);
  return prepare_draw(call, s, a.shape);
}

PreparedKernel prepare_normal(const KernelCall& call) {
  const auto& a = call.as<RngNormalAttrs>();
  State s{};
  s.dtype = a.dtype;
  s.normal = true;
  s.key = uint64_t(a.key);
  s.scale = a.scale;
  s.offset = a.mean;
  return prepare_draw(call, s, a.shape);
}

constexpr KernelEntry kUniformEntries[] = {{
    .name = "rng_uniform:philox",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare_uniform,
    .vector = true,
}};
constexpr KernelEntry kNormalEntries[] = {{
    .name = "rng_normal:philox",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare_normal,
    .vector = true,
}};

}  // namespace

RLX_DEFINE_KERNELS(RngUniform, Cpu) = {kUniformEntries};
RLX_DEFINE_KERNELS(RngNormal, Cpu) = {kNormalEntries};

}  // namespace rlx::cpu
