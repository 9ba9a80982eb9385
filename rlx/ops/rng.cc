#include "rlx/ops/rng.h"

#include <cmath>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(RngFold);
RLX_USE_OP(RngUniform);
RLX_USE_OP(RngNormal);

namespace {

double round_to(DType t, double v) { return Array::full(t, {}, v).at(0); }

// seed.shape + shape
std::vector<TensorType> infer_draw(const InferContext& c, DType dtype, const Shape& shape) {
  expect_operands(c, 0, 1);
  if (!dtypes::kFloats.contains(dtype)) {
    user_error("cannot draw {}, only: {}", to_string(dtype), dtypes::kFloats.to_string());
  }
  Shape result;
  if (!c.operands.empty()) {
    expect_dtype(c, 0, DType::kU64, "seed");
    result = c[0].shape;
  }
  for (const Dim& d : shape) {
    if (d.is_static() && d.value() < 0) {
      user_error("the shape {} has a negative size", shape.to_string());
    }
    result.push_back(d);
  }
  if (result.rank() > kMaxRank) {
    user_error("the result {} has {} axes, at most {} are possible", result.to_string(),
               result.rank(), kMaxRank);
  }
  return {{dtype, std::move(result)}};
}

std::vector<TensorType> infer_uniform(const InferContext& c) {
  const auto& a = c.as<RngUniformAttrs>();
  auto types = infer_draw(c, a.dtype, a.shape);
  const double low = round_to(a.dtype, a.low), high = round_to(a.dtype, a.high);
  const double width = round_to(accumulation_dtype(a.dtype), a.high - a.low);
  if (!(low < high) || !std::isfinite(low) || !std::isfinite(high) || !std::isfinite(width)) {
    user_error(
        "[{}, {}) is no range of {}: low must be below high, and both and their "
        "difference finite",
        a.low, a.high, to_string(a.dtype));
  }
  return types;
}

std::vector<TensorType> infer_normal(const InferContext& c) {
  const auto& a = c.as<RngNormalAttrs>();
  auto types = infer_draw(c, a.dtype, a.shape);
  if (!std::isfinite(a.mean) || !std::isfinite(a.scale) || a.scale < 0) {
    user_error("mean {} and scale {} must be finite, and scale not negative", a.mean, a.scale);
  }
  return types;
}

std::vector<TensorType> infer_fold(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, DType::kU64, "seed");
  expect_dtype(c, 1, dtypes::kInts, "index");
  return {{DType::kU64, broadcast(c[0].shape, c[1].shape)}};
}

// A leading axis of the seed is one of the result.
std::vector<Value> batch_draw(Builder& b, const RuleCall& call, std::span<const uint8_t>,
                              const Dim&) {
  return b.call(call.op, call.attrs, call.operands);
}

// About 40 integer operations make a block of four words.
Cost cost_uniform(const CostContext& c) { return {12 * element_count(c.results[0]), io_bytes(c)}; }
Cost cost_normal(const CostContext& c) { return {32 * element_count(c.results[0]), io_bytes(c)}; }

Value draw(Builder& b, const OpDef& op, Attrs attrs, Value seed) {
  if (seed.valid()) return b.call1(op, std::move(attrs), {seed});
  return b.call(op, std::move(attrs), std::span<const Value>{})[0];
}

}  // namespace

RLX_DEFINE_OP(RngFold) = {
    .name = "RngFold",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kNoGradient,
    .doc =
        R"(A new seed for each index: the first two words of Philox 4x32-10 with the key seed and the
counter (index lo, index hi, 0x464F4C44, 0), the first one low. No draw uses that key.
Operands: seed, u64; index, any integer, sign-extended to 64 bits; the shapes broadcast as in NumPy.
Result: u64.
Errors: a seed that is not u64, an index that is no integer, shapes that do not broadcast. No
gradient.)",
    .infer = infer_fold,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch_elementwise,
    .cost =
        [](const CostContext& c) {
          return Cost{40 * element_count(c.results[0]), io_bytes(c)};
        },
};

RLX_DEFINE_OP(RngUniform) = {
    .name = "RngUniform",
    .fields = RLX_FIELDS(RngUniformAttrs, dtype, shape, low, high, key),
    .flags = kRandom | kNoGradient,
    .doc =
        R"(Uniform random numbers in [low, high): y = low + u * (high - low).
Operands: optionally seed, u64 with any leading axes [B...]; without it the seed is 0. The result
[B..., shape...] holds, for each seed, a pure function of (seed, key, element): u are the uniforms of
Philox 4x32-10 in the layout of rlx/base/philox.h, elements counted in row-major order of `shape`. Bits
are equal on every device and number of threads.
Attributes: dtype (floats), shape, low, high, key (64 bits; equal keys under one seed give equal draws).
Rounding: low and high - low are rounded to f32 (f64 for f64), the product and the sum round
separately, 16-bit types round the f32 value; where that reaches high, the next value below is taken.
Errors: a seed that is not u64; a dtype that is no float; a range that is empty or not finite in the
dtype. No gradient.)",
    .infer = infer_uniform,
    .batching = batch_draw,
    .cost = cost_uniform,
};

RLX_DEFINE_OP(RngNormal) = {
    .name = "RngNormal",
    .fields = RLX_FIELDS(RngNormalAttrs, dtype, shape, mean, scale, key),
    .flags = kRandom | kNoGradient,
    .doc =
        R"(Normal random numbers: y = mean + scale * z, z standard normal by Box-Muller on the uniforms
of Philox 4x32-10 (rlx/base/philox.h has the layout).
Operands: optionally seed, u64 with any leading axes, as in RngUniform. Attributes: dtype (floats),
shape, mean, scale (not negative), key. 16-bit types round the f32 value once.
To differentiate with respect to mean or scale, draw with 0 and 1 and multiply and add.
Errors: a seed that is not u64; a dtype that is no float; mean or scale not finite, scale negative. No
gradient.)",
    .infer = infer_normal,
    .batching = batch_draw,
    .cost = cost_normal,
};

Value rng_fold(Builder& b, Value seed, Value index) {
  return b.op(kRngFoldOp, NoAttrs{}, {seed, index});
}

Value rng_uniform(Builder& b, DType dtype, Shape shape, double low, double high, int64_t key,
                  Value seed) {
  return draw(
      b, kRngUniformOp,
      Attrs::of(kRngUniformOp.fields, RngUniformAttrs{dtype, std::move(shape), low, high, key}),
      seed);
}

Value rng_normal(Builder& b, DType dtype, Shape shape, double mean, double scale, int64_t key,
                 Value seed) {
  return draw(
      b, kRngNormalOp,
      Attrs::of(kRngNormalOp.fields, RngNormalAttrs{dtype, std::move(shape), mean, scale, key}),
      seed);
}

}  // namespace rlx
