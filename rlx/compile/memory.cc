#include "rlx/compile/memory.h"

#include <algorithm>
#include <map>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {
namespace {

// A piece of the arena: one or more buffers that share memory, or a step's scratch.
struct Piece {
  int64_t bytes = 0;
  uint32_t first = ~uint32_t(0), last = 0;  // steps between which it is alive, both included
  int64_t offset = 0;
  bool alive_with(const Piece& o) const { return first <= o.last && o.first <= last; }
};

// Largest first, each into the smallest gap that fits among the pieces alive with it. Returns the
// size of the arena.
int64_t place(std::vector<Piece>& pieces) {
  std::vector<Piece*> by_size, placed;  // placed: by offset
  for (Piece& p : pieces) {
    if (p.bytes > 0) by_size.push_back(&p);
  }
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Piece* a, const Piece* b) { return a->bytes > b->bytes; });
  int64_t size = 0;
  for (Piece* p : by_size) {
    int64_t end = 0, best = -1, best_gap = 0;  // end: of the pieces passed so far
    for (const Piece* q : placed) {
      if (!p->alive_with(*q)) continue;
      const int64_t gap = q->offset - end;
      if (gap >= p->bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, q->offset + q->bytes);
    }
    p->offset = best >= 0 ? best : end;
    size = std::max(size, checked_add(p->offset, p->bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), p,
                         [](const Piece* a, const Piece* b) { return a->offset < b->offset; }),
        p);
  }
  return size;
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
  }

 private:
  void collect() {
    piece_of_buffer_.assign(draft_.buffers.size(), kNoPiece);
    scratch_.assign(draft_.steps.size(), kNoPiece);
    for (uint32_t s = 0; s < draft_.steps.size(); ++s) {
      const DraftStep& step = draft_.steps[s];
      for (const DraftView& v : step.operands) touch(v, s);
      for (const DraftView& v : step.results) touch(v, s);
      const int64_t scratch = step.kernel.scratch_bytes;
      if (scratch < 0) internal_error("{}: negative scratch", step.entry->name);
      if (scratch > 0) {
        scratch_[s] = uint32_t(pieces_.size());
        pieces_.push_back({round_up(scratch, kAlignment), s, s, 0});
      }
      draft_.plan.thread_scratch_bytes = std::max(
          draft_.plan.thread_scratch_bytes, round_up(step.kernel.thread_scratch_bytes, kAlignment));
    }
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

  PlanView finish_view(const DraftView& v) {
    PlanView to;
    to.desc = v.desc;
    if (!v.used()) return to;
    const DraftBuffer& b = draft_.buffers[v.buffer];
    to.offset = checked_mul(v.offset, size_of(v.desc.dtype));
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

void share_in_place(Draft& draft) {
  const BufferUses uses = uses_of(draft);
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    DraftStep& step = draft.steps[s];
    if (!step.entry->in_place || step.results.empty() || !step.results[0].used()) continue;
    const DraftView& result = step.results[0];
    DraftBuffer& to = draft.buffers[result.buffer];
    if (to.kind != StorageKind::kArena || !is_whole(draft, result) || to.bytes == 0 ||
        uses.writers[result.buffer].size() != 1) {
      continue;
    }
    const auto may_take = [&](size_t i) {
      const DraftView& v = step.operands[i];
      return i < 32 && (step.entry->in_place >> i & 1) && v.desc.dtype == result.desc.dtype &&
             v.desc.dims == result.desc.dims && is_whole(draft, v);
    };
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const uint32_t b = step.operands[i].buffer;
      if (draft.buffers[b].kind != StorageKind::kArena || !may_take(i)) continue;
      // All reads of the memory must be over, or be this step's in the same order.
      bool last = true;
      for (uint32_t r : uses.readers[b]) last &= r <= s;
      for (size_t j = 0; j < step.operands.size(); ++j) {
        if (step.operands[j].buffer == b) last &= may_take(j);
      }
      if (!last) continue;
      to.owner = draft.buffers[b].owner;
      ++draft.plan.counts.in_place;
      break;
    }
  }
}

void place_buffers(Draft& draft, bool guard_zones) { Finish(draft).run(guard_zones); }

}  // namespace rlx
