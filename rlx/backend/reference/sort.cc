// Sort and TopK.
#include "rlx/ops/sort.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rlx/backend/reference/storage.h"

namespace rlx::reference {
namespace {

bool less(const Tensor& x, int64_t i, int64_t j) {
  if (x.is_float()) {
    const double a = x.f[size_t(i)], b = x.f[size_t(j)];
    if (std::isnan(a)) return false;
    return std::isnan(b) || a < b;
  }
  const int64_t a = x.i[size_t(i)], b = x.i[size_t(j)];
  return x.dtype == DType::kU64 ? uint64_t(a) < uint64_t(b) : a < b;
}

// For every line along the axis: order(elements of the line, best first) says which to keep.
template <class Order>
void by_lines(const Call& c, int64_t axis, bool descending, Order order) {
  const Tensor& x = c.operands[0];
  const std::span<const int64_t> shape = x.shape;
  const int64_t n = shape[size_t(axis)], kept = c.results[0].shape[size_t(axis)];
  const int64_t inner = num_elements(shape.subspan(size_t(axis) + 1));
  const int64_t outer = num_elements(shape.first(size_t(axis)));
  for (int64_t line = 0; line < outer * inner; ++line) {
    const int64_t o = line / inner, i = line % inner;
    const auto at = [&](int64_t k) { return (o * n + k) * inner + i; };
    std::vector<int64_t> places(static_cast<size_t>(n));
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
      return descending ? less(x, at(b), at(a)) : less(x, at(a), at(b));
    });
    order(places);
    for (int64_t k = 0; k < kept; ++k) {
      const int64_t from = places[size_t(k)], to = (o * kept + k) * inner + i;
      with_elements(x, c.results[0], [&](const auto& elements, auto& values) {
        values[size_t(to)] = elements[size_t(at(from))];
      });
      if (c.results[1].is_float()) {
        c.results[1].f[size_t(to)] = double(from);
      } else {
        c.results[1].i[size_t(to)] = from;
      }
    }
  }
}

void sort(const Call& c) {
  const auto& a = c.as<SortAttrs>();
  by_lines(c, a.axis, a.descending, [](std::vector<int64_t>&) {});
}

void top_k(const Call& c) {
  const auto& a = c.as<TopKAttrs>();
  by_lines(c, a.axis, a.largest, [&](std::vector<int64_t>& places) {
    places.resize(size_t(a.k));
    if (!a.sorted) std::sort(places.begin(), places.end());
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Sort) = sort;
RLX_DEFINE_REFERENCE(TopK) = top_k;

}  // namespace rlx::reference
