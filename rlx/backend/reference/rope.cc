#include "rlx/ops/rope.h"

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

// Strides of x[lead, s, h, component].
struct Layout {
  int64_t lead = 1, tokens = 0, heads = 0;
  int64_t lead_stride = 0, token_stride = 0, head_stride = 0;
};

Layout layout_of(const RopeAttrs& a, const Dims& x) {
  Layout l;
  const size_t rank = x.size();
  const bool packed = a.layout == RopeLayout::kPacked;
  for (size_t i = 0; i + (packed ? 2 : 3) < rank; ++i) l.lead *= x[i];
  if (packed) {
    l.tokens = x[rank - 2];
    l.heads = x[rank - 1] / a.head_dim;
  } else {
    const bool heads_first = a.layout == RopeLayout::kBHSD;
    l.tokens = x[heads_first ? rank - 2 : rank - 3];
    l.heads = x[heads_first ? rank - 3 : rank - 2];
  }
  const bool heads_first = a.layout == RopeLayout::kBHSD;
  l.token_stride = heads_first ? a.head_dim : l.heads * a.head_dim;
  l.head_stride = heads_first ? l.tokens * a.head_dim : a.head_dim;
  l.lead_stride = l.tokens * l.heads * a.head_dim;
  return l;
}

int64_t row_of(const Call& c, const Layout& l, int64_t lead, int64_t s, int64_t rows) {
  if (c.operands.size() < 4) return s;
  const Tensor& ids = c.operands[3];
  int64_t p;
  if (ids.shape.empty()) {
    p = ids.i[0] + s;
  } else {
    p = ids.i[size_t((lead * l.tokens + s) % ids.size())];
  }
  if (p < -rows || p >= rows) user_error("position {} is out of range for {} rows", p, rows);
  return p < 0 ? p + rows : p;
}

template <int kSign>
void run(const Call& c) {
  const auto& a = c.as<RopeAttrs>();
  const Tensor &x = c.operands[0], &cos = c.operands[1], &sin = c.operands[2];
  const Layout l = layout_of(a, x.shape);
  const int64_t r = a.n_rot / 2;
  const int64_t width = cos.shape.size() == 2 ? cos.shape[1] : r;
  const int64_t rows = cos.shape.size() == 2 ? cos.shape[0] : cos.shape[0] / r;
  auto& y = c.results[0].f;
  for (int64_t b = 0; b < l.lead; ++b) {
    for (int64_t s = 0; s < l.tokens; ++s) {
      for (int64_t h = 0; h < l.heads; ++h) {
        const int64_t at = b * l.lead_stride + s * l.token_stride + h * l.head_stride;
        const int64_t row = row_of(c, l, b, s, rows);
        for (int64_t i = 0; i < r; ++i) {
          const bool neox = a.style == RopeStyle::kNeoX;
          const auto p = size_t(at + (neox ? i : 2 * i));
          const auto q = size_t(at + (neox ? i + r : 2 * i + 1));
          const double cosine = cos.f[size_t(row * width + i)];
          const double sine = kSign * sin.f[size_t(row * width + i)];
          y[p] = x.f[p] * cosine - x.f[q] * sine;
          y[q] = x.f[q] * cosine + x.f[p] * sine;
        }
        for (int64_t i = a.n_rot; i < a.head_dim; ++i) y[size_t(at + i)] = x.f[size_t(at + i)];
      }
    }
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(Rope) = run<1>;
RLX_DEFINE_REFERENCE(RopeBackward) = run<-1>;

}  // namespace rlx::reference
