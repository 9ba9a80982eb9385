// The weight store: named params of a session and their packed forms.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/compile/plan.h"
#include "rlx/runtime/budget.h"

namespace rlx {

// Thread-safe. Runs that read weights share the store; set, erase and runs that update params have
// it for themselves, so a run sees every weight either before or after such a change.
//
// A dense array, aligned to its elements, is kept as it is, without a copy: its memory must not
// change while it is in the store (memory-mapped files work). Others are copied. Before a run
// updates a param, the store copies it once into memory of its own.
class WeightStore {
 public:
  explicit WeightStore(std::shared_ptr<MemoryBudget> budget);
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // Adds or replaces; packed forms of an old value are dropped, and made again by the next run that
  // needs them. Throws Error(kDevice) beyond the session's memory limit.
  void set(std::string_view name, const Array& value);
  // All of them, or none if one does not fit the memory limit.
  void set(const std::map<std::string, Array>& values);
  void erase(std::string_view name);

  bool has(std::string_view name) const;
  Array get(std::string_view name) const;  // a copy; throws if there is none
  // The value itself, sharing its memory, or an undefined array. Runs may change it.
  Array peek(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

  int64_t bytes() const;         // of the weights
  int64_t packed_bytes() const;  // of their packed forms
  int64_t packs() const;         // how often a weight was packed

 private:
  friend class WeightBinding;

  struct Packed {
    std::shared_ptr<void> memory;
    Reservation reservation;
  };
  struct Weight {
    Array value;
    bool owned = false;  // nobody else has the memory
    Reservation reservation;
    std::map<std::string, Packed, std::less<>> packed;  // by key
  };

  Weight make(std::string_view name, const Array& value) const;
  Weight& find(const PlanParam& param);

  const std::shared_ptr<MemoryBudget> budget_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, Weight, std::less<>> weights_;
  uint64_t version_ = 1;  // grows whenever an address that a run may hold becomes stale
  int64_t packs_ = 0;
};

// The weights of one plan, as addresses. Used by executables.
class WeightBinding {
 public:
  // `store` must outlive the binding.
  WeightBinding(WeightStore& store, std::shared_ptr<const Plan> plan);

  // Locks the store for a run: shared with other runs unless the plan updates params. True if
  // addresses have changed since the last lock. Throws Error(kUser), unlocked, if a param has no
  // value or one of another type.
  bool lock();
  void unlock();
  // Under the lock: the run wrote the plan's updated params, so packed forms of them are stale.
  void wrote();

  void* param(size_t index) { return params_[index].second; }
  void* packed(size_t index) { return packed_[index].get(); }

 private:
  void resolve();

  WeightStore& store_;
  const std::shared_ptr<const Plan> plan_;
  const bool updates_;
  std::vector<std::pair<Array, void*>> params_;  // what keeps the memory, and its address
  std::vector<std::shared_ptr<void>> packed_;
  std::vector<WeightStore::Weight*> written_;  // those that a run updates
  uint64_t version_ = 0;                       // of the store when the addresses were taken
};

}  // namespace rlx
