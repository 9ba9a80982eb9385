#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/infer_util.h"

namespace rlx {

RLX_USE_OP(Scan);

namespace {

void check_counts(const ScanAttrs& a, size_t operands) {
  if (a.num_carries < 0 || a.num_captures < 0 || uint64_t(a.num_carries) > operands ||
      uint64_t(a.num_captures) > operands - uint64_t(a.num_carries)) {
    user_error("num_carries {} and num_captures {} do not fit {} operands", a.num_carries,
               a.num_captures, operands);
  }
  if (a.length.is_static() && a.length.value() < 0) {
    user_error("the length is {}, it cannot be negative", a.length.value());
  }
  if (a.checkpoints < 0) {
    user_error("checkpoints is {}, it cannot be negative", a.checkpoints);
  }
}

std::vector<TensorType> infer_scan(const InferContext& c) {
  const auto& a = c.as<ScanAttrs>();
  check_counts(a, c.operands.size());
  const auto carries = size_t(a.num_carries), first_x = carries + size_t(a.num_captures);
  std::vector<TensorType> inputs{{DType::kI64, {}}};
  inputs.insert(inputs.end(), c.operands.begin(), c.operands.begin() + int64_t(first_x));
  for (size_t i = first_x; i < c.operands.size(); ++i) {
    if (c[i].shape.rank() == 0 || c[i].shape[0] != a.length) {
      user_error("x {} must have a leading axis of the length {}, it is {}", i - first_x,
                 a.length.to_string(), c[i].to_string());
    }
    inputs.push_back(slice_of(c[i]));
  }
  check_body(a.body, "body", inputs);
  std::vector<TensorType> results = output_types(*a.body);
  if (results.empty()) user_error("the body has no outputs");
  if (results.size() < carries) {
    user_error("the body has {} outputs for {} carries", results.size(), carries);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (i >= carries) {
      results[i] = stacked(std::move(results[i]), a.length);
    } else if (results[i] != c[i]) {
      user_error("carry {} is {}, the body makes it {}", i, c[i].to_string(),
                 results[i].to_string());
    }
  }
  return results;
}

}  // namespace

RLX_DEFINE_OP(Scan) = {
    .name = "Scan",
    .fields = RLX_FIELDS(ScanAttrs, body, num_carries, num_captures, length, reverse, checkpoints),
    .flags = kControl,
    .doc =
        R"(A loop of fixed length: for index = 0, ..., length - 1,
    carries, y[index] = body(index, carries, captures, x[index]).
Operands: carries, captures, xs, each any number of tensors of any dtype; every x is [length, ...].
Attributes: body, a graph without params and updates over [index i64 [], carries, captures, slices of
xs] that gives [carries, slices of ys], the carries in their types; num_carries; num_captures; length,
which may be symbolic; reverse: the index runs from length - 1 down to 0, slices and slots still stand
at the index; checkpoints.
Results: the final carries, then ys, each [length, ...]; at least one. With length 0 the carries pass
and the ys are empty.
Errors: counts that do not fit the operands; a negative length; an x without a leading axis of the
length; a body that is missing or of other inputs or outputs.
Derivative: the reverse sweep keeps the carries of every step or, with checkpoints = K > 0, those of
the starts of K segments only, and runs each segment again: memory for about K + length / K carries.
Batching: the body is batched; a carry is once it depends on a batched value.)",
    .infer = infer_scan,
};

}  // namespace rlx
