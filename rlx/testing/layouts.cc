#include "rlx/testing/layouts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"

namespace rlx {

RLX_USE_OP(Copy);

namespace {

constexpr int64_t kBefore = 1, kAfter = 2;  // elements around a slice

// Axes that views may move or cut: not the last one of packed dtypes.
int64_t free_axes(const Array& a) { return a.rank() - is_packed(a.dtype()); }

// `a` with its axes in another order, dense.
Array reversed_axes(const Array& a) {
  const Array d = a.dense();
  Dims shape = d.shape(), strides = d.strides();
  std::reverse(shape.begin(), shape.begin() + free_axes(a));
  std::reverse(strides.begin(), strides.begin() + free_axes(a));
  return Array::borrow(d.dtype(), const_cast<void*>(d.raw()), shape, strides,
                       std::make_shared<Array>(d), false)
      .copy();
}

Array surrounded(const Array& a) {
  Dims shape = a.shape();
  for (int64_t i = 0; i < free_axes(a); ++i) shape[size_t(i)] += kBefore + kAfter;
  Array outer = is_packed(a.dtype())
                    ? Array::uninitialized(a.dtype(), shape)
                    : Array::full(a.dtype(), shape, is_integer(a.dtype()) ? 1e30 : std::nan(""));
  char* data = static_cast<char*>(outer.mutable_raw());
  if (is_packed(a.dtype())) std::memset(data, 0x7E, size_t(outer.byte_size()));  // scales are NaN
  int64_t offset = 0;
  for (int64_t i = 0; a.num_elements() > 0 && i < free_axes(a); ++i) {
    offset += kBefore * outer.strides()[size_t(i)];
  }
  Array middle = Array::borrow(a.dtype(), data + bytes_of(a.dtype(), offset), a.shape(),
                               outer.strides(), std::make_shared<Array>(outer));
  middle.copy_from(a);
  return outer;
}

struct Part {
  Value value;
  Array input, operand;
};

Part transposed(Builder& b, const std::string& name, const Array& a) {
  const Array stored = reversed_axes(a);
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < a.rank(); ++i) perm.push_back(i);
  std::reverse(perm.begin(), perm.begin() + free_axes(a));
  const Value in = input(b, name, a.dtype(), stored.type().shape);
  return {transpose(b, in, perm), stored, a};
}

Part sliced(Builder& b, const std::string& name, const Array& a) {
  const Array stored = surrounded(a);
  Value v = input(b, name, a.dtype(), stored.type().shape);
  for (int64_t axis = 0; axis < free_axes(a); ++axis) {
    v = narrow(b, v, axis, kBefore, a.shape()[size_t(axis)]);
  }
  return {v, stored, a};
}

Part broadcasted(Builder& b, const std::string& name, const Array& a) {
  const auto axis = std::find_if(a.shape().begin(), a.shape().begin() + free_axes(a),
                                 [](int64_t d) { return d > 1; }) -
                    a.shape().begin();
  if (axis == free_axes(a)) {
    return {input(b, name, a.dtype(), a.type().shape), a, a};
  }
  const Array d = a.dense();
  Dims shape = d.shape(), strides = d.strides();
  shape[size_t(axis)] = 1;
  const auto owner = std::make_shared<Array>(d);
  const Array stored =
      Array::borrow(d.dtype(), const_cast<void*>(d.raw()), shape, strides, owner, false).copy();
  Dims stretched = stored.strides();
  stretched[size_t(axis)] = 0;
  const Array operand = Array::borrow(d.dtype(), const_cast<void*>(stored.raw()), d.shape(),
                                      stretched, std::make_shared<Array>(stored), false)
                            .copy();
  const Value in = input(b, name, a.dtype(), stored.type().shape);
  return {expand(b, in, a.type().shape), stored, operand};
}

// The value as the first part of a Concat along its last axis (packed dtypes: the one before), and
// cut out again.
Value through_slot(Builder& b, Value v) {
  const TensorType type = b.type(v);
  const bool packed = is_packed(type.dtype);
  const int64_t axis = type.shape.rank() - 1 - packed;
  if (axis < 0) return v;
  const Value zeros =
      packed ? constant(b, Array::zeros(type.dtype, type.shape.static_dims())) : zeros_like(b, v);
  const Value parts[] = {v, zeros};
  return narrow(b, concat(b, parts, axis), axis, 0, type.shape[axis]);
}

}  // namespace

std::string_view to_string(OperandLayout layout) {
  switch (layout) {
    case OperandLayout::kContiguous:
      return "contiguous";
    case OperandLayout::kTransposed:
      return "transposed";
    case OperandLayout::kSliced:
      return "sliced";
    case OperandLayout::kBroadcast:
      return "broadcast";
    case OperandLayout::kIntermediate:
      return "intermediate";
    case OperandLayout::kSlot:
      return "slot";
  }
  return "?";
}

LaidOutCall lay_out(const OpDef& op, const Attrs& attrs, const std::vector<Array>& operands,
                    OperandLayout layout) {
  LaidOutCall call;
  Builder b(call.graph);
  std::vector<Value> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = fmt::format("arg{}", i);
    const Array& a = operands[i];
    const Part p = a.rank() == 0                          ? Part{{}, a, a}
                   : layout == OperandLayout::kTransposed ? transposed(b, name, a)
                   : layout == OperandLayout::kSliced     ? sliced(b, name, a)
                   : layout == OperandLayout::kBroadcast  ? broadcasted(b, name, a)
                                                          : Part{{}, a, a};
    values.push_back(p.value.valid() ? p.value : input(b, name, a.dtype(), a.type().shape));
    if (layout == OperandLayout::kIntermediate) {
      values.back() = b.op(kCopyOp, NoAttrs{}, {values.back()});
    }
    call.inputs.push_back(p.input);
    call.operands.push_back(p.operand);
  }
  std::vector<Value> results = b.call(op, attrs, values);
  if (layout == OperandLayout::kSlot) results[0] = through_slot(b, results[0]);
  for (size_t i = 0; i < results.size(); ++i) {
    call.graph.add_output(fmt::format("out{}", i), results[i]);
  }
  return call;
}

}  // namespace rlx
