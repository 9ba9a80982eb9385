#include "rlx/runtime/weights.h"

#include <algorithm>
#include <mutex>

#include "rlx/base/error.h"
#include "rlx/compile/memory.h"

namespace rlx {

WeightStore::WeightStore(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

WeightStore::Weight WeightStore::make(std::string_view name, const Array& value) const {
  if (!value.defined()) user_error("the weight '{}' is set to an undefined array", name);
  Weight w;
  w.reservation = Reservation(budget_, value.byte_size(), fmt::format("the weight '{}'", name));
  w.owned = !value.is_dense() || !is_aligned(value);
  w.value = w.owned ? value.copy() : value;
  return w;
}

void WeightStore::set(std::string_view name, const Array& value) {
  Weight w = make(name, value);
  const std::unique_lock lock(mutex_);
  weights_.insert_or_assign(std::string(name), std::move(w));
  ++version_;
}

void WeightStore::set(const std::map<std::string, Array>& values) {
  std::vector<std::pair<std::string, Weight>> made;
  made.reserve(values.size());
  for (const auto& [name, value] : values) made.emplace_back(name, make(name, value));
  const std::unique_lock lock(mutex_);
  for (auto& [name, w] : made) weights_.insert_or_assign(std::move(name), std::move(w));
  ++version_;
}

void WeightStore::erase(std::string_view name) {
  const std::unique_lock lock(mutex_);
  const auto it = weights_.find(name);
  if (it == weights_.end()) user_error("the weight store has no weight '{}'", name);
  weights_.erase(it);
  ++version_;
}

bool WeightStore::has(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  return weights_.contains(name);
}

Array WeightStore::get(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto it = weights_.find(name);
  if (it == weights_.end()) user_error("the weight store has no weight '{}'", name);
  return it->second.value.copy();
}

Array WeightStore::peek(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto it = weights_.find(name);
  return it == weights_.end() ? Array() : it->second.value;
}

std::vector<std::string> WeightStore::names() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::string> result;
  for (const auto& [name, w] : weights_) result.push_back(name);
  return result;
}

int64_t WeightStore::bytes() const {
  const std::shared_lock lock(mutex_);
  int64_t sum = 0;
  for (const auto& [name, w] : weights_) sum += w.value.byte_size();
  return sum;
}

int64_t WeightStore::packed_bytes() const {
  const std::shared_lock lock(mutex_);
  int64_t sum = 0;
  for (const auto& [name, w] : weights_) {
    for (const auto& [key, p] : w.packed) sum += p.reservation.bytes();
  }
  return sum;
}

int64_t WeightStore::packs() const {
  const std::shared_lock lock(mutex_);
  return packs_;
}

WeightStore::Weight& WeightStore::find(const PlanParam& param) {
  const auto it = weights_.find(param.name);
  if (it == weights_.end()) {
    user_error("the param '{}' of type {} has no value: set it in the session's weight store",
               param.name, param.type().to_string());
  }
  const Array& value = it->second.value;
  if (value.dtype() != param.dtype || value.shape() != param.dims) {
    user_error("the param '{}' is {} in the graph, its value in the weight store is {}", param.name,
               param.type().to_string(), value.type().to_string());
  }
  return it->second;
}

WeightBinding::WeightBinding(WeightStore& store, std::shared_ptr<const Plan> plan)
    : store_(store),
      plan_(std::move(plan)),
      updates_(std::any_of(plan_->params.begin(), plan_->params.end(),
                           [](const PlanParam& p) { return p.updated; })),
      params_(plan_->params.size()),
      packed_(plan_->packed.size()) {}

bool WeightBinding::lock() {
  if (params_.empty()) return false;
  bool changed = false;
  for (;;) {
    if (updates_) {
      store_.mutex_.lock();
    } else {
      store_.mutex_.lock_shared();
    }
    if (version_ == store_.version_) return changed;
    if (!updates_) {
      store_.mutex_.unlock_shared();
      store_.mutex_.lock();
    }
    try {
      if (version_ != store_.version_) resolve();
    } catch (...) {
      store_.mutex_.unlock();
      throw;
    }
    changed = true;
    if (updates_) return changed;
    store_.mutex_.unlock();
  }
}

void WeightBinding::unlock() {
  if (params_.empty()) return;
  if (updates_) {
    store_.mutex_.unlock();
  } else {
    store_.mutex_.unlock_shared();
  }
}

// Under the exclusive lock.
void WeightBinding::resolve() {
  written_.clear();
  for (size_t i = 0; i < params_.size(); ++i) {
    const PlanParam& param = plan_->params[i];
    WeightStore::Weight& w = store_.find(param);
    if (param.updated && !w.owned) {
      w.value = w.value.copy();
      w.owned = true;
      ++store_.version_;
    }
    if (param.updated) written_.push_back(&w);
    // Only runs of plans that update the param write through this address.
    params_[i] = {w.value, const_cast<void*>(w.value.raw())};
  }
  for (size_t i = 0; i < packed_.size(); ++i) {
    const PackedParam& p = plan_->packed[i];
    WeightStore::Weight& w = store_.find(plan_->params[p.param]);
    auto it = w.packed.find(p.key);
    if (it == w.packed.end()) {
      WeightStore::Packed made;
      made.reservation =
          Reservation(store_.budget_, p.bytes,
                      fmt::format("a packed form of the weight '{}'", plan_->params[p.param].name));
      made.memory = allocate_aligned(p.bytes);
      p.pack(static_cast<const std::byte*>(w.value.raw()) + p.source_offset, made.memory.get());
      ++store_.packs_;
      it = w.packed.emplace(p.key, std::move(made)).first;
    }
    packed_[i] = it->second.memory;
  }
  version_ = store_.version_;
}

void WeightBinding::wrote() {
  for (WeightStore::Weight* w : written_) {
    if (w->packed.empty()) continue;
    w->packed.clear();
    ++store_.version_;
  }
}

}  // namespace rlx
