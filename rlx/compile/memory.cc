#include "rlx/compile/memory.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/control.h"

namespace rlx {
namespace {

// A piece of the arena: one or more buffers that share memory, or a step's scratch.
struct Piece {
  int64_t bytes = 0;
  uint32_t first = ~uint32_t(0), last = 0;  // steps between which it is alive, both included
  int64_t offset = 0;
};

// Of pieces in the order of their first steps: those placed so far that are alive with a given one.
class AliveWith {
 public:
  explicit AliveWith(const std::vector<Piece>& pieces) : pieces_(pieces) {
    while (leaves_ < pieces.size()) leaves_ *= 2;
    ends_.assign(2 * leaves_, 0);
  }

  void add(uint32_t piece) {
    const uint32_t end = pieces_[piece].last + 1;
    for (size_t node = leaves_ + piece; node > 0; node /= 2) {
      ends_[node] = std::max(ends_[node], end);
    }
  }

  void find(const Piece& p, std::vector<const Piece*>& found) const {
    found.clear();
    // Those that begin after p are no candidates.
    const auto it = std::upper_bound(pieces_.begin(), pieces_.end(), p.last,
                                     [](uint32_t last, const Piece& q) { return last < q.first; });
    find(1, 0, leaves_, size_t(it - pieces_.begin()), p.first, found);
  }

 private:
  void find(size_t node, size_t begin, size_t end, size_t limit, uint32_t first,
            std::vector<const Piece*>& found) const {
    if (begin >= limit || ends_[node] <= first) return;
    if (end - begin == 1) {
      found.push_back(&pieces_[begin]);
      return;
    }
    const size_t middle = begin + (end - begin) / 2;
    find(2 * node, begin, middle, limit, first, found);
    find(2 * node + 1, middle, end, limit, first, found);
  }

  const std::vector<Piece>& pieces_;
  size_t leaves_ = 1;
  // A binary tree over the pieces, as a heap: the largest last + 1 below each node; 0 of those not
  // placed.
  std::vector<uint32_t> ends_;
};

// Largest first, each into the smallest gap that fits among the pieces alive with it. Takes time in
// proportion to the pairs alive together.
int64_t place_by_size(std::vector<Piece>& pieces) {
  std::vector<uint32_t> by_size;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].bytes > 0) by_size.push_back(i);
  }
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](uint32_t a, uint32_t b) { return pieces[a].bytes > pieces[b].bytes; });
  AliveWith placed(pieces);
  std::vector<const Piece*> neighbors;
  int64_t size = 0;
  for (const uint32_t i : by_size) {
    Piece& p = pieces[i];
    placed.find(p, neighbors);
    std::sort(neighbors.begin(), neighbors.end(),
              [](const Piece* a, const Piece* b) { return a->offset < b->offset; });
    int64_t end = 0, best = -1, best_gap = 0;  // end: of the pieces passed so far
    for (const Piece* q : neighbors) {
      const int64_t gap = q->offset - end;
      if (gap >= p.bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, q->offset + q->bytes);
    }
    p.offset = best >= 0 ? best : end;
    size = std::max(size, checked_add(p.offset, p.bytes));
    placed.add(i);
  }
  return size;
}

// The gaps of an arena that grows at its end.
class FreeMemory {
 public:
  // The smallest gap that fits, the lowest of equal ones.
  int64_t take(int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [gap, offset] = *fit;
      erase(offset, gap);
      if (gap > bytes) insert(offset + bytes, gap - bytes);
      return offset;
    }
    int64_t offset = size_;
    if (!by_offset_.empty()) {  // a gap at the end grows
      const auto [last, gap] = *by_offset_.rbegin();
      if (last + gap == size_) {
        offset = last;
        erase(last, gap);
      }
    }
    size_ = checked_add(offset, bytes);
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      const int64_t gap = next->second;
      erase(offset + bytes, gap);
      bytes += gap;
      next = by_offset_.lower_bound(offset);
    }
    if (next != by_offset_.begin()) {
      const auto [before, gap] = *std::prev(next);
      if (before + gap == offset) {
        erase(before, gap);
        offset = before;
        bytes += gap;
      }
    }
    insert(offset, bytes);
  }

  int64_t size() const { return size_; }

 private:
  void insert(int64_t offset, int64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void erase(int64_t offset, int64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<int64_t, int64_t> by_offset_;           // to bytes
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset)
  int64_t size_ = 0;
};

// Step by step, as an allocator would. Needs somewhat more memory than by size, but about linear
// time however many pieces are alive together.
int64_t place_by_step(std::vector<Piece>& pieces) {
  FreeMemory memory;
  using End = std::pair<uint32_t, uint32_t>;  // (last step, piece)
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    Piece& p = pieces[i];
    if (p.bytes == 0) continue;
    for (; !ends.empty() && ends.top().first < p.first; ends.pop()) {
      const Piece& over = pieces[ends.top().second];
      memory.give(over.offset, over.bytes);
    }
    p.offset = memory.take(p.bytes);
    ends.emplace(p.last, i);
  }
  return memory.size();
}

// How many pairs of pieces are alive at the same time.
int64_t pairs_alive(const std::vector<Piece>& pieces) {
  std::vector<uint32_t> lasts;  // of the pieces up to this one
  std::vector<uint32_t> firsts;
  for (const Piece& p : pieces) {
    if (p.bytes == 0) continue;
    firsts.push_back(p.first);
    lasts.push_back(p.last);
  }
  std::sort(lasts.begin(), lasts.end());
  // A piece meets all that begin before it, but those that are over by then.
  int64_t pairs = 0;
  size_t over = 0;
  for (size_t i = 0; i < firsts.size(); ++i) {
    while (over < lasts.size() && lasts[over] < firsts[i]) ++over;
    pairs += int64_t(i - over);
  }
  return pairs;
}

// A fraction of a second of work.
constexpr int64_t kMaxPairs = 4 << 20;

// Places pieces that are in the order of their first steps. Returns the size of the arena.
int64_t place(std::vector<Piece>& pieces) {
  return pairs_alive(pieces) <= kMaxPairs ? place_by_size(pieces) : place_by_step(pieces);
}

// Every piece in memory of its own, with a canary before the first and after each.
int64_t place_guarded(std::vector<Piece>& pieces, std::vector<int64_t>& guards) {
  guards.push_back(0);
  int64_t end = kAlignment;
  for (Piece& p : pieces) {
    if (p.bytes == 0) continue;
    p.offset = end;
    end = checked_add(end, p.bytes);
    guards.push_back(end);
    end = checked_add(end, kAlignment);
  }
  return end;
}

int64_t peak(const std::vector<Piece>& pieces, size_t steps) {
  std::vector<int64_t> change(steps + 1, 0);
  for (const Piece& p : pieces) {
    if (p.bytes == 0) continue;
    change[p.first] += p.bytes;
    change[p.last + 1] -= p.bytes;
  }
  int64_t alive = 0, most = 0;
  for (int64_t c : change) most = std::max(most, alive += c);
  return most;
}

class Finish {
 public:
  explicit Finish(Draft& draft) : draft_(draft) {
    draft_.plan.storages = {{StorageKind::kArena, 0, 0}};
  }

  void run(bool guard_zones) {
    collect();
    Plan& plan = draft_.plan;
    plan.counts.live_bytes = peak(pieces_, draft_.steps.size());
    plan.arena_bytes = guard_zones ? place_guarded(pieces_, plan.guards) : place(pieces_);
    plan.storages[0].bytes = plan.arena_bytes;
    for (size_t s = 0; s < draft_.steps.size(); ++s) finish_step(s);
    // Constants that are read in another form only.
    for (uint32_t i = 0; i < plan.constants.size(); ++i) {
      if (!ids_.contains({StorageKind::kConstant, i})) plan.constants[i] = Array();
    }
    for (size_t s = 0; s < draft_.steps.size(); ++s) {
      if (draft_.steps[s].control) link_bodies(plan, s, *draft_.steps[s].control);
    }
  }

 private:
  void collect() {
    piece_of_buffer_.assign(draft_.buffers.size(), kNoPiece);
    scratch_.assign(draft_.steps.size(), kNoPiece);
    for (uint32_t s = 0; s < draft_.steps.size(); ++s) {
      const DraftStep& step = draft_.steps[s];
      for (const DraftView& v : step.operands) touch(v, s);
      for (const DraftView& v : step.results) touch(v, s);
      int64_t scratch = 0;
      need_scratch(*step.entry, step.kernel, scratch);
      for (const DraftVariant& v : step.variants) need_scratch(*v.entry, v.kernel, scratch);
      if (scratch > 0) {
        scratch_[s] = uint32_t(pieces_.size());
        pieces_.push_back({round_up(scratch, kAlignment), s, s, 0});
      }
    }
  }

  void need_scratch(const KernelEntry& entry, const PreparedKernel& kernel, int64_t& most) {
    if (kernel.scratch_bytes < 0) internal_error("{}: negative scratch", entry.name);
    most = std::max(most, kernel.scratch_bytes);
    draft_.plan.thread_scratch_bytes = std::max(draft_.plan.thread_scratch_bytes,
                                                round_up(kernel.thread_scratch_bytes, kAlignment));
  }

  void touch(const DraftView& v, uint32_t s) {
    if (!v.used() || draft_.buffers[v.buffer].kind != StorageKind::kArena) return;
    const uint32_t owner = draft_.buffers[v.buffer].owner;
    uint32_t& piece = piece_of_buffer_[owner];
    if (piece == kNoPiece) {
      piece = uint32_t(pieces_.size());
      pieces_.push_back({round_up(draft_.buffers[owner].bytes, kAlignment), s, s, 0});
    }
    piece_of_buffer_[v.buffer] = piece;
    pieces_[piece].first = std::min(pieces_[piece].first, s);
    pieces_[piece].last = std::max(pieces_[piece].last, s);
  }

  void finish_step(size_t s) {
    DraftStep& from = draft_.steps[s];
    PlanStep to;
    to.op = from.op;
    to.attrs = std::move(from.attrs);
    to.label = std::move(from.label);
    to.entry = from.entry;
    to.kernel = std::move(from.kernel);
    to.inserted = from.inserted;
    draft_.plan.counts.copies += from.inserted;
    if (scratch_[s] != kNoPiece) to.scratch_offset = pieces_[scratch_[s]].offset;
    for (const DraftView& v : from.operands) to.operands.push_back(finish_view(v));
    for (const DraftView& v : from.results) to.results.push_back(finish_view(v));
    to.sets = from.sets;
    to.symbols = std::move(from.symbols);
    for (DraftVariant& v : from.variants) {
      PlanVariant variant{std::move(v.up_to), v.entry, std::move(v.kernel), {}, {}};
      for (const DraftView& view : v.operands) variant.operands.push_back(finish_view(view));
      for (const DraftView& view : v.results) variant.results.push_back(finish_view(view));
      to.kernel.scratch_bytes = std::max(to.kernel.scratch_bytes, variant.kernel.scratch_bytes);
      to.variants.push_back(std::move(variant));
    }
    if (from.live) {
      for (const auto* shapes : {&from.live->operands, &from.live->results}) {
        for (const Shape& shape : *shapes) to.live.push_back(live_axes(shape));
      }
    }
    std::vector<TensorType> operands, results;
    const auto type = [](const PlanView& v) {
      return TensorType{v.desc.dtype, Shape(std::span<const int64_t>(v.desc.dims))};
    };
    for (const PlanView& v : to.operands) operands.push_back(type(v));
    for (const PlanView& v : to.results) results.push_back(type(v));
    const Cost cost = cost_of(*to.op, {to.attrs, operands, results});
    to.flops = to.inserted ? 0 : cost.flops;
    to.bytes = cost.bytes;
    draft_.plan.steps.push_back(std::move(to));
  }

  std::optional<std::vector<LiveAxis>> live_axes(const Shape& shape) const {
    std::vector<LiveAxis> axes;
    for (int64_t a = 0; a < shape.rank(); ++a) {
      if (shape[a].is_static()) continue;
      const auto extent = find_extent(draft_.plan.symbols, shape[a]);
      if (!extent) return std::nullopt;
      axes.push_back({uint32_t(a), *extent});
    }
    return axes;
  }

  PlanView finish_view(const DraftView& v) {
    PlanView to;
    to.desc = v.desc;
    if (!v.used()) return to;
    const DraftBuffer& b = draft_.buffers[v.buffer];
    to.offset = bytes_of(v.desc.dtype, v.offset);
    if (b.kind == StorageKind::kArena) {
      to.storage = 0;
      to.offset += pieces_[piece_of_buffer_[v.buffer]].offset;
      return to;
    }
    const auto [it, added] =
        ids_.try_emplace({b.kind, b.index}, uint32_t(draft_.plan.storages.size()));
    if (added) draft_.plan.storages.push_back({b.kind, b.index, b.bytes});
    to.storage = it->second;
    return to;
  }

  static constexpr uint32_t kNoPiece = ~uint32_t(0);
  Draft& draft_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> piece_of_buffer_;  // by buffer
  std::vector<uint32_t> scratch_;          // by step
  std::map<std::pair<StorageKind, uint32_t>, uint32_t> ids_;
};

}  // namespace

namespace {

void share_result(Draft& draft, const BufferUses& uses, uint32_t s, size_t r) {
  DraftStep& step = draft.steps[s];
  const DraftView& result = step.results[r];
  if (!result.used()) return;
  DraftBuffer& to = draft.buffers[result.buffer];
  if (to.kind != StorageKind::kArena || !is_whole(draft, result) || to.bytes == 0 ||
      uses.writers[result.buffer].size() != 1) {
    return;
  }
  const auto may_take = [&](size_t i) {
    const DraftView& v = step.operands[i];
    return may_overwrite(step, i, r) && v.desc.dtype == result.desc.dtype &&
           v.desc.dims == result.desc.dims && is_whole(draft, v);
  };
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const uint32_t b = step.operands[i].buffer;
    if (draft.buffers[b].kind != StorageKind::kArena || !may_take(i)) continue;
    // All reads of the memory must be over, or be this step's in the same order.
    bool last = true;
    for (uint32_t reader : uses.readers[b]) last &= reader <= s;
    for (size_t j = 0; j < step.operands.size(); ++j) {
      if (step.operands[j].buffer == b) last &= may_take(j);
    }
    if (!last) continue;
    to.owner = draft.buffers[b].owner;
    ++draft.plan.counts.in_place;
    break;
  }
}

}  // namespace

void share_in_place(Draft& draft) {
  const BufferUses uses = uses_of(draft);
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    for (size_t r = 0; r < draft.steps[s].results.size(); ++r) share_result(draft, uses, s, r);
  }
}

bool is_aligned(const Array& array) {
  // Blocks begin with a 16-bit scale.
  const int64_t alignment = is_packed(array.dtype()) ? 2 : size_of(array.dtype());
  return reinterpret_cast<uintptr_t>(array.raw()) % uintptr_t(alignment) == 0;
}

void place_buffers(Draft& draft, bool guard_zones) { Finish(draft).run(guard_zones); }

}  // namespace rlx
