// What the threads of one run did, and when.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rlx/compile/plan.h"

namespace rlx {

enum class SpanKind : uint8_t {
  kStep,     // a step, by one thread alone
  kChunk,    // one chunk of a phase of a step that threads share
  kControl,  // a control step with all of its trips
  kTrip,     // one trip of a control step
  kBarrier,  // waiting for the other threads
};

struct ProfileSpan {
  static constexpr uint32_t kNoStep = ~uint32_t(0);
  int64_t begin = 0, end = 0;  // nanoseconds since the run began
  int64_t index = 0;  // of the chunk or trip; of a control step: 1 if threads walk it together
  uint32_t step = kNoStep;  // into Plan::steps; a barrier has none
  uint32_t phase = 0;       // of a chunk; of a control step that threads walk together, the thread
  SpanKind kind = SpanKind::kStep;
};

// Collects spans of one thread. What does not fit is counted but not kept; the totals are complete.
class ProfileRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  struct Totals {
    int64_t alone = 0;   // nanoseconds, while no other thread worked on the step
    int64_t shared = 0;  // nanoseconds
    int64_t runs = 0;    // counted by the thread that ran it alone, or its first chunk
    int64_t chunks = 0;
    int64_t trips = 0;
  };

  void reserve(size_t spans, size_t steps);
  void restart(Clock::time_point start) noexcept;

  int64_t now() const noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }
  // Ends the span now. Allocates nothing.
  void add(ProfileSpan span) noexcept;

  std::span<const ProfileSpan> spans() const { return {spans_.data(), count_}; }
  const Totals& totals(uint32_t step) const { return totals_[step]; }
  int64_t barrier_nanoseconds() const { return barrier_ns_; }
  int64_t dropped() const { return dropped_; }

 private:
  Clock::time_point start_;
  std::vector<ProfileSpan> spans_;
  std::vector<Totals> totals_;
  size_t count_ = 0;
  int64_t barrier_ns_ = 0, dropped_ = 0;
};

// Times a piece of work, if there is a recorder.
class ProfileScope {
 public:
  ProfileScope(ProfileRecorder* recorder, SpanKind kind, uint32_t step = ProfileSpan::kNoStep,
               int64_t index = 0, uint32_t phase = 0)
      : recorder_(recorder) {
    if (recorder_) [[unlikely]]
      span_ = {recorder_->now(), 0, index, step, phase, kind};
  }
  ~ProfileScope() {
    if (recorder_) [[unlikely]]
      recorder_->add(span_);
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  ProfileRecorder* recorder_;
  ProfileSpan span_;
};

// Given to a run (RunOptions::profile), it holds what that run did, also if it failed; a later run
// replaces it. For one run at a time. Memory is allocated when it meets a new plan.
class Profile {
 public:
  explicit Profile(size_t spans_per_thread = size_t(1) << 15) : capacity_(spans_per_thread) {}

  struct Row {
    std::string op, label, entry;
    int depth = 0;         // of bodies around it
    bool control = false;  // its time contains that of its bodies
    int64_t runs = 0;      // how often the step was run
    int64_t trips = 0;     // of a control step
    int64_t chunks = 0;
    double nanoseconds = 0;       // of the thread that worked on it longest
    double busy = 0;              // of all threads together
    double flops = 0, bytes = 0;  // by the op's cost, of all runs
  };
  // In the order of the plan, bodies below their control step. Steps that did not run have zeros.
  std::vector<Row> rows() const;
  // The rows with their share of the work and their rates, and totals.
  std::string to_string() const;
  // For Perfetto and chrome://tracing: one track for each thread, steps with their trips and
  // chunks.
  std::string to_trace_json() const;

  bool empty() const { return !plan_; }
  const Plan& plan() const;  // of the last run; throws if there was none
  int threads() const { return threads_; }
  int64_t nanoseconds() const { return nanoseconds_; }  // from the start of the run to its end
  std::span<const ProfileRecorder> recorders() const {
    return {recorders_.data(), size_t(threads_)};
  }
  int64_t dropped() const;  // spans that did not fit

  // For the runtime: before and after a run on at most that many threads.
  std::span<ProfileRecorder> start(std::shared_ptr<const Plan> plan, int threads);
  void finish(int threads) noexcept;

 private:
  void add_rows(std::vector<Row>& rows, const std::vector<Segment>& segments, int depth) const;

  size_t capacity_;
  std::shared_ptr<const Plan> plan_;
  std::vector<ProfileRecorder> recorders_;
  ProfileRecorder::Clock::time_point start_;
  int threads_ = 0;
  int64_t nanoseconds_ = 0;
};

}  // namespace rlx
