#include "rlx/compile/schedule.h"

#include <algorithm>
#include <map>
#include <queue>

#include "rlx/base/error.h"

namespace rlx {
namespace {

// --- Order

struct Dependences {
  std::vector<std::vector<uint32_t>> before, after;  // by step, in operand order
};

uint32_t setter(const Draft& draft, uint32_t symbol) {
  const auto it = std::ranges::find(draft.steps, symbol, &DraftStep::sets);
  if (it == draft.steps.end()) {
    internal_error("no step sets the size '{}'", draft.plan.symbols[symbol].name);
  }
  return uint32_t(it - draft.steps.begin());
}

Dependences dependences_of(const Draft& draft, const BufferUses& uses) {
  Dependences d;
  d.before.resize(draft.steps.size());
  d.after.resize(draft.steps.size());
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    for (const DraftView& v : draft.steps[s].operands) {
      for (uint32_t w : uses.writers[v.buffer]) {
        if (w != s) d.before[s].push_back(w);
      }
    }
  }
  for (const auto& [first, second] : draft.order) d.before[second].push_back(first);
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    for (uint32_t symbol : set_symbols_of(draft, draft.steps[s])) {
      d.before[s].push_back(setter(draft, symbol));
    }
  }
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    for (uint32_t p : d.before[s]) d.after[p].push_back(s);
  }
  return d;
}

// A topological order that takes the ready step with the smallest rank first.
std::vector<uint32_t> sorted_by(const Dependences& d, const std::vector<uint64_t>& rank) {
  std::vector<uint32_t> missing(rank.size()), order;
  using Entry = std::pair<uint64_t, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (uint32_t s = 0; s < rank.size(); ++s) {
    missing[s] = uint32_t(d.before[s].size());
    if (missing[s] == 0) ready.emplace(rank[s], s);
  }
  while (!ready.empty()) {
    const uint32_t s = ready.top().second;
    ready.pop();
    order.push_back(s);
    for (uint32_t t : d.after[s]) {
      if (--missing[t] == 0) ready.emplace(rank[t], t);
    }
  }
  if (order.size() != rank.size()) internal_error("the steps of the plan depend on each other");
  return order;
}

// Position of each step when results are computed depth-first, from the steps nobody waits for.
std::vector<uint64_t> depth_first_ranks(const Dependences& d) {
  std::vector<uint64_t> rank(d.before.size(), 0);
  std::vector<uint8_t> seen(d.before.size(), 0);
  std::vector<std::pair<uint32_t, size_t>> stack;
  uint64_t next = 0;
  for (uint32_t root = 0; root < d.before.size(); ++root) {
    if (!d.after[root].empty() || seen[root]) continue;
    seen[root] = 1;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [s, i] = stack.back();
      if (i == d.before[s].size()) {
        rank[s] = next++;
        stack.pop_back();
        continue;
      }
      const uint32_t p = d.before[s][i++];
      if (!seen[p]) {
        seen[p] = 1;
        stack.emplace_back(p, 0);
      }
    }
  }
  return rank;
}

// The largest number of arena bytes alive at once, without sharing in place.
int64_t peak_bytes(const Draft& draft, const BufferUses& uses, const std::vector<uint32_t>& order) {
  std::vector<uint32_t> position(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::vector<int64_t> change(order.size() + 1, 0);
  for (size_t b = 0; b < draft.buffers.size(); ++b) {
    if (draft.buffers[b].kind != StorageKind::kArena || uses.writers[b].empty()) continue;
    uint32_t first = ~uint32_t(0), last = 0;
    for (const auto* list : {&uses.writers[b], &uses.readers[b]}) {
      for (uint32_t s : *list) {
        first = std::min(first, position[s]);
        last = std::max(last, position[s]);
      }
    }
    change[first] += draft.buffers[b].bytes;
    change[last + 1] -= draft.buffers[b].bytes;
  }
  int64_t alive = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, alive += c);
  return peak;
}

// Steps that write params and all that depends on them.
std::vector<uint8_t> committing(const Draft& draft, const Dependences& d) {
  std::vector<uint8_t> result(draft.steps.size(), 0);
  std::vector<uint32_t> stack;
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    for (const DraftView& v : draft.steps[s].results) {
      if (v.used() && draft.buffers[v.buffer].kind == StorageKind::kParam) result[s] = 1;
    }
    if (result[s]) stack.push_back(s);
  }
  while (!stack.empty()) {
    const uint32_t s = stack.back();
    stack.pop_back();
    for (uint32_t t : d.after[s]) {
      if (!result[t]) {
        result[t] = 1;
        stack.push_back(t);
      }
    }
  }
  return result;
}

// --- Segments

// Byte ranges of storages, merged where they touch.
class Ranges {
 public:
  void add(uint32_t storage, int64_t begin, int64_t end) {
    if (begin >= end) return;
    auto it = map_.upper_bound({storage, begin});
    if (it != map_.begin()) {
      auto previous = std::prev(it);
      if (previous->first.first == storage && previous->second >= begin) {
        begin = previous->first.second;
        end = std::max(end, previous->second);
        map_.erase(previous);
      }
    }
    while (it != map_.end() && it->first.first == storage && it->first.second <= end) {
      end = std::max(end, it->second);
      it = map_.erase(it);
    }
    map_[{storage, begin}] = end;
  }
  bool touches(uint32_t storage, int64_t begin, int64_t end) const {
    if (begin >= end) return false;
    auto it = map_.lower_bound({storage, end});
    if (it == map_.begin()) return false;
    --it;
    return it->first.first == storage && it->second > begin;
  }
  bool touches(const Ranges& other) const {
    for (const auto& [key, end] : other.map_) {
      if (touches(key.first, key.second, end)) return true;
    }
    return false;
  }
  void add(const Ranges& other) {
    for (const auto& [key, end] : other.map_) add(key.first, key.second, end);
  }

 private:
  std::map<std::pair<uint32_t, int64_t>, int64_t> map_;  // (storage, begin) -> end
};

struct Access {
  Ranges reads, writes;
  bool conflicts(const Access& later) const {
    return writes.touches(later.reads) || writes.touches(later.writes) ||
           reads.touches(later.writes);
  }
  void add(const Access& other) {
    reads.add(other.reads);
    writes.add(other.writes);
  }
};

// A storage of its own: the values of Plan::symbols.
constexpr uint32_t kSymbols = PlanView::kNone - 1;

// Sizes that decide which variants run and how often loops go round, in bodies too.
void add_symbols(const Plan& plan, const PlanStep& step, Access& a) {
  const auto read = [&](uint32_t symbol) {
    if (plan.symbols[symbol].set_by_step) a.reads.add(kSymbols, symbol, int64_t(symbol) + 1);
  };
  const auto read_extent = [&](uint32_t index) { read(plan.extents[index].symbol); };
  for (uint32_t symbol : step.symbols) read(symbol);
  for (const PlanView& v : step.operands) {
    if (!v.used()) continue;
    const Storage& storage = plan.storages[v.storage];
    if (storage.kind == StorageKind::kExtent) read_extent(storage.index);
  }
  if (step.sets != PlanView::kNone) a.writes.add(kSymbols, step.sets, int64_t(step.sets) + 1);
  if (!step.control) return;
  if (step.control->length != PlanView::kNone) read_extent(step.control->length);
  for (uint32_t body : step.control->bodies) {
    for (const Segment& segment : plan.bodies[body].segments) {
      for (uint32_t s = segment.begin; s < segment.end; ++s) add_symbols(plan, plan.steps[s], a);
    }
  }
}

Access access_of(const Plan& plan, const PlanStep& step) {
  Access a;
  if (!plan.symbols.empty()) add_symbols(plan, step, a);
  const auto range = [&](const PlanView& v, Ranges& to) {
    if (!v.used()) return;
    // Nothing writes inputs, constants and packed weights.
    const StorageKind kind = plan.storages[v.storage].kind;
    if (kind != StorageKind::kArena && kind != StorageKind::kOutput &&
        kind != StorageKind::kParam) {
      return;
    }
    to.add(v.storage, v.offset, v.offset + bytes_of(v.desc.dtype, extent(v.desc)));
  };
  for (const PlanView& v : step.operands) range(v, a.reads);
  for (const PlanView& v : step.results) range(v, a.writes);
  if (step.kernel.scratch_bytes > 0) {
    a.writes.add(0, step.scratch_offset, step.scratch_offset + step.kernel.scratch_bytes);
  }
  return a;
}

bool is_serial(const Plan& plan, const PlanStep& step) {
  if (step.control) {
    const auto serial = [](const Segment& s) { return s.serial; };
    return std::ranges::all_of(step.control->bodies, [&](uint32_t body) {
      return std::ranges::all_of(plan.bodies[body].segments, serial);
    });
  }
  if (step.kernel.nanoseconds < kSerialNanoseconds) return true;
  return std::all_of(step.kernel.phases.begin(), step.kernel.phases.end(),
                     [](const Phase& p) { return p.chunks <= 1; });
}

class Segmenter {
 public:
  Segmenter(Plan& plan, uint32_t own_steps, uint32_t commit_step)
      : plan_(plan), own_steps_(own_steps), commit_step_(commit_step) {}

  void run() {
    plan_.segments.clear();
    for (uint32_t s = 0; s < own_steps_; ++s) add(s);
    plan_.commit_segment = uint32_t(plan_.segments.size());
    for (uint32_t i = 0; i < plan_.segments.size(); ++i) {
      if (plan_.segments[i].begin == commit_step_) plan_.commit_segment = i;
    }
  }

 private:
  void add(uint32_t s) {
    const PlanStep& step = plan_.steps[s];
    Access access = access_of(plan_, step);
    const bool serial = is_serial(plan_, step);
    const double ns = step.kernel.nanoseconds;
    const bool commit = s == commit_step_;
    const bool needs_current = current_.conflicts(access);
    if (!plan_.segments.empty() && plan_.segments.back().serial && serial && !commit &&
        !earlier_.conflicts(access) && (needs_current || current_ns_ + ns <= kSegmentNanoseconds)) {
      plan_.segments.back().end = s + 1;
      current_.add(access);
      current_ns_ += ns;
      return;
    }
    const bool barrier =
        !plan_.segments.empty() && (commit || needs_current || earlier_.conflicts(access));
    if (barrier) {
      earlier_ = {};
    } else {
      earlier_.add(current_);
    }
    // The barriers between a step's phases order all that came before as well.
    if (!serial && (step.control || step.kernel.phases.size() > 1)) earlier_ = {};
    plan_.segments.push_back({s, s + 1, serial, barrier});
    current_ = std::move(access);
    current_ns_ = ns;
  }

  Plan& plan_;
  const uint32_t own_steps_, commit_step_;
  Access earlier_;  // since the last barrier, without the last segment
  Access current_;  // of the last segment
  double current_ns_ = 0;
};

}  // namespace

uint32_t order_steps(Draft& draft) {
  const BufferUses uses = uses_of(draft);
  const Dependences d = dependences_of(draft, uses);
  const std::vector<uint8_t> commit = committing(draft, d);
  const auto ordered = [&](std::vector<uint64_t> rank) {
    for (size_t s = 0; s < rank.size(); ++s) rank[s] |= uint64_t(commit[s]) << 63;
    return sorted_by(d, rank);
  };
  std::vector<uint64_t> given(draft.steps.size());
  for (size_t s = 0; s < given.size(); ++s) given[s] = s;
  std::vector<uint32_t> order = ordered(given);
  std::vector<uint32_t> deep = ordered(depth_first_ranks(d));
  if (peak_bytes(draft, uses, deep) < peak_bytes(draft, uses, order)) order = std::move(deep);

  std::vector<DraftStep> steps;
  steps.reserve(order.size());
  for (uint32_t s : order) steps.push_back(std::move(draft.steps[s]));
  draft.steps = std::move(steps);
  draft.order.clear();
  return uint32_t(std::count(commit.begin(), commit.end(), 0));
}

void make_segments(Plan& plan, uint32_t own_steps, uint32_t commit_step) {
  Segmenter(plan, own_steps, commit_step).run();
}

}  // namespace rlx
