// rlx run: one graph, its inputs from files or drawn, its outputs to files or as a summary.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/io/npy.h"
#include "rlx/ir/text.h"
#include "rlx/runtime/session.h"
#include "tools/rlx/arrays.h"
#include "tools/rlx/commands.h"
#include "tools/rlx/graph_file.h"

namespace rlx::cli {
namespace {

constexpr int64_t kPrintedElements = 16;  // of constants, in dumps

std::vector<std::string> leaf_names(const Graph& graph, const std::vector<Value>& leaves) {
  std::vector<std::string> names;
  names.reserve(leaves.size());
  for (Value v : leaves) names.push_back(graph.name_of(v));
  return names;
}

// .npy files have no bf16: such values travel as f32 there.
template <class From, class To>
Array converted(const Array& array) {
  Array result = Array::uninitialized(dtype_of<To>, array.shape());
  const auto from = array.data<From>();
  const auto to = result.mutable_data<To>();
  for (size_t i = 0; i < from.size(); ++i) to[i] = To(float(from[i]));
  return result;
}

std::map<std::string, Array> load_files(const Graph& graph, const std::vector<Value>& leaves,
                                        const std::map<std::string, Source>& sources) {
  std::map<std::string, Array> arrays;
  for (Value v : leaves) {
    const std::string& name = graph.name_of(v);
    const Source& source = sources.at(name);
    if (source.random) continue;
    Array array = load_npy(source.file);
    if (graph.type(v).dtype == DType::kBF16 && array.dtype() == DType::kF32) {
      array = converted<float, bf16>(array);
    }
    arrays.emplace(name, std::move(array));
  }
  return arrays;
}

// The graph's sizes must be known by now.
void draw_missing(const Graph& graph, const std::vector<Value>& leaves, uint64_t seed,
                  std::map<std::string, Array>& arrays) {
  for (Value v : leaves) {
    const std::string& name = graph.name_of(v);
    if (arrays.contains(name)) continue;
    const TensorType& type = graph.type(v);
    arrays.emplace(name, draw(type.dtype, type.shape.static_dims(), seed, name));
  }
}

CompileOptions compile_options(const RunArgs& args) {
  CompileOptions options;
  if (args.dump_passes) {
    options.dump = [](std::string_view pass, const Graph& graph) {
      fmt::print("after {}:\n{}", pass,
                 print(graph, {.max_elements = kPrintedElements, .labels = true}));
    };
  }
  return options;
}

void write_outputs(const std::string& folder, const std::vector<std::string>& names,
                   const std::vector<Array>& outputs) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorKind::kIo, "cannot make the folder '{}': {}", folder, error.message());
  const std::vector<std::string> files = file_names(names);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path = (std::filesystem::path(folder) / (files[i] + ".npy")).string();
    const bool widen = outputs[i].dtype() == DType::kBF16;
    save_npy(path, widen ? converted<bf16, float>(outputs[i]) : outputs[i]);
    fmt::print("{}: {}{}\n", path, outputs[i].type().to_string(), widen ? " as f32" : "");
  }
}

// Milliseconds of each of `repeat` runs, sorted.
std::vector<double> time_runs(Executable& executable, const std::vector<Array>& inputs,
                              std::vector<Array>& outputs, int repeat) {
  std::vector<double> times;
  for (int r = 0; r < repeat; ++r) {
    const auto start = std::chrono::steady_clock::now();
    executable.run_into(inputs, outputs);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

void print_times(const std::vector<double>& times, int threads) {
  const size_t n = times.size();
  const double median = (times[(n - 1) / 2] + times[n / 2]) / 2;
  fmt::print("median {:.4g} ms of {} runs (fastest {:.4g}, slowest {:.4g}), at most {} threads\n",
             median, n, times.front(), times.back(), threads);
}

}  // namespace

void run(const RunArgs& args) {
  Graph graph = bind_dims(load(args.graph), parse_dims(args.dims));
  const std::vector<std::string> input_names = leaf_names(graph, graph.inputs());
  const std::vector<std::string> param_names = leaf_names(graph, graph.params());
  const auto input_sources = assign_sources(args.inputs, input_names, "-i", "input");
  const auto param_sources = assign_sources(args.params, param_names, "-p", "param");
  std::map<std::string, Array> given = load_files(graph, graph.inputs(), input_sources);
  std::map<std::string, Array> params = load_files(graph, graph.params(), param_sources);
  graph = bind_given(graph, given);
  require_static(graph);
  draw_missing(graph, graph.inputs(), args.seed, given);
  draw_missing(graph, graph.params(), args.seed, params);

  SessionOptions options;
  std::optional<ThreadPool> pool;
  if (args.threads > 0) {
    options.threads = args.threads;
    options.executor = &pool.emplace(args.threads - 1);
  }
  Session session(cpu_device(), options);
  session.weights().set(params);
  Executable executable = session.compile(graph, compile_options(args));
  if (args.plan) fmt::print("{}", to_string(executable.plan()));

  std::vector<Array> inputs, outputs(graph.outputs().size());
  for (const std::string& name : input_names) inputs.push_back(given.at(name));
  executable.run_into(inputs, outputs);
  if (!args.out.empty()) {
    write_outputs(args.out, executable.output_names(), outputs);
  } else {
    for (size_t i = 0; i < outputs.size(); ++i) {
      fmt::print("{}: {}\n", executable.output_names()[i], summary(outputs[i]));
    }
  }
  for (const Update& u : graph.updates()) {
    fmt::print("param {} after the run: {}\n", u.param, summary(session.weights().get(u.param)));
  }
  if (args.repeat > 0) {
    print_times(time_runs(executable, inputs, outputs, args.repeat), session.threads());
  }
}

}  // namespace rlx::cli
