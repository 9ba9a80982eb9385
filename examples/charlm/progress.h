// A line that shows how far training is.
#pragma once

#include <chrono>

namespace charlm {

// On a terminal the line is redrawn in place; elsewhere (a file, a pipe) each twentieth is one
// line.
class Progress {
 public:
  explicit Progress(int steps);
  // After so many steps; `loss` is that of the last one.
  void show(int done, double loss);
  // Leaves a terminal's line empty for what comes next.
  void clear() const;

 private:
  using Clock = std::chrono::steady_clock;

  const int steps_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  int parts_ = 0;       // twentieths that have their line
  double average_ = 0;  // of the last losses
};

}  // namespace charlm
