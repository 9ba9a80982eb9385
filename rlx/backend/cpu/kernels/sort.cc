#include "rlx/ops/sort.h"

#include "rlx/backend/cpu/kernels/sort_items.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

template <class T, class Item>
void run(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const SortLines*>(state);
  constexpr int kBits = std::is_same_v<T, bool> ? 1 : int(8 * sizeof(T));
  const SortKey<T> flip = sort_flip<T>(s.descending);
  auto* items = static_cast<Item*>(args.thread_scratch);
  const int64_t end = std::min((chunk + 1) * s.per_chunk, s.lines);
  for (int64_t line = chunk * s.per_chunk; line < end; ++line) {
    const T* x = args.in<T>(0) + s.first(line, s.n);
    for (int64_t k = 0; k < s.n; ++k) {
      items[k] = Item::of(SortKey<T>(sort_key(x[k * s.inner]) ^ flip), k);
    }
    sort_items(items, items + s.n, s.n, kBits);
    write_line<T>(s, args, line, items);
  }
}

PreparedKernel prepare(const KernelCall& call) {
  const auto& a = call.as<SortAttrs>();
  const DType t = call.operands[0].dtype;
  const SortLines s = sort_lines(call, a.axis, a.descending, a.index_dtype);
  PreparedKernel k;
  k.state = std::make_shared<const SortLines>(s);
  k.nanoseconds = double(s.lines) * double(s.n) * (8 + 2 * double(size_of(t)));
  const int64_t chunks = s.n == 0 ? 0 : ceil_div(s.lines, s.per_chunk);
  with_sort_types(t, s.n, [&]<class T, class Item>() {
    k.thread_scratch_bytes = checked_mul(s.n, int64_t(2 * sizeof(Item)));
    k.phases = {{chunks, run<T, Item>}};
  });
  return k;
}

constexpr KernelEntry kEntries[] = {{
    .name = "sort:radix",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare,
}};

}  // namespace

RLX_DEFINE_KERNELS(Sort, Cpu) = {kEntries};

}  // namespace rlx::cpu
