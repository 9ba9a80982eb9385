#pragma once

// How a thread waits for another one: spin a little, yield a little, then sleep in the kernel.
// Waking a sleeping thread costs some 50 spin barriers, so short waits must not sleep; spinning on
// a machine that has more threads than processors stops the very thread that is waited for, so long
// waits must not spin. All limits are times, because one pause lasts from 1 to 50 ns by machine.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#endif

namespace rlx::detail {

inline constexpr size_t kCacheLine = 64;
inline constexpr int64_t kPauseNs = 4'000;    // a waiting thread keeps its processor this long
inline constexpr int64_t kWaitNs = 100'000;   // a wait inside a run sleeps after this time
inline constexpr int64_t kLingerNs = 80'000;  // an idle worker sleeps after this time
inline constexpr int64_t kLostNs = 200'000;   // a processor away this long runs somebody else

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

inline int64_t now_ns() noexcept {
  static_assert(std::chrono::steady_clock::period::den == 1'000'000'000);
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Bounds a spin loop: `while (not yet) if (!spin.again()) sleep`. A thread that spins looks at the
// clock every microsecond or so; a look that comes much later than that shows that other threads,
// mostly other processes', compete for the processor.
class SpinWait {
 public:
  explicit SpinWait(int64_t limit_ns) noexcept : limit_ns_(limit_ns) {}

  // Waits a moment; false when the time is up.
  bool again() noexcept {
    if (limit_ns_ <= 0) return false;
    if (yielding_) {
      sched_yield();
    } else {
      pause();
      if (++count_ % kPausesPerLook != 0) return true;
    }
    const int64_t now = now_ns();
    if (start_ == 0) start_ = last_ = now;
    preempted_ |= now - last_ > kLostNs;
    last_ = now;
    yielding_ = now - start_ >= kPauseNs;
    return now - start_ < limit_ns_;
  }

  bool preempted() const noexcept { return preempted_; }

 private:
  static constexpr uint32_t kPausesPerLook = 32;

  int64_t limit_ns_;
  int64_t start_ = 0;
  int64_t last_ = 0;
  uint32_t count_ = 0;
  bool yielding_ = false;
  bool preempted_ = false;
};

// Sleeps while `word` holds `value`; may return early, so callers loop.
inline void sleep_while(std::atomic<uint32_t>& word, uint32_t value) noexcept {
#if defined(__linux__)
  static_assert(sizeof(word) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr,
          nullptr, 0);
#else
  word.wait(value);
#endif
}

// Wakes every thread that sleeps on `word`.
inline void wake_all(std::atomic<uint32_t>& word) noexcept {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
#else
  word.notify_all();
#endif
}

}  // namespace rlx::detail
