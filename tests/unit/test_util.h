// What many unit tests share: errors, plain numbers, sessions on more threads than the machine has.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/array.h"
#include "rlx/base/error.h"
#include "rlx/base/thread_pool.h"
#include "rlx/ir/builder.h"
#include "rlx/runtime/session.h"

namespace rlx {

inline Error thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::kInternal, "nothing was thrown");
}

// The message of the Error that f throws.
inline std::string error_of(const std::function<void()>& f, ErrorKind kind = ErrorKind::kUser) {
  const Error e = thrown_by(f);
  EXPECT_EQ(to_string(e.kind()), to_string(kind)) << e.message();
  return e.message();
}

// A graph with the outputs y0, y1, ...
inline Graph graph_of(std::string name, const std::function<std::vector<Value>(Builder&)>& build) {
  Graph g(std::move(name));
  Builder b(g);
  const std::vector<Value> values = build(b);
  for (size_t i = 0; i < values.size(); ++i) g.add_output(fmt::format("y{}", i), values[i]);
  return g;
}

// first, first + 1, ...
inline Array numbers(Dims shape, float first = 1) {
  Array a = Array::uninitialized(DType::kF32, std::move(shape));
  for (float& x : a.mutable_data<float>()) x = first++;
  return a;
}

inline std::vector<float> values(const Array& a) {
  const auto data = a.data<float>();
  return {data.begin(), data.end()};
}

inline SessionOptions threads(int n) {
  static ThreadPool pool(4);
  SessionOptions options;
  options.threads = n;
  options.executor = &pool;
  return options;
}

inline Session session(int n) { return Session(cpu_device(), threads(n)); }

}  // namespace rlx
