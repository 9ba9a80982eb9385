#include "rlx/base/team.h"

#include "rlx/base/error.h"

namespace rlx {

void Team::fail() noexcept {
  if (taken.exchange(true, std::memory_order_acq_rel)) return;
  error = std::current_exception();
  if (!error) {
    error = std::make_exception_ptr(
        Error(ErrorKind::kInternal, "a run failed outside of any exception handler"));
  }
  failed.store(true, std::memory_order_release);
}

uint32_t Team::await(uint32_t next) noexcept {
  constexpr uint32_t kPhase = ~uint32_t{3};
  uint32_t word;
  // On a crowded processor a yield gives a whole time slice away, whereas a sleeper is preferred
  // when it wakes.
  const bool crowded = preempted.load(std::memory_order_relaxed);
  detail::SpinWait spin(crowded ? detail::kPauseNs : detail::kWaitNs);
  while (((word = published.load(std::memory_order_acquire)) & kPhase) != next) {
    if (spin.again()) continue;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (((word = published.load(std::memory_order_seq_cst)) & kPhase) != next) {
      detail::sleep_while(published, word);
    }
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    break;
  }
  if (spin.preempted()) preempted.store(true, std::memory_order_relaxed);
  return word;
}

void Team::finish() const {
  if (failed.load(std::memory_order_acquire)) std::rethrow_exception(error);
  if ((published.load(std::memory_order_acquire) & 2) != 0) {
    throw Error(ErrorKind::kCancelled, "the run was cancelled");
  }
}

}  // namespace rlx
