#include "rlx/backend/cpu/kernels/attention_call.h"

#include <cmath>

#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

HeadStrides head_strides(const TensorDesc& t, AttentionLayout layout) {
  return {t.strides[0], t.strides[size_t(sequence_axis(layout))],
          t.strides[size_t(heads_axis(layout))]};
}

int64_t checked_length(const StepArgs& args, int at, int64_t stride, int64_t batch, int64_t size,
                       std::string_view name) {
  if (at < 0) return size;
  const int64_t length = args.in<int64_t>(size_t(at))[batch * stride];
  if (length < 0 || length > size) user_error("{} is {}, expected 0 to {}", name, length, size);
  return length;
}

int64_t repeated(const TensorDesc& t, size_t axis) {
  return t.dims[axis] == 1 ? 0 : t.strides[axis];
}

}  // namespace

Lengths AttentionProblem::lengths(const StepArgs& args, int64_t batch) const {
  return {checked_length(args, kv_len_at, kv_len_stride, batch, n.keys, "kv_len"),
          checked_length(args, q_len_at, q_len_stride, batch, n.queries, "q_len")};
}

AttentionProblem attention_problem(const KernelCall& call, int inputs) {
  const auto& a = call.as<AttentionAttrs>();
  const TensorDesc &q = call.operands[0], &k = call.operands[1], &v = call.operands[2];
  AttentionProblem p;
  p.dtype = q.dtype;
  p.n = attention_sizes<int64_t>(a.layout, q.dims, k.dims, v.dims);
  p.group = p.n.kv_heads > 0 ? p.n.heads / p.n.kv_heads : 1;
  p.pairs = attention_pairs(a, p.n);
  p.mask = a.mask;
  p.window = std::min(a.window, checked_add(p.n.keys, p.n.queries));
  p.scale = a.scale ? *a.scale : 1 / std::sqrt(double(std::max<int64_t>(p.n.width, 1)));
  p.softcap = a.softcap.value_or(0);
  p.q = head_strides(q, a.layout);
  p.k = head_strides(k, a.layout);
  p.v = head_strides(v, a.layout);
  if (inputs == kAttentionBackwardInputs) {
    p.dy = head_strides(call.operands[3], a.layout);
    p.dq = head_strides(call.results[0], a.layout);
    p.dk = head_strides(call.results[1], a.layout);
    p.dv = head_strides(call.results[2], a.layout);
  } else {
    p.y = head_strides(call.results[0], a.layout);
  }
  const AttentionOperands at(a, inputs);
  p.mask_at = at.mask;
  p.bias_at = at.bias;
  p.kv_len_at = at.kv_len;
  p.q_len_at = at.q_len;
  if (at.mask >= 0) {
    p.mask_batch = call.operands[size_t(at.mask)].strides[0];
    p.mask_key = call.operands[size_t(at.mask)].strides[1];
  }
  if (at.bias >= 0) {
    const TensorDesc& bias = call.operands[size_t(at.bias)];
    p.bias_repeats = p.n.batch / std::max<int64_t>(1, bias.dims[0]);
    p.bias_batch = repeated(bias, 0);
    p.bias_head = repeated(bias, 1);
    p.bias_row = repeated(bias, 2);
    p.bias_key = repeated(bias, 3);
  }
  const auto stride_of = [&](int i) {
    return i < 0 || call.operands[size_t(i)].dims.empty() ? 0 : call.operands[size_t(i)].strides[0];
  };
  p.kv_len_stride = stride_of(at.kv_len);
  p.q_len_stride = stride_of(at.q_len);
  return p;
}

int64_t attention_chunk_rows(const AttentionProblem& p) {
  constexpr int64_t kMostRows = 128, kEnoughChunks = 8;
  const int64_t heads = p.n.batch * p.n.kv_heads;
  return heads * ceil_div(p.rows(), kMostRows) >= kEnoughChunks ? kMostRows : kMostRows / 2;
}

}  // namespace rlx::cpu
