// DynamicSlice, DynamicUpdateSlice and KvAppend.
#include "rlx/ops/dynamic_slice.h"

#include "rlx/backend/reference/storage.h"
#include "rlx/base/error.h"
#include "rlx/ops/kv_append.h"

namespace rlx::reference {
namespace {

struct Window {
  const Dims& whole;
  const Dims& part;
  std::vector<int64_t> axes;
  int64_t batch_dims;
};

// Calls f(offset in the whole, offset in the part) for every element of the part.
template <class F>
void for_each_in_window(const Window& w, const Tensor& starts, F&& f) {
  const Dims strides = dense_strides(w.whole);
  // Windows without elements have places too.
  const auto count = int64_t(w.axes.size());
  const auto check = [&](int64_t start, size_t axis) {
    if (start >= 0 && start + w.part[axis] <= w.whole[axis]) return;
    user_error("a window of size {} at {} is not within axis {} of size {}", w.part[axis], start,
               axis, w.whole[axis]);
  };
  for (int64_t i = 0; i < starts.size(); ++i) {
    check(starts.i[size_t(i)], size_t(w.axes[size_t(i % count)]));
  }
  for_each_index(w.part, [&](int64_t flat, const Dims& index) {
    int64_t batch = 0;
    for (int64_t a = 0; a < w.batch_dims; ++a) {
      batch = batch * w.whole[size_t(a)] + index[size_t(a)];
    }
    Dims at = index;
    for (int64_t k = 0; k < count; ++k) {
      at[size_t(w.axes[size_t(k)])] += starts.i[size_t(batch * count + k)];
    }
    f(offset_of(at, strides), flat);
  });
}

void slice(const Call& c) {
  const auto& a = c.as<DynamicSliceAttrs>();
  const Tensor &x = c.operands[0], &starts = c.operands[1];
  const Window w{x.shape, c.results[0].shape, a.axes, a.batch_dims};
  with_elements(x, c.results[0], [&](const auto& from, auto& to) {
    for_each_in_window(w, starts, [&](int64_t i, int64_t j) { to[size_t(j)] = from[size_t(i)]; });
  });
}

void replace(const Call& c, std::vector<int64_t> axes, int64_t batch_dims) {
  const Tensor &target = c.operands[0], &update = c.operands[1], &starts = c.operands[2];
  const Window w{target.shape, update.shape, std::move(axes), batch_dims};
  with_elements(target, c.results[0], [&](const auto& from, auto& to) { to = from; });
  with_elements(update, c.results[0], [&](const auto& from, auto& to) {
    for_each_in_window(w, starts, [&](int64_t i, int64_t j) { to[size_t(i)] = from[size_t(j)]; });
  });
}

void update_slice(const Call& c) {
  const auto& a = c.as<DynamicUpdateSliceAttrs>();
  replace(c, a.axes, a.batch_dims);
}

void append(const Call& c) {
  replace(c, {c.as<KvAppendAttrs>().axis}, int64_t(c.operands[2].shape.size()));
}

}  // namespace

RLX_DEFINE_REFERENCE(DynamicSlice) = slice;
RLX_DEFINE_REFERENCE(DynamicUpdateSlice) = update_slice;
RLX_DEFINE_REFERENCE(KvAppend) = append;

}  // namespace rlx::reference
