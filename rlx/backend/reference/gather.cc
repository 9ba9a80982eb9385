#include "rlx/ops/gather.h"

#include "rlx/backend/reference/packed.h"
#include "rlx/backend/reference/storage.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

// Sizes of table[b, o, n, t] and indices[b, k].
struct Sizes {
  int64_t b = 1, o = 1, n = 1, t = 1, k = 1;
};

Sizes sizes_of(const Dims& table, const Dims& indices, int64_t axis, int64_t batch_dims) {
  Sizes s;
  for (size_t a = 0; a < table.size(); ++a) {
    const int64_t at = int64_t(a);
    (at < batch_dims ? s.b : at < axis ? s.o : at == axis ? s.n : s.t) *= table[a];
  }
  for (size_t a = size_t(batch_dims); a < indices.size(); ++a) s.k *= indices[a];
  return s;
}

int64_t row_of(const Tensor& indices, int64_t at, int64_t size) {
  const int64_t given = indices.i[size_t(at)];
  if (indices.dtype == DType::kU64 && given < 0) {
    user_error("index {} is out of range for axis size {}", uint64_t(given), size);
  }
  if (given < -size || given >= size) {
    user_error("index {} is out of range for axis size {}", given, size);
  }
  return given < 0 ? given + size : given;
}

// Calls f(offset in the table, offset in the gathered tensor) for every gathered element.
template <class F>
void for_each_gathered(const Sizes& s, const Tensor& indices, F&& f) {
  for (int64_t b = 0; b < s.b; ++b) {
    for (int64_t o = 0; o < s.o; ++o) {
      for (int64_t k = 0; k < s.k; ++k) {
        const int64_t row = row_of(indices, b * s.k + k, s.n);
        for (int64_t t = 0; t < s.t; ++t) {
          f(((b * s.o + o) * s.n + row) * s.t + t, ((b * s.o + o) * s.k + k) * s.t + t);
        }
      }
    }
  }
}

void gather(const Call& call) {
  const auto& a = call.as<GatherAttrs>();
  const Tensor &table = call.operands[0], &indices = call.operands[1];
  const Sizes s = sizes_of(table.shape, indices.shape, a.axis, a.batch_dims);
  if (is_packed(table.dtype)) {
    const std::vector<float> from = decoded(table);
    for_each_gathered(
        s, indices, [&](int64_t i, int64_t j) { call.results[0].f[size_t(j)] = from[size_t(i)]; });
    return;
  }
  with_elements(table, call.results[0], [&](const auto& from, auto& to) {
    for_each_gathered(s, indices, [&](int64_t i, int64_t j) { to[size_t(j)] = from[size_t(i)]; });
  });
}

void gather_backward(const Call& call) {
  const auto& a = call.as<GatherBackwardAttrs>();
  const Tensor &dy = call.operands[0], &indices = call.operands[1];
  const Sizes s = sizes_of(call.results[0].shape, indices.shape, a.axis, a.batch_dims);
  with_numbers(dy, dy, call.results[0], [&](const auto* from, const auto*, auto* to) {
    for_each_gathered(s, indices, [&](int64_t i, int64_t j) { to[i] += from[j]; });
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Gather) = gather;
RLX_DEFINE_REFERENCE(GatherBackward) = gather_backward;

}  // namespace rlx::reference
