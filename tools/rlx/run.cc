// rlx run: one graph, its inputs from files or drawn, its outputs to files or as a summary.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/base/file.h"
#include "rlx/io/npy.h"
#include "rlx/ir/text.h"
#include "rlx/runtime/session.h"
#include "tools/rlx/arrays.h"
#include "tools/rlx/bound_graph.h"
#include "tools/rlx/commands.h"
#include "tools/rlx/graph_file.h"

namespace rlx::cli {
namespace {

constexpr int64_t kPrintedElements = 16;  // of constants, in dumps

CompileOptions compile_options(const RunArgs& args) {
  CompileOptions options;
  options.bounds = parse_dims(args.bounds, "--bound");
  options.fuse = !args.find_nan;  // so that each op is looked at
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
    save_npy(path, widen ? f32_of_bf16(outputs[i]) : outputs[i]);
    fmt::print("{}: {}{}\n", path, outputs[i].type().to_string(), widen ? " as f32" : "");
  }
}

// Milliseconds of each of `repeat` runs, sorted. The last one is given the profile, if any.
std::vector<double> time_runs(Executable& executable, const std::vector<Array>& inputs,
                              std::vector<Array>& outputs, int repeat, Profile* profile) {
  std::vector<double> times;
  for (int r = 0; r < repeat; ++r) {
    RunOptions options;
    if (r == repeat - 1) options.profile = profile;
    const auto start = std::chrono::steady_clock::now();
    executable.run_into(inputs, outputs, options);
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
  const BoundGraph bound = bind_values(args);
  const Graph& graph = args.bounds.empty() ? bound.graph : bound.loaded;
  SessionOptions options;
  std::optional<ThreadPool> pool;
  if (args.threads > 0) {
    options.threads = args.threads;
    options.executor = &pool.emplace(args.threads - 1);
  }
  Session session(cpu_device(), options);
  session.weights().set(bound.params);
  Executable executable = session.compile(graph, compile_options(args));
  if (args.plan) fmt::print("{}", to_string(executable.plan()));

  std::vector<Array> outputs(graph.outputs().size());
  Profile profile;
  Profile* const wanted = args.profile || !args.trace.empty() ? &profile : nullptr;
  RunOptions first;
  first.check_finite = args.find_nan;
  if (args.repeat == 0) first.profile = wanted;
  executable.run_into(bound.inputs, outputs, first);
  if (args.find_nan) fmt::print("no step makes a NaN or an infinity\n");
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
    print_times(time_runs(executable, bound.inputs, outputs, args.repeat, wanted),
                session.threads());
  }
  if (args.profile) fmt::print("{}", profile.to_string());
  if (!args.trace.empty()) {
    const std::string json = profile.to_trace_json();
    write_file(args.trace, std::as_bytes(std::span(json)));
  }
}

}  // namespace rlx::cli
