#include "rlx/ops/dynamic_slice.h"

#include "rlx/backend/cpu/kernels/update_slice.h"
#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

void refuse(const WindowPlaces::Axis& a, int64_t start) {
  user_error("a window of size {} at {} is not within axis {} of size {}", a.window, start, a.axis,
             a.size);
}

struct State {
  WindowPlaces places;
  StridedCopy window;  // of one batch
  int64_t element_bytes = 1;
  int64_t window_bytes = 0;
};

void run_slice(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const int64_t batch = chunk / s.window.chunks(), part = chunk % s.window.chunks();
  const int64_t first = s.places.first(args.in<int64_t>(1), batch);
  s.window.run(part, args.in<char>(0) + first * s.element_bytes,
               args.out<char>(0) + batch * s.window_bytes);
}

// Windows without elements have places too.
void check_slice(const void* state, const StepArgs& args, int64_t) {
  static_cast<const State*>(state)->places.check_all(args.in<int64_t>(1));
}

PreparedKernel prepare_slice(const KernelCall& call) {
  const auto& a = call.as<DynamicSliceAttrs>();
  const TensorDesc &x = call.operands[0], &y = call.results[0];
  const auto lead = size_t(a.batch_dims);
  const std::span<const int64_t> window = std::span(y.dims).subspan(lead);
  const Dims from = dense_strides(x.dims);
  const int64_t bytes = size_of(x.dtype);
  State s{
      .places = WindowPlaces(x.dims, y.dims, a.axes, a.batch_dims),
      .window = StridedCopy(bytes, window, std::span(from).subspan(lead), dense_strides(window)),
      .element_bytes = bytes};
  s.places.refuse = refuse;
  s.window_bytes = num_elements(window) * bytes;
  const int64_t chunks = s.places.batches * s.window.chunks();
  const double ns = double(s.places.batches) * (20 + s.window.nanoseconds());
  if (chunks == 0) return PreparedKernel::single(std::move(s), 1, check_slice, ns);
  return PreparedKernel::single(std::move(s), chunks, run_slice, ns);
}

PreparedKernel prepare_update(const KernelCall& call) {
  const auto& a = call.as<DynamicUpdateSliceAttrs>();
  WindowPlaces places(call.operands[0].dims, call.operands[1].dims, a.axes, a.batch_dims);
  places.refuse = refuse;
  return prepare_update_slice(call, std::move(places), a.batch_dims);
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kSlice[] = {
    {.name = "dynamic_slice:copy", .fits = fits, .prepare = prepare_slice, .vector = true}};
constexpr KernelEntry kUpdate[] = {{.name = "dynamic_update_slice:copy",
                                    .fits = fits,
                                    .prepare = prepare_update,
                                    .in_place = 1,
                                    .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(DynamicSlice, Cpu) = {kSlice};
RLX_DEFINE_KERNELS(DynamicUpdateSlice, Cpu) = {kUpdate};

}  // namespace rlx::cpu
