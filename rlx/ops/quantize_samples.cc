#include "rlx/ops/quantize.h"

#include <cmath>

#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Quantize);
RLX_USE_OP(Dequantize);

namespace {

constexpr DType kCodes[] = {DType::kI8, DType::kU8, DType::kI16};

// As many scales, and zero points that the dtype holds, as asked for.
template <class S>
S scaled(S a, DType codes, size_t count) {
  const int64_t middle = codes == DType::kU8 ? 128 : 0;
  for (size_t i = 0; i < count; ++i) {
    a.scales.push_back(0.011 * double(i + 1));
    a.zero_points.push_back(middle + int64_t(i * 7 % 50) - 20);
  }
  return a;
}

Sample quantize_sample(std::string name, DType from, QuantizeAttrs a, Dims shape, Draw draw) {
  return {.name = std::move(name),
          .attrs = Attrs::of(kQuantizeOp.fields, std::move(a)),
          .operands = {{from, std::move(shape), std::move(draw)}},
          .grad = GradCheck::kNo};
}

std::vector<Sample> quantize_samples() {
  std::vector<Sample> list;
  const auto add = [&](std::string name, DType from, QuantizeAttrs a, Dims shape, Draw draw) {
    list.push_back(
        quantize_sample(std::move(name), from, std::move(a), std::move(shape), std::move(draw)));
  };
  for (const DType from : members(dtypes::kFloats)) {
    const std::string t = "_" + std::string(to_string(from));
    for (const DType to : kCodes) {
      const std::string n = std::string(to_string(to)) + t;
      add(n, from, scaled(QuantizeAttrs{.dtype = to}, to, 1), {7, 37}, uniform(-2, 2));
      add("special_" + n, from, scaled(QuantizeAttrs{.dtype = to}, to, 1), {173}, special());
      add("last_" + n, from, scaled(QuantizeAttrs{.dtype = to, .axis = -1}, to, 19), {5, 19},
          uniform(-2, 2));
      add("first_" + n, from,
          scaled(QuantizeAttrs{.dtype = to, .axis = 0, .rounding = QuantizeRounding::kAway}, to, 5),
          {5, 3, 23}, uniform(-2, 2));
    }
    for (const DType to : members(dtypes::kPacked)) {
      const std::string n = std::string(to_string(to)) + t;
      add(n, from, {.dtype = to}, {5, 96}, uniform(-2, 2));
      add("special_" + n, from, {.dtype = to}, {7, 64}, special());
    }
  }
  const DType f = DType::kF32;
  // Halves between codes, and their neighbours.
  const std::vector<double> ties = {0.5,     1.5,   2.5,    -0.5,   -1.5,       -2.5,
                                    126.5,   127.5, -127.5, -128.5, 0.49999997, -0.49999997,
                                    8388609, 1e30,  -1e30,  3.5};
  for (const auto rounding : {QuantizeRounding::kEven, QuantizeRounding::kAway}) {
    for (const DType from : {DType::kF32, DType::kF64}) {
      add(fmt::format("ties_{}_{}", int(rounding), to_string(from)), from,
          {.scales = {1}, .rounding = rounding}, {int64_t(ties.size())}, given(ties));
    }
  }
  const QuantizeAttrs one{.scales = {0.1}};
  add("scalar", f, one, {}, uniform(-2, 2));
  add("one", f, one, {1}, uniform(-2, 2));
  add("empty", f, one, {3, 0}, uniform(-2, 2));
  add("empty_channels", f, {.axis = 0}, {0, 3}, uniform(-2, 2));
  add("no_zero_points", f, {.axis = 1, .scales = {0.1, 0.2, 0.3}}, {2, 3, 2}, uniform(-2, 2));
  add("large", f, one, {3, 50021}, uniform(-9, 9));
  add("large_channels", f, scaled(QuantizeAttrs{.axis = 0}, DType::kI8, 301), {301, 67},
      uniform(-9, 9));
  for (const DType to : members(dtypes::kPacked)) {
    const std::string n(to_string(to));
    add("empty_" + n, f, {.dtype = to}, {0, 32}, uniform(-2, 2));
    add("large_" + n, f, {.dtype = to}, {67, 1024}, uniform(-2, 2));
    add("zeros_" + n, f, {.dtype = to}, {2, 32}, uniform(0, 0));
    add("small_" + n, f, {.dtype = to}, {2, 64}, uniform(-1e-6, 1e-6));
    add("tiny_" + n, f, {.dtype = to}, {2, 64}, uniform(-1e-40, 1e-40));
    add("huge_" + n, f, {.dtype = to}, {2, 64}, uniform(-3e38, 3e38));
  }
  return list;
}

std::vector<Sample> dequantize_samples() {
  std::vector<Sample> list;
  const auto add = [&](std::string name, DType from, DequantizeAttrs a, Dims shape, Draw draw) {
    Sample s{std::move(name),
             Attrs::of(kDequantizeOp.fields, std::move(a)),
             {{from, std::move(shape), std::move(draw)}}};
    s.grad = GradCheck::kNo;
    list.push_back(std::move(s));
  };
  for (const DType to : members(dtypes::kFloats)) {
    const std::string t = "_" + std::string(to_string(to));
    for (const DType from : kCodes) {
      const Draw draw = from == DType::kU8   ? integers(0, 255)
                        : from == DType::kI8 ? integers(-128, 127)
                                             : integers(-32768, 32767);
      const std::string n = std::string(to_string(from)) + t;
      add(n, from, scaled(DequantizeAttrs{.dtype = to}, from, 1), {7, 37}, draw);
      add("last_" + n, from, scaled(DequantizeAttrs{.dtype = to, .axis = -1}, from, 19), {5, 19},
          draw);
      add("first_" + n, from, scaled(DequantizeAttrs{.dtype = to, .axis = 0}, from, 5), {5, 3, 23},
          draw);
    }
    for (const DType from : members(dtypes::kPacked)) {
      const std::string n = std::string(to_string(from)) + t;
      add(n, from, {.dtype = to}, {5, 96}, uniform(-2, 2));
      add("special_" + n, from, {.dtype = to}, {12, 64}, special());
    }
  }
  const DequantizeAttrs one{.scales = {0.1}};
  add("scalar", DType::kI8, one, {}, integers(-128, 127));
  add("one", DType::kI8, one, {1}, integers(-128, 127));
  add("empty", DType::kI8, one, {3, 0}, integers(-128, 127));
  add("no_zero_points", DType::kI8, {.axis = 1, .scales = {0.1, 0.2, 0.3}}, {2, 3, 2},
      integers(-128, 127));
  add("large", DType::kI8, one, {3, 50021}, integers(-128, 127));
  for (const DType from : members(dtypes::kPacked)) {
    const std::string n(to_string(from));
    add("empty_" + n, from, {}, {0, 32}, uniform(-2, 2));
    add("large_" + n, from, {}, {67, 1024}, uniform(-2, 2));
    add("row_" + n, from, {}, {32}, uniform(-2, 2));
  }
  return list;
}

template <class S>
WrongCall wrong(const OpDef& op, std::string name, S a, TensorType x, std::string error) {
  return {std::move(name), Attrs::of(op.fields, std::move(a)), {std::move(x)}, std::move(error)};
}

std::vector<WrongCall> wrong_quantizes() {
  const auto make = [](std::string name, QuantizeAttrs a, TensorType x, std::string error) {
    return wrong(kQuantizeOp, std::move(name), std::move(a), std::move(x), std::move(error));
  };
  const DType f = DType::kF32, q = DType::kQ4_0;
  return {
      make("integer", {.scales = {1}}, {DType::kI32, {2}}, "x is i32"),
      make("dtype", {.dtype = DType::kI32, .scales = {1}}, {f, {2}}, "dtype is i32"),
      make("none", {}, {f, {2}}, "without an axis there is one scale, 0 were given"),
      make("count", {.axis = 0, .scales = {1, 2}}, {f, {3}}, "has the size 3, there are 2 scales"),
      make("symbolic", {.axis = 0, .scales = {1, 2}}, {f, {Dim::symbol("n")}}, "has the size n"),
      make("zero", {.scales = {0}}, {f, {2}}, "the scale 0 is not positive and finite"),
      make("tiny", {.scales = {1e-60}}, {f, {2}}, "the scale 1e-60 is not positive"),
      make("nan", {.scales = {std::nan("")}}, {f, {2}}, "is not positive and finite"),
      make("zero_point", {.scales = {1}, .zero_points = {200}}, {f, {2}},
           "zero point 200 is no i8"),
      make("zero_points", {.scales = {1}, .zero_points = {1, 2}}, {f, {2}}, "2 zero points for 1"),
      make("axis", {.axis = 1, .scales = {1}}, {f, {2}}, "axis 1 is out of range"),
      make("packed_scale", {.dtype = q, .scales = {1}}, {f, {32}}, "has its scales inside"),
      make("packed_rounding", {.dtype = q, .rounding = QuantizeRounding::kAway}, {f, {32}},
           "has a rounding of its own"),
      make("packed_blocks", {.dtype = q}, {f, {40}}, "must be whole blocks of 32 elements"),
  };
}

std::vector<WrongCall> wrong_dequantizes() {
  const auto make = [](std::string name, DequantizeAttrs a, TensorType x, std::string error) {
    return wrong(kDequantizeOp, std::move(name), std::move(a), std::move(x), std::move(error));
  };
  const DType i = DType::kI8, q = DType::kQ8_0;
  return {
      make("float", {.scales = {1}}, {DType::kF32, {2}}, "q is f32"),
      make("dtype", {.dtype = DType::kI32, .scales = {1}}, {i, {2}}, "dtype is i32"),
      make("none", {}, {i, {2}}, "without an axis there is one scale"),
      make("infinite", {.scales = {1e300}}, {i, {2}},
           "the scale 1e+300 is not positive and finite"),
      make("packed_scale", {.scales = {1}}, {q, {32}}, "has its scales inside"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Quantize) = {quantize_samples, wrong_quantizes};
RLX_DEFINE_SAMPLES(Dequantize) = {dequantize_samples, wrong_dequantizes};

}  // namespace rlx
