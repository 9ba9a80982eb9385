#include "rlx/runtime/plan_cache.h"

namespace rlx {

std::shared_ptr<CachedPlan> PlanCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->plan;
}

std::shared_ptr<CachedPlan> PlanCache::insert(Key key, std::shared_ptr<const Plan> plan) {
  auto cached = std::make_shared<CachedPlan>();
  cached->plan = std::move(plan);
  const int64_t bytes = cached->plan->byte_size();
  const std::lock_guard lock(mutex_);
  if (const auto it = index_.find(key); it != index_.end()) drop(it->second);
  if (bytes > max_bytes_ || max_entries_ == 0) {
    cached->dropped.store(true, std::memory_order_release);
    return cached;
  }
  entries_.push_front({key, cached, bytes});
  index_.emplace(std::move(key), entries_.begin());
  bytes_ += bytes;
  while (entries_.size() > max_entries_ || bytes_ > max_bytes_) {
    drop(std::prev(entries_.end()));
  }
  return cached;
}

void PlanCache::drop_program(uint64_t program) {
  const std::lock_guard lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (it->key.first == program) drop(it);
    it = next;
  }
}

size_t PlanCache::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

int64_t PlanCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void PlanCache::drop(std::list<Entry>::iterator it) {
  it->plan->dropped.store(true, std::memory_order_release);
  bytes_ -= it->bytes;
  index_.erase(it->key);
  entries_.erase(it);
}

}  // namespace rlx
