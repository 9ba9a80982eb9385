#include <algorithm>

#include "rlx/ops/shape_ops.h"

#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kChunk = 16384;

struct State {
  int64_t elements, axis_size, inner;
};

template <class T>
T number(int64_t i) {
  if constexpr (std::is_integral_v<T>) {
    return T(uint64_t(i));
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return T(float(i));
  } else {
    return T(double(i));
  }
}

template <class T>
void run(const void* state, const StepArgs& args, int64_t chunk) {
  const State& s = *static_cast<const State*>(state);
  T* y = args.out<T>(0);
  const int64_t end = std::min(s.elements, (chunk + 1) * kChunk);
  for (int64_t at = chunk * kChunk; at < end;) {
    const int64_t row = at / s.inner, index = row % s.axis_size;
    if (s.inner == 1) {  // counts along the row
      const int64_t stop = std::min(end, at + s.axis_size - index);
      for (int64_t k = at; k < stop; ++k) y[k] = number<T>(index + (k - at));
      at = stop;
    } else {
      const int64_t stop = std::min(end, (row + 1) * s.inner);
      std::fill(y + at, y + stop, number<T>(index));
      at = stop;
    }
  }
}

PreparedKernel prepare(const KernelCall& call) {
  const Dims& dims = call.results[0].dims;
  const auto axis = size_t(call.as<IotaAttrs>().axis);
  const State s{num_elements(dims), dims[axis], num_elements(std::span(dims).subspan(axis + 1))};
  const int64_t chunks = (s.elements + kChunk - 1) / kChunk;
  const double ns = 20 + 0.1 * double(s.elements * size_of(call.results[0].dtype));
  return visit_dtype(call.results[0].dtype,
                     [&]<class T>() { return PreparedKernel::single(s, chunks, run<T>, ns); });
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "iota:any",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare = prepare,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Iota, Cpu) = {kEntries};

}  // namespace rlx::cpu
