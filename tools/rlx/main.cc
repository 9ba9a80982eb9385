// rlx: runs and inspects graph files. Exit code 0 if all went well, 1 on an error, 2 on a wrong
// command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "rlx/base/error.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {
namespace {

constexpr const char* kInputHelp =
    "value of an input: a .npy file (f32 for bf16, which the format has not), or random: floats "
    "uniform in [-1, 1), integers 0 to 9; '*=random' for all that are not given";
constexpr const char* kDimsHelp = "sizes of symbolic dimensions: n=32,m=8";

void add_graph(CLI::App& command, std::string& path) {
  command.add_option("GRAPH", path, "graph file, text (.rlx) or binary (.rlxb)")->required();
}

void add_values(CLI::App& c, ValueArgs& args) {
  add_graph(c, args.graph);
  c.add_option("-i,--input", args.inputs, kInputHelp)
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  c.add_option("-p,--param", args.params, "value of a param, in the same way")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  c.add_option("--dims", args.dims, kDimsHelp)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("SYMBOL=SIZE");
  c.add_option("--seed", args.seed, "seed of random inputs and params");
}

void add_run(CLI::App& app, RunArgs& args) {
  CLI::App& c = *app.add_subcommand("run", "Run a graph on the CPU");
  add_values(c, args);
  c.add_option("-o,--output", args.out, "write each output to DIR/<name>.npy")->type_name("DIR");
  c.add_option("--threads", args.threads, "most threads of a run (default: all that are free)")
      ->check(CLI::Range(1, 1024));
  c.add_option("--bound", args.bounds,
               "compile one plan for all sizes up to this one, then run it at the size of --dims")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("SYMBOL=SIZE");
  c.add_option("--repeat", args.repeat, "time this many runs after the first")
      ->check(CLI::Range(1, 1000000000));
  c.add_flag("--dump-passes", args.dump_passes, "print the graph after each compiler pass");
  c.add_flag("--plan", args.plan, "print the compiled plan");
  c.add_flag("--profile", args.profile,
             "print the time, bytes and flops of each step of the last run");
  c.add_option("--trace", args.trace, "write what each thread did in the last run, for Perfetto")
      ->type_name("FILE.json");
  c.add_flag("--find-nan", args.find_nan,
             "run step by step, without fusion, and fail at the first one that makes a NaN or an "
             "infinity");
  c.callback([&args] { run(args); });
}

void add_diff(CLI::App& app, DiffArgs& args, int& code) {
  CLI::App& c = *app.add_subcommand(
      "diff", "Run a graph twice, with a difference, and compare; exit code 1 if values differ");
  add_values(c, args);
  c.add_option("OTHER", args.other, "run this graph the second time, on the same values");
  c.add_flag("--no-optimize", args.no_optimize, "the second run: without simplifying passes");
  c.add_flag("--no-fuse", args.no_fuse, "the second run: every op a step of its own");
  c.add_flag("--strict-rounding", args.strict_rounding,
             "the second run: 16-bit values rounded inside of fused steps too");
  c.add_flag("--decompose", args.decompose, "the second run: every op decomposed that can be");
  c.add_option("--threads", args.threads, "the second run: on this many threads, not on one")
      ->check(CLI::Range(1, 1024));
  c.add_flag("--reference", args.reference, "the second run: by the float64 reference");
  c.add_flag("--intermediate", args.intermediate,
             "compare all values (of two graphs: those with equal labels), not only the outputs");
  c.add_option("--ulps", args.ulps,
               "differences allowed, in units in the last place of each tensor's largest number")
      ->check(CLI::NonNegativeNumber);
  c.callback([&args, &code] { code = diff(args) ? 0 : 1; });
}

void add_inspect(CLI::App& app, InspectArgs& args) {
  CLI::App& c = *app.add_subcommand("inspect", "Show what a graph contains, or convert its file");
  add_graph(c, args.graph);
  c.add_option("--dims", args.dims, kDimsHelp)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("SYMBOL=SIZE");
  c.add_option("--save", args.save, "write the graph: text to .rlx, binary to .rlxb")
      ->type_name("FILE");
  c.add_flag("--text", args.text, "print the graph as text");
  c.add_flag("--plan", args.plan, "print the plan that the CPU would run");
  c.add_flag("--report", args.report, "print each step's kernel, flops, bytes and estimated time");
  c.callback([&args] { inspect(args); });
}

void add_coverage(CLI::App& app, CoverageArgs& args) {
  CLI::App& c = *app.add_subcommand("coverage", "Show which op kinds the CPU runs natively");
  c.add_flag("--all", args.all, "list planned kinds too");
  c.add_flag("--markdown", args.markdown, "print docs/coverage.md");
  c.callback([&args] { coverage(args); });
}

int error(int code, const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "rlx: error: {}\n", message);
  return code;
}

int main(int argc, char** argv) {
  CLI::App app("Compiles and runs tensor programs");
  app.name("rlx");
  app.require_subcommand(1);
  RunArgs run_args;
  DiffArgs diff_args;
  InspectArgs inspect_args;
  CoverageArgs coverage_args;
  int code = 0;
  add_run(app, run_args);
  add_diff(app, diff_args, code);
  add_inspect(app, inspect_args);
  app.add_subcommand("devices", "Show what graphs run on here")->callback(devices);
  add_coverage(app, coverage_args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    return error(2, std::string(e.what()) + " (rlx --help)");
  } catch (const UsageError& e) {
    return error(2, e.what());
  } catch (const std::exception& e) {
    return error(1, e.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return error(1, "cannot write to the standard output");
  }
  return code;
}

}  // namespace
}  // namespace rlx::cli

int main(int argc, char** argv) { return rlx::cli::main(argc, argv); }
