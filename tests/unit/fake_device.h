// A device with a few obvious kernels for f32, for tests of planning and running. They accept the
// strides, share the memory and split the work that the test needs, and fail on purpose.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/shape_ops.h"
#include "rlx/runtime/device.h"

namespace rlx {

RLX_USE_OP(Binary);
RLX_USE_OP(Copy);
RLX_USE_OP(Concat);
RLX_USE_OP(Activation);
RLX_USE_OP(MatMul);
RLX_USE_OP(LayerNormBackwardInput);

namespace fake {

// Set by tests; kernels of all runs see it.
inline std::atomic<int64_t> slow_chunks{0};  // chunks of Sqrt begun so far

struct Call {
  std::vector<TensorDesc> in;
  TensorDesc out;
  int kind = 0;
  bool packed = false;
};

inline Call call_of(const KernelCall& c) {
  return {{c.operands.begin(), c.operands.end()}, c.results[0], 0, false};
}

// Rows of the first axis: the chunks of most kernels.
inline int64_t rows(const TensorDesc& d) { return d.dims.empty() ? 1 : d.dims[0]; }

// Without memory of its own: runs are tested not to allocate.
struct Index {
  std::array<int64_t, 4> axes{};
  size_t rank = 0;
};

// f(index) for every index of row `row` of d.
template <class F>
void for_each_in_row(const TensorDesc& d, int64_t row, F&& f) {
  Index index{{row}, d.dims.size()};
  int64_t count = 1;
  for (size_t a = 1; a < d.dims.size(); ++a) count *= d.dims[a];
  for (int64_t i = 0; i < count; ++i) {
    f(index);
    for (size_t a = d.dims.size(); a-- > 1;) {
      if (++index.axes[a] < d.dims[a]) break;
      index.axes[a] = 0;
    }
  }
}

// Broadcasts: axes of size 1 stay at 0, missing ones are in front.
inline int64_t at(const TensorDesc& d, const Index& index) {
  int64_t offset = 0;
  const size_t added = index.rank - d.dims.size();
  for (size_t a = 0; a < d.dims.size(); ++a) {
    if (d.dims[a] != 1) offset += index.axes[added + a] * d.strides[a];
  }
  return offset;
}

inline std::string_view only_f32(const KernelCall& c) {
  return c.results[0].dtype == DType::kF32 ? "" : "not f32";
}

// An element that is not read in order costs 1 ns, in long rows 3 ns.
inline double element_cost(const KernelCall& c, size_t i) {
  const TensorDesc& d = c.operands[i];
  if (d.is_dense()) return 0;
  return double(d.num_elements()) * (d.dims.back() >= 16 ? 3 : 1);
}

inline PreparedKernel prepare_binary(const KernelCall& c) {
  Call s = call_of(c);
  s.kind = int(c.as<BinaryAttrs>().kind);
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    for_each_in_row(call.out, row, [&](const Index& i) {
      const float x = args.in<float>(0)[at(call.in[0], i)];
      const float y = args.in<float>(1)[at(call.in[1], i)];
      const auto kind = BinaryKind(call.kind);
      args.out<float>(0)[at(call.out, i)] = kind == BinaryKind::kAdd   ? x + y
                                            : kind == BinaryKind::kSub ? x - y
                                                                       : x * y;
    });
  };
  return PreparedKernel::single(std::move(s), rows(c.results[0]), run,
                                double(c.results[0].num_elements()));
}

inline PreparedKernel prepare_copy(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    const auto size = size_t(size_of(call.out.dtype));
    for_each_in_row(call.out, row, [&](const Index& i) {
      std::memcpy(args.out<char>(0) + size_t(at(call.out, i)) * size,
                  args.in<char>(0) + size_t(at(call.in[0], i)) * size, size);
    });
  };
  return PreparedKernel::single(call_of(c), rows(c.results[0]), run,
                                2.0 * double(c.results[0].num_elements()));
}

inline PreparedKernel prepare_concat(const KernelCall& c) {
  Call s = call_of(c);
  s.kind = int(c.as<ConcatAttrs>().axis);
  const auto run = [](const void* state, const StepArgs& args, int64_t) {
    const auto& call = *static_cast<const Call*>(state);
    float* to = args.out<float>(0);
    for (size_t p = 0; p < call.in.size(); ++p) {
      TensorDesc slot = call.in[p];
      slot.strides = call.out.strides;
      for (int64_t row = 0; row < rows(slot); ++row) {
        for_each_in_row(slot, row, [&](const Index& i) {
          to[at(slot, i)] = args.in<float>(p)[at(call.in[p], i)];
        });
      }
      to += slot.dims[size_t(call.kind)] * call.out.strides[size_t(call.kind)];
    }
  };
  return PreparedKernel::single(std::move(s), 1, run, double(c.results[0].num_elements()));
}

inline PreparedKernel prepare_matmul(const KernelCall& c) {
  Call s = call_of(c);
  s.packed = c.is_frozen(1);
  const int64_t k = c.operands[0].dims[1], n = c.results[0].dims[1];
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    const int64_t depth = call.in[0].dims[1];
    for (int64_t j = 0; j < call.out.dims[1]; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < depth; ++i) {
        const float b = call.packed ? args.in<float>(1)[j * depth + i]
                                    : args.in<float>(1)[at(call.in[1], {{i, j}, 2})];
        sum += args.in<float>(0)[at(call.in[0], {{row, i}, 2})] * b;
      }
      args.out<float>(0)[at(call.out, {{row, j}, 2})] = sum;
    }
  };
  PreparedKernel kernel = PreparedKernel::single(std::move(s), rows(c.results[0]), run,
                                                 double(c.results[0].num_elements() * k));
  if (c.is_frozen(1)) {  // packed: the transposed matrix
    const TensorDesc b = c.operands[1];
    kernel.packings.push_back({1, "transposed", k * n * 4, [b, k, n](const void* from, void* to) {
                                 for (int64_t j = 0; j < n; ++j) {
                                   for (int64_t i = 0; i < k; ++i) {
                                     static_cast<float*>(to)[j * k + i] =
                                         static_cast<const float*>(from)[at(b, {{i, j}, 2})];
                                   }
                                 }
                               }});
  }
  return kernel;
}

inline PreparedKernel prepare_neg(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    for_each_in_row(call.out, row, [&](const Index& i) {
      args.out<float>(0)[at(call.out, i)] = -args.in<float>(0)[at(call.in[0], i)];
    });
  };
  return PreparedKernel::single(call_of(c), rows(c.results[0]), run,
                                double(c.results[0].num_elements()));
}

// Two phases through shared scratch, in reverse order: needs the barrier between them.
inline PreparedKernel prepare_exp(const KernelCall& c) {
  const auto to_scratch = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    const int64_t n = call.out.num_elements();
    for_each_in_row(call.out, row, [&](const Index& i) {
      static_cast<float*>(args.scratch)[n - 1 - at(call.out, i)] =
          std::exp(args.in<float>(0)[at(call.in[0], i)]);
    });
  };
  const auto from_scratch = [](const void* state, const StepArgs& args, int64_t chunk) {
    const auto& call = *static_cast<const Call*>(state);
    const int64_t n = call.out.num_elements();
    for_each_in_row(call.out, rows(call.out) - 1 - chunk, [&](const Index& i) {
      args.out<float>(0)[at(call.out, i)] =
          static_cast<const float*>(args.scratch)[n - 1 - at(call.out, i)];
    });
  };
  PreparedKernel kernel;
  kernel.state = std::make_shared<const Call>(call_of(c));
  kernel.phases = {{rows(c.results[0]), to_scratch}, {rows(c.results[0]), from_scratch}};
  kernel.scratch_bytes = c.results[0].num_elements() * 4;
  kernel.nanoseconds = 10.0 * double(c.results[0].num_elements());
  return kernel;
}

// Goes through the thread's own scratch.
inline PreparedKernel prepare_abs(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    auto* own = static_cast<float*>(args.thread_scratch);
    int64_t n = 0;
    for_each_in_row(call.out, row,
                    [&](const Index& i) { own[n++] = args.in<float>(0)[at(call.in[0], i)]; });
    n = 0;
    for_each_in_row(call.out, row, [&](const Index& i) {
      args.out<float>(0)[at(call.out, i)] = std::abs(own[n++]);
    });
  };
  PreparedKernel kernel = PreparedKernel::single(call_of(c), rows(c.results[0]), run, 5000);
  const int64_t row_elements =
      rows(c.results[0]) ? c.results[0].num_elements() / rows(c.results[0]) : 0;
  kernel.thread_scratch_bytes = row_elements * 4;
  return kernel;
}

// Refuses what is not positive.
inline PreparedKernel prepare_log(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    for_each_in_row(call.out, row, [&](const Index& i) {
      const float x = args.in<float>(0)[at(call.in[0], i)];
      if (!(x > 0)) user_error("the logarithm of {}", x);
      args.out<float>(0)[at(call.out, i)] = std::log(x);
    });
  };
  return PreparedKernel::single(call_of(c), rows(c.results[0]), run, 100000);
}

// A millisecond a chunk.
inline PreparedKernel prepare_sqrt(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t row) {
    const auto& call = *static_cast<const Call*>(state);
    slow_chunks.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for_each_in_row(call.out, row, [&](const Index& i) {
      args.out<float>(0)[at(call.out, i)] = std::sqrt(args.in<float>(0)[at(call.in[0], i)]);
    });
  };
  return PreparedKernel::single(call_of(c), rows(c.results[0]), run, 1e6);
}

// Writes one element too many.
inline PreparedKernel prepare_sign(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t) {
    const auto& call = *static_cast<const Call*>(state);
    for (int64_t i = 0; i <= call.out.num_elements(); ++i) args.out<float>(0)[i] = 1;
  };
  return PreparedKernel::single(call_of(c), 1, run, 100);
}

// Not the formula: writes 1 + the result's index to every result that has memory.
inline PreparedKernel prepare_three(const KernelCall& c) {
  const auto run = [](const void* state, const StepArgs& args, int64_t) {
    const auto& results = *static_cast<const std::vector<TensorDesc>*>(state);
    for (size_t r = 0; r < results.size(); ++r) {
      for (int64_t i = 0; args.results[r] && i < results[r].num_elements(); ++i) {
        args.out<float>(r)[i] = float(r + 1);
      }
    }
  };
  return PreparedKernel::single(std::vector<TensorDesc>(c.results.begin(), c.results.end()), 1, run,
                                100);
}

template <ActivationKind kKind>
std::string_view fits_kind(const KernelCall& c) {
  if (c.as<ActivationAttrs>().kind != kKind) return "another activation";
  return only_f32(c);
}

inline constexpr StrideForm kAnyForm[] = {StrideForm::kAny};
inline constexpr StrideForm kRowsForm[] = {StrideForm::kRows};

inline constexpr KernelEntry kBinaryEntries[] = {{.name = "binary",
                                                  .fits = only_f32,
                                                  .prepare = prepare_binary,
                                                  .operand_forms = kAnyForm,
                                                  .result_form = StrideForm::kAny,
                                                  .stride_cost = element_cost,
                                                  .in_place = 3}};
inline constexpr KernelEntry kCopyEntries[] = {{.name = "copy",
                                                .prepare = prepare_copy,
                                                .operand_forms = kAnyForm,
                                                .result_form = StrideForm::kAny}};
inline constexpr KernelEntry kConcatEntries[] = {{.name = "concat",
                                                  .fits = only_f32,
                                                  .prepare = prepare_concat,
                                                  .result_form = StrideForm::kRows}};
inline constexpr KernelEntry kMatMulEntries[] = {{.name = "matmul",
                                                  .fits = only_f32,
                                                  .prepare = prepare_matmul,
                                                  .operand_forms = kRowsForm,
                                                  .result_form = StrideForm::kRows}};
inline constexpr KernelEntry kActivationEntries[] = {
    {.name = "neg", .fits = fits_kind<ActivationKind::kNeg>, .prepare = prepare_neg, .in_place = 1},
    {.name = "exp", .fits = fits_kind<ActivationKind::kExp>, .prepare = prepare_exp},
    {.name = "abs", .fits = fits_kind<ActivationKind::kAbs>, .prepare = prepare_abs},
    {.name = "log", .fits = fits_kind<ActivationKind::kLog>, .prepare = prepare_log},
    {.name = "sqrt", .fits = fits_kind<ActivationKind::kSqrt>, .prepare = prepare_sqrt},
    {.name = "sign", .fits = fits_kind<ActivationKind::kSign>, .prepare = prepare_sign},
};

inline constexpr KernelEntry kThreeEntries[] = {
    {.name = "three", .fits = only_f32, .prepare = prepare_three}};

inline constexpr KernelList kBinaryKernels{kBinaryEntries};
inline constexpr KernelList kCopyKernels{kCopyEntries};
inline constexpr KernelList kConcatKernels{kConcatEntries};
inline constexpr KernelList kMatMulKernels{kMatMulEntries};
inline constexpr KernelList kActivationKernels{kActivationEntries};
inline constexpr KernelList kThreeKernels{kThreeEntries};

class Table final : public KernelTable {
 public:
  std::string_view name() const override { return "fake"; }
  const KernelList* find(const OpDef& op) const override {
    if (&op == &kBinaryOp) return &kBinaryKernels;
    if (&op == &kCopyOp) return &kCopyKernels;
    if (&op == &kConcatOp) return &kConcatKernels;
    if (&op == &kMatMulOp) return &kMatMulKernels;
    if (&op == &kActivationOp) return &kActivationKernels;
    if (&op == &kLayerNormBackwardInputOp) return &kThreeKernels;
    return nullptr;
  }
};

class FakeDevice final : public Device {
 public:
  std::string_view name() const override { return "fake"; }
  const KernelTable& kernels() const override { return table_; }
  std::unique_ptr<Runner> make_runner(std::shared_ptr<const Plan> plan) const override {
    return cpu::make_runner(std::move(plan));
  }

 private:
  Table table_;
};

inline const Device& device() {
  static const FakeDevice device;
  return device;
}

}  // namespace fake
}  // namespace rlx
