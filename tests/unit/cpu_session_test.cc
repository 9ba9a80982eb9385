// The CPU's own kernels through plans and sessions.
#include <gtest/gtest.h>

#include <set>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/build.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32;

Array numbers(Dims shape, float step) {
  Array a = Array::uninitialized(kF32, std::move(shape));
  float x = -1;
  for (float& v : a.mutable_data<float>()) {
    v = x;
    x += step;
    if (x > 1) x -= 2;
  }
  return a;
}

TEST(CpuTable, EveryKernelHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const OpRow& row : op_table()) {
    if (row.cls != RowClass::kOp && row.cls != RowClass::kPrimitive) continue;
    const KernelList* list = cpu_device().kernels().find(*row.def);
    ASSERT_NE(list, nullptr) << row.name;
    EXPECT_FALSE(list->entries.empty()) << row.name;
    for (const KernelEntry& e : list->entries) {
      EXPECT_NE(e.prepare, nullptr) << e.name;
      EXPECT_TRUE(names.insert(e.name).second) << e.name << " stands twice";
    }
  }
}

// Two layers with a residual, weights transposed and split, through concat, softmax and a loss.
Graph network(int64_t rows) {
  Graph g("network");
  Builder b(g);
  const Value x = input(b, "x", kF32, {rows, 48});
  const Value w = param(b, "w", kF32, {96, 48});
  const Value bias = param(b, "bias", kF32, {96});
  const Value h = add(b, matmul(b, x, transpose(b, w, {1, 0})), bias);
  const Value gate = sigmoid(b, narrow(b, h, 1, 0, 48));
  const Value y = mul(b, gate, tanh(b, narrow(b, h, 1, 48, 48)));
  const std::vector<Value> parts{add(b, x, y), relu(b, y), neg(b, x)};
  const Value wide = concat(b, parts, 1);
  const Value p = softmax(b, matmul(b, wide, param(b, "v", kF32, {144, 10})));
  g.add_output("p", p);
  g.add_output("columns", transpose(b, sum(b, p, {0}, true), {1, 0}));
  const Value count = param(b, "count", kF32, {10}, true);
  g.add_update("count", add(b, count, sum(b, p, {0})));
  return g;
}

std::map<std::string, Array> network_weights() {
  return {{"w", numbers({96, 48}, 0.0137f)},
          {"bias", numbers({96}, 0.21f)},
          {"v", numbers({144, 10}, 0.0173f)},
          {"count", Array::zeros(kF32, {10})}};
}

struct Outcome {
  std::vector<Array> outputs;
  Array count;
};

Outcome run(const Graph& g, const Array& x, int threads, CompileOptions options) {
  static ThreadPool pool(4);
  SessionOptions session_options;
  session_options.threads = threads;
  session_options.executor = &pool;
  Session session(cpu_device(), session_options);
  session.weights().set(network_weights());
  Executable e = session.compile(g, std::move(options));
  e.run({x});
  Outcome out{e.run({x}), {}};
  out.count = session.weights().get("count");
  return out;
}

TEST(CpuSession, BitsDoNotDependOnThreadsLayoutOrMemory) {
  for (const int64_t rows : {1, 7, 257}) {
    SCOPED_TRACE(rows);
    const Graph g = network(rows);
    const Array x = numbers({rows, 48}, 0.0311f);
    const Outcome first = run(g, x, 1, {});
    for (const int threads : {1, 2, 5}) {
      for (const bool guards : {false, true}) {
        for (const LayoutPolicy layout :
             {LayoutPolicy::kByCost, LayoutPolicy::kNeverCopy, LayoutPolicy::kAlwaysCopy}) {
          CompileOptions options;
          options.guard_zones = guards;
          options.layout = layout;
          options.optimize = !guards;
          const Outcome next = run(g, x, threads, options);
          for (size_t i = 0; i < first.outputs.size(); ++i) {
            EXPECT_TRUE(next.outputs[i].same_bits(first.outputs[i]))
                << threads << " threads, layout " << int(layout) << ", output " << i;
          }
          EXPECT_TRUE(next.count.same_bits(first.count));
        }
      }
    }
    double total = 0;
    for (int64_t i = 0; i < rows * 10; ++i) total += first.outputs[0].at(i);
    EXPECT_NEAR(total, double(rows), 1e-5 * double(rows));
    EXPECT_EQ(first.count.at(3), 2 * first.outputs[1].at(3));  // two runs of the same
  }
}

TEST(CpuSession, RowsDoNotDependOnTheBatch) {
  const Array x = numbers({64, 48}, 0.0311f);
  const Array all = run(network(64), x, 2, {}).outputs[0];
  for (const int64_t row : {0, 1, 63}) {
    const Array one =
        Array::borrow(kF32, const_cast<float*>(x.data<float>().data()) + row * 48, {1, 48});
    const Array p = run(network(1), one, 1, {}).outputs[0];
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(p.at(i), all.at(row * 10 + i)) << row;
  }
}

TEST(CpuSession, IntegersComplexAndBools) {
  Graph g;
  Builder b(g);
  const Value i = input(b, "i", DType::kI32, {4});
  g.add_output("sum", add(b, i, i));
  g.add_output("less", less(b, i, constant(b, Array::from<int32_t>({3, 3, 3, 3}, {4}))));
  const Value z = input(b, "z", DType::kC64, {2});
  g.add_output("square", mul(b, z, z));
  Session session(cpu_device());
  const auto out =
      session.compile(g).run({Array::from<int32_t>({1, 2, 3, 4}, {4}),
                              Array::from<std::complex<float>>({{1, 2}, {0, 1}}, {2})});
  EXPECT_TRUE(out[0].same_bits(Array::from<int32_t>({2, 4, 6, 8}, {4})));
  EXPECT_TRUE(out[1].same_bits(Array::from<bool>({true, true, false, false}, {4})));
  EXPECT_TRUE(out[2].same_bits(Array::from<std::complex<float>>({{-3, 4}, {-1, 0}}, {2})));
}

TEST(CpuSession, IndexErrorsNameTheStep) {
  Graph g;
  Builder b(g);
  const Value table = input(b, "table", kF32, {10, 4});
  b.set_label("embedding");
  g.add_output("y", gather(b, table, input(b, "i", DType::kI64, {2})));
  Session session(cpu_device());
  Executable e = session.compile(g);
  EXPECT_EQ(e.run({numbers({10, 4}, 0.1f), Array::from<int64_t>({9, -10}, {2})})[0].shape(),
            (Dims{2, 4}));
  try {
    e.run({numbers({10, 4}, 0.1f), Array::from<int64_t>({0, 10}, {2})});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message().rfind("Gather at embedding: ", 0), 0u) << error.message();
  }
}

}  // namespace
}  // namespace rlx
