// A line that shows how far training is.
#pragma once

#include <string>

namespace digits {

// On a terminal the line is redrawn in place; elsewhere (a file, a pipe) each epoch is one line.
class Progress {
 public:
  Progress(std::string title, int epochs, int steps);
  // After a step (counted from 0) of an epoch.
  void step(int epoch, int step);
  void end_epoch(int epoch, double loss);
  // Leaves a terminal's line empty for what comes next.
  void clear();

 private:
  void draw(int epoch, int steps_done);

  const std::string title_;
  const int epochs_, steps_;
  const bool terminal_;
  int drawn_ = -1;  // filled cells of the bar on the terminal
  double loss_ = 0;
};

}  // namespace digits
