// The stage machine against loops written by hand for each chain, on one thread. The two are timed
// in turn; `share` is the loop's time over the machine's, so 1 means as fast.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/region_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/activation_math-inl.h"
#include "rlx/backend/cpu/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// in[i] are the inputs, out[i] the results; n is a multiple of 64.
using Pointers = float* const*;

template <size_t kIn, class F>
HWY_INLINE void each(Pointers in, float* out, int64_t n, F f) {
  const D d;
  const auto step = int64_t(hn::Lanes(d));
  for (int64_t k = 0; k < n; k += 4 * step) {
#pragma GCC unroll 4
    for (int64_t j = k; j < k + 4 * step; j += step) {
      V v[kIn];
#pragma GCC unroll 4
      for (size_t i = 0; i < kIn; ++i) v[i] = hn::LoadU(d, in[i] + j);
      hn::StoreU(f(v), d, out + j);
    }
  }
}

// The same on bf16, computed in f32; the numbers stay f32.
template <size_t kIn, class F>
HWY_INLINE void each_bf16(Pointers in, float* to, int64_t n, F f) {
  const D d;
  const auto step = int64_t(hn::Lanes(d));
  auto* out = reinterpret_cast<bf16*>(to);
  for (int64_t k = 0; k < n; k += 4 * step) {
#pragma GCC unroll 4
    for (int64_t j = k; j < k + 4 * step; j += step) {
      V v[kIn];
#pragma GCC unroll 4
      for (size_t i = 0; i < kIn; ++i) v[i] = LoadF32(d, reinterpret_cast<const bf16*>(in[i]) + j);
      StoreF32(f(v), d, out + j);
    }
  }
}

void scale_shift_bf16(Pointers in, Pointers out, int64_t n) {
  const V a = hn::Set(D(), 0.875f), b = hn::Set(D(), 0.125f);
  each_bf16<1>(in, out[0], n, [&](const V* v) { return hn::Add(hn::Mul(v[0], a), b); });
}
void silu_times_bf16(Pointers in, Pointers out, int64_t n) {
  each_bf16<2>(in, out[0], n, [&](const V* v) { return hn::Mul(SiluFn()(D(), v[0]), v[1]); });
}
void scale_shift(Pointers in, Pointers out, int64_t n) {
  const V a = hn::Set(D(), in[1][0]), b = hn::Set(D(), in[2][0]);
  each<1>(in, out[0], n, [&](const V* v) { return hn::Add(hn::Mul(v[0], a), b); });
}
void gelu_bias(Pointers in, Pointers out, int64_t n) {
  const V b = hn::Set(D(), in[1][0]);
  each<1>(in, out[0], n, [&](const V* v) { return GeluFn()(D(), hn::Add(v[0], b)); });
}
void silu_times(Pointers in, Pointers out, int64_t n) {
  each<2>(in, out[0], n, [&](const V* v) { return hn::Mul(SiluFn()(D(), v[0]), v[1]); });
}
// Ten cheap operations on three inputs.
void cheap(Pointers in, Pointers out, int64_t n) {
  const D d;
  const V half = hn::Set(d, 0.5f), two = hn::Set(d, 2);
  each<3>(in, out[0], n, [&](const V* v) {
    const V x = hn::Sub(hn::Mul(v[0], v[1]), v[2]);
    const V y = hn::Add(hn::Abs(x), half);
    const V z = hn::Mul(hn::Sub(v[0], y), two);
    const V w = hn::Add(hn::Mul(z, v[1]), hn::Neg(v[2]));
    return hn::Sub(w, hn::Mul(v[0], half));
  });
}
void relu_of_sum(Pointers in, Pointers out, int64_t n) {
  each<2>(in, out[0], n, [&](const V* v) { return ReluFn()(D(), hn::Add(v[0], v[1])); });
}
void sum_of_three(Pointers in, Pointers out, int64_t n) {
  each<3>(in, out[0], n, [&](const V* v) { return hn::Add(hn::Add(v[0], v[1]), v[2]); });
}
void scaled_sum(Pointers in, Pointers out, int64_t n) {
  const V a = hn::Set(D(), 0.875f), b = hn::Set(D(), 0.125f);
  each<2>(in, out[0], n, [&](const V* v) { return hn::Add(hn::Mul(v[0], a), hn::Mul(v[1], b)); });
}
void exp_of_difference(Pointers in, Pointers out, int64_t n) {
  const V m = hn::Set(D(), in[1][0]), s = hn::Set(D(), in[2][0]);
  each<1>(in, out[0], n, [&](const V* v) { return hn::Mul(ExpFn()(D(), hn::Sub(v[0], m)), s); });
}
void momentum(Pointers in, Pointers out, int64_t n) {
  const D d;
  const V mu = hn::Set(d, 0.875f), rate = hn::Set(d, 0.125f);
  const auto step = int64_t(hn::Lanes(d));
  for (int64_t k = 0; k < n; k += 4 * step) {
#pragma GCC unroll 4
    for (int64_t j = k; j < k + 4 * step; j += step) {
      const V m = hn::Add(hn::Mul(hn::LoadU(d, in[1] + j), mu), hn::LoadU(d, in[2] + j));
      hn::StoreU(m, d, out[1] + j);
      hn::StoreU(hn::Sub(hn::LoadU(d, in[0] + j), hn::Mul(m, rate)), d, out[0] + j);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/measure.h"
#include "rlx/backend/cpu/region/program.h"
#include "rlx/base/array.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"

namespace rlx::cpu {
namespace {

HWY_EXPORT(scale_shift_bf16);
HWY_EXPORT(silu_times_bf16);
HWY_EXPORT(scale_shift);
HWY_EXPORT(gelu_bias);
HWY_EXPORT(silu_times);
HWY_EXPORT(cheap);
HWY_EXPORT(relu_of_sum);
HWY_EXPORT(sum_of_three);
HWY_EXPORT(scaled_sum);
HWY_EXPORT(exp_of_difference);
HWY_EXPORT(momentum);

using Values = std::vector<Value>;
using Loop = void (*)(float* const*, float* const*, int64_t);

struct Chain {
  const char* name;
  Values (*body)(Builder&, const Values&);
  std::vector<RegionForm> inputs;
  size_t results;
  Loop loop;
  DType dtype = DType::kF32;
};

std::vector<Chain> chains() {
  const RegionForm c = RegionForm::kColumns, s = RegionForm::kSingle;
  return {
      {"scale_shift",
       [](Builder& b, const Values& x) -> Values { return {add(b, mul(b, x[0], x[1]), x[2])}; },
       {c, s, s},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(scale_shift)
         (a...);
       }},
      {"scale_shift_bf16",
       [](Builder& b, const Values& x) -> Values { return {add(b, mul(b, x[0], 0.875), 0.125)}; },
       {c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(scale_shift_bf16)
         (a...);
       },
       DType::kBF16},
      {"silu_times_bf16",
       [](Builder& b, const Values& x) -> Values {
         return {mul(b, activation(b, ActivationKind::kSilu, x[0]), x[1])};
       },
       {c, c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(silu_times_bf16)
         (a...);
       },
       DType::kBF16},
      {"gelu_bias",
       [](Builder& b, const Values& x) -> Values {
         return {activation(b, ActivationKind::kGelu, add(b, x[0], x[1]))};
       },
       {c, s},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(gelu_bias)
         (a...);
       }},
      {"silu_times",
       [](Builder& b, const Values& x) -> Values {
         return {mul(b, activation(b, ActivationKind::kSilu, x[0]), x[1])};
       },
       {c, c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(silu_times)
         (a...);
       }},
      {"ten_cheap",
       [](Builder& b, const Values& v) -> Values {
         const Value x = sub(b, mul(b, v[0], v[1]), v[2]);
         const Value y = add(b, activation(b, ActivationKind::kAbs, x), 0.5);
         const Value z = mul(b, sub(b, v[0], y), 2);
         const Value w = add(b, mul(b, z, v[1]), neg(b, v[2]));
         return {sub(b, w, mul(b, v[0], 0.5))};
       },
       {c, c, c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(cheap)
         (a...);
       }},
      {"relu_sum",
       [](Builder& b, const Values& x) -> Values {
         return {activation(b, ActivationKind::kRelu, add(b, x[0], x[1]))};
       },
       {c, c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(relu_of_sum)
         (a...);
       }},
      {"sum_of_three",
       [](Builder& b, const Values& x) -> Values { return {add(b, add(b, x[0], x[1]), x[2])}; },
       {c, c, c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(sum_of_three)
         (a...);
       }},
      {"scaled_sum",
       [](Builder& b, const Values& x) -> Values {
         return {add(b, mul(b, x[0], 0.875), mul(b, x[1], 0.125))};
       },
       {c, c},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(scaled_sum)
         (a...);
       }},
      {"exp_row",
       [](Builder& b, const Values& x) -> Values {
         return {mul(b, exp(b, sub(b, x[0], x[1])), x[2])};
       },
       {c, s, s},
       1,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(exp_of_difference)
         (a...);
       }},
      {"momentum",
       [](Builder& b, const Values& x) -> Values {
         const Value m = add(b, mul(b, x[1], 0.875), x[2]);
         return {sub(b, x[0], mul(b, m, 0.125)), m};
       },
       {c, c, c},
       2,
       [](auto... a) {
         HWY_DYNAMIC_DISPATCH(momentum)
         (a...);
       }},
  };
}

void region(benchmark::State& state, const Chain& chain, int64_t n) {
  Graph g;
  Builder b(g);
  Values in;
  RegionOptions options;
  for (RegionForm form : chain.inputs) {
    in.push_back(input(b, "in" + std::to_string(in.size()), chain.dtype, {}));
    options.inputs.push_back({form, chain.dtype});
  }
  const Values out = chain.body(b, in);
  for (size_t i = 0; i < out.size(); ++i) g.add_output("out" + std::to_string(i), out[i]);
  const RegionProgram program = RegionProgram::compile(g, options);
  const auto scratch = allocate_aligned(program.scratch_bytes());
  std::vector<std::shared_ptr<void>> memory;
  std::vector<float*> from, to;
  std::vector<RegionRows> in_rows, out_rows;
  const auto tensor = [&](std::vector<float*>& list, std::vector<RegionRows>& rows) {
    memory.push_back(allocate_aligned(n * int64_t(sizeof(float))));
    list.push_back(static_cast<float*>(memory.back().get()));
    for (int64_t k = 0; k < n; ++k) list.back()[k] = float(k % 17) / 8 - 1;
    rows.push_back({list.back()});
  };
  for (size_t i = 0; i < in.size(); ++i) tensor(from, in_rows);
  for (size_t i = 0; i < out.size(); ++i) tensor(to, out_rows);
  const auto repeat = std::max<int64_t>(1, 200000 / n);
  std::vector<double> machine, loop;
  for (auto _ : state) {
    double start = bench::seconds();
    for (int64_t r = 0; r < repeat; ++r) chain.loop(from.data(), to.data(), n);
    loop.push_back((bench::seconds() - start) / double(repeat));
    start = bench::seconds();
    for (int64_t r = 0; r < repeat; ++r) program.run(in_rows, out_rows, n, 1, scratch.get());
    machine.push_back((bench::seconds() - start) / double(repeat));
    state.SetIterationTime(machine.back());
  }
  state.counters["ns_per_element"] = bench::median(machine) * 1e9 / double(n);
  state.counters["loop"] = bench::median(loop) * 1e9 / double(n);
  state.counters["share"] = bench::median(loop) / bench::median(machine);
}

// 2K elements lie in L1, 64K in L2, 16M in memory; 64: what a call costs.
const int kRegistered = [] {
  for (const Chain& chain : chains()) {
    for (int64_t n :
         {int64_t(64), int64_t(2048), int64_t(65536), int64_t(1) << 20, int64_t(1) << 24}) {
      benchmark::RegisterBenchmark(
          ("region/" + std::string(chain.name) + "/" + std::to_string(n)).c_str(),
          [chain, n](benchmark::State& state) { region(state, chain, n); })
          ->UseManualTime()
          ->Iterations(n >= (1 << 24) ? 9 : 60);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace rlx::cpu
#endif  // HWY_ONCE
