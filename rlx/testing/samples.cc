#include "rlx/ops/samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "rlx/base/error.h"
#include "rlx/base/packed_blocks.h"
#include "rlx/ops/table.h"

namespace rlx {

#define RLX_OP(K, F, D) extern const OpSamples k##K##Samples;
#define RLX_STRUCTURAL(K, F, D) extern const OpSamples k##K##Samples;
#define RLX_ALIAS(K, F, D) extern const OpSamples k##K##Samples;
#define RLX_PRIMITIVE(K, D) extern const OpSamples k##K##Samples;
#include "rlx/ops/ops.def"

namespace {

struct Row {
  std::string_view name;
  const OpSamples* samples;
};
const Row kRows[] = {
#define RLX_OP(K, F, D) {#K, &k##K##Samples},
#define RLX_STRUCTURAL(K, F, D) {#K, &k##K##Samples},
#define RLX_ALIAS(K, F, D) {#K, &k##K##Samples},
#define RLX_PRIMITIVE(K, D) {#K, &k##K##Samples},
#include "rlx/ops/ops.def"
};

// Whole numbers travel exactly through integer dtypes; everything else rounds once.
template <class T>
T convert(double v) {
  if constexpr (std::is_same_v<T, bool>) {
    return v != 0;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr double low = double(std::numeric_limits<T>::min());
    constexpr double high = double(std::numeric_limits<T>::max());
    if (std::isnan(v)) return 0;
    if (v <= low) return std::numeric_limits<T>::min();
    if (v >= high) return std::numeric_limits<T>::max();
    return T(v);
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return T(float(v));
  } else {
    return T(v);
  }
}

std::vector<double> special_values(DType t) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto with = [&](double max, double min, double tiny) {
    return std::vector<double>{nan, inf, -inf, 0.0, -0.0, max, -max, min, -min, tiny, -tiny, 1, -1};
  };
  switch (t) {
    case DType::kF16:
      return with(65504, 0x1p-14, 0x1p-24);
    case DType::kBF16:
      return with(0x1.FEp127, 0x1p-126, 0x1p-133);
    case DType::kF64:
      return with(std::numeric_limits<double>::max(), std::numeric_limits<double>::min(),
                  0x1p-1074);
    default:
      break;
  }
  if (is_float(t) || is_complex(t)) {
    return with(std::numeric_limits<float>::max(), std::numeric_limits<float>::min(), 0x1p-149);
  }
  return {-inf, inf, 0, 1, -1};  // saturate to the ends of the integer type
}

std::vector<double> draw_values(const SampleOperand& o, int64_t count, std::mt19937_64& rng) {
  const Draw& d = o.draw;
  std::vector<double> v(static_cast<size_t>(count));
  // Own arithmetic instead of std::uniform_real_distribution: the same numbers everywhere.
  const auto unit = [&] { return double(rng() >> 11) * 0x1p-53; };
  switch (d.kind) {
    case Draw::kUniform:
    case Draw::kSpecial:
      for (double& x : v) x = d.low + (d.high - d.low) * unit();
      break;
    case Draw::kDistinct:
      for (size_t i = 0; i < v.size(); ++i) {
        v[i] = d.low + (d.high - d.low) * (double(i) + 0.5) / double(v.size());
      }
      for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[rng() % i]);
      break;
    case Draw::kInteger:
      for (double& x : v) x = d.low + std::floor((d.high - d.low + 1) * unit());
      break;
    case Draw::kGiven:
      if (int64_t(d.values.size()) != count) {
        internal_error("a sample gives {} values for {} elements", d.values.size(), count);
      }
      return d.values;
  }
  if (d.kind == Draw::kSpecial) {
    const std::vector<double> special = special_values(o.dtype);
    for (size_t i = 0; i < v.size(); ++i) {
      if (v.size() <= special.size() || rng() % 3 == 0) v[i] = special[rng() % special.size()];
    }
  }
  return v;
}

// Numbers that are quantized; kSpecial: any codes, under every kind of scale.
Array draw_packed(const SampleOperand& o, std::mt19937_64& rng) {
  SampleOperand wide = o;
  wide.dtype = DType::kF32;
  Array values = Array::uninitialized(DType::kF32, o.shape);
  const std::vector<double> real = draw_values(wide, values.num_elements(), rng);
  if (o.draw.kind != Draw::kSpecial) {
    std::copy(real.begin(), real.end(), values.mutable_data<float>().begin());
    return pack(values, o.dtype);
  }
  constexpr uint16_t kScales[] = {0x3C00, 0xBC01, 0x0001, 0x83FF, 0x7BFF, 0x0000,
                                  0x8000, 0x7C00, 0xFC00, 0x7E00, 0x2E66, 0x1234};
  Array a = Array::uninitialized(o.dtype, o.shape);
  auto* bytes = static_cast<uint8_t*>(a.mutable_raw());
  for (int64_t i = 0; i < a.byte_size(); ++i) bytes[i] = uint8_t(rng());
  const int64_t block = block_of(o.dtype).bytes;
  for (int64_t i = 0; i < a.byte_size(); i += block) {
    std::memcpy(bytes + i, &kScales[size_t(i / block) % std::size(kScales)], sizeof(uint16_t));
  }
  return a;
}

Array draw_array(const SampleOperand& o, std::mt19937_64& rng) {
  if (is_packed(o.dtype)) return draw_packed(o, rng);
  Array a = Array::uninitialized(o.dtype, o.shape);
  const int64_t n = a.num_elements();
  const std::vector<double> real = draw_values(o, n, rng);
  std::vector<double> imaginary;
  if (is_complex(o.dtype) && o.draw.kind != Draw::kGiven) imaginary = draw_values(o, n, rng);
  visit_dtype(o.dtype, [&]<class T>() {
    T* p = a.mutable_data<T>().data();
    for (int64_t i = 0; i < n; ++i) {
      p[i] = convert<T>(real[size_t(i)]);
      if constexpr (std::is_same_v<T, std::complex<float>> ||
                    std::is_same_v<T, std::complex<double>>) {
        using R = typename T::value_type;
        if (!imaginary.empty()) p[i] = T(p[i].real(), R(imaginary[size_t(i)]));
      }
    }
  });
  return a;
}

}  // namespace

const OpSamples& samples_of(const OpDef& op) {
  for (const Row& r : kRows) {
    if (r.name == op.name) return *r.samples;
  }
  internal_error("{} has no samples", op.name);
}

std::vector<Array> draw_operands(const OpDef& op, const Sample& sample) {
  uint64_t seed = 1469598103934665603ull;  // FNV-1a of both names
  for (const std::string_view text : {op.name, std::string_view(sample.name)}) {
    for (char c : text) seed = (seed ^ uint64_t(uint8_t(c))) * 1099511628211ull;
  }
  std::mt19937_64 rng(seed);
  std::vector<Array> arrays;
  for (const SampleOperand& o : sample.operands) arrays.push_back(draw_array(o, rng));
  return arrays;
}

}  // namespace rlx
