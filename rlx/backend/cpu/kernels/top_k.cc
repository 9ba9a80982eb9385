// One pass over the line with a threshold that rises: a block is looked at element by element only
// if one of it beats the worst of the k best known so far.
#include "rlx/ops/sort.h"

#include "rlx/backend/cpu/kernels/sort_items.h"
#include "rlx/base/checked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/top_k.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef RLX_CPU_TOP_K_TYPES_
#define RLX_CPU_TOP_K_TYPES_
namespace rlx::cpu {

inline constexpr int64_t kTopKBlock = 64;
// Whether the key of some element of a block, flipped, is below the threshold.
using AnyBelowFn = bool (*)(const void* block, uint64_t flip, uint64_t threshold);

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// Without branches, so that the compiler makes vectors of it for every instruction set.
template <class T>
bool AnyBelowOf(const void* block, uint64_t flip, uint64_t threshold) {
  using U = SortKey<T>;
  const T* x = static_cast<const T*>(block);
  const U f = U(flip), t = U(threshold);
  U any = 0;
  for (int64_t i = 0; i < kTopKBlock; ++i) any |= U(U(sort_key(x[i]) ^ f) < t);
  return any != 0;
}

}  // namespace

AnyBelowFn AnyBelow(DType t) {
  return visit_dtype(t, []<class T>() -> AnyBelowFn {
    if constexpr (std::is_arithmetic_v<T> || sizeof(T) == 2) {
      return AnyBelowOf<T>;
    } else {
      return nullptr;  // complex numbers have no order
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(AnyBelow);

namespace {

struct TopKState : SortLines {
  bool sorted = true;
  int64_t room = 0;  // items that are kept before the worst of them are dropped
  AnyBelowFn any_below = nullptr;
};

template <class T, class Item>
class Selection {
 public:
  Selection(const TopKState& s, Item* items) : s_(s), items_(items) {}

  // Leaves the best of a line in the first `kept` items, one at least.
  void run(const T* x) {
    count_ = 0;
    threshold_ = ~uint64_t(0);
    all_ = true;
    for (int64_t k = 0; k < s_.n; k += kTopKBlock) {
      const int64_t count = std::min(kTopKBlock, s_.n - k);
      add(x + k * s_.inner, k, count);
    }
    finish();
  }

 private:
  void add(const T* x, int64_t place, int64_t count) {
    if (count_ + count > s_.room) drop();
    T gathered[kTopKBlock];
    if (s_.inner != 1) {
      for (int64_t i = 0; i < count; ++i) gathered[i] = x[i * s_.inner];
      x = gathered;
    }
    if (!all_ && count == kTopKBlock && !s_.any_below(x, flip_, threshold_)) return;
    for (int64_t i = 0; i < count; ++i) {
      const auto key = SortKey<T>(sort_key(x[i]) ^ flip_);
      items_[count_] = Item::of(key, place + i);
      count_ += all_ || key < threshold_;
    }
  }

  // Keeps the best. Whatever comes later has to be better than all of them: of equal elements the
  // earlier is taken.
  void drop() {
    std::nth_element(items_, items_ + s_.kept - 1, items_ + count_);
    count_ = s_.kept;
    threshold_ = items_[s_.kept - 1].key();
    all_ = false;
  }

  void finish() {
    if (count_ > s_.kept) {
      std::nth_element(items_, items_ + s_.kept - 1, items_ + count_);
    }
    if (s_.sorted) return std::sort(items_, items_ + s_.kept);
    std::sort(items_, items_ + s_.kept,
              [](const Item& a, const Item& b) { return a.place() < b.place(); });
  }

  const TopKState& s_;
  Item* items_;
  const SortKey<T> flip_ = sort_flip<T>(s_.descending);
  int64_t count_ = 0;
  uint64_t threshold_ = 0;
  bool all_ = true;  // no threshold yet
};

template <class T, class Item>
void run(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const TopKState*>(state);
  auto* items = static_cast<Item*>(args.thread_scratch);
  Selection<T, Item> selection(s, items);
  const int64_t end = std::min((chunk + 1) * s.per_chunk, s.lines);
  for (int64_t line = chunk * s.per_chunk; line < end; ++line) {
    selection.run(args.in<T>(0) + s.first(line, s.n));
    write_line<T>(s, args, line, items);
  }
}

PreparedKernel prepare(const KernelCall& call) {
  const auto& a = call.as<TopKAttrs>();
  const DType t = call.operands[0].dtype;
  TopKState s{sort_lines(call, a.axis, a.largest, a.index_dtype)};
  s.sorted = a.sorted;
  s.any_below = HWY_DYNAMIC_DISPATCH(AnyBelow)(t);
  s.room = checked_add(s.kept, std::max<int64_t>(s.kept, 256));
  PreparedKernel k;
  // The items of a block are written before it is known which of them stay.
  const int64_t items = checked_add(std::min(s.room, s.n), kTopKBlock);
  k.nanoseconds = double(s.lines) * (100 + double(s.n) * 0.5 + double(s.kept) * 20);
  const int64_t chunks = s.kept == 0 ? 0 : ceil_div(s.lines, s.per_chunk);
  with_sort_types(t, s.n, [&]<class T, class Item>() {
    k.thread_scratch_bytes = checked_mul(items, int64_t(sizeof(Item)));
    k.phases = {{chunks, run<T, Item>}};
  });
  k.state = std::make_shared<const TopKState>(s);
  return k;
}

constexpr KernelEntry kEntries[] = {{
    .name = "top_k:threshold",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare,
    .vector = true,
}};

}  // namespace

RLX_DEFINE_KERNELS(TopK, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
