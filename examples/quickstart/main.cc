// y = softmax(relu(x w1) w2): built as a graph, differentiated, compiled, and run on two batches.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "rlx/rlx.h"
#include "rlx/transform/grad.h"

int main() {
  using namespace rlx;
  Graph graph("classifier");
  Builder b(graph);
  const Value x = input(b, "x", DType::kF32, {Dim::symbol("n"), 2});  // any number of rows
  const Value w1 = param(b, "w1", DType::kF32, {2, 3});
  const Value w2 = param(b, "w2", DType::kF32, {3, 2});
  const Value y = softmax(b, matmul(b, relu(b, matmul(b, x, w1)), w2));
  graph.add_output("y", y);
  graph.add_output("loss", mean(b, neg(b, log(b, narrow(b, y, 1, 0, 1))), {0, 1}));

  Session session(cpu_device());
  session.weights().set("w1", Array::from({1.f, -1.f, 2.f, 0.5f, 1.f, -1.f}, {2, 3}));
  session.weights().set("w2", Array::from({1.f, 0.f, 0.f, 1.f, -1.f, 1.f}, {3, 2}));
  // The gradient is a graph like any other: outputs y, loss, d_w2.
  Executable model = session.compile(grad(graph, "loss", {"w2"}));

  for (const Array& rows :
       {Array::from({1.f, 2.f}, {1, 2}), Array::from({1.f, 0.f, 0.f, 1.f, 1.f, 1.f}, {3, 2})}) {
    const auto results = model.run({rows});
    fmt::print("y    {:.3f}\nloss {:.3f}\nd_w2 {:.3f}\n", fmt::join(results[0].data<float>(), " "),
               results[1].data<float>()[0], fmt::join(results[2].data<float>(), " "));
  }
  fmt::print("compiled {} times, once for each number of rows\n", model.compiles());
}
