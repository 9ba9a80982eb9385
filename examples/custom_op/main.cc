// An operator of our own: the median of each row, with a kernel that all threads share and a
// gradient. The rest of the graph does not know that it is special.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "rlx/rlx.h"

int main() {
  using namespace rlx;

  // What graphs say of it: the result's type, and how gradients flow back. Each row's cotangent
  // goes to the elements that are equal to the median, in equal shares.
  CustomDefinition median;
  median.name = "median";
  median.infer = [](std::span<const TensorType> operands, std::string_view) {
    TensorType rows = operands[0];
    rows.shape.erase(1);
    return std::vector{rows};
  };
  median.vjp = [](Builder& b, const CustomRuleCall& call) {
    const Value x = call.operands[0];
    const Value hit = cast(b, equal(b, x, unsqueeze(b, call.results[0], 1)), b.dtype(x));
    const Value share = div(b, hit, sum(b, hit, {1}, true));
    return std::vector{mul(b, share, unsqueeze(b, call.derivatives[0], 1))};
  };

  // How the CPU computes it: one chunk for each row.
  CustomKernel kernel;
  kernel.name = "median";
  kernel.fits = [](const CustomCall& c) {
    const TensorDesc& x = c.operands[0];
    return x.dtype != DType::kF32 ? "x must be f32" : x.dims[1] % 2 == 0 ? "rows must be odd" : "";
  };
  kernel.chunks = [](const CustomCall& c) { return c.operands[0].dims[0]; };
  kernel.scratch_bytes = [](const CustomCall& c) { return 4 * c.operands[0].dims[1]; };
  kernel.run = [](const CustomRun& r, int64_t row) {
    const int64_t width = r.call.operands[0].dims[1];
    auto* sorted = static_cast<float*>(r.scratch);
    std::copy_n(r.in<float>(0) + row * width, width, sorted);
    std::nth_element(sorted, sorted + width / 2, sorted + width);
    r.out<float>(0)[row] = sorted[width / 2];
  };

  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {Dim::symbol("n"), 5});
  g.add_output("loss", sum(b, custom(b, median, {{x}})[0], {0}));

  Session session(cpu_device());
  session.add_kernel(kernel);
  Executable gradient = session.compile(grad(g, "loss", {"x"}));
  const auto out =
      gradient.run({Array::from({3.f, 1.f, 4.f, 1.f, 5.f, 9.f, 2.f, 6.f, 5.f, 3.f}, {2, 5})});
  fmt::print("sum of the medians {}\n", out[0].data<float>()[0]);
  fmt::print("its gradient       {}\n", fmt::join(out[1].data<float>(), " "));
}
