// Bodies are interpreted by the reference's own kernels, one call after the other.
#include "rlx/ops/control.h"

#include <algorithm>

#include "rlx/backend/reference/reference.h"
#include "rlx/backend/reference/storage.h"

namespace rlx::reference {
namespace {

std::vector<Tensor> run_body(const Graph& body, std::span<const Tensor> inputs) {
  std::map<std::string, Tensor> bound;
  for (size_t i = 0; i < inputs.size(); ++i) bound[body.name_of(body.inputs()[i])] = inputs[i];
  return evaluate(body, bound);
}

// Row `index` of a stack, and back.
Tensor row(const Tensor& stack, int64_t index) {
  Tensor slice(stack.dtype, Dims(stack.shape.begin() + 1, stack.shape.end()));
  with_elements(stack, slice, [&](const auto& from, auto& to) {
    std::copy_n(from.begin() + index * slice.size(), to.size(), to.begin());
  });
  return slice;
}

void set_row(const Tensor& slice, int64_t index, Tensor& stack) {
  with_elements(slice, stack, [&](const auto& from, auto& to) {
    std::copy(from.begin(), from.end(), to.begin() + index * slice.size());
  });
}

void run_if(const Call& c) {
  const auto& a = c.as<IfAttrs>();
  const GraphRef& chosen = c.operands[0].i[0] ? a.then_branch : a.else_branch;
  std::vector<Tensor> outputs = run_body(*chosen, c.operands.subspan(1));
  std::move(outputs.begin(), outputs.end(), c.results.begin());
}

void run_while(const Call& c) {
  const auto& a = c.as<WhileAttrs>();
  std::vector<Tensor> values(c.operands.begin(), c.operands.end());
  for (int64_t k = 0; !a.max_iterations || k < *a.max_iterations; ++k) {
    if (!run_body(*a.condition, values)[0].i[0]) break;
    std::vector<Tensor> next = run_body(*a.body, values);
    std::move(next.begin(), next.end(), values.begin());
  }
  std::move(values.begin(), values.begin() + a.num_carries, c.results.begin());
}

void run_scan(const Call& c) {
  const auto& a = c.as<ScanAttrs>();
  const auto carries = size_t(a.num_carries), first_x = carries + size_t(a.num_captures);
  const int64_t length = a.length.value();
  std::vector<Tensor> inputs(1 + c.operands.size());
  inputs[0] = Tensor(DType::kI64, {});
  std::copy_n(c.operands.begin(), first_x, inputs.begin() + 1);
  for (int64_t step = 0; step < length; ++step) {
    const int64_t index = a.reverse ? length - 1 - step : step;
    inputs[0].i[0] = index;
    for (size_t x = first_x; x < c.operands.size(); ++x) {
      inputs[1 + x] = row(c.operands[x], index);
    }
    std::vector<Tensor> outputs = run_body(*a.body, inputs);
    for (size_t y = carries; y < outputs.size(); ++y) set_row(outputs[y], index, c.results[y]);
    std::move(outputs.begin(), outputs.begin() + int64_t(carries), inputs.begin() + 1);
  }
  std::copy_n(inputs.begin() + 1, carries, c.results.begin());
}

}  // namespace

RLX_DEFINE_REFERENCE(If) = run_if;
RLX_DEFINE_REFERENCE(While) = run_while;
RLX_DEFINE_REFERENCE(Scan) = run_scan;

}  // namespace rlx::reference
