// Leaves of graphs: Input, Param, Constant; and Iota, which needs no operand either.
#include "rlx/ir/leaf.h"

#include "rlx/ir/builder.h"
#include "rlx/ir/packed.h"
#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Input);
RLX_USE_OP(Param);
RLX_USE_OP(Constant);
RLX_USE_OP(Iota);

namespace {

void check_shape(const Shape& shape) {
  if (shape.rank() > kMaxRank) {
    user_error("a tensor has at most {} axes, {} were given", kMaxRank, shape.rank());
  }
  for (const Dim& d : shape) {
    if (d.is_static() && d.value() < 0) {
      user_error("a size is negative in the shape {}", shape.to_string());
    }
  }
  shape.num_elements();  // checks the product
}

template <class S>
std::vector<TensorType> infer_named(const InferContext& c) {
  expect_operands(c, 0);
  const S& a = c.as<S>();
  if (a.name.empty()) user_error("the name is empty");
  check_shape(a.shape);
  return {{a.dtype, a.shape}};
}

Attrs normalize_constant(const InferContext& c) {
  const auto& a = c.as<ConstantAttrs>();
  if (!a.value.defined() || a.splat) return c.attrs;
  const bool shape_left_out = a.shape.rank() == 0 && a.value.rank() > 0;
  if (!shape_left_out && a.value.is_dense()) return c.attrs;
  ConstantAttrs changed = a;
  if (shape_left_out) changed.shape = a.value.type().shape;
  changed.value = a.value.dense();
  return Attrs::of(c.attrs.table(), std::move(changed));
}

std::vector<TensorType> infer_constant(const InferContext& c) {
  expect_operands(c, 0);
  const auto& a = c.as<ConstantAttrs>();
  if (!a.value.defined()) user_error("a constant needs a value");
  check_shape(a.shape);
  if (a.splat) {
    if (a.value.num_elements() != 1) {
      user_error("a splat repeats one element, its value has {}", a.value.num_elements());
    }
  } else if (a.shape != a.value.type().shape) {
    user_error("the value has the shape {}, the constant {}", dims_to_string(a.value.shape()),
               a.shape.to_string());
  }
  return {{a.value.dtype(), a.shape}};
}

Attrs normalize_iota(const InferContext& c) {
  const auto& a = c.as<IotaAttrs>();
  const int64_t axis = normalize_axis(a.axis, a.shape.rank());
  return axis == a.axis ? c.attrs : c.attrs.with("axis", axis);
}

std::vector<TensorType> infer_iota(const InferContext& c) {
  expect_operands(c, 0);
  const auto& a = c.as<IotaAttrs>();
  if (!dtypes::kNumbers.contains(a.dtype)) {
    user_error("dtype is {}, expected one of: {}", to_string(a.dtype),
               dtypes::kNumbers.to_string());
  }
  check_shape(a.shape);
  return {{a.dtype, a.shape}};
}

}  // namespace

RLX_DEFINE_OP(Input) = {
    .name = "Input",
    .fields = RLX_FIELDS(InputAttrs, name, dtype, shape),
    .flags = kLeaf | kPackedRows,
    .doc =
        R"(A value that the caller binds by name when the graph runs.
Operands: none. Result: the declared dtype and shape; its symbols are bound by the sizes of the
arrays that a run is given. Names are unique among the inputs of a graph; bodies of control flow
bind their inputs by position instead.
Errors: an empty name, a negative size, too many axes; at run time a missing input or another type.
Derivative: one of the variables that a gradient is taken for.)",
    .infer = infer_named<InputAttrs>,
};

RLX_DEFINE_OP(Param) = {
    .name = "Param",
    .fields = RLX_FIELDS(ParamAttrs, name, dtype, shape, is_mutable),
    .flags = kLeaf | kPackedRows,
    .doc =
        R"(A value that stays with a session between runs: a weight or a state.
A frozen one may be folded into the graph and repacked by kernels; a mutable one may be the target of
an update, which a run performs in place.
Operands: none. Result: the declared dtype and shape. Names are unique among the params of a graph.
Errors: an empty name, a negative size, too many axes.
Derivative: one of the variables that a gradient is taken for.)",
    .infer = infer_named<ParamAttrs>,
};

RLX_DEFINE_OP(Constant) = {
    .name = "Constant",
    .fields = RLX_FIELDS(ConstantAttrs, value, shape, splat),
    .flags = kLeaf | kPackedRows,
    .doc =
        R"(A literal: the elements of `value` in row-major order, or with `splat` its single element
everywhere in `shape`, which may then be symbolic.
Operands: none. Result: the dtype of `value` and `shape`, which may be left out where it is that of
`value`. The memory of `value` is shared, not copied: it must not change any more.
Errors: no value; a shape that is not the value's; a splat of several elements.
Derivative: zero.)",
    .infer = infer_constant,
    .normalize = normalize_constant,
};

RLX_DEFINE_OP(Iota) = {
    .name = "Iota",
    .fields = RLX_FIELDS(IotaAttrs, dtype, shape, axis),
    .flags = kNoGradient,
    .doc =
        R"(y[..., i, ...] = i along `axis`, the same for all other indices.
Operands: none. Result: `dtype` (any number) and `shape`, at least one axis. Positions that the
dtype cannot hold are rounded to nearest even (floats) or wrap (integers); complex numbers have the
imaginary part 0.
Errors: an axis out of range (so also rank 0), bool.
Derivative: zero.)",
    .infer = infer_iota,
    .normalize = normalize_iota,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
};

Value input(Builder& b, std::string_view name, DType dtype, Shape shape) {
  return b.op(kInputOp, InputAttrs{std::string(name), dtype, std::move(shape)}, {});
}

Value param(Builder& b, std::string_view name, DType dtype, Shape shape, bool is_mutable) {
  return b.op(kParamOp, ParamAttrs{std::string(name), dtype, std::move(shape), is_mutable}, {});
}

Value constant(Builder& b, Array value) {
  if (!value.defined()) user_error("Constant: a constant needs a value");
  Shape shape = value.type().shape;
  return b.op(kConstantOp, ConstantAttrs{std::move(value), std::move(shape), false}, {});
}

Value splat(Builder& b, DType dtype, Shape shape, double value) {
  return b.op(kConstantOp, ConstantAttrs{Array::full(dtype, {}, value), std::move(shape), true},
              {});
}

Value scalar(Builder& b, DType dtype, double value) { return splat(b, dtype, {}, value); }

Value zeros_like(Builder& b, Value x) { return splat(b, b.dtype(x), Shape(b.shape(x)), 0); }

Value iota(Builder& b, DType dtype, Shape shape, int64_t axis) {
  return b.op(kIotaOp, IotaAttrs{dtype, std::move(shape), axis}, {});
}

}  // namespace rlx
