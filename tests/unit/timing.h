// Tests that demand a time: other programs run meanwhile, and sanitizers slow the code itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

#if defined(__SANITIZE_THREAD__)
#define RLX_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RLX_TSAN 1
#endif
#endif
#ifndef RLX_TSAN
#define RLX_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define RLX_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RLX_ASAN 1
#endif
#endif
#ifndef RLX_ASAN
#define RLX_ASAN 0
#endif

namespace rlx {

// How much longer code may take that a sanitizer watches.
constexpr double kSlowdown = RLX_TSAN || RLX_ASAN ? 10 : 1;

// The shortest time that f takes of `runs`.
template <class F>
double fastest_of(int runs, F&& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// The first of up to ten measurements that is below `limit`, else the least: a machine with other
// work delays some of them, code that is too slow all.
template <class Measure>
double least_of_tries(double limit, const Measure& measure) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10 && !(least < limit); ++i) least = std::min<double>(least, measure());
  return least;
}

}  // namespace rlx
