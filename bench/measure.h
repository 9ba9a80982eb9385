// How benchmarks measure: this thread's time, medians, and reads of memory as a ceiling.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace rlx::bench {

// Of this thread: what other programs use does not count.
double seconds();

double median(std::vector<double> v);

// Aligned memory, on huge pages where the system grants them; size() is at least what was asked
// for.
class HugePages {
 public:
  explicit HugePages(int64_t bytes);
  uint8_t* data() const { return static_cast<uint8_t*>(memory_.get()); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  int64_t size_;
  std::unique_ptr<void, Free> memory_;
};

// Reads `bytes` at full speed with the best instructions of the machine and returns some sum of
// them.
uint32_t read_memory(const void* p, int64_t bytes);

// run(w) is timed on one weight of `bytes` after the other, a read of another between each two.
// There are `total` bytes of weights: more than the caches hold.
template <class F>
void report_stream(benchmark::State& state, const uint8_t* weights, int64_t total, int64_t bytes,
                   F&& run) {
  const int64_t copies = total / bytes;
  int64_t i = 0;
  const auto next = [&] { return weights + i++ % copies * bytes; };
  std::vector<double> times, reads;
  for (auto _ : state) {
    const uint8_t* weight = next();
    double start = seconds();
    benchmark::DoNotOptimize(read_memory(weight, bytes));
    reads.push_back(seconds() - start);
    weight = next();
    start = seconds();
    run(weight);
    times.push_back(seconds() - start);
    state.SetIterationTime(times.back());
  }
  state.counters["GB/s"] = double(bytes) / median(times) * 1e-9;
  state.counters["ceiling"] = double(bytes) / median(reads) * 1e-9;
  state.counters["share"] = median(reads) / median(times);
}

}  // namespace rlx::bench
