#pragma once

// The processors of a process, shared by all sessions: a run takes the workers that are idle, if
// any, and never waits for busy ones.

#include <atomic>
#include <cstdint>
#include <memory>

#include "rlx/base/team.h"

namespace rlx {

// What every thread of a run executes; `thread` is 0 .. team.width - 1.
using TeamBody = void (*)(void* arg, Team& team, int thread) noexcept;

// Something that runs a body on a team of threads. Callers may hand in their own.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `body` on at least one and at most `max_width` threads that all make progress at the same
  // time (they meet at barriers), and returns their number when all have left. Throws the first
  // failure that the team recorded, or Error(kCancelled) if `cancel` (may be null) was set before
  // the start or seen by a barrier. Safe to call from any number of threads.
  virtual int run(int max_width, const std::atomic<bool>* cancel, TeamBody body, void* arg) = 0;
};

// A bounded pool of worker threads. The caller of run() is thread 0 of its team.
//
// - Workers are started by the first run that finds work for them; none exists before.
// - A run takes a worker only while fewer than workers() + 1 threads are in runs, callers included:
//   concurrent callers share the processors, and whoever comes when all are taken runs alone.
// - A run from inside a body has width 1.
// - On a machine that others use too, threads that meet at barriers wait for whoever of them lost
//   its processor, so that two threads may take many times as long as one. The shared pool notices
//   this and lets the next runs go alone, for 10 ms at first and for longer when it recurs.
// - An idle worker keeps its processor for a moment, because the next run usually follows at once,
//   then sleeps. Nothing is allocated per run.
// - Every thread of a body has the default floating-point modes (round to nearest, subnormals
//   kept), so results do not depend on who computes a part; the caller's own modes are put back.
// - After fork() the child's pools start afresh. A body must not fork, except to exec or _exit.
class ThreadPool final : public Executor {
 public:
  // The process's pool, with default_width() - 1 workers. It is never destroyed, so static
  // destructors may still run; its workers sleep until the process ends.
  static ThreadPool& shared();

  // A pool of its own with at most `workers` >= 0 threads besides the callers.
  explicit ThreadPool(int workers);

  // Joins the workers. No run may be in progress.
  ~ThreadPool() override;

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // A thread that can't be started (a limit of the system) makes the team smaller.
  int run(int max_width, const std::atomic<bool>* cancel, TeamBody body, void* arg) override;

  // Bound of the number of workers.
  int workers() const noexcept { return workers_; }

  // Number of workers that exist by now.
  int started() const noexcept { return started_.load(std::memory_order_relaxed); }

  // For hosts shared with others: idle workers sleep at once (a run then wakes them, which costs
  // some 10 to 25 microseconds).
  void set_park_immediately(bool on) noexcept;

  // Whether runs go alone for a while after one was held up by other processes. Only the shared
  // pool starts with it: whoever makes a pool wants its threads.
  void set_avoid_crowds(bool on) noexcept;

 private:
  struct Worker;
  struct Fork;

  static void* work(void* worker) noexcept;

  int admit(int max_width) noexcept;
  bool crowded() const noexcept;
  void note_crowd() noexcept;
  Worker* gather(Team& team, int wanted) noexcept;
  bool start(Worker& worker) noexcept;
  void forget_workers() noexcept;

  int workers_;
  std::unique_ptr<Worker[]> slots_;
  std::atomic<int64_t> linger_ns_;
  std::atomic<int> started_{0};
  std::atomic<bool> avoid_crowds_{false};
  std::atomic<int64_t> alone_until_{0};  // nanoseconds of the steady clock
  std::atomic<int64_t> alone_ns_{0};     // how long the last such time was
  uint32_t forks_ = 0;          // forks that this pool has lived through, as seen in the child
  ThreadPool* next_ = nullptr;  // list of all pools, for fork
  ThreadPool* prev_ = nullptr;

  alignas(detail::kCacheLine) std::atomic<int> active_{0};  // threads in runs, callers included
};

}  // namespace rlx
