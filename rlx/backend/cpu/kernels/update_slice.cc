#include "rlx/backend/cpu/kernels/update_slice.h"

#include <algorithm>
#include <cstring>

#include "rlx/base/checked.h"

namespace rlx::cpu {

WindowPlaces::WindowPlaces(const Dims& dims, const Dims& window, std::span<const int64_t> axes,
                           int64_t batch_dims) {
  const Dims strides = dense_strides(dims);
  for (const int64_t a : axes) {
    const auto i = size_t(a);
    this->axes.push_back({a, dims[i], window[i], strides[i]});
  }
  batches = num_elements(std::span(dims).first(size_t(batch_dims)));
  batch_stride = num_elements(std::span(dims).subspan(size_t(batch_dims)));
}

int64_t WindowPlaces::first(const int64_t* starts, int64_t batch) const {
  int64_t at = batch * batch_stride;
  starts += batch * int64_t(axes.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    if (starts[k] < 0 || starts[k] > axes[k].size - axes[k].window) refuse(axes[k], starts[k]);
    at += starts[k] * axes[k].stride;
  }
  return at;
}

void WindowPlaces::check_all(const int64_t* starts) const {
  for (int64_t b = 0; b < batches; ++b) first(starts, b);
}

namespace {

constexpr int64_t kChunkBytes = 64 << 10;
// However large the target: where it is updated in place, all that these chunks do is to check.
constexpr int64_t kMostChunks = 64;

struct State {
  WindowPlaces places;
  StridedCopy window;  // of one batch
  int64_t element_bytes = 1;
  int64_t target_bytes = 0, bytes_per_chunk = 1;
  int64_t update_stride = 0;  // bytes between the batches of the update
};

void run_target(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  s.places.check_all(args.in<int64_t>(2));
  if (args.operands[0] == args.results[0]) return;
  const int64_t begin = chunk * s.bytes_per_chunk;
  const int64_t end = std::min(begin + s.bytes_per_chunk, s.target_bytes);
  if (begin < end) {
    std::memcpy(args.out<char>(0) + begin, args.in<char>(0) + begin, size_t(end - begin));
  }
}

void run_window(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const int64_t batch = chunk / s.window.chunks(), part = chunk % s.window.chunks();
  const int64_t first = s.places.first(args.in<int64_t>(2), batch);
  s.window.run(part, args.in<char>(1) + batch * s.update_stride,
               args.out<char>(0) + first * s.element_bytes);
}

}  // namespace

PreparedKernel prepare_update_slice(const KernelCall& call, WindowPlaces places,
                                    int64_t batch_dims) {
  const TensorDesc &target = call.operands[0], &update = call.operands[1];
  const auto lead = size_t(batch_dims);
  const std::span<const int64_t> window = std::span(update.dims).subspan(lead);
  const Dims to = dense_strides(target.dims);
  const int64_t bytes = size_of(target.dtype);
  State s{.places = std::move(places),
          .window = StridedCopy(bytes, window, dense_strides(window), std::span(to).subspan(lead)),
          .element_bytes = bytes};
  s.target_bytes = bytes * target.num_elements();
  // A chunk of the target copies more than it checks.
  const int64_t starts =
      s.places.batches * int64_t(s.places.axes.size()) * int64_t(sizeof(int64_t));
  s.bytes_per_chunk = std::max({kChunkBytes, ceil_div(s.target_bytes, kMostChunks), starts});
  s.update_stride = num_elements(window) * bytes;
  const int64_t copies = std::max<int64_t>(1, ceil_div(s.target_bytes, s.bytes_per_chunk));
  const int64_t windows = s.places.batches * s.window.chunks();
  PreparedKernel k;
  // As in place, the usual case (caches): an estimate with the whole target would call in other
  // threads for a few rows.
  k.nanoseconds = 30 + double(s.places.batches) * (20 + s.window.nanoseconds());
  k.phases = {{copies, run_target}, {windows, run_window}};
  k.state = std::make_shared<const State>(std::move(s));
  return k;
}

}  // namespace rlx::cpu
