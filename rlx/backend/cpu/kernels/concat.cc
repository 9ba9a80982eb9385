#include <algorithm>
#include <vector>

#include "rlx/backend/cpu/kernels/packed_view.h"
#include "rlx/backend/cpu/kernels/strided_copy.h"
#include "rlx/compile/kernel.h"
#include "rlx/ops/shape_ops.h"

namespace rlx::cpu {
namespace {

// Parts one after the other; a chunk belongs to one part.
struct State {
  struct Part {
    StridedCopy copy;
    int64_t offset_bytes;  // in the result
    int64_t first_chunk;
  };
  std::vector<Part> parts;
};

void run_concat(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& parts = static_cast<const State*>(state)->parts;
  // The last part that starts at or before the chunk: empty parts start where the next one does.
  const auto next =
      std::upper_bound(parts.begin(), parts.end(), chunk,
                       [](int64_t c, const State::Part& p) { return c < p.first_chunk; });
  const size_t i = size_t(next - parts.begin()) - 1;
  parts[i].copy.run(chunk - parts[i].first_chunk, args.operands[i],
                    static_cast<char*>(args.results[0]) + parts[i].offset_bytes);
}

PreparedKernel prepare_concat(const KernelCall& call) {
  const size_t axis = size_t(call.as<ConcatAttrs>().axis);
  const TensorDesc& y = call.results[0];
  State state;
  int64_t chunks = 0, offset = 0;
  double nanoseconds = 0;
  for (const TensorDesc& x : call.operands) {
    StridedCopy copy = copy_between(x, y.strides);
    nanoseconds += copy.nanoseconds();
    const int64_t first = chunks;
    chunks += copy.chunks();
    state.parts.push_back({std::move(copy), bytes_of(y.dtype, offset * y.strides[axis]), first});
    offset += x.dims[axis];
  }
  return PreparedKernel::single(std::move(state), chunks, run_concat, nanoseconds);
}

constexpr StrideForm kForms[] = {StrideForm::kAny};
constexpr KernelEntry kEntries[] = {{
    .name = "concat:strided",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare_concat,
    .operand_forms = kForms,
    .result_form = StrideForm::kAny,
    .vector = true,
}};

}  // namespace

RLX_DEFINE_KERNELS(Concat, Cpu) = {kEntries};

}  // namespace rlx::cpu
