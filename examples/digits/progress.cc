#include "examples/digits/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace digits {
namespace {

constexpr int kCells = 30;

}  // namespace

Progress::Progress(std::string title, int epochs, int steps)
    : title_(std::move(title)), epochs_(epochs), steps_(steps), terminal_(isatty(STDOUT_FILENO)) {}

void Progress::step(int epoch, int step) {
  if (terminal_) draw(epoch, step + 1);
}

void Progress::end_epoch(int epoch, double loss) {
  loss_ = loss;
  if (terminal_) {
    drawn_ = -1;  // the loss has changed
    draw(epoch, steps_);
  } else {
    fmt::print("{}: epoch {:2} of {}, loss {:.4f}\n", title_, epoch + 1, epochs_, loss);
  }
}

void Progress::clear() {
  drawn_ = -1;
  if (terminal_) fmt::print("\r\033[K");  // the sequence clears to the end of the line
  std::fflush(stdout);
}

void Progress::draw(int epoch, int steps_done) {
  const int done = (epoch * steps_ + steps_done) * kCells / (epochs_ * steps_);
  if (done == drawn_) return;
  drawn_ = done;
  fmt::print("\r\033[K{} [{:-<{}}] epoch {} of {}", title_, std::string(size_t(done), '#'), kCells,
             epoch + 1, epochs_);
  if (loss_ > 0) fmt::print(", loss {:.4f}", loss_);
  std::fflush(stdout);
}

}  // namespace digits
