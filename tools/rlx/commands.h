// The commands of the tool: what the command line says, and one function for each command that does
// it. They print to stdout and throw Error or UsageError.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace rlx::cli {

// The command line itself is wrong: exit code 2 instead of 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A graph and where the values of its inputs and params come from.
struct ValueArgs {
  std::string graph;
  std::vector<std::string> inputs, params;  // NAME=FILE.npy or NAME=random; NAME may be *
  std::vector<std::string> dims;            // SYMBOL=SIZE
  uint64_t seed = 0;
};

struct RunArgs : ValueArgs {
  std::vector<std::string> bounds;  // SYMBOL=SIZE
  std::string out;                  // folder; empty: print a summary of each output
  int threads = 0;                  // 0: as many as the process may use
  int repeat = 0;                   // timed runs after the first
  std::string trace;                // file for the trace of the last run
  bool dump_passes = false, plan = false, profile = false, find_nan = false;
};
void run(const RunArgs& args);

// The first run is that of `graph` as it is, the second differs in what the others say.
struct DiffArgs : ValueArgs {
  std::string other;  // another graph with the same inputs and params; empty: the same
  int threads = 0;    // of the second run
  bool no_optimize = false, no_fuse = false, strict_rounding = false;
  bool decompose = false, reference = false;
  bool intermediate = false;  // compare all values of the graph, not only its outputs
  double ulps = 0;
};
// Whether all values agree.
bool diff(const DiffArgs& args);

struct InspectArgs {
  std::string graph;
  std::vector<std::string> dims;
  std::string save;
  bool text = false, plan = false, report = false;
};
void inspect(const InspectArgs& args);

void devices();

struct CoverageArgs {
  bool all = false;       // planned kinds too
  bool markdown = false;  // docs/coverage.md
};
void coverage(const CoverageArgs& args);

}  // namespace rlx::cli
