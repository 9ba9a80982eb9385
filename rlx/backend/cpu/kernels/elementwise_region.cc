#include "rlx/ops/elementwise_region.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/elementwise_loop.h"
#include "rlx/backend/cpu/region/program.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

// Elements of one chunk: some microseconds of work even for the cheapest body.
constexpr int64_t kChunk = 16384;
// Results beyond a core's own cache that pass by it.
constexpr int64_t kStreamingBytes = int64_t(1) << 21;
constexpr double kGatherNs = 0.8;  // per element, strided

struct Tensor {
  int64_t size = 0;
  Dims strides;  // bytes, by axis of State::dims
};

// The iteration space: rows along the last axis, all other axes in one count.
struct State {
  RegionProgram program;
  Dims dims;  // collapsed
  std::vector<Tensor> inputs, results;
  int64_t rows = 1, columns = 1;
  int64_t row_chunk = 1, column_chunk = 1;  // of one chunk
  int64_t column_chunks = 1;
};

Tensor describe(const TensorDesc& t, const Dims& dims) {
  Tensor out{size_of(t.dtype), Dims(dims.size(), 0)};
  const size_t shift = dims.size() - t.dims.size();
  for (size_t a = 0; a < t.dims.size(); ++a) {
    if (t.dims[a] != 1) out.strides[a + shift] = t.strides[a] * out.size;
  }
  return out;
}

// Drops axes of size 1 and merges neighbours that every tensor walks in one go.
void collapse(Dims& dims, std::vector<Tensor*> tensors) {
  size_t kept = 0;
  const Dims full = dims;
  for (size_t a = 0; a < full.size(); ++a) {
    if (full[a] == 1) continue;
    const bool merges = kept > 0 && std::all_of(tensors.begin(), tensors.end(), [&](Tensor* t) {
                          return t->strides[kept - 1] == t->strides[a] * full[a];
                        });
    if (!merges) ++kept;
    dims[kept - 1] = merges ? dims[kept - 1] * full[a] : full[a];
    for (Tensor* t : tensors) t->strides[kept - 1] = t->strides[a];
  }
  dims.resize(kept);
  for (Tensor* t : tensors) t->strides.resize(kept);
}

RegionForm form_of(const Tensor& t) {
  const bool repeats = t.strides.empty() || t.strides.back() == 0;
  if (!repeats) return RegionForm::kColumns;
  const bool single =
      std::all_of(t.strides.begin(), t.strides.end(), [](int64_t s) { return s == 0; });
  return single ? RegionForm::kSingle : RegionForm::kRow;
}

int64_t offset_of(const Tensor& t, const Dims& dims, int64_t row) {
  int64_t offset = 0;
  for (size_t a = dims.size(); a-- > 1;) {
    offset += row % dims[a - 1] * t.strides[a - 1];
    row /= dims[a - 1];
  }
  return offset;
}

// Rows [begin, end), which lie within one step of the axes before the last two.
void run_rows(const State& s, const StepArgs& args, int64_t begin, int64_t end, int64_t column,
              int64_t columns) {
  RegionRows in[kMaxRegionTensors], out[kMaxRegionTensors];
  const auto place = [&](const Tensor& t, void* base) -> RegionRows {
    if (!base) return {};
    const size_t n = s.dims.size();
    const int64_t row_stride = n > 1 ? t.strides[n - 2] : 0;
    const int64_t stride = n > 0 ? t.strides[n - 1] : 0;
    return {static_cast<std::byte*>(base) + offset_of(t, s.dims, begin) + column * stride,
            row_stride, stride};
  };
  for (size_t i = 0; i < s.inputs.size(); ++i) in[i] = place(s.inputs[i], args.operands[i]);
  for (size_t i = 0; i < s.results.size(); ++i) out[i] = place(s.results[i], args.results[i]);
  s.program.run({in, s.inputs.size()}, {out, s.results.size()}, columns, end - begin,
                args.thread_scratch);
}

void run_chunk(const void* state, const StepArgs& args, int64_t chunk) {
  const State& s = *static_cast<const State*>(state);
  const int64_t column = chunk % s.column_chunks * s.column_chunk;
  const int64_t columns = std::min(s.column_chunk, s.columns - column);
  const int64_t first = chunk / s.column_chunks * s.row_chunk;
  const int64_t last = std::min(first + s.row_chunk, s.rows);
  const int64_t block = s.dims.size() > 1 ? s.dims[s.dims.size() - 2] : 1;
  for (int64_t row = first; row < last;) {
    const int64_t end = std::min(last, (row / block + 1) * block);
    run_rows(s, args, row, end, column, columns);
    row = end;
  }
}

PreparedKernel prepare(const KernelCall& call) {
  const auto& a = call.as<ElementwiseRegionAttrs>();
  Dims dims = call.results[0].dims;
  std::vector<Tensor> inputs, results;
  for (const TensorDesc& t : call.operands) inputs.push_back(describe(t, dims));
  for (const TensorDesc& t : call.results) results.push_back(describe(t, dims));
  std::vector<Tensor*> all;
  all.reserve(inputs.size() + results.size());
  for (Tensor& t : inputs) all.push_back(&t);
  for (Tensor& t : results) all.push_back(&t);
  const int64_t elements = num_elements(dims);
  if (elements > 0) collapse(dims, all);

  RegionOptions options;
  options.strict = a.strict_rounding;
  options.streaming = elements * results[0].size > kStreamingBytes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    options.inputs.push_back({form_of(inputs[i]), call.operands[i].dtype});
  }
  State s{RegionProgram::compile(*a.body, options), dims, inputs, results};
  s.columns = dims.empty() ? 1 : dims.back();
  s.rows = s.columns > 0 ? elements / s.columns : 0;
  s.column_chunk = s.columns > 2 * kChunk ? kChunk : std::max<int64_t>(s.columns, 1);
  s.row_chunk = std::max<int64_t>(1, kChunk / s.column_chunk);
  s.column_chunks = (s.columns + s.column_chunk - 1) / s.column_chunk;
  const int64_t chunks = (s.rows + s.row_chunk - 1) / s.row_chunk * s.column_chunks;
  const double ns = 40 + double(elements) * s.program.nanoseconds_per_element();
  const int64_t scratch = s.program.scratch_bytes();
  PreparedKernel k = PreparedKernel::single(std::move(s), chunks, run_chunk, ns);
  k.thread_scratch_bytes = scratch;
  return k;
}

// Only strides along the rows that are not an element's cost anything.
double stride_cost(const KernelCall& call, size_t operand) {
  Dims dims = call.results[0].dims;
  Tensor t = describe(call.operands[operand], dims);
  const int64_t elements = num_elements(dims);
  collapse(dims, {&t});
  const bool strided = !t.strides.empty() && t.strides.back() != 0 && t.strides.back() != t.size;
  return strided ? double(elements) * kGatherNs : 0;
}

constexpr KernelEntry kEntries[] = {
    {
        .name = "elementwise_region:stages",
        .fits =
            [](const KernelCall& c) {
              return RegionProgram::refuses(*c.as<ElementwiseRegionAttrs>().body);
            },
        .prepare = prepare,
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = stride_cost,
        .in_place = ~uint32_t(0),
        .vector = true,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(ElementwiseRegion, Cpu) = {kEntries};

}  // namespace rlx::cpu
