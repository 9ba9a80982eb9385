#include "tests/unit/allocation_counter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace {
std::atomic<int64_t> allocations{0};
}

// Not inlined: g++ 12 then takes the pairs of new and free for a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto a = size_t(alignment);
  if (void* p = std::aligned_alloc(a, (size + a) / a * a)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace rlx {

int64_t allocation_count() { return allocations.load(std::memory_order_relaxed); }

namespace {

struct alignas(128) Wide {
  int x = 0;
};

TEST(AllocationCounter, SeesAllFormsOfNew) {
  const int64_t before = allocation_count();
  const std::vector<int> plain(3);
  EXPECT_EQ(allocation_count(), before + 1);
  const auto array = std::make_unique<int[]>(size_t(plain[0] + 5));
  EXPECT_EQ(allocation_count(), before + 2);
  const auto aligned = std::make_unique<Wide>();
  EXPECT_EQ(allocation_count(), before + 3);
  EXPECT_NE(array.get(), nullptr);
  EXPECT_NE(aligned.get(), nullptr);
}

}  // namespace
}  // namespace rlx
