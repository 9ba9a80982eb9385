#include <algorithm>
#include <array>
#include <utility>

#include "rlx/backend/cpu/group/group_kernels.h"
#include "rlx/backend/cpu/group/group_parts.h"
#include "rlx/backend/cpu/kernels/conv_call.h"
#include "rlx/backend/cpu/kernels/product.h"
#include "rlx/base/checked.h"
#include "rlx/ops/group.h"

namespace rlx {

RLX_USE_OP(Conv);
RLX_USE_OP(DotGeneral);
RLX_USE_OP(MatMul);

namespace cpu {
namespace {

constexpr size_t kMostTensors = 60;  // of the part after the root

TensorDesc result_desc(const Node& root) { return TensorDesc::dense(root.results[0]); }

// The root as a call of its own, on the first operands of the group.
struct RootCall {
  const GroupParts& parts;
  TensorDesc result;
  KernelCall call;
  RootCall(const KernelCall& group, const GroupParts& p)
      : parts(p),
        result(result_desc(*p.root)),
        call{*p.root->op,
             p.root->attrs,
             group.operands.first(p.root->operands.size()),
             {&result, 1},
             {},
             group.frozen.empty() ? group.frozen : group.frozen.first(p.root->operands.size())} {}
};

std::string_view product_reason(const KernelCall& root) {
  const DType t = root.results[0].dtype;
  if (!is_gemm_dtype(t) && !is_half(t)) return "only floats";
  if (&root.op == &kConvOp) {
    return is_half(t) && is_depthwise(root) ? "a depthwise convolution in 16 bits" : "";
  }
  if (&root.op == &kMatMulOp) return {};
  const ProductAxes axes =
      dot_general_axes(root.attrs, root.operands[0], root.operands[1], root.results[0]);
  return inner_joins(axes) ? "" : "the contracted axes are not one in memory";
}

// The finish: a program on the pieces. The operands of the root's step are its own two, then the
// inputs of the part, then its outputs.
struct FinishState {
  PartProgram program;
  size_t inputs;
  size_t handed;  // which input is the product; inputs if none
};

constexpr size_t kRootOperands = 2;

void run_finish(const void* state, const StepArgs& args, const FinishedPiece& p, void* scratch) {
  const auto& s = *static_cast<const FinishState*>(state);
  std::array<const void*, kMostTensors> inputs;
  std::copy_n(args.operands + kRootOperands, s.inputs, inputs.begin());
  if (s.handed < s.inputs) inputs[s.handed] = p.sums;
  s.program.run({inputs.data(), args.operands + kRootOperands + s.inputs},
                {p.flat, p.flat_step, p.rows, p.columns, p.sums_step}, scratch);
}

struct ProductState {
  PreparedKernel root;
  std::vector<size_t> inputs, outputs;   // operands (kHanded: none) and results of the group
  size_t c_result = GroupPart::kHanded;  // the result whose memory holds the product
  int64_t c_at = 0;                      // in the scratch, if none
};

template <int P>
void run_phase(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const ProductState*>(state);
  std::array<void*, kRootOperands + kMostTensors> operands;
  size_t at = 0;
  for (size_t i = 0; i < kRootOperands; ++i) operands[at++] = args.operands[i];
  for (size_t i : s.inputs) {
    operands[at++] = i == GroupPart::kHanded ? nullptr : args.operands[i];
  }
  for (size_t i : s.outputs) operands[at++] = args.results[i];
  void* c = s.c_result != GroupPart::kHanded ? args.results[s.c_result]
                                             : static_cast<char*>(args.scratch) + s.c_at;
  const StepArgs root{operands.data(), &c, args.scratch, args.thread_scratch};
  s.root.phases[P].run(s.root.state.get(), root, chunk);
}

using PhaseFn = void (*)(const void*, const StepArgs&, int64_t);
constexpr int kMostPhases = 18;

template <int... P>
constexpr std::array<PhaseFn, sizeof...(P)> phase_functions(std::integer_sequence<int, P...>) {
  return {run_phase<P>...};
}
constexpr auto kPhases = phase_functions(std::make_integer_sequence<int, kMostPhases>());

// f32 and f64 are summed where a result will stand: which one, or kHanded if none is of that type.
size_t result_of_product(const KernelCall& call, const GroupParts& parts) {
  const DType t = parts.root->results[0].dtype;
  if (is_half(t)) return GroupPart::kHanded;  // in f32 in the kernel's scratch
  if (parts.root_result) return *parts.root_result;
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (call.used(i) && call.results[i].dtype == t) return i;
  }
  return GroupPart::kHanded;
}

PreparedKernel prepare_root(const KernelCall& root, Finish finish) {
  if (&root.op == &kConvOp) return prepare_conv(root, std::move(finish));
  const auto axes_of = &root.op == &kMatMulOp ? matmul_axes : dot_general_axes;
  if (is_half(root.results[0].dtype)) {
    return prepare_product_half(root, axes_of, std::move(finish));
  }
  const TensorDesc &a = root.operands[0], &b = root.operands[1], &c = root.results[0];
  return prepare_product_gemm(root, make_product(axes_of(root.attrs, a, b, c)), std::move(finish));
}

}  // namespace

std::string_view fits_group_product(const KernelCall& call, const OpDef& root_op) {
  const Node* root_node = group_root(*call.as<GroupAttrs>().body);
  if (root_node->op != &root_op) return kOtherRoot;
  const auto [parts, reason] = split_group(call);
  if (!reason.empty()) return reason;
  if (!parts.before.empty()) return "a product reads its operands from memory";
  for (size_t i = 0; i < kRootOperands; ++i) {
    if (parts.root_operands[i] != i) return "the root's operands are not the group's first";
  }
  // A frozen one is packed for the product, and not there in its own form.
  if (std::count(parts.after.inputs.begin(), parts.after.inputs.end(), 1u) > 0) {
    return "the calls after the root read its right operand";
  }
  if (parts.after.inputs.size() + parts.after.outputs.size() > kMostTensors) {
    return "too many operands and results";
  }
  const RootCall root(call, parts);
  if (const std::string_view why = product_reason(root.call); !why.empty()) return why;
  return part_reason(call, parts.after, root.result.dims);
}

PreparedKernel prepare_group_product(const KernelCall& call) {
  const GroupParts parts = split_group(call).parts;
  const RootCall root(call, parts);
  ProductState s;
  s.inputs = parts.after.inputs;
  s.outputs = parts.after.outputs;
  // The output that lies where the product is summed.
  const size_t c_result = result_of_product(call, parts);
  const auto over = std::find(s.outputs.begin(), s.outputs.end(), c_result);
  PartProgram program =
      part_program(call, parts.after, root.result.dims,
                   over == s.outputs.end() ? 0 : size_t(over - s.outputs.begin()));
  Finish finish;
  finish.run = run_finish;
  finish.thread_scratch_bytes = program.scratch_bytes();
  finish.nanoseconds_per_element = program.nanoseconds_per_element();
  const auto handed = std::find(s.inputs.begin(), s.inputs.end(), GroupPart::kHanded);
  finish.state = std::make_shared<FinishState>(
      FinishState{std::move(program), s.inputs.size(), size_t(handed - s.inputs.begin())});

  s.root = prepare_root(root.call, std::move(finish));
  PreparedKernel k;
  k.scratch_bytes = s.root.scratch_bytes;
  k.thread_scratch_bytes = s.root.thread_scratch_bytes;
  k.nanoseconds = s.root.nanoseconds;
  k.packings = std::move(s.root.packings);  // the operands have the same places
  s.c_result = c_result;
  if (c_result == GroupPart::kHanded && !is_half(root.result.dtype)) {
    s.c_at = round_up(k.scratch_bytes, 64);
    k.scratch_bytes =
        checked_add(s.c_at, checked_mul(root.result.num_elements(), size_of(root.result.dtype)));
  }
  for (size_t p = 0; p < s.root.phases.size(); ++p) {
    k.phases.push_back({s.root.phases[p].chunks, kPhases[p]});
  }
  k.state = std::make_shared<ProductState>(std::move(s));
  return k;
}

}  // namespace cpu
}  // namespace rlx
