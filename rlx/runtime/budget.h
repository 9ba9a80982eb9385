// Accounting of a session's memory against its limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "rlx/base/error.h"

namespace rlx {

// Thread-safe. A limit below 0 means none.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit = -1) : limit_(limit) {}

  // Throws Error(kDevice), and changes nothing, if the limit would be exceeded.
  void reserve(int64_t bytes, std::string_view what) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (limit_ >= 0 && bytes > limit_ - used) {
        fail(ErrorKind::kDevice,
             "{} needs {} bytes, but the session's limit is {} bytes and {} are in use", what,
             bytes, limit_, used);
      }
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  }
  void release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

// Bytes held from a budget, given back by the destructor.
class Reservation {
 public:
  Reservation() = default;
  Reservation(std::shared_ptr<MemoryBudget> budget, int64_t bytes, std::string_view what)
      : budget_(std::move(budget)), bytes_(bytes) {
    budget_->reserve(bytes, what);
  }
  Reservation(Reservation&& o) noexcept : budget_(std::move(o.budget_)), bytes_(o.bytes_) {}
  Reservation& operator=(Reservation&& o) noexcept {
    std::swap(budget_, o.budget_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Reservation() {
    if (budget_) budget_->release(bytes_);
  }
  int64_t bytes() const { return budget_ ? bytes_ : 0; }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace rlx
