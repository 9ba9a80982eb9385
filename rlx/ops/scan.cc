#include "rlx/ops/build.h"
#include "rlx/ops/control_rules.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Scan);
RLX_USE_OP(ScanBackward);

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
  return infer_scan_results(c.as<ScanAttrs>(), c.operands);
}

size_t first_x(const ScanAttrs& a) { return size_t(a.num_carries + a.num_captures); }

// The Scan over values and their tangents. Which carries have one is the least set that holds those
// of the operands and that a step does not leave.
class TangentScan {
 public:
  TangentScan(Builder& b, const RuleCall& call, std::span<const Value> tangents)
      : b_(b), a_(call.as<ScanAttrs>()), operands_(call.operands), tangents_(tangents) {
    mask_ = valid_ones(tangents);
  }

  std::vector<Value> run() {
    ScanAttrs next = a_;
    while (!build_body(next)) {
    }
    const auto carries = size_t(a_.num_carries), x = first_x(a_), all = operands_.size();
    std::vector<Value> operands;
    for (const auto& [first, end] : {std::pair{size_t(0), carries}, {carries, x}, {x, all}}) {
      const auto primals = operands_.subspan(first, end - first);
      const std::vector<Value> tangents =
          tangents_in(b_, primals, tangents_.subspan(first, end - first),
                      std::span(mask_).subspan(first, end - first));
      operands = joined(operands, primals, tangents);
    }
    next.num_carries += count(0, carries);
    next.num_captures += count(carries, x);
    const std::vector<Value> results = scan_call(b_, std::move(next), operands);
    return unpack(results);
  }

 private:
  int64_t count(size_t first, size_t end) const {
    return int64_t(positions(std::span(mask_).subspan(first, end - first)).size());
  }

  // Index, then carries, captures and slices of xs, each list with its tangents behind it.
  std::vector<Dual> add_duals(BodyWriter& body) const {
    std::vector<Dual> duals{{body.add_input({DType::kI64, {}}), {}}};
    const auto carries = size_t(a_.num_carries), x = first_x(a_), all = operands_.size();
    for (const auto& [first, end] : {std::pair{size_t(0), carries}, {carries, x}, {x, all}}) {
      const size_t at = duals.size();
      for (size_t i = first; i < end; ++i) {
        const TensorType& type = a_.body->type(a_.body->inputs()[1 + i]);
        duals.push_back({body.add_input(type), {}});
      }
      for (size_t i = first; i < end; ++i) {
        Dual& d = duals[at + i - first];
        if (mask_[i]) d.tangent = body.add_input(body.builder().type(d.primal));
      }
    }
    return duals;
  }

  bool build_body(ScanAttrs& next) {
    BodyWriter body(a_.body->name());
    const std::vector<Dual> out = push_forward(body.builder(), *a_.body, add_duals(body));
    std::vector<Value> primals, tangents;
    for (const Dual& d : out) {
      primals.push_back(d.primal);
      tangents.push_back(d.tangent);
    }
    const auto carries = size_t(a_.num_carries);
    Mask has = valid_ones(tangents), of_carries(mask_.begin(), mask_.begin() + a_.num_carries);
    if (widen(of_carries, has)) {
      std::copy(of_carries.begin(), of_carries.end(), mask_.begin());
      return false;
    }
    std::copy(of_carries.begin(), of_carries.end(), has.begin());
    result_has_ = std::move(has);
    const auto tangents_from = [&](size_t first, size_t n) {
      return tangents_in(body.builder(), std::span(primals).subspan(first, n),
                         std::span(tangents).subspan(first, n),
                         std::span(result_has_).subspan(first, n));
    };
    body.add_outputs(std::span(primals).first(carries));
    body.add_outputs(tangents_from(0, carries));
    body.add_outputs(std::span(primals).subspan(carries));
    body.add_outputs(tangents_from(carries, primals.size() - carries));
    next.body = body.take();
    return true;
  }

  // Results come as carries, their tangents, ys, their tangents.
  std::vector<Value> unpack(std::span<const Value> all) const {
    std::vector<Value> primals, tangents;
    size_t at = 0;
    for (const Mask& has : {Mask(result_has_.begin(), result_has_.begin() + a_.num_carries),
                            Mask(result_has_.begin() + a_.num_carries, result_has_.end())}) {
      primals = joined(primals, all.subspan(at, has.size()));
      at += has.size();
      tangents = joined(tangents, spread(all.subspan(at), has));
      at += positions(has).size();
    }
    return joined(primals, tangents);
  }

  Builder& b_;
  const ScanAttrs& a_;
  std::span<const Value> operands_, tangents_;
  Mask mask_;        // of the operands
  Mask result_has_;  // of the body's outputs
};

std::vector<Value> jvp_scan(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  return TangentScan(b, call, tangents).run();
}

std::vector<Value> vjp_scan(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const Attrs attrs = Attrs::of(kScanBackwardOp.fields, call.as<ScanAttrs>());
  const std::vector<Value> given = pack_derivatives(b, call.results, cotangents);
  return unpack_derivatives(b, call.operands,
                            b.call(kScanBackwardOp, attrs, joined(call.operands, given)));
}

// Which carries are batched is the least set that holds those of the operands and that a step does
// not leave.
std::vector<Value> batch_scan(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                              const Dim& size) {
  ScanAttrs next = call.as<ScanAttrs>();
  const Graph& step = *next.body;
  const auto carries = size_t(next.num_carries);
  Mask mask(batched.begin(), batched.end());
  for (bool settled = false; !settled;) {
    BodyWriter body(step.name());
    std::vector<Lane> in;
    for (size_t i = 0; i < step.inputs().size(); ++i) {
      const bool has_axis = i > 0 && mask[i - 1];
      const TensorType& own = step.type(step.inputs()[i]);
      in.push_back({body.add_input(has_axis ? stacked(own, size) : own), has_axis});
    }
    const std::vector<Lane> out = batch_graph(body.builder(), step, size, in);
    settled = true;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i < carries && out[i].batched && !mask[i]) settled = false;
      if (i < carries) mask[i] |= out[i].batched;
      const bool wanted = i >= carries || mask[i];
      body.add_output(wanted ? with_batch(body.builder(), out[i].value, out[i].batched, size)
                             : out[i].value);
    }
    next.body = body.take();
  }
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i < carries && mask[i]) operands[i] = with_batch(b, operands[i], batched[i] != 0, size);
    if (i >= first_x(next) && mask[i]) operands[i] = move_axis(b, operands[i], 0, 1);
  }
  std::vector<Value> results = scan_call(b, std::move(next), operands);
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = i < carries ? with_batch(b, results[i], mask[i] != 0, size)
                             : move_axis(b, results[i], 1, 0);
  }
  return results;
}

}  // namespace

std::vector<TensorType> infer_scan_results(const ScanAttrs& a,
                                           std::span<const TensorType> operands) {
  check_counts(a, operands.size());
  const auto carries = size_t(a.num_carries), first_x = carries + size_t(a.num_captures);
  std::vector<TensorType> inputs{{DType::kI64, {}}};
  inputs.insert(inputs.end(), operands.begin(), operands.begin() + int64_t(first_x));
  for (size_t i = first_x; i < operands.size(); ++i) {
    if (operands[i].shape.rank() == 0 || operands[i].shape[0] != a.length) {
      user_error("x {} must have a leading axis of the length {}, it is {}", i - first_x,
                 a.length.to_string(), operands[i].to_string());
    }
    inputs.push_back(slice_of(operands[i]));
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
    } else if (results[i] != operands[i]) {
      user_error("carry {} is {}, the body makes it {}", i, operands[i].to_string(),
                 results[i].to_string());
    }
  }
  return results;
}

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
    .jvp = jvp_scan,
    .vjp = vjp_scan,
    .batching = batch_scan,
};

}  // namespace rlx
