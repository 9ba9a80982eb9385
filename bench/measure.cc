#include "bench/measure.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/measure.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::bench {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Four sequences at once read a little faster than one.
uint32_t read_words(const uint32_t* p, int64_t count) {
  const hn::ScalableTag<uint32_t> d;
  constexpr int kStreams = 4;
  const int64_t step = int64_t(hn::Lanes(d)), part = count / kStreams;
  hn::Vec<decltype(d)> sums[kStreams * 2];
#pragma GCC unroll 8
  for (int i = 0; i < kStreams * 2; ++i) sums[i] = hn::Zero(d);
  for (int64_t j = 0; j + 2 * step <= part; j += 2 * step) {
#pragma GCC unroll 4
    for (int i = 0; i < kStreams; ++i) {
      sums[2 * i] = hn::Add(sums[2 * i], hn::LoadU(d, p + i * part + j));
      sums[2 * i + 1] = hn::Add(sums[2 * i + 1], hn::LoadU(d, p + i * part + j + step));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < kStreams * 2; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  return hn::GetLane(sums[0]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <sys/mman.h>
#include <time.h>

#include <algorithm>

namespace rlx::bench {

HWY_EXPORT(read_words);

double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + int64_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

HugePages::HugePages(int64_t bytes) {
  constexpr int64_t kHuge = int64_t{2} << 20;
  size_ = (bytes + kHuge) / kHuge * kHuge;
  memory_.reset(std::aligned_alloc(size_t(kHuge), size_t(size_)));
  madvise(memory_.get(), size_t(size_), MADV_HUGEPAGE);
}

uint32_t read_memory(const void* p, int64_t bytes) {
  return HWY_DYNAMIC_DISPATCH(read_words)(static_cast<const uint32_t*>(p), bytes / 4);
}

}  // namespace rlx::bench
#endif  // HWY_ONCE
