#include "tests/unit/allocation_counter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

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

TEST(AllocationCounter, SeesAllFormsOfNew) {
  // Calls of the functions themselves: a compiler may leave out new expressions.
  const int64_t before = allocation_count();
  void* plain = ::operator new(8);
  const int64_t one = allocation_count();
  void* array = ::operator new[](8);
  const int64_t two = allocation_count();
  void* aligned = ::operator new(64, std::align_val_t(64));
  const int64_t three = allocation_count();
  ::operator delete(plain);
  ::operator delete[](array);
  ::operator delete(aligned, std::align_val_t(64));
  EXPECT_EQ(one, before + 1);
  EXPECT_EQ(two, before + 2);
  EXPECT_EQ(three, before + 3);
}

}  // namespace
}  // namespace rlx
