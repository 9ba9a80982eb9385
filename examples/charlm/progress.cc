#include "examples/charlm/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace charlm {
namespace {

constexpr int kCells = 30, kParts = 20;

}  // namespace

Progress::Progress(int steps) : steps_(steps), terminal_(isatty(STDOUT_FILENO)) {}

void Progress::show(int done, double loss) {
  average_ = average_ == 0 ? loss : 0.95 * average_ + 0.05 * loss;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (terminal_) {
    if (now - drawn_ < std::chrono::milliseconds(100) && done < steps_) return;
    drawn_ = now;
    const int cells = int(int64_t(done) * kCells / steps_);
    fmt::print("\r\033[K[{:-<{}}] step {} of {}, loss {:.3f}, {:.0f} s left",
               std::string(size_t(cells), '#'), kCells, done, steps_, average_,
               seconds * (steps_ - done) / done);
  } else {
    const int parts = int(int64_t(done) * kParts / steps_);
    if (parts == parts_) return;
    parts_ = parts;
    fmt::print("step {:5} of {}, loss {:.3f}, {:.0f} s\n", done, steps_, average_, seconds);
  }
  std::fflush(stdout);
}

void Progress::clear() const {
  if (terminal_) fmt::print("\r\033[K");  // the sequence clears to the end of the line
  std::fflush(stdout);
}

}  // namespace charlm
