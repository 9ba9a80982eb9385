#include "rlx/testing/sample_operators.h"

#include <charconv>
#include <cstring>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"

namespace rlx {
namespace {

constexpr int64_t kChunk = 512;

// --- affine

struct Affine {
  int a = 1, b = 0;
};

Affine affine_of(std::string_view attributes) {
  if (attributes.size() != 2) user_error("expected 2 bytes, got {}", attributes.size());
  return {static_cast<signed char>(attributes[0]), static_cast<signed char>(attributes[1])};
}

template <class T>
T affine(Affine f, T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return x;
  } else if constexpr (std::is_integral_v<T>) {
    return T(uint64_t(f.a) * uint64_t(x) + uint64_t(f.b));
  } else if constexpr (sizeof(T) == 2) {
    return T(float(f.a) * float(x) + float(f.b));
  } else {
    return T(double(f.a)) * x + T(double(f.b));
  }
}

void run_affine(const CustomRun& r, int64_t chunk) {
  const auto& f = *static_cast<const Affine*>(r.state);
  const TensorDesc& x = r.call.operands[0];
  const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, x.num_elements());
  visit_dtype(x.dtype, [&]<class T>() {
    for (int64_t i = begin; i < end; ++i) r.out<T>(0)[i] = affine(f, r.in<T>(0)[i]);
  });
}

CustomKernel affine_kernel() {
  CustomKernel k;
  k.name = sample_affine().name;
  k.infer = sample_affine().infer;
  k.chunks = [](const CustomCall& c) {
    return (c.operands[0].num_elements() + kChunk - 1) / kChunk;
  };
  k.prepare = [](const CustomCall& c) {
    return std::make_shared<const Affine>(affine_of(c.attributes));
  };
  k.run = run_affine;
  k.in_place = 1;
  return k;
}

// --- scale_norm

CustomKernel scale_norm_kernel() {
  CustomKernel k;
  k.name = sample_scale_norm().name;
  k.fits = [](const CustomCall& c) {
    const DType t = c.operands[0].dtype;
    return t == DType::kF32 || t == DType::kF64 ? std::string() : "x must be f32 or f64";
  };
  k.scratch_bytes = [](const CustomCall& c) { return c.operands[0].num_elements() * 8; };
  k.run = [](const CustomRun& r, int64_t) {
    const int64_t n = r.call.operands[0].num_elements();
    auto* squares = static_cast<double*>(r.scratch);
    const auto run = [&]<class T>() {
      const T* x = r.in<T>(0);
      for (int64_t i = 0; i < n; ++i) squares[i] = double(x[i]) * double(x[i]);
      for (int64_t i = 0; i < n; ++i) r.out<T>(0)[i] = *r.in<T>(1) * x[i];
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += squares[i];
      *r.out<T>(1) = T(sum);
    };
    if (r.call.operands[0].dtype == DType::kF32) return run.operator()<float>();
    run.operator()<double>();
  };
  return k;
}

// --- matches

CustomKernel matches_kernel() {
  CustomKernel k;
  k.name = sample_matches().name;
  k.infer = sample_matches().infer;
  k.chunks = [](const CustomCall& c) { return c.operands[0].dims[0]; };
  k.nanoseconds = [](const CustomCall& c) {
    return double(c.operands[0].dims[0] * c.operands[0].dims[0]);
  };
  k.run = [](const CustomRun& r, int64_t i) {
    visit_dtype(r.call.operands[0].dtype, [&]<class T>() {
      const T* x = r.in<T>(0);
      int64_t count = 0;
      for (int64_t j = 0; j < r.call.operands[0].dims[0]; ++j) count += x[j] == x[i];
      r.out<int64_t>(0)[i] = count;
    });
  };
  return k;
}

// --- ramp

TensorType ramp_type(std::string_view attributes) {
  const size_t space = attributes.find(' ');
  const auto dtype = parse_dtype(attributes.substr(0, space));
  int64_t n = -1;
  if (space != attributes.npos) {
    std::from_chars(attributes.data() + space + 1, attributes.data() + attributes.size(), n);
  }
  if (!dtype || n < 0) user_error("'{}' is not a dtype and a size", attributes);
  return {*dtype, {n}};
}

CustomKernel ramp_kernel() {
  CustomKernel k;
  k.name = sample_ramp().name;
  k.infer = sample_ramp().infer;
  k.run = [](const CustomRun& r, int64_t) {
    const TensorDesc& y = r.call.results[0];
    visit_dtype(y.dtype, [&]<class T>() {
      for (int64_t i = 0; i < y.num_elements(); ++i) r.out<T>(0)[i] = T(float(i));
    });
  };
  return k;
}

}  // namespace

const CustomDefinition& sample_affine() {
  static const CustomDefinition d{
      .name = "sample.affine",
      .infer =
          [](std::span<const TensorType> operands, std::string_view attributes) {
            if (operands.size() != 1) user_error("expected 1 operand, got {}", operands.size());
            affine_of(attributes);
            return std::vector{operands[0]};
          },
      .vjp =
          [](Builder& b, const CustomRuleCall& c) {
            std::vector<Value> grads;
            for (Value ct : c.derivatives) grads.push_back(mul(b, ct, affine_of(c.attributes).a));
            return grads;
          },
      .jvp = nullptr,
      .batching = CustomBatching::kLeadingAxes};
  return d;
}

const CustomDefinition& sample_scale_norm() {
  static const CustomDefinition d{.name = "sample.scale_norm",
                                  .infer =
                                      [](std::span<const TensorType> operands, std::string_view) {
                                        if (operands.size() != 2 || operands[0].shape.rank() != 1 ||
                                            operands[1] != TensorType{operands[0].dtype, {}}) {
                                          user_error("expected x [n] and s [] of one dtype");
                                        }
                                        return std::vector{operands[0], operands[1]};
                                      },
                                  .vjp = nullptr,
                                  .jvp =
                                      [](Builder& b, const CustomRuleCall& c) {
                                        const Value x = c.operands[0], s = c.operands[1];
                                        const Value dx = c.derivatives[0], ds = c.derivatives[1];
                                        return std::vector{add(b, mul(b, ds, x), mul(b, s, dx)),
                                                           mul(b, sum(b, mul(b, x, dx), {0}), 2)};
                                      },
                                  .batching = CustomBatching::kLoop};
  return d;
}

const CustomDefinition& sample_matches() {
  static const CustomDefinition d{
      .name = "sample.matches",
      .infer =
          [](std::span<const TensorType> operands, std::string_view) {
            if (operands.size() != 1 || operands[0].shape.rank() != 1) {
              user_error("expected x [n]");
            }
            return std::vector{TensorType{DType::kI64, operands[0].shape}};
          },
      .vjp = nullptr,
      .jvp = nullptr,
      .no_gradient = true,
      .batching = CustomBatching::kLoop};
  return d;
}

const CustomDefinition& sample_ramp() {
  static const CustomDefinition d{
      .name = "sample.ramp",
      .infer = [](std::span<const TensorType>,
                  std::string_view attributes) { return std::vector{ramp_type(attributes)}; },
      .vjp = nullptr,
      .jvp = nullptr};
  return d;
}

void add_sample_kernels(Session& session) {
  session.add_kernel(affine_kernel());
  session.add_kernel(scale_norm_kernel());
  session.add_kernel(matches_kernel());
  session.add_kernel(ramp_kernel());
}

}  // namespace rlx
