#include "rlx/compile/bind.h"

#include <algorithm>

#include "rlx/base/error.h"

namespace rlx {
namespace {

// Which steps can be reached from a step, over data and order dependences.
class Reach {
 public:
  explicit Reach(const Draft& draft) : next_(draft.steps.size()), seen_(draft.steps.size(), 0) {
    const BufferUses uses = uses_of(draft);
    for (size_t b = 0; b < draft.buffers.size(); ++b) {
      for (uint32_t w : uses.writers[b]) {
        for (uint32_t r : uses.readers[b]) add(w, r);
      }
    }
  }
  void add(uint32_t from, uint32_t to) {
    if (from != to) next_[from].push_back(to);
  }
  // Whether one of the sorted `targets`, other than `from` itself, comes after `from`.
  bool any(uint32_t from, const std::vector<uint32_t>& targets) {
    ++mark_;
    std::vector<uint32_t> stack{from};
    seen_[from] = mark_;
    while (!stack.empty()) {
      const uint32_t s = stack.back();
      stack.pop_back();
      if (s != from && std::binary_search(targets.begin(), targets.end(), s)) return true;
      for (uint32_t t : next_[s]) {
        if (seen_[t] != mark_) {
          seen_[t] = mark_;
          stack.push_back(t);
        }
      }
    }
    return false;
  }

 private:
  std::vector<std::vector<uint32_t>> next_;
  std::vector<uint32_t> seen_;
  uint32_t mark_ = 0;
};

class Updates {
 public:
  Updates(Draft& draft, const KernelTable& kernels, bool direct)
      : draft_(draft), kernels_(kernels), direct_(direct) {}

  void run() {
    drop_idle();
    for (const Draft::Update& u : draft_.updates) draft_.plan.params[u.param].updated = true;
    for (Draft::Update& u : draft_.updates) save_old_value(u);
    const BufferUses uses = uses_of(draft_);
    readers_.resize(draft_.plan.params.size());
    for (size_t b = 0; b < draft_.buffers.size(); ++b) {
      if (draft_.buffers[b].kind == StorageKind::kParam) {
        auto& list = readers_[draft_.buffers[b].index];
        list.insert(list.end(), uses.readers[b].begin(), uses.readers[b].end());
      }
    }
    for (auto& list : readers_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    Reach reach(draft_);
    for (const Draft::Update& u : draft_.updates) {
      if (!direct_ || !write_directly(u, uses, reach)) copy_at_end(u);
    }
  }

 private:
  bool is_param(const DraftView& v, uint32_t param) const {
    const DraftBuffer& b = draft_.buffers[v.buffer];
    return b.kind == StorageKind::kParam && b.index == param;
  }

  // Updates of a param by itself.
  void drop_idle() {
    std::erase_if(draft_.updates, [&](const Draft::Update& u) {
      return is_param(u.view, u.param) && is_whole(draft_, u.view);
    });
  }

  // A param that becomes the old value of an updated one (two params swapped, a transposed self)
  // takes it from a copy that is made before anything is overwritten.
  void save_old_value(Draft::Update& u) {
    const DraftBuffer& b = draft_.buffers[u.view.buffer];
    if (b.kind != StorageKind::kParam || !draft_.plan.params[b.index].updated) return;
    const uint32_t saved =
        draft_.add_buffer(StorageKind::kArena, 0, b.dtype, u.view.desc.num_elements());
    const DraftView to = draft_.whole(saved, u.view.desc.dims);
    draft_.steps.push_back(make_copy(kernels_, u.view, to, draft_.plan.params[u.param].name));
    u.view = to;
  }

  bool write_directly(const Draft::Update& u, const BufferUses& uses, Reach& reach) {
    const uint32_t b = u.view.buffer;
    DraftBuffer& buffer = draft_.buffers[b];
    if (buffer.kind != StorageKind::kArena || !is_whole(draft_, u.view) ||
        uses.writers[b].size() != 1) {
      return false;
    }
    const uint32_t producer = uses.writers[b][0];
    const DraftStep& step = draft_.steps[producer];
    for (size_t i = 0; i < step.operands.size(); ++i) {
      if (is_param(step.operands[i], u.param) && !in_place(step, i, b)) return false;
    }
    const std::vector<uint32_t>& readers = readers_[u.param];
    if (reach.any(producer, readers)) return false;
    buffer.kind = StorageKind::kParam;
    buffer.index = u.param;
    for (uint32_t r : readers) {
      if (r == producer) continue;
      draft_.order.emplace_back(r, producer);
      reach.add(r, producer);
    }
    ++draft_.plan.counts.direct_updates;
    return true;
  }

  // Whether the step may read operand i from the very memory that it writes.
  bool in_place(const DraftStep& step, size_t i, uint32_t result_buffer) const {
    for (size_t r = 0; r < step.results.size(); ++r) {
      if (step.results[r].buffer != result_buffer) continue;
      return may_overwrite(step, i, r) && is_whole(draft_, step.operands[i]) &&
             step.operands[i].desc.dims == step.results[r].desc.dims;
    }
    return false;
  }

  void copy_at_end(const Draft::Update& u) {
    const Dims& dims = draft_.plan.params[u.param].dims;
    const uint32_t buffer =
        draft_.add_buffer(StorageKind::kParam, u.param, u.view.desc.dtype, num_elements(dims));
    const auto copy = uint32_t(draft_.steps.size());
    draft_.steps.push_back(
        make_copy(kernels_, u.view, draft_.whole(buffer, dims), draft_.plan.params[u.param].name));
    for (uint32_t r : readers_[u.param]) draft_.order.emplace_back(r, copy);
  }

  Draft& draft_;
  const KernelTable& kernels_;
  const bool direct_;
  std::vector<std::vector<uint32_t>> readers_;  // of each param's old value
};

// As the graph has it.
Shape live_shape(const Draft& draft, const PlanTensor& t) {
  Shape shape{std::span<const int64_t>(t.dims)};
  for (const LiveAxis& a : t.live) {
    const LinearDim& line = a.extent.line;
    shape[a.axis] = line.base + line.slope * Dim::symbol(draft.plan.symbols[a.extent.symbol].name);
  }
  return shape;
}

}  // namespace

void bind_outputs(Draft& draft, const KernelTable& kernels, bool direct) {
  const BufferUses uses = uses_of(draft);
  for (uint32_t i = 0; i < draft.outputs.size(); ++i) {
    DraftView& view = draft.outputs[i];
    DraftBuffer& b = draft.buffers[view.buffer];
    if (direct && b.kind == StorageKind::kArena && is_whole(draft, view) &&
        uses.writers[view.buffer].size() == 1) {
      b.kind = StorageKind::kOutput;
      b.index = i;
      continue;
    }
    const PlanTensor& output = draft.plan.outputs[i];
    const DraftView to = draft.whole(
        draft.add_buffer(StorageKind::kOutput, i, output.dtype, num_elements(output.dims)),
        output.dims);
    const Shape live = live_shape(draft, output);
    draft.steps.push_back(make_copy(kernels, view, to, output.name, live));
    view = to;
  }
}

void bind_updates(Draft& draft, const KernelTable& kernels, bool direct) {
  Updates(draft, kernels, direct).run();
}

}  // namespace rlx
