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

struct RunArgs {
  std::string graph;
  std::vector<std::string> inputs, params;  // NAME=FILE.npy or NAME=random; NAME may be *
  std::vector<std::string> dims;            // SYMBOL=SIZE
  std::string out;                          // folder; empty: print a summary of each output
  int threads = 0;                          // 0: as many as the process may use
  uint64_t seed = 0;
  int repeat = 0;  // timed runs after the first
  bool dump_passes = false, plan = false;
};
void run(const RunArgs& args);

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
