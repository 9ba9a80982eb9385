// Threads: the cost of an empty run and of a barrier. The ceiling is the round trip of a cache line
// between two cores, measured first in the same process: an empty run needs two of them at best
// (start and end), a barrier one and a half.

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "rlx/base/thread_pool.h"

namespace rlx {
namespace {

void empty(void*, Team&, int) noexcept {}

// Two threads hand a line to and fro.
void line_round_trip(benchmark::State& state) {
  ThreadPool pool(1);
  pool.run(
      2, nullptr,
      [](void* arg, Team&, int thread) noexcept {
        static std::atomic<uint64_t> ball;
        if (thread == 1) {
          for (;;) {
            const uint64_t seen = ball.load(std::memory_order_acquire);
            if (seen == ~uint64_t{0}) return;
            if ((seen & 1) != 0) ball.store(seen + 1, std::memory_order_release);
          }
        }
        uint64_t next = 0;
        ball.store(0);
        for (auto _ : *static_cast<benchmark::State*>(arg)) {
          ball.store(++next, std::memory_order_release);
          ++next;
          while (ball.load(std::memory_order_acquire) != next) {
          }
        }
        ball.store(~uint64_t{0});
      },
      &state);
}
BENCHMARK(line_round_trip)->UseRealTime();

// An empty run of width range(0) on workers that still spin.
void empty_run(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)) - 1);
  for (auto _ : state) pool.run(static_cast<int>(state.range(0)), nullptr, empty, nullptr);
}
BENCHMARK(empty_run)->ArgName("width")->Arg(1)->Arg(2)->UseRealTime();

// The same after the caller was busy elsewhere for range(0) microseconds; the gap is not counted.
void empty_run_after_gap(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  ThreadPool pool(1);
  pool.set_park_immediately(state.range(1) != 0);
  const auto gap = std::chrono::microseconds(state.range(0));
  for (auto _ : state) {
    const auto until = clock::now() + gap;
    while (clock::now() < until) {
    }
    const auto start = clock::now();
    pool.run(2, nullptr, empty, nullptr);
    state.SetIterationTime(std::chrono::duration<double>(clock::now() - start).count());
  }
}
BENCHMARK(empty_run_after_gap)
    ->ArgNames({"gap_us", "park"})
    ->Args({2, 0})
    ->Args({10, 0})
    ->Args({50, 0})
    ->Args({500, 0})
    ->Args({50, 1})
    ->UseManualTime();

// One barrier, all threads arriving after range(1) nanoseconds of work.
void barrier(benchmark::State& state) {
  constexpr int kBatch = 1000;
  struct Job {
    int64_t work_ns;
  } job{state.range(1)};
  const int width = static_cast<int>(state.range(0));
  ThreadPool pool(width - 1);
  for (auto _ : state) {
    pool.run(
        width, nullptr,
        [](void* arg, Team& team, int) noexcept {
          using clock = std::chrono::steady_clock;
          const std::chrono::nanoseconds work(static_cast<Job*>(arg)->work_ns);
          uint64_t phase = 0;
          for (int i = 0; i < kBatch; ++i) {
            if (work.count() > 0) {
              const auto until = clock::now() + work;
              while (clock::now() < until) {
              }
            }
            team.barrier(phase);
          }
        },
        &job);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(barrier)
    ->ArgNames({"width", "work_ns"})
    ->Args({1, 0})
    ->Args({2, 0})
    ->Args({2, 1000})
    ->Args({2, 10000})
    ->Args({5, 0})
    ->UseRealTime();

}  // namespace
}  // namespace rlx
