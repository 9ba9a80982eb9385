#include <algorithm>
#include <array>
#include <utility>

#include "rlx/backend/cpu/group/group_kernels.h"
#include "rlx/backend/cpu/group/group_parts.h"
#include "rlx/backend/cpu/group/product_store.h"
#include "rlx/backend/cpu/kernels/conv_call.h"
#include "rlx/backend/cpu/kernels/product.h"
#include "rlx/base/checked.h"
#include "rlx/compile/epilogue.h"
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

// A hard-wired finish. Places are those among the operands of the root's step.
struct StoreState {
  ProductStoreFn store;
  std::optional<size_t> bias, residual, before;
  size_t result;
  int64_t columns;
};

void run_store(const void* state, const StepArgs& args, const FinishedPiece& p, void* /*scratch*/) {
  const auto& s = *static_cast<const StoreState*>(state);
  ProductStore t;
  t.sums = static_cast<const float*>(p.sums);
  if (s.bias) t.bias = args.in<float>(*s.bias) + p.flat % s.columns;
  if (s.residual) t.residual = args.in<float>(*s.residual) + p.flat;
  if (s.before) t.before = static_cast<float*>(args.operands[*s.before]) + p.flat;
  t.result = static_cast<float*>(args.operands[s.result]) + p.flat;
  t.sums_step = p.sums_step;
  t.step = p.flat_step;
  t.rows = p.rows;
  t.columns = p.columns;
  s.store(t);
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

ProductAxes axes_of(const KernelCall& root) {
  const auto axes = &root.op == &kMatMulOp ? matmul_axes : dot_general_axes;
  return axes(root.attrs, root.operands[0], root.operands[1], root.results[0]);
}

// The end of the product that product_store knows; none if the part after the root is another, or
// its operands lie otherwise in memory.
std::optional<ProductEpilogue> stored_epilogue(const KernelCall& call, const KernelCall& root) {
  auto e = product_epilogue(*call.as<GroupAttrs>().body);
  const Dims& dims = root.results[0].dims;
  if (!e || !call.used(e->result) || root.results[0].num_elements() == 0) return std::nullopt;
  if (e->bias && call.operands[*e->bias].strides.back() != 1) return std::nullopt;
  if (e->residual && !call.operands[*e->residual].is_dense()) return std::nullopt;
  // Columns of the product are those of the result.
  const Product p = make_product(axes_of(root));
  if (dims.back() < 2 || p.column.size != dims.back() || p.column.c != 1) return std::nullopt;
  if (e->before && !call.used(*e->before)) e->before.reset();
  return e;
}

double store_nanoseconds(const ProductEpilogue& e) {
  const bool gelu = e.activation && *e.activation != ActivationKind::kRelu;
  return gelu ? 0.5 : 0.05;  // for one element
}

// Sets what the root's step gets of the group, and the finish that works on it.
Finish store_finish(const ProductEpilogue& e, int64_t columns, ProductState& s) {
  StoreState store{product_store(e.activation, e.bias.has_value(), e.residual.has_value()),
                   {},
                   {},
                   {},
                   0,
                   columns};
  const auto add_input = [&](const std::optional<size_t>& from, std::optional<size_t>& to) {
    if (!from) return;
    to = kRootOperands + s.inputs.size();
    s.inputs.push_back(*from);
  };
  add_input(e.bias, store.bias);
  add_input(e.residual, store.residual);
  store.result = kRootOperands + s.inputs.size();
  s.outputs.push_back(e.result);
  if (e.before) {
    store.before = store.result + 1;
    s.outputs.push_back(*e.before);
  }
  Finish finish;
  finish.run = run_store;
  finish.state = std::make_shared<StoreState>(store);
  finish.nanoseconds_per_element = store_nanoseconds(e);
  finish.by_tiles = true;
  return finish;
}

// The finish by a program; `c_result` as in ProductState.
Finish program_finish(const KernelCall& call, const GroupParts& parts, const Dims& dims,
                      size_t c_result, ProductState& s) {
  s.inputs = parts.after.inputs;
  s.outputs = parts.after.outputs;
  // The output that lies where the product is summed.
  const auto over = std::find(s.outputs.begin(), s.outputs.end(), c_result);
  PartProgram program = part_program(
      call, parts.after, dims, over == s.outputs.end() ? 0 : size_t(over - s.outputs.begin()));
  Finish finish;
  finish.run = run_finish;
  finish.thread_scratch_bytes = program.scratch_bytes();
  finish.nanoseconds_per_element = program.nanoseconds_per_element();
  const auto handed = std::find(s.inputs.begin(), s.inputs.end(), GroupPart::kHanded);
  finish.state = std::make_shared<FinishState>(
      FinishState{std::move(program), s.inputs.size(), size_t(handed - s.inputs.begin())});
  return finish;
}

PreparedKernel prepare_root(const KernelCall& root, Finish finish) {
  if (&root.op == &kConvOp) return prepare_conv(root, std::move(finish));
  if (is_half(root.results[0].dtype)) {
    const auto axes = &root.op == &kMatMulOp ? matmul_axes : dot_general_axes;
    return prepare_product_half(root, axes, std::move(finish));
  }
  return prepare_product_gemm(root, make_product(axes_of(root)), std::move(finish));
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
  const size_t c_result = result_of_product(call, parts);
  const auto stored = stored_epilogue(call, root.call);
  s.root =
      prepare_root(root.call, stored ? store_finish(*stored, root.result.dims.back(), s)
                                     : program_finish(call, parts, root.result.dims, c_result, s));
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
