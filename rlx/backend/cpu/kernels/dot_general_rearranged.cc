#include "rlx/backend/cpu/kernels/dot_general_rearranged.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rlx/backend/cpu/kernels/strided_copy.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/ops/dot_general.h"

namespace rlx::cpu {
namespace {

using Axes = std::vector<int64_t>;

// Axes of a tensor that neither list names, ascending.
Axes free_axes(size_t rank, const Axes& batch, const Axes& contracting) {
  Axes free;
  for (int64_t a = 0; a < int64_t(rank); ++a) {
    if (std::find(batch.begin(), batch.end(), a) == batch.end() &&
        std::find(contracting.begin(), contracting.end(), a) == contracting.end()) {
      free.push_back(a);
    }
  }
  return free;
}

Axes joined(std::initializer_list<const Axes*> lists) {
  Axes all;
  for (const Axes* l : lists) all.insert(all.end(), l->begin(), l->end());
  return all;
}

Axes range(size_t begin, size_t count) {
  Axes r;
  for (size_t i = 0; i < count; ++i) r.push_back(int64_t(begin + i));
  return r;
}

struct Rearranged {
  TensorDesc desc;  // dense
  StridedCopy copy;
};

Rearranged rearrange(const TensorDesc& t, const Axes& order) {
  Dims dims, from;
  for (int64_t a : order) {
    dims.push_back(t.dims[size_t(a)]);
    from.push_back(t.strides[size_t(a)]);
  }
  TensorDesc desc = TensorDesc::dense(t.dtype, dims);
  StridedCopy copy(size_of(t.dtype), dims, from, desc.strides);
  return {std::move(desc), std::move(copy)};
}

// Scratch: A, then B, then that of the product.
struct State {
  StridedCopy a, b;
  int64_t b_at, product_at;  // bytes
  PreparedKernel product;
};

char* scratch_at(const StepArgs& args, int64_t bytes) {
  return static_cast<char*>(args.scratch) + bytes;
}

void run_copies(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  if (chunk < s.a.chunks()) {
    s.a.run(chunk, args.operands[0], scratch_at(args, 0));
  } else {
    s.b.run(chunk - s.a.chunks(), args.operands[1], scratch_at(args, s.b_at));
  }
}

template <int P>
void run_product(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  void* const operands[] = {scratch_at(args, 0), scratch_at(args, s.b_at)};
  StepArgs inner = args;
  inner.operands = operands;
  inner.scratch = scratch_at(args, s.product_at);
  s.product.phases[P].run(s.product.state.get(), inner, chunk);
}

// A step's function does not learn its phase, so each phase has a function of its own.
constexpr int kMostPhases = 32;
using PhaseFn = void (*)(const void*, const StepArgs&, int64_t);
template <int... P>
constexpr std::array<PhaseFn, sizeof...(P)> product_phases(std::integer_sequence<int, P...>) {
  return {run_product<P>...};
}
constexpr auto kProductPhases = product_phases(std::make_integer_sequence<int, kMostPhases>());

}  // namespace

PreparedKernel prepare_rearranged(const KernelCall& call,
                                  PreparedKernel (*product)(const KernelCall& call)) {
  const auto& d = call.as<DotGeneralAttrs>();
  const TensorDesc &lhs = call.operands[0], &rhs = call.operands[1];
  const Axes rows = free_axes(lhs.dims.size(), d.lhs_batch, d.lhs_contracting);
  const Axes columns = free_axes(rhs.dims.size(), d.rhs_batch, d.rhs_contracting);
  Rearranged a = rearrange(lhs, joined({&d.lhs_batch, &rows, &d.lhs_contracting}));
  Rearranged b = rearrange(rhs, joined({&d.rhs_batch, &d.rhs_contracting, &columns}));

  const size_t batch = d.lhs_batch.size(), inner = d.lhs_contracting.size();
  DotGeneralAttrs attrs;
  attrs.lhs_batch = attrs.rhs_batch = range(0, batch);
  attrs.lhs_contracting = range(batch + rows.size(), inner);
  attrs.rhs_contracting = range(batch, inner);
  const TensorDesc operands[] = {a.desc, b.desc};
  const Attrs inner_attrs = Attrs::of(call.attrs.table(), std::move(attrs));
  PreparedKernel k = product({call.op, inner_attrs, operands, call.results, call.result_used, {}});
  if (k.phases.empty()) return k;  // an empty result
  if (k.phases.size() > kMostPhases) internal_error("a product of {} phases", k.phases.size());

  const auto bytes = [](const TensorDesc& t) {
    return round_up(checked_mul(t.num_elements(), size_of(t.dtype)), 64);
  };
  PreparedKernel result;
  const int64_t b_at = bytes(a.desc), product_at = checked_add(b_at, bytes(b.desc));
  result.scratch_bytes = checked_add(product_at, k.scratch_bytes);
  result.thread_scratch_bytes = k.thread_scratch_bytes;
  result.nanoseconds = k.nanoseconds + a.copy.nanoseconds() + b.copy.nanoseconds();
  result.phases.push_back({a.copy.chunks() + b.copy.chunks(), run_copies});
  for (size_t p = 0; p < k.phases.size(); ++p) {
    result.phases.push_back({k.phases[p].chunks, kProductPhases[p]});
  }
  result.state = std::make_shared<State>(
      State{std::move(a.copy), std::move(b.copy), b_at, product_at, std::move(k)});
  return result;
}

}  // namespace rlx::cpu
