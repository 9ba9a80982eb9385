#include "rlx/ops/lstm.h"

#include <cmath>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Problem {
  const Call& c;
  LstmOperands at;
  LstmSizes<int64_t> n;

  explicit Problem(const Call& call)
      : c(call), at(call.as<LstmAttrs>()), n(call.as<LstmAttrs>(), call.operands[0].shape) {}

  int64_t length(int64_t b) const {
    return at.lengths < 0 ? n.steps : c.operands[size_t(at.lengths)].i[size_t(b)];
  }

  // One gate before its activation, of hidden unit j.
  double gate(int64_t block, int64_t g, int64_t j, const double* x, const double* h) const {
    const int64_t row = g * n.hidden + j, inputs = n.layer_input(block / n.directions);
    const double* w = c.operands[1].f.data() + n.input_offset(block) + row * inputs;
    const double* r = c.operands[2].f.data() + (block * n.gates() + row) * n.hidden;
    double z = c.operands[3].f[size_t(block * n.gates() + row)];
    for (int64_t k = 0; k < inputs; ++k) z += x[k] * w[k];
    for (int64_t k = 0; k < n.hidden; ++k) z += h[k] * r[k];
    return z;
  }

  void step(int64_t block, const double* x, std::vector<double>& h, std::vector<double>& s) const {
    const std::vector<double> before = h;
    for (int64_t j = 0; j < n.hidden; ++j) {
      const double i = sigmoid(gate(block, 0, j, x, before.data()));
      const double f = sigmoid(gate(block, 1, j, x, before.data()));
      const double g = std::tanh(gate(block, 2, j, x, before.data()));
      const double o = sigmoid(gate(block, 3, j, x, before.data()));
      s[size_t(j)] = f * s[size_t(j)] + i * g;
      h[size_t(j)] = o * std::tanh(s[size_t(j)]);
    }
  }

  // The steps of one sequence in one layer and direction; x [S, K], y [S, D * H].
  void run(int64_t b, int64_t layer, int64_t d, const std::vector<double>& x,
           std::vector<double>& y) const {
    const int64_t block = layer * n.directions + d, live = length(b);
    const auto state = size_t((block * n.batch + b) * n.hidden), width = size_t(n.hidden);
    std::vector<double> h(width, 0), s(width, 0);
    for (size_t j = 0; at.h0 >= 0 && j < width; ++j) {
      h[j] = c.operands[size_t(at.h0)].f[state + j];
      s[j] = c.operands[size_t(at.c0)].f[state + j];
    }
    const bool backwards = d == 1 || c.as<LstmAttrs>().reverse;
    for (int64_t k = 0; k < live; ++k) {
      const int64_t t = backwards ? live - 1 - k : k;
      step(block, x.data() + t * n.layer_input(layer), h, s);
      for (size_t j = 0; j < width; ++j) y[size_t(t * n.output() + d * n.hidden) + j] = h[j];
    }
    for (size_t j = 0; j < width; ++j) {
      c.results[1].f[state + j] = h[j];
      c.results[2].f[state + j] = s[j];
    }
  }
};

void run(const Call& c) {
  const Problem p(c);
  for (int64_t b = 0; b < p.n.batch; ++b) {
    if (p.length(b) < 0 || p.length(b) > p.n.steps) {
      user_error("lengths[{}] is {}, expected 0 to {}", b, p.length(b), p.n.steps);
    }
    const double* x = c.operands[0].f.data() + b * p.n.steps * p.n.input;
    std::vector<double> sequence(x, x + p.n.steps * p.n.input);
    for (int64_t layer = 0; layer < p.n.layers; ++layer) {
      std::vector<double> y(size_t(p.n.steps * p.n.output()), 0);
      for (int64_t d = 0; d < p.n.directions; ++d) p.run(b, layer, d, sequence, y);
      sequence = std::move(y);
    }
    std::copy(sequence.begin(), sequence.end(),
              c.results[0].f.begin() + b * p.n.steps * p.n.output());
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(Lstm) = run;

}  // namespace rlx::reference
