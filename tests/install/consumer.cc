// What a user of the installed package writes: a graph through rlx/rlx.h, run on the CPU.
#include "rlx/rlx.h"

#include <cstdio>

namespace {

// relu(x w) for x = [[1, 2, 3], [4, 5, 6]] and w = [[1, 0], [0, 1], [1, -1]], with n rows.
bool runs_a_graph() {
  using namespace rlx;
  Graph graph("layer");
  Builder b(graph);
  const Value x = input(b, "x", DType::kF32, {Dim::symbol("n"), 3});
  const Value w = param(b, "w", DType::kF32, {3, 2});
  graph.add_output("y", relu(b, matmul(b, x, w)));
  if (!(parse_graph(print(graph)) == graph)) return false;

  Session session(cpu_device());
  session.weights().set("w", Array::from({1.f, 0.f, 0.f, 1.f, 1.f, -1.f}, {3, 2}));
  Executable layer = session.compile(graph);
  const Array y = layer.run({Array::from({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3})})[0];
  return y.same_bits(Array::from({4.f, 0.f, 10.f, 0.f}, {2, 2}));
}

// Exceptions cross the library's border with their type.
bool reports_an_error() {
  try {
    rlx::promote(rlx::DType::kI64, rlx::DType::kU64);
  } catch (const rlx::Error& error) {
    return error.kind() == rlx::ErrorKind::kUser;
  }
  return false;
}

}  // namespace

int main() {
  if (!runs_a_graph()) {
    std::puts("a graph gave a wrong result");
    return 1;
  }
  if (!reports_an_error()) {
    std::puts("an impossible promotion was accepted");
    return 1;
  }
  return 0;
}
