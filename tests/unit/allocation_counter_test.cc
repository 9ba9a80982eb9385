#include "tests/unit/allocation_counter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

// Not inlined: g++ 12 then takes the pairs of new and free for a mismatch.
[[gnu::noinline]] void* allocate(size_t size, size_t alignment) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size ? size : 1);
  return std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
}

void* allocate_or_throw(size_t size, size_t alignment = 1) {
  if (void* p = allocate(size, alignment)) return p;
  throw std::bad_alloc();
}

[[gnu::noinline]] void release(void* p) noexcept { std::free(p); }

}  // namespace

// Every form, though by default most call another one: the sanitizers bring their own of each, and
// what one of those allocates, ours must not free.
using Align = std::align_val_t;
using NoThrow = std::nothrow_t;
void* operator new(size_t n) { return allocate_or_throw(n); }
void* operator new[](size_t n) { return allocate_or_throw(n); }
void* operator new(size_t n, Align a) { return allocate_or_throw(n, size_t(a)); }
void* operator new[](size_t n, Align a) { return allocate_or_throw(n, size_t(a)); }
void* operator new(size_t n, const NoThrow&) noexcept { return allocate(n, 1); }
void* operator new[](size_t n, const NoThrow&) noexcept { return allocate(n, 1); }
void* operator new(size_t n, Align a, const NoThrow&) noexcept { return allocate(n, size_t(a)); }
void* operator new[](size_t n, Align a, const NoThrow&) noexcept { return allocate(n, size_t(a)); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete[](void* p, size_t) noexcept { release(p); }
void operator delete(void* p, Align) noexcept { release(p); }
void operator delete[](void* p, Align) noexcept { release(p); }
void operator delete(void* p, size_t, Align) noexcept { release(p); }
void operator delete[](void* p, size_t, Align) noexcept { release(p); }
void operator delete(void* p, const NoThrow&) noexcept { release(p); }
void operator delete[](void* p, const NoThrow&) noexcept { release(p); }
void operator delete(void* p, Align, const NoThrow&) noexcept { release(p); }
void operator delete[](void* p, Align, const NoThrow&) noexcept { release(p); }

namespace rlx {

int64_t allocation_count() { return allocations.load(std::memory_order_relaxed); }

namespace {

// Calls of the functions themselves: a compiler may leave out new expressions.
TEST(AllocationCounter, SeesAllFormsOfNew) {
  constexpr std::align_val_t kAlign{64};
  int64_t seen = allocation_count();
  const auto counted = [&seen](void* p) {
    EXPECT_NE(p, nullptr);
    return allocation_count() == ++seen;
  };
  void* p = ::operator new(8);
  EXPECT_TRUE(counted(p));
  ::operator delete(p);
  p = ::operator new[](8);
  EXPECT_TRUE(counted(p));
  ::operator delete[](p);
  p = ::operator new(8, std::nothrow);
  EXPECT_TRUE(counted(p));
  ::operator delete(p, std::nothrow);
  p = ::operator new[](8, std::nothrow);
  EXPECT_TRUE(counted(p));
  ::operator delete[](p, std::nothrow);
  p = ::operator new(64, kAlign);
  EXPECT_TRUE(counted(p));
  ::operator delete(p, kAlign);
  p = ::operator new[](64, kAlign);
  EXPECT_TRUE(counted(p));
  ::operator delete[](p, kAlign);
  p = ::operator new(64, kAlign, std::nothrow);
  EXPECT_TRUE(counted(p));
  ::operator delete(p, kAlign, std::nothrow);
  p = ::operator new[](64, kAlign, std::nothrow);
  EXPECT_TRUE(counted(p));
  ::operator delete[](p, kAlign, std::nothrow);
}

}  // namespace
}  // namespace rlx
