#include "rlx/ops/attention.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

struct Problem {
  const Call& c;
  const AttentionAttrs& a;
  AttentionOperands at;
  AttentionSizes<int64_t> n;
  double scale;

  Problem(const Call& call, int inputs) : c(call), a(call.as<AttentionAttrs>()), at(a, inputs) {
    n = attention_sizes<int64_t>(a.layout, c.operands[0].shape, c.operands[1].shape,
                                 c.operands[2].shape);
    scale = a.scale ? *a.scale : 1 / std::sqrt(double(std::max<int64_t>(n.width, 1)));
    for (int64_t b = 0; b < n.batch; ++b) {
      const auto check = [](int64_t length, int64_t size, std::string_view name) {
        if (length < 0 || length > size) {
          user_error("{} is {}, expected 0 to {}", name, length, size);
        }
      };
      check(kv_len(b), n.keys, "kv_len");
      check(q_len(b), n.queries, "q_len");
    }
  }

  // Of element (b, i, h, 0) of a tensor with so many rows and heads.
  size_t offset(int64_t b, int64_t i, int64_t h, int64_t rows, int64_t heads, int64_t w) const {
    return size_t(a.layout == AttentionLayout::kBshd ? ((b * rows + i) * heads + h) * w
                                                     : ((b * heads + h) * rows + i) * w);
  }
  size_t query(int64_t b, int64_t i, int64_t h, int64_t width) const {
    return offset(b, i, h, n.queries, n.heads, width);
  }
  size_t key(int64_t b, int64_t j, int64_t h, int64_t width) const {
    return offset(b, j, h / (n.heads / n.kv_heads), n.keys, n.kv_heads, width);
  }
  size_t bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const Dims& s = c.operands[size_t(at.bias)].shape;
    return size_t(
        ((b / (n.batch / s[0]) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + (s[2] == 1 ? 0 : i)) * s[3] +
        (s[3] == 1 ? 0 : j));
  }

  int64_t length(int operand, int64_t b, int64_t size) const {
    if (operand < 0) return size;
    const Tensor& t = c.operands[size_t(operand)];
    return t.i[t.shape.empty() ? 0 : size_t(b)];
  }
  int64_t kv_len(int64_t b) const { return length(at.kv_len, b, n.keys); }
  int64_t q_len(int64_t b) const { return length(at.q_len, b, n.queries); }

  bool sees(int64_t b, int64_t i, int64_t j) const {
    if (j >= kv_len(b) || i >= q_len(b)) return false;
    if (at.mask >= 0 && !c.operands[size_t(at.mask)].i[size_t(b * n.keys + j)]) return false;
    const int64_t last = i + kv_len(b) - q_len(b);
    if (a.mask == AttentionMask::kCausal) return j <= last;
    if (a.mask == AttentionMask::kSlidingWindow) return j <= last && j >= last - a.window;
    return true;
  }

  // What one row sees: scores before the bias, and probabilities. Without weight (no key, or only
  // scores of -inf) it is 0 and has no gradients, whatever values and cotangents are.
  struct Row {
    std::vector<int64_t> keys;
    std::vector<double> capped, p;
    double weight = 0;
  };
  Row row(int64_t b, int64_t h, int64_t i) const {
    Row r;
    std::vector<double> s;
    double m = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < n.keys; ++j) {
      if (!sees(b, i, j)) continue;
      double x = 0;
      for (int64_t d = 0; d < n.width; ++d) {
        x += c.operands[0].f[query(b, i, h, n.width) + size_t(d)] *
             c.operands[1].f[key(b, j, h, n.width) + size_t(d)];
      }
      x *= scale;
      if (a.softcap) x = *a.softcap * std::tanh(x / *a.softcap);
      r.keys.push_back(j);
      r.capped.push_back(x);
      if (at.bias >= 0) x += c.operands[size_t(at.bias)].f[bias(b, h, i, j)];
      s.push_back(x);
      if (x > m) m = x;
    }
    if (!(m > -std::numeric_limits<double>::infinity())) m = 0;
    for (const double x : s) r.weight += r.p.emplace_back(std::exp(x - m));
    for (double& p : r.p) p /= r.weight;
    return r;
  }

  template <class F>
  void for_rows(F f) const {
    for (int64_t b = 0; b < n.batch; ++b) {
      for (int64_t h = 0; h < n.heads; ++h) {
        for (int64_t i = 0; i < n.queries; ++i) f(b, h, i, row(b, h, i));
      }
    }
  }
};

void run_forward(const Call& c) {
  const Problem p(c, kAttentionInputs);
  p.for_rows([&](int64_t b, int64_t h, int64_t i, const Problem::Row& r) {
    if (r.weight == 0) return;
    for (size_t k = 0; k < r.keys.size(); ++k) {
      for (int64_t d = 0; d < p.n.v_width; ++d) {
        c.results[0].f[p.query(b, i, h, p.n.v_width) + size_t(d)] +=
            r.p[k] * c.operands[2].f[p.key(b, r.keys[k], h, p.n.v_width) + size_t(d)];
      }
    }
  });
}

void run_backward(const Call& c) {
  const Problem p(c, kAttentionBackwardInputs);
  // What is the same for all keys of a row has no influence.
  const bool varies = p.at.bias >= 0 && c.operands[size_t(p.at.bias)].shape[3] != 1;
  const auto width = size_t(p.n.width), v_width = size_t(p.n.v_width);
  p.for_rows([&](int64_t b, int64_t h, int64_t i, const Problem::Row& r) {
    if (r.weight == 0) return;
    const double* q = c.operands[0].f.data() + p.query(b, i, h, p.n.width);
    const double* dy = c.operands[3].f.data() + p.query(b, i, h, p.n.v_width);
    double* dq = c.results[0].f.data() + p.query(b, i, h, p.n.width);
    std::vector<double> dp(r.keys.size(), 0);
    double mean = 0;
    for (size_t k = 0; k < r.keys.size(); ++k) {
      const size_t at = p.key(b, r.keys[k], h, p.n.v_width);
      for (size_t d = 0; d < v_width; ++d) {
        dp[k] += dy[d] * c.operands[2].f[at + d];
        c.results[2].f[at + d] += r.p[k] * dy[d];
      }
      mean += r.p[k] * dp[k];
    }
    for (size_t k = 0; k < r.keys.size(); ++k) {
      double ds = r.p[k] * (dp[k] - mean);
      if (varies) c.results[3].f[p.bias(b, h, i, r.keys[k])] += ds;
      if (p.a.softcap) ds *= 1 - std::pow(r.capped[k] / *p.a.softcap, 2);
      const size_t at = p.key(b, r.keys[k], h, p.n.width);
      for (size_t d = 0; d < width; ++d) {
        dq[d] += p.scale * ds * c.operands[1].f[at + d];
        c.results[1].f[at + d] += p.scale * ds * q[d];
      }
    }
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Attention) = run_forward;
RLX_DEFINE_REFERENCE(AttentionBackwardAll) = run_backward;

}  // namespace rlx::reference
