#include "rlx/ops/axial_rope2d.h"

#include <cmath>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

void run(const Call& c) {
  const auto& a = c.as<AxialRope2dAttrs>();
  const Tensor& x = c.operands[0];
  auto& y = c.results[0].f;
  const int64_t d = a.head_dim, grid = a.end_x * a.end_y;
  const size_t rank = x.shape.size();
  for_each_index(x.shape, [&](int64_t flat, const Dims& index) {
    const int64_t t = index[rank - 2], i = index[rank - 1] % d;
    if (t >= grid * a.repeat_factor) {
      y[size_t(flat)] = x.f[size_t(flat)];
      return;
    }
    const int64_t p = a.repeat_mode == AxialRepeat::kTile ? t % grid : t / a.repeat_factor;
    const int64_t place = i < d / 2 ? p % a.end_x : p / a.end_x;
    const int64_t pair = i % (d / 2) / 2;
    const double angle = double(place) / std::pow(a.theta, 4.0 * double(pair) / double(d));
    const double own = x.f[size_t(flat)] * std::cos(angle);
    if (i % 2 == 0) {
      y[size_t(flat)] = own - x.f[size_t(flat + 1)] * std::sin(angle);
    } else {
      y[size_t(flat)] = own + x.f[size_t(flat - 1)] * std::sin(angle);
    }
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(AxialRope2d) = run;

}  // namespace rlx::reference
