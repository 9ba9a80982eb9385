// The plans of graphs with symbolic sizes, by the values of the symbols: bounded, least recently
// used first out.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rlx/compile/plan.h"

namespace rlx {

struct CachedPlan {
  std::shared_ptr<const Plan> plan;
  std::atomic<bool> dropped{false};  // out of the cache: holders let it go when they next look
};

// Thread-safe.
class PlanCache {
 public:
  PlanCache(size_t max_entries, int64_t max_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes) {}

  // `program` identifies the graph and its options.
  using Key = std::pair<uint64_t, std::vector<int64_t>>;
  std::shared_ptr<CachedPlan> find(const Key& key);
  // Returns the entry. A plan that alone exceeds the bounds is not kept, and evicts nothing: its
  // entry is dropped from the start.
  std::shared_ptr<CachedPlan> insert(Key key, std::shared_ptr<const Plan> plan);
  void drop_program(uint64_t program);

  size_t entries() const;
  int64_t bytes() const;

 private:
  struct Entry {
    Key key;
    std::shared_ptr<CachedPlan> plan;
    int64_t bytes = 0;
  };
  void drop(std::list<Entry>::iterator it);

  const size_t max_entries_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::map<Key, std::list<Entry>::iterator> index_;
  int64_t bytes_ = 0;
};

}  // namespace rlx
