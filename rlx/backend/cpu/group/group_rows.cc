#include <algorithm>
#include <array>
#include <utility>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/cpu/group/group_kernels.h"
#include "rlx/backend/cpu/group/group_parts.h"
#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/base/checked.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/leaf.h"
#include "rlx/ops/build.h"
#include "rlx/ops/group.h"
#include "rlx/ops/norm.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/softmax.h"

namespace rlx {

RLX_USE_OP(LayerNorm);
RLX_USE_OP(Reduce);
RLX_USE_OP(RmsNorm);
RLX_USE_OP(Softmax);

namespace cpu {
namespace {

constexpr int64_t kBlockElements = 4096;  // that go through the group together
constexpr int64_t kChunkElements = 16384;
constexpr int64_t kLongSum = 16384;  // Reduce splits longer rows among threads
constexpr size_t kMostTensors = 60;

// A root that works on rows: x [rows, n] to [rows, n], or to [rows] if it reduces.
struct RowRoot {
  int64_t rows = 1, n = 1;
  bool reduces = false;
  Attrs attrs;  // for a matrix of rows
  std::string_view reason;
};

RowRoot refuse(std::string_view why) {
  RowRoot r;
  r.reason = why;
  return r;
}

// The root's axes are those from `axis` on.
RowRoot rows_from(const Dims& dims, size_t axis, Attrs attrs) {
  RowRoot r;
  for (size_t a = 0; a < dims.size(); ++a) (a < axis ? r.rows : r.n) *= dims[a];
  r.attrs = std::move(attrs);
  return r;
}

RowRoot reduce_rows(const Node& root, const Dims& dims) {
  const auto& a = root.attrs.as<ReduceAttrs>();
  const size_t first = dims.size() - a.axes.size();
  for (size_t i = 0; i < a.axes.size(); ++i) {
    if (a.axes[i] != int64_t(first + i)) return refuse("it reduces other axes than the last");
  }
  ReduceAttrs matrix;
  matrix.kind = a.kind;
  matrix.axes = {1};
  RowRoot r = rows_from(dims, first, Attrs::of(root.attrs.table(), std::move(matrix)));
  r.reduces = true;
  if (a.axes.empty()) return refuse("it reduces no axis");
  if (r.n > kLongSum) return refuse("its rows are so long that Reduce splits them among threads");
  return r;
}

RowRoot row_root(const Node& root, const TensorType& x) {
  const Dims dims = x.shape.static_dims();
  if (root.op == &kSoftmaxOp) {
    SoftmaxAttrs a = root.attrs.as<SoftmaxAttrs>();
    if (a.axis != int64_t(dims.size()) - 1) return refuse("its axis is not the last");
    a.axis = 1;
    return rows_from(dims, dims.size() - 1, Attrs::of(root.attrs.table(), a));
  }
  if (root.op == &kLayerNormOp || root.op == &kRmsNormOp) {
    NormAttrs a = root.attrs.as<NormAttrs>();
    if (a.batch_axes != 0) return refuse("its gamma and beta differ by batch");
    const auto axis = size_t(a.axis);
    a.axis = 1;
    return rows_from(dims, axis, Attrs::of(root.attrs.table(), a));
  }
  if (root.op == &kReduceOp) return reduce_rows(root, dims);
  return refuse(kOtherRoot);
}

const Graph& body_of(const KernelCall& call) { return *call.as<GroupAttrs>().body; }

// The type of what the root works on.
const TensorType& x_type(const KernelCall& call, const GroupParts& parts) {
  return body_of(call).type(parts.root->operands[0]);
}

// Reads a 16-bit operand into the rows.
GroupPart widening_part(DType dtype, size_t operand) {
  auto graph = std::make_shared<Graph>("part");
  Builder b(*graph);
  graph->add_output("out0", cast(b, input(b, "in0", dtype, {}), DType::kF32));
  return {std::move(graph), {operand}, {GroupPart::kHanded}};
}

// One way through: some rows. Thread scratch: x, y, gamma, beta, the programs', the root's.
struct RowsState {
  int64_t rows = 0, n = 0, block = 1, blocks_per_chunk = 1;
  bool reduces = false, half = false;
  int64_t element = 4;                     // bytes, wide
  std::vector<PartProgram> before, after;  // none or one
  std::vector<size_t> before_inputs, before_outputs, after_inputs, after_outputs;
  size_t x_operand = GroupPart::kHanded;  // if the root reads it where it lies
  size_t y_result = GroupPart::kHanded;   // if it may write there at once
  std::vector<size_t> affine;             // operands of the root beyond x
  DType affine_dtype = DType::kF32;
  std::array<PreparedKernel, 2> root;  // of a block, and of the last one
  int64_t x_at = 0, y_at = 0, affine_at = 0, affine_bytes = 0, program_at = 0, root_at = 0,
          root_thread_at = 0;
};

std::byte* bytes(void* p, int64_t at = 0) { return static_cast<std::byte*>(p) + at; }

void run_program(const PartProgram& program, const std::vector<size_t>& inputs,
                 const std::vector<size_t>& outputs, const StepArgs& args, void* handed_in,
                 void* handed_out, int64_t row, int64_t rows, int64_t n, void* scratch) {
  std::array<const void*, kMostTensors> in;
  std::array<void*, kMostTensors> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i] = inputs[i] == GroupPart::kHanded ? handed_in : args.operands[inputs[i]];
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    out[i] = outputs[i] == GroupPart::kHanded ? handed_out : args.results[outputs[i]];
  }
  // Single numbers are one row.
  const PartRectangle r =
      n == 1 ? PartRectangle{row, rows, 1, rows, rows} : PartRectangle{row * n, n, rows, n, n};
  program.run({in.data(), out.data()}, r, scratch);
}

// gamma and beta in f32, once a chunk.
void widen_affine(const RowsState& s, const StepArgs& args) {
  for (size_t i = 0; s.half && i < s.affine.size(); ++i) {
    widen_elements(s.affine_dtype, args.operands[s.affine[i]], s.n,
                   bytes(args.thread_scratch, s.affine_at + int64_t(i) * s.affine_bytes));
  }
}

void run_block(const RowsState& s, const StepArgs& args, int64_t row, int64_t count) {
  void* scratch = bytes(args.thread_scratch, s.program_at);
  void* x = bytes(args.thread_scratch, s.x_at);
  if (s.x_operand != GroupPart::kHanded) {
    x = bytes(args.operands[s.x_operand], row * s.n * s.element);
  } else {
    run_program(s.before[0], s.before_inputs, s.before_outputs, args, nullptr, x, row, count, s.n,
                scratch);
  }
  const int64_t width = s.reduces ? 1 : s.n;
  void* y = s.y_result != GroupPart::kHanded
                ? bytes(args.results[s.y_result], row * width * s.element)
                : bytes(args.thread_scratch, s.y_at);
  std::array<void*, 3> operands{x};
  for (size_t i = 0; i < s.affine.size(); ++i) {
    operands[1 + i] = s.half ? bytes(args.thread_scratch, s.affine_at + int64_t(i) * s.affine_bytes)
                             : args.operands[s.affine[i]];
  }
  const StepArgs root{operands.data(), &y, bytes(args.thread_scratch, s.root_at),
                      bytes(args.thread_scratch, s.root_thread_at)};
  const PreparedKernel& k = s.root[count == s.block ? 0 : 1];
  for (const Phase& p : k.phases) {
    for (int64_t c = 0; c < p.chunks; ++c) p.run(k.state.get(), root, c);
  }
  if (s.after.empty()) return;
  run_program(s.after[0], s.after_inputs, s.after_outputs, args, y, nullptr, row, count, width,
              scratch);
}

void run_rows(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const RowsState*>(state);
  const int64_t rows = s.block * s.blocks_per_chunk;
  const int64_t end = std::min((chunk + 1) * rows, s.rows);
  widen_affine(s, args);
  for (int64_t row = chunk * rows; row < end; row += s.block) {
    run_block(s, args, row, std::min(s.block, end - row));
  }
}

PreparedKernel prepare_matrix(const GroupParts& parts, const RowRoot& r, int64_t rows) {
  const DType t = wide_dtype(parts.root->results[0].dtype);
  std::vector<TensorDesc> operands{TensorDesc::dense(t, {rows, r.n})};
  for (size_t i = 1; i < parts.root_operands.size(); ++i) {
    operands.push_back(TensorDesc::dense(t, {r.n}));
  }
  const TensorDesc result = TensorDesc::dense(t, r.reduces ? Dims{rows} : Dims{rows, r.n});
  std::vector<TensorType> types;
  const auto type = [](const TensorDesc& d) {
    return TensorType{d.dtype, Shape(std::span<const int64_t>(d.dims))};
  };
  types.reserve(operands.size());
  for (const TensorDesc& d : operands) types.push_back(type(d));
  const TensorType result_type = type(result);
  std::string reasons;
  const KernelEntry* entry = select_entry(kernel_table(), *parts.root->op, r.attrs, types,
                                          {&result_type, 1}, {}, &reasons);
  if (!entry) internal_error("{}: no kernel for rows: {}", parts.root->op->name, reasons);
  return entry->prepare({*parts.root->op, r.attrs, operands, {&result, 1}, {}, {}});
}

void plan_scratch(RowsState& s, PreparedKernel& k) {
  int64_t end = 0;
  const auto take = [&](int64_t size) {
    const int64_t at = end;
    end = round_up(checked_add(end, size), 64);
    return at;
  };
  const int64_t block = checked_mul(checked_mul(s.block, s.n), s.element);
  s.x_at = take(block);
  s.y_at = take(s.reduces ? s.block * s.element : block);
  s.affine_bytes = round_up(s.n * 4, 64);
  s.affine_at = take(s.half ? checked_mul(s.affine_bytes, int64_t(s.affine.size())) : 0);
  int64_t program = 0;
  for (const PartProgram& p : s.before) program = std::max(program, p.scratch_bytes());
  for (const PartProgram& p : s.after) program = std::max(program, p.scratch_bytes());
  s.program_at = take(program);
  s.root_at = take(std::max(s.root[0].scratch_bytes, s.root[1].scratch_bytes));
  s.root_thread_at = take(std::max(s.root[0].thread_scratch_bytes, s.root[1].thread_scratch_bytes));
  k.thread_scratch_bytes = end;
}

}  // namespace

std::string_view fits_group_rows(const KernelCall& call, size_t direct) {
  const Node& root = *group_root(body_of(call));
  const TensorType& x = body_of(call).type(root.operands[0]);
  const RowRoot r = row_root(root, x);
  if (!r.reason.empty()) return r.reason;
  if (!is_float(x.dtype)) return "only floats";
  size_t leaves = 0;
  for (Value v : root.operands) leaves += is_signature_leaf(body_of(call).node(v));
  if (leaves != direct) return kOtherRoot;
  const auto [parts, reason] = split_group(call);
  if (!reason.empty()) return reason;
  size_t count = 0;
  for (size_t i = 0; i < parts.root_operands.size(); ++i) {
    if (parts.root_operands[i] == GroupPart::kHanded) {
      if (i > 0) return "gamma or beta is computed in the group";
      continue;
    }
    if (parts.root_operands[i] != count) return "the root's operands are not the group's first";
    ++count;
  }
  for (const GroupPart* part : {&parts.before, &parts.after}) {
    if (std::max(part->inputs.size(), part->outputs.size()) > kMostTensors) {
      return "too many operands or results";
    }
  }
  const std::string_view why = part_reason(call, parts.before, x.shape.static_dims());
  if (!why.empty()) return why;
  return part_reason(call, parts.after, parts.root->results[0].shape.static_dims());
}

PreparedKernel prepare_group_rows(const KernelCall& call) {
  const GroupParts parts = split_group(call).parts;
  const TensorType& x = x_type(call, parts);
  const RowRoot r = row_root(*parts.root, x);
  RowsState s;
  s.rows = r.rows;
  s.n = r.n;
  s.reduces = r.reduces;
  s.half = is_half(x.dtype);
  s.affine_dtype = x.dtype;
  s.element = size_of(wide_dtype(x.dtype));
  s.block = std::max<int64_t>(1, std::min(s.rows, kBlockElements / std::max<int64_t>(1, s.n)));
  s.blocks_per_chunk =
      std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, checked_mul(s.block, s.n)));
  if (x.shape.num_elements().value() == 0 && !r.reduces) return {};
  const bool empty = s.rows == 0;
  if (empty) return {};

  double ns = 0;
  const Dims dims = x.shape.static_dims();
  if (parts.before.empty() && !s.half) {
    s.x_operand = parts.root_operands[0];
  } else {
    const GroupPart before =
        parts.before.empty() ? widening_part(x.dtype, parts.root_operands[0]) : parts.before;
    s.before.push_back(part_program(call, before, dims));
    s.before_inputs = before.inputs;
    s.before_outputs = before.outputs;
    ns += s.before[0].nanoseconds_per_element() * double(s.rows) * double(s.n);
  }
  for (size_t i = 1; i < parts.root_operands.size(); ++i) {
    s.affine.push_back(parts.root_operands[i]);
  }
  if (parts.root_result && parts.after.outputs.size() == 1 && !s.half) {
    s.y_result = *parts.root_result;  // nothing comes after
  } else {
    s.after.push_back(part_program(call, parts.after, parts.root->results[0].shape.static_dims()));
    s.after_inputs = parts.after.inputs;
    s.after_outputs = parts.after.outputs;
    ns += s.after[0].nanoseconds_per_element() * double(s.rows) * double(r.reduces ? 1 : s.n);
  }
  s.root[0] = prepare_matrix(parts, r, s.block);
  if (s.rows % s.block != 0) s.root[1] = prepare_matrix(parts, r, s.rows % s.block);
  ns += s.root[0].nanoseconds * double(s.rows) / double(s.block);

  PreparedKernel k;
  k.nanoseconds = ns;
  plan_scratch(s, k);
  k.phases = {{ceil_div(s.rows, s.block * s.blocks_per_chunk), run_rows}};
  k.state = std::make_shared<RowsState>(std::move(s));
  return k;
}

}  // namespace cpu
}  // namespace rlx
