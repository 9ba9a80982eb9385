#include "rlx/compile/view.h"

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Reshape);
RLX_USE_OP(Transpose);
RLX_USE_OP(Expand);
RLX_USE_OP(Narrow);
RLX_USE_OP(StopGradient);

namespace {

// Axes of size 1 get dense strides, so that equal layouts compare equal.
StridedView normalized(StridedView v) {
  if (v.desc.is_dense()) v.desc.strides = dense_strides(v.desc.dims);
  return v;
}

StridedView transposed(const TransposeAttrs& attrs, const StridedView& x) {
  StridedView v = x;
  for (size_t k = 0; k < attrs.perm.size(); ++k) {
    v.desc.dims[k] = x.desc.dims[size_t(attrs.perm[k])];
    v.desc.strides[k] = x.desc.strides[size_t(attrs.perm[k])];
  }
  return v;
}

// New axes and stretched ones repeat: stride 0.
StridedView expanded(const Dims& dims, const StridedView& x) {
  StridedView v{x.offset, {x.desc.dtype, dims, Dims(dims.size(), 0)}};
  const size_t added = dims.size() - x.desc.dims.size();
  for (size_t i = 0; i < x.desc.dims.size(); ++i) {
    if (x.desc.dims[i] == dims[added + i]) v.desc.strides[added + i] = x.desc.strides[i];
  }
  return v;
}

StridedView narrowed(const NarrowAttrs& attrs, const Dims& dims, const StridedView& x) {
  StridedView v = x;
  v.desc.dims = dims;
  if (num_elements(dims) > 0) {
    v.offset =
        checked_add(x.offset, checked_mul(attrs.start.value(), x.desc.strides[size_t(attrs.axis)]));
  }
  return v;
}

}  // namespace

bool is_view_op(const OpDef& op) {
  return &op == &kReshapeOp || &op == &kTransposeOp || &op == &kExpandOp || &op == &kNarrowOp ||
         &op == &kStopGradientOp;
}

std::optional<StridedView> view_of(const Node& call, const StridedView& operand) {
  const Dims dims = call.results[0].shape.static_dims();
  if (call.op == &kStopGradientOp) return operand;
  if (call.op == &kTransposeOp) {
    return normalized(transposed(call.attrs.as<TransposeAttrs>(), operand));
  }
  if (call.op == &kExpandOp) return normalized(expanded(dims, operand));
  if (call.op == &kNarrowOp) {
    return normalized(narrowed(call.attrs.as<NarrowAttrs>(), dims, operand));
  }
  if (call.op == &kReshapeOp) {
    auto strides = reshape_strides(operand.desc.dims, operand.desc.strides, dims);
    if (!strides) return std::nullopt;
    return normalized({operand.offset, {operand.desc.dtype, dims, std::move(*strides)}});
  }
  internal_error("{} is not a view", call.op->name);
}

std::optional<Dims> reshape_strides(std::span<const int64_t> dims, std::span<const int64_t> strides,
                                    std::span<const int64_t> new_dims) {
  if (num_elements(dims) == 0) return dense_strides(new_dims);
  Dims result(new_dims.size(), 0);
  size_t i = 0, j = 0;
  const size_t n = dims.size(), m = new_dims.size();
  while (i < n || j < m) {
    // The shortest runs of old axes [i, ie) and new axes [j, je) with the same number of elements.
    size_t ie = i, je = j;
    int64_t old_count = 1, new_count = 1;
    if (ie < n) old_count = dims[ie++];
    if (je < m) new_count = new_dims[je++];
    while (old_count != new_count) {
      if (old_count < new_count) {
        old_count *= dims[ie++];
      } else {
        new_count *= new_dims[je++];
      }
    }
    // The old run must be one uniform walk through memory; axes of size 1 do not count.
    int64_t step = 0;  // of the innermost axis
    int64_t next = 0;
    bool seen = false;
    for (size_t a = ie; a-- > i;) {
      if (dims[a] == 1) continue;
      if (!seen) {
        step = strides[a];
        seen = true;
      } else if (strides[a] != next) {
        return std::nullopt;
      }
      next = strides[a] * dims[a];
    }
    if (!seen) step = 1;
    for (size_t a = je; a-- > j;) {
      result[a] = step;
      step *= new_dims[a];
    }
    i = ie;
    j = je;
  }
  return result;
}

bool accepts(StrideForm form, const TensorDesc& desc) {
  switch (form) {
    case StrideForm::kAny:
      return true;
    case StrideForm::kRows:
      return desc.dims.empty() || desc.dims.back() <= 1 || desc.strides.back() == 1 ||
             desc.is_dense();
    case StrideForm::kDense:
      return desc.is_dense();
  }
  __builtin_unreachable();
}

std::string_view to_string(StrideForm form) {
  constexpr std::string_view kNames[] = {"dense", "rows", "any"};
  return kNames[size_t(form)];
}

StrideForm operand_form(const KernelEntry& entry, size_t operand) {
  if (entry.operand_forms.empty()) return StrideForm::kDense;
  return entry.operand_forms[std::min(operand, entry.operand_forms.size() - 1)];
}

int64_t extent(const TensorDesc& desc) {
  int64_t last = 0;
  for (size_t i = 0; i < desc.dims.size(); ++i) {
    if (desc.dims[i] == 0) return 0;
    last = checked_add(last, checked_mul(desc.dims[i] - 1, desc.strides[i]));
  }
  return last + 1;
}

std::string to_string(const TensorDesc& desc) {
  std::string text = std::string(to_string(desc.dtype)) + dims_to_string(desc.dims);
  if (!desc.is_dense()) {
    std::string strides = dims_to_string(desc.strides);
    strides.front() = '{';
    strides.back() = '}';
    text += strides;
  }
  return text;
}

}  // namespace rlx
