#pragma once

// The threads of one run. All of them execute the same body and meet at barriers; a failure or a
// cancellation is published by a barrier, so that all threads leave at the same place.

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include "rlx/base/wait.h"

namespace rlx {

// A handle on a shared flag that asks runs to stop. Copies share the flag; it is never taken back.
class CancelToken {
 public:
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}

  void cancel() noexcept { flag_->store(true, std::memory_order_release); }
  bool cancelled() const noexcept { return flag_->load(std::memory_order_acquire); }

  // What a run takes; the token (or a copy) must outlive the run.
  const std::atomic<bool>* flag() const noexcept { return flag_.get(); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

// What a barrier tells every thread alike.
struct BarrierResult {
  bool stop;  // leave the body now: some thread failed or the run was cancelled
  bool flag;  // Team::flag as it stood when the last thread arrived
};

// State shared by the threads of one run. Executors make it; bodies use barrier, fail, flag, width.
struct Team {
  int width = 1;                              // number of threads in the body
  const std::atomic<bool>* cancel = nullptr;  // optional; sampled once per barrier

  std::atomic<bool> failed{false};
  std::atomic<bool> taken{false};
  std::exception_ptr error;  // the first failure; readable once `failed` is seen

  alignas(detail::kCacheLine) std::atomic<int> arrived{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> preempted{false};  // a waiting thread was kept from its processor
  // A control step's answer: written between two barriers, published by the second.
  bool flag = false;

  alignas(detail::kCacheLine) std::atomic<uint32_t> published{0};  // phase << 2 | stop << 1 | flag

  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Records the exception being handled, if it is the run's first. The thread may skip its work
  // from then on but must keep meeting the others at barriers until one says stop.
  void fail() noexcept;

  // Waits until all threads have arrived. `phase` is the thread's own and starts at 0; every thread
  // must pass the same barriers until one says stop, and none afterwards.
  BarrierResult barrier(uint64_t& phase) noexcept { return barrier(phase, nullptr, nullptr); }

  // The same; the last thread to arrive calls serial(arg) while the others wait. What it writes is
  // seen by all, Team::flag and a failure included.
  BarrierResult barrier(uint64_t& phase, void (*serial)(void*) noexcept, void* arg) noexcept {
    // Threads are at most one phase apart, so 30 bits of it are enough, whatever wraps.
    const uint32_t next = static_cast<uint32_t>(++phase) << 2;
    uint32_t word;
    if (width == 1) {
      if (serial != nullptr) serial(arg);
      word = next | sample();
      published.store(word, std::memory_order_relaxed);
    } else if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == width) {
      if (serial != nullptr) serial(arg);
      word = next | sample();
      arrived.store(0, std::memory_order_relaxed);
      // Sequentially consistent against `sleepers`: either the sleeper sees the word or we see it.
      published.store(word, std::memory_order_seq_cst);
      if (sleepers.load(std::memory_order_seq_cst) != 0) detail::wake_all(published);
    } else {
      word = await(next);
    }
    return {(word & 2) != 0, (word & 1) != 0};
  }

  // For executors, after all threads have left: rethrows the first failure, or throws
  // Error(kCancelled) if a barrier stopped the run without one.
  void finish() const;

 private:
  uint32_t sample() const noexcept {
    const bool stop = failed.load(std::memory_order_acquire) ||
                      (cancel != nullptr && cancel->load(std::memory_order_acquire));
    return static_cast<uint32_t>(stop) << 1 | static_cast<uint32_t>(flag);
  }

  uint32_t await(uint32_t next) noexcept;
};

}  // namespace rlx
