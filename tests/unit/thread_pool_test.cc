#include "rlx/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rlx/base/cpu_info.h"
#include "rlx/base/error.h"
#include "tests/unit/timing.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace rlx {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Runs f(team, thread).
template <class F>
int run(Executor& executor, int max_width, F f, const std::atomic<bool>* cancel = nullptr) {
  return executor.run(
      max_width, cancel,
      [](void* arg, Team& team, int thread) noexcept { (*static_cast<F*>(arg))(team, thread); },
      &f);
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void wait_for(const std::atomic<bool>& flag) {
  while (!flag.load()) std::this_thread::yield();
}

class ThreadPoolWidth : public testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{4};
};
INSTANTIATE_TEST_SUITE_P(Widths, ThreadPoolWidth, testing::Values(1, 2, 5));

TEST_P(ThreadPoolWidth, EveryThreadRunsOnce) {
  const int width = GetParam();
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> seen[5] = {};
    std::thread::id ids[5];
    const int got = run(pool_, width, [&](Team& team, int thread) {
      EXPECT_EQ(team.width, width);
      ids[thread] = std::this_thread::get_id();
      ++seen[thread];
    });
    EXPECT_EQ(got, width);
    for (int t = 0; t < 5; ++t) EXPECT_EQ(seen[t], t < width ? 1 : 0);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    EXPECT_EQ(std::set<std::thread::id>(ids, ids + width).size(), static_cast<size_t>(width));
    EXPECT_EQ(pool_.started(), width - 1);
  }
}

TEST_P(ThreadPoolWidth, BarriersOrderPlainMemory) {
  const int width = GetParam();
  constexpr int64_t kRounds = 50'000;  // two barriers each
  int64_t value[5] = {};
  std::atomic<int64_t> wrong{0};
  run(pool_, width, [&](Team& team, int thread) {
    uint64_t phase = 0;
    for (int64_t i = 1; i <= kRounds; ++i) {
      value[thread] = i;
      team.barrier(phase);
      for (int t = 0; t < width; ++t) wrong += value[t] != i;
      team.barrier(phase);
    }
  });
  EXPECT_EQ(wrong, 0);
  for (int t = 0; t < width; ++t) EXPECT_EQ(value[t], kRounds);
}

TEST_P(ThreadPoolWidth, TheFlagIsTheSameForAll) {
  const int width = GetParam();
  int rounds[5] = {};
  run(pool_, width, [&](Team& team, int thread) {
    uint64_t phase = 0;
    for (;;) {
      if (thread == width - 1) team.flag = rounds[thread] < 1000;
      if (!team.barrier(phase).flag) break;
      ++rounds[thread];
    }
  });
  for (int t = 0; t < width; ++t) EXPECT_EQ(rounds[t], 1000);
}

TEST_P(ThreadPoolWidth, AFailureOfTheLastThreadStopsAllAtOneBarrier) {
  const int width = GetParam();
  int left[5] = {};
  try {
    run(pool_, width, [&](Team& team, int thread) {
      uint64_t phase = 0;
      for (int i = 0;; ++i) {
        try {
          if (thread == width - 1 && i == 11) throw std::runtime_error("eleven");
        } catch (...) {
          team.fail();
        }
        if (!team.barrier(phase).stop) continue;
        left[thread] = i;
        return;
      }
    });
    FAIL() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "eleven");
  }
  for (int t = 0; t < width; ++t) EXPECT_EQ(left[t], 11);
  EXPECT_EQ(run(pool_, width, [](Team&, int) {}), width);  // no trace of it in the next run
}

TEST_P(ThreadPoolWidth, TheFirstFailureWins) {
  const int width = GetParam();
  try {
    run(pool_, width, [&](Team& team, int thread) {
      while (thread != 0 && !team.failed.load()) std::this_thread::yield();
      try {
        throw std::runtime_error(std::to_string(thread));
      } catch (...) {
        team.fail();
      }
    });
    FAIL() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "0");
  }
}

double seconds_to_cancel(ThreadPool& pool, int width) {
  CancelToken token;
  const CancelToken copy = token;
  std::atomic<bool> looping{false};
  steady_clock::time_point cancelled;
  std::thread canceller([&] {
    wait_for(looping);
    std::this_thread::sleep_for(milliseconds(20));
    cancelled = steady_clock::now();
    token.cancel();
  });
  ErrorKind kind = ErrorKind::kInternal;
  steady_clock::time_point returned;
  try {
    run(
        pool, width,
        [&](Team& team, int) {
          uint64_t phase = 0;
          while (!team.barrier(phase).stop) looping = true;
        },
        copy.flag());
  } catch (const Error& e) {
    kind = e.kind();
    returned = steady_clock::now();
  }
  canceller.join();
  EXPECT_EQ(kind, ErrorKind::kCancelled);
  EXPECT_TRUE(copy.cancelled());
  return std::chrono::duration<double>(returned - cancelled).count();
}

TEST_P(ThreadPoolWidth, CancelEndsAnEndlessLoop) {
  const double limit = 0.1 * kSlowdown;
  EXPECT_LT(least_of_tries(limit, [&] { return seconds_to_cancel(pool_, GetParam()); }), limit);
}

TEST_P(ThreadPoolWidth, ManyShortRuns) {
  const int width = GetParam();
  std::atomic<int64_t> count{0};
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(run(pool_, width, [&](Team&, int) { ++count; }), width);
  }
  EXPECT_EQ(count, int64_t{10'000} * width);
}

TEST(ThreadPool, TheWidthIsBoundedByRequestAndWorkers) {
  ThreadPool none(0), four(4);
  EXPECT_EQ(run(none, 8, [](Team&, int) {}), 1);
  EXPECT_EQ(run(four, 1, [](Team&, int) {}), 1);
  EXPECT_EQ(four.started(), 0);
  EXPECT_EQ(run(four, 3, [](Team&, int) {}), 3);
  EXPECT_EQ(four.started(), 2);
  EXPECT_EQ(run(four, std::numeric_limits<int>::max(), [](Team&, int) {}), 5);
  EXPECT_EQ(four.started(), 4);
}

TEST(ThreadPool, WrongArguments) {
  try {
    ThreadPool pool(-1);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUser);
    EXPECT_EQ(e.message(), "thread pool: the number of workers is -1; it must not be negative");
  }
  ThreadPool pool(1);
  try {
    run(pool, 0, [](Team&, int) {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUser);
    EXPECT_EQ(e.message(), "thread pool: the maximal width of a run is 0; it must be at least 1");
  }
}

TEST(ThreadPool, AFailureOutsideOfAHandlerIsInternal) {
  ThreadPool pool(0);
  try {
    run(pool, 1, [](Team& team, int) { team.fail(); });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInternal);
  }
}

TEST(ThreadPool, CancelledBeforeTheStartRunsNothing) {
  ThreadPool pool(1);
  CancelToken token;
  token.cancel();
  bool ran = false;
  try {
    run(
        pool, 1, [&](Team&, int) { ran = true; }, token.flag());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCancelled);
  }
  EXPECT_FALSE(ran);
}

TEST(ThreadPool, CancelAfterTheLastBarrierIsTooLate) {
  ThreadPool pool(1);
  CancelToken token;
  EXPECT_EQ(run(
                pool, 2,
                [&](Team& team, int) {
                  uint64_t phase = 0;
                  EXPECT_FALSE(team.barrier(phase).stop);
                  token.cancel();
                },
                token.flag()),
            2);
}

TEST(ThreadPool, AnErrorGoesBeforeCancel) {
  ThreadPool pool(0);
  CancelToken token;
  EXPECT_THROW(run(
                   pool, 1,
                   [&](Team& team, int) {
                     uint64_t phase = 0;
                     token.cancel();
                     try {
                       throw std::runtime_error("failed");
                     } catch (...) {
                       team.fail();
                     }
                     EXPECT_TRUE(team.barrier(phase).stop);
                   },
                   token.flag()),
               std::runtime_error);
}

TEST(ThreadPool, ACallerDoesNotWaitForBusyWorkers) {
  ThreadPool pool(1);
  std::atomic<bool> busy{false}, finish{false};
  std::thread other([&] {
    EXPECT_EQ(run(pool, 2,
                  [&](Team&, int thread) {
                    if (thread == 1) busy = true;
                    wait_for(finish);
                  }),
              2);
  });
  wait_for(busy);
  EXPECT_EQ(run(pool, 2, [](Team&, int) {}), 1);
  finish = true;
  other.join();
  EXPECT_EQ(run(pool, 2, [](Team&, int) {}), 2);
}

TEST(ThreadPool, ConcurrentCallersShareTheProcessors) {
  ThreadPool pool(4);
  std::atomic<bool> busy{false}, finish{false};
  std::thread other([&] {
    run(pool, 1, [&](Team&, int) {
      busy = true;
      wait_for(finish);
    });
  });
  wait_for(busy);
  EXPECT_EQ(run(pool, 5, [](Team&, int) {}), 4);  // the other caller holds the fifth processor
  finish = true;
  other.join();
  EXPECT_EQ(run(pool, 5, [](Team&, int) {}), 5);
}

TEST(ThreadPool, ConcurrentRunsDoNotMix) {
  ThreadPool pool(2);
  std::atomic<int> workers{0};
  std::atomic<int> most{0};
  std::atomic<int> wrong{0};
  auto caller = [&] {
    for (int i = 0; i < 3000; ++i) {
      std::atomic<int> mine{0};
      const int width = run(pool, 3, [&](Team& team, int thread) {
        uint64_t phase = 0;
        const int now = thread == 0 ? 0 : ++workers;
        for (int old = most; now > old && !most.compare_exchange_weak(old, now);) {
        }
        ++mine;
        team.barrier(phase);
        wrong += mine != team.width;
        if (thread != 0) --workers;
      });
      wrong += mine != width;
    }
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(most, 2);
  EXPECT_GE(most, 1);
  EXPECT_EQ(run(pool, 3, [](Team&, int) {}), 3);  // every claim was given back
}

TEST(ThreadPool, ANestedRunIsSerial) {
  ThreadPool pool(2), second(2);
  std::atomic<int> inner{0};
  EXPECT_EQ(run(pool, 3,
                [&](Team&, int) {
                  EXPECT_EQ(run(pool, 3, [&](Team&, int) { ++inner; }), 1);
                  EXPECT_EQ(run(second, 3, [&](Team&, int) { ++inner; }), 1);
                }),
            3);
  EXPECT_EQ(inner, 6);
  EXPECT_EQ(second.started(), 0);
}

class ThreadPoolPark : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Immediately, ThreadPoolPark, testing::Bool());

TEST_P(ThreadPoolPark, IdleWorkersSleepAndWake) {
  ThreadPool pool(4);
  pool.set_park_immediately(GetParam());
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(run(pool, 5, [](Team&, int) {}), 5);
    std::this_thread::sleep_for(milliseconds(2));
  }
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.1);  // one spinning worker alone would use 0.2
  for (int i = 0; i < 200; ++i) ASSERT_EQ(run(pool, 5, [](Team&, int) {}), 5);
}

TEST(ThreadPool, LongWaitsSleep) {
  ThreadPool pool(1);
  for (const int late : {0, 1}) {
    for (const bool at_barrier : {false, true}) {
      std::atomic<int64_t> done{0};
      const double before = cpu_seconds();
      run(pool, 2, [&](Team& team, int thread) {
        uint64_t phase = 0;
        if (thread == late) {
          std::this_thread::sleep_for(milliseconds(200));
          done = 1;
        }
        if (at_barrier) {
          team.barrier(phase);
          EXPECT_EQ(done, 1);
        }
      });
      EXPECT_EQ(done, 1);
      EXPECT_LT(cpu_seconds() - before, 0.1);
    }
  }
}

TEST(ThreadPool, BarriersWakeSleepers) {
  ThreadPool pool(4);
  int rounds[5] = {};
  run(pool, 5, [&](Team& team, int thread) {
    uint64_t phase = 0;
    for (int i = 0; i < 100; ++i) {
      if (i % 5 == thread) std::this_thread::sleep_for(std::chrono::microseconds(50 + 5 * i));
      team.barrier(phase);
      ++rounds[thread];
    }
  });
  for (const int r : rounds) EXPECT_EQ(r, 100);
}

#if defined(__x86_64__)
TEST(ThreadPool, EveryThreadHasTheDefaultFloatModes) {
  constexpr unsigned kModes = 0xFFC0;
  constexpr unsigned kFlushAndRoundUp = 0x8040 | 0x4000;
  const unsigned saved = _mm_getcsr();
  unsigned modes[3] = {};
  {
    ThreadPool pool(2);
    _mm_setcsr((saved & ~0x3Fu) | kFlushAndRoundUp);  // before the workers start, which inherit it
    EXPECT_EQ(run(pool, 3, [&](Team&, int thread) { modes[thread] = _mm_getcsr() & kModes; }), 3);
    EXPECT_EQ(_mm_getcsr() & kFlushAndRoundUp, kFlushAndRoundUp);
  }
  _mm_setcsr(saved);
  for (const unsigned m : modes) EXPECT_EQ(m, 0x1F80u);
}
#endif

TEST(ThreadPool, SharedIsOneAndBounded) {
  ThreadPool& pool = ThreadPool::shared();
  EXPECT_EQ(&pool, &ThreadPool::shared());
  EXPECT_EQ(pool.workers(), default_width() - 1);
  EXPECT_EQ(run(pool, 1000, [](Team&, int) {}), default_width());
}

// A caller's own executor needs nothing but Team.
class InlineExecutor final : public Executor {
 public:
  int run(int, const std::atomic<bool>* cancel, TeamBody body, void* arg) override {
    Team team;
    team.cancel = cancel;
    body(arg, team, 0);
    team.finish();
    return 1;
  }
};

TEST(ThreadPool, CallersMayBringAnExecutor) {
  InlineExecutor executor;
  int count = 0;
  EXPECT_EQ(run(executor, 4, [&](Team& team, int) { count += team.width; }), 1);
  EXPECT_EQ(count, 1);
  EXPECT_THROW(run(executor, 4,
                   [](Team& team, int) {
                     try {
                       throw std::runtime_error("failed");
                     } catch (...) {
                       team.fail();
                     }
                   }),
               std::runtime_error);
}

#if !RLX_TSAN  // its runtime does not support threads in a forked child
// The exit status of a child that does `f`, or -1 if it took longer than 10 s.
template <class F>
int status_of_child(F f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  for (int i = 0; i < 10'000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

TEST(ThreadPoolFork, TheChildStartsItsOwnWorkers) {
  for (const int idle_ms : {0, 5}) {  // spinning and sleeping workers
    ThreadPool pool(2);
    ASSERT_EQ(run(pool, 3, [](Team&, int) {}), 3);
    std::this_thread::sleep_for(milliseconds(idle_ms));
    EXPECT_EQ(status_of_child([&] {
                if (pool.started() != 0) return 1;
                for (int i = 0; i < 100; ++i) {
                  if (run(pool, 3, [](Team&, int) {}) != 3) return 2;
                }
                { ThreadPool fresh(1); }
                return pool.started() == 2 ? 42 : 3;
              }),
              42);
    EXPECT_EQ(run(pool, 3, [](Team&, int) {}), 3);
  }
}

TEST(ThreadPoolFork, AGrandchildToo) {
  ThreadPool pool(1);
  ASSERT_EQ(run(pool, 2, [](Team&, int) {}), 2);
  EXPECT_EQ(status_of_child([&] {
              if (run(pool, 2, [](Team&, int) {}) != 2) return 1;
              return status_of_child([&] { return run(pool, 2, [](Team&, int) {}) == 2 ? 42 : 2; });
            }),
            42);
}

TEST(ThreadPoolFork, WhileAnotherThreadRuns) {
  ThreadPool pool(1);
  std::atomic<bool> busy{false}, finish{false};
  std::thread other([&] {
    run(pool, 2, [&](Team&, int thread) {
      if (thread == 1) busy = true;
      wait_for(finish);
    });
  });
  wait_for(busy);
  EXPECT_EQ(status_of_child([&] { return run(pool, 2, [](Team&, int) {}) == 2 ? 42 : 1; }), 42);
  finish = true;
  other.join();
  EXPECT_EQ(run(pool, 2, [](Team&, int) {}), 2);
}

TEST(ThreadPoolFork, TheChildMayDestroyThePool) {
  auto pool = std::make_unique<ThreadPool>(1);
  ASSERT_EQ(run(*pool, 2, [](Team&, int) {}), 2);
  EXPECT_EQ(status_of_child([&] {
              pool.reset();
              return 42;
            }),
            42);
}

TEST(ThreadPoolFork, InsideARunOnlyTheParentFinishesIt) {
  ThreadPool pool(1);
  for (const int width : {1, 2}) {
    pid_t child = -1;
    std::string error;
    try {
      run(pool, width, [&](Team&, int thread) {
        if (thread == 0) child = fork();
      });
    } catch (const Error& e) {
      error = e.message();
    }
    if (child == 0) {
      const bool right = width == 1 ? error.empty()
                                    : error ==
                                          "the process forked inside a parallel run; only "
                                          "its parent can finish that run";
      _exit(right && run(pool, 2, [](Team&, int) {}) == 2 ? 42 : 1);
    }
    EXPECT_EQ(error, "");
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
  }
}
#endif

}  // namespace
}  // namespace rlx
