// The pool among other threads that want the same processors.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "rlx/base/thread_pool.h"

namespace rlx {
namespace {

// Keeps every processor busy with more threads than there are.
class Crowd {
 public:
  Crowd() {
    for (unsigned i = 0; i < 3 * std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Crowd() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Whether some run out of those of the next seconds has this width.
bool comes_to_width(ThreadPool& pool, int width) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < until) {
    const int got = pool.run(
        2, nullptr,
        [](void*, Team& team, int) noexcept {
          uint64_t phase = 0;
          for (int i = 0; i < 50; ++i) team.barrier(phase);
        },
        nullptr);
    if (got == width) return true;
  }
  return false;
}

TEST(ThreadPoolCrowd, RunsGoAloneWhileOthersHoldTheProcessors) {
  ThreadPool pool(1);
  pool.set_avoid_crowds(true);
  EXPECT_TRUE(comes_to_width(pool, 2));
  {
    const Crowd crowd;
    EXPECT_TRUE(comes_to_width(pool, 1));
    EXPECT_TRUE(comes_to_width(pool, 2)) << "no run tries again";
  }
  EXPECT_TRUE(comes_to_width(pool, 2));
}

TEST(ThreadPoolCrowd, APoolOfOnesOwnKeepsItsWidth) {
  ThreadPool pool(1);
  const Crowd crowd;
  for (int i = 0; i < 5; ++i) {
    const int width = pool.run(
        2, nullptr,
        [](void*, Team& team, int) noexcept {
          uint64_t phase = 0;
          for (int k = 0; k < 20; ++k) team.barrier(phase);
        },
        nullptr);
    ASSERT_EQ(width, 2);
  }
}

}  // namespace
}  // namespace rlx
