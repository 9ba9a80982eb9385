#include "rlx/testing/grad_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/derive.h"
#include "rlx/testing/call_graph.h"
#include "rlx/testing/compare.h"
#include "rlx/transform/grad.h"
#include "rlx/transform/jvp.h"
#include "rlx/transform/vmap.h"

namespace rlx {
namespace {

using reference::Tensor;
using Bindings = std::map<std::string, Tensor>;

// Deterministic numbers in [-1, 1).
class Noise {
 public:
  double next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return double(state_ >> 11) * 0x1p-52 - 1;
  }
  Tensor like(DType t, const Dims& shape) {
    Tensor r(t, shape);
    for (double& x : r.f) x = next();
    for (auto& x : r.c) x = {next(), next()};
    return r;
  }

 private:
  uint64_t state_ = 88172645463325252ull;
};

Tensor axpy(const Tensor& x, double h, const Tensor& d) {
  Tensor r = x;
  for (size_t i = 0; i < r.f.size(); ++i) r.f[i] += h * d.f[i];
  for (size_t i = 0; i < r.c.size(); ++i) r.c[i] += h * d.c[i];
  return r;
}

double inner(const Tensor& a, const Tensor& b) {
  double s = 0;
  for (size_t i = 0; i < a.f.size(); ++i) s += a.f[i] * b.f[i];
  for (size_t i = 0; i < a.c.size(); ++i) s += (std::conj(a.c[i]) * b.c[i]).real();
  return s;
}

Bindings run_graph(const Graph& g, const Bindings& in) {
  const std::vector<Tensor> values = reference::evaluate(g, in);
  Bindings out;
  for (size_t i = 0; i < values.size(); ++i) out[g.outputs()[i].name] = values[i];
  return out;
}

// The tangents among the outputs of a jvp, by the name of the output they belong to; they follow
// the primal outputs in their order.
Bindings tangents_of(const Graph& primal, const Graph& forward, const Bindings& in) {
  const std::vector<Tensor> values = reference::evaluate(forward, in);
  size_t next = primal.outputs().size();
  Bindings out;
  for (const Output& o : primal.outputs()) {
    if (is_differentiable(primal.type(o.value).dtype)) out[o.name] = values.at(next++);
  }
  return out;
}

Bindings bind_operands(const OpDef& op, const Sample& s) {
  Bindings in;
  const std::vector<Array> arrays = draw_operands(op, s);
  for (size_t i = 0; i < arrays.size(); ++i) {
    in[fmt::format("arg{}", i)] = reference::widen(arrays[i]);
  }
  return in;
}

std::vector<std::string> differentiable_inputs(const Graph& g) {
  std::vector<std::string> names;
  for (Value v : g.inputs()) {
    if (is_differentiable(g.type(v).dtype)) names.push_back(g.name_of(v));
  }
  return names;
}

// Larger samples exercise splits of kernels, not rules; second order is checked on the others.
constexpr int64_t kSecondOrderElements = 600;
constexpr int64_t kBatchingElements = 2500;

// Types only: 16-bit floats round inside casts, so their numbers say nothing about derivatives.
CheckResult check_types_only(const OpDef& op, const Sample& s) {
  CheckResult result;
  try {
    const Graph g = call_graph(op, s.attrs, operand_types(s));
    const std::vector<std::string> wrt = differentiable_inputs(g);
    if (wrt.empty()) return result;
    verify(vjp(g, wrt), "vjp");
    verify(jvp(g, wrt), "jvp");
    ++result.checks;
  } catch (const Error& e) {
    result.failures.push_back(e.message());
  }
  return result;
}

class DerivativeCheck {
 public:
  DerivativeCheck(const OpDef& op, const Sample& s)
      : op_(op),
        sample_(s),
        primal_(call_graph(op, s.attrs, operand_types(s))),
        in_(bind_operands(op, s)),
        wrt_(differentiable_inputs(primal_)) {}

  CheckResult run() {
    if (wrt_.empty()) return result_;
    if (elements() == 0) return check_types_only(op_, sample_);
    for (const std::string& name : wrt_) direction_[name] = noise_like(name);
    check("first order", [&] { first_order(); });
    if (elements() <= kSecondOrderElements) check("second order", [&] { second_order(); });
    check("decomposition", [&] { decomposed(); });
    return result_;
  }

 private:
  int64_t elements() const {
    int64_t n = 0;
    for (const std::string& name : wrt_) n += in_.at(name).size();
    return n;
  }
  template <class F>
  void check(std::string_view what, F&& f) {
    try {
      f();
    } catch (const Error& e) {
      result_.failures.push_back(fmt::format("{}: {}", what, e.message()));
    }
  }
  void expect(std::string_view what, const std::string& problem) {
    ++result_.checks;
    if (!problem.empty()) result_.failures.push_back(fmt::format("{}: {}", what, problem));
  }
  Tensor noise_like(const std::string& name) {
    return noise_.like(in_.at(name).dtype, in_.at(name).shape);
  }
  Bindings moved(const Bindings& in, double h) const {
    Bindings r = in;
    for (const auto& [name, d] : direction_) r[name] = axpy(r.at(name), h, d);
    return r;
  }
  // Adds the directions as the tangent inputs, which follow the primal's inputs.
  Bindings with_tangents(const Graph& forward, const Graph& primal,
                         const std::vector<std::string>& wrt, Bindings in) const {
    size_t next = primal.inputs().size();
    for (const std::string& name : wrt) {
      in[forward.name_of(forward.inputs().at(next++))] = direction_.at(name);
    }
    return in;
  }
  // Adds random cotangents for the tangents' outputs as the inputs that the vjp added, and returns
  // their inner product with the tangents; `scale` bounds it.
  double with_cotangents(const Graph& primal, const Graph& reverse, const Bindings& tangents,
                         Bindings& in, double& scale) {
    size_t next = primal.inputs().size();
    double product = 0;
    scale = 0;
    for (const Output& o : primal.outputs()) {
      const auto it = tangents.find(o.name);
      if (it == tangents.end()) continue;
      const Tensor& t = it->second;
      const Tensor ct = noise_.like(t.dtype, t.shape);
      product += inner(ct, t);
      scale += std::sqrt(inner(ct, ct) * inner(t, t));
      in[reverse.name_of(reverse.inputs().at(next++))] = ct;
    }
    return product;
  }
  // The inner product of a vjp's gradients, which follow the primal outputs, with the directions.
  double with_gradients(const Graph& primal, const Graph& reverse,
                        const std::vector<std::string>& wrt, const Bindings& in) const {
    const std::vector<Tensor> values = reference::evaluate(reverse, in);
    size_t next = primal.outputs().size();
    double product = 0;
    for (const std::string& name : wrt) product += inner(values.at(next++), direction_.at(name));
    return product;
  }

  // d/dt of every output of g along direction_, by central differences.
  Bindings differences(const Graph& g, const Bindings& in) const {
    constexpr double h = 1e-5;
    // Richardson: the error falls from h^2 to h^4.
    const Bindings a = run_graph(g, moved(in, h)), b = run_graph(g, moved(in, -h));
    const Bindings c = run_graph(g, moved(in, 2 * h)), d = run_graph(g, moved(in, -2 * h));
    Bindings r;
    for (const auto& [name, x] : a) {
      if (!is_differentiable(x.dtype)) continue;
      Tensor t = axpy(x, -1, b.at(name));
      const Tensor wide = axpy(c.at(name), -1, d.at(name));
      const auto combine = [&](auto& v, const auto& w) {
        for (size_t i = 0; i < v.size(); ++i) v[i] = (8.0 * v[i] - w[i]) / (12 * h);
      };
      combine(t.f, wide.f);
      combine(t.c, wide.c);
      r[name] = t;
    }
    return r;
  }

  void compare_tangents(std::string_view what, const Bindings& tangents, const Bindings& fd) {
    for (const auto& [name, t] : fd) {
      const auto it = tangents.find(name);
      if (it == tangents.end()) {
        expect(what, "no tangent of " + name);
        continue;
      }
      expect(what, compare_wide(it->second, t, 2e-6));
    }
  }

  void first_order() {
    const Graph forward = jvp(primal_, wrt_);
    verify(forward, "jvp");
    tangents_ = tangents_of(primal_, forward, with_tangents(forward, primal_, wrt_, in_));
    if (sample_.grad == GradCheck::kYes) {
      compare_tangents("jvp against differences", tangents_, differences(primal_, in_));
    }
    reverse_ = vjp(primal_, wrt_);
    verify(reverse_, "vjp");
    reverse_in_ = in_;
    double scale = 0;
    const double left = with_cotangents(primal_, reverse_, tangents_, reverse_in_, scale);
    const double right = with_gradients(primal_, reverse_, wrt_, reverse_in_);
    expect("vjp against jvp", agree(left, right, scale));
  }

  static std::string agree(double left, double right, double scale) {
    const bool both_nan = std::isnan(left) && std::isnan(right);
    if (both_nan || std::fabs(left - right) <= 1e-9 * std::max(scale, 1e-30)) return {};
    return fmt::format("{:.12g} against {:.12g} (scale {:.3g})", left, right, scale);
  }

  // The vjp as a function of the primals and the cotangents, differentiated once more.
  void second_order() {
    if (reverse_.outputs().empty()) return;
    const std::vector<std::string> all = differentiable_inputs(reverse_);
    for (const std::string& name : all) {
      if (!direction_.count(name)) {
        direction_[name] = noise_.like(reverse_in_.at(name).dtype, reverse_in_.at(name).shape);
      }
    }
    const Graph forward = jvp(reverse_, all);
    const Bindings tangents =
        tangents_of(reverse_, forward, with_tangents(forward, reverse_, all, reverse_in_));
    if (sample_.grad == GradCheck::kYes) {
      compare_tangents("jvp of vjp against differences", tangents,
                       differences(reverse_, reverse_in_));
    }
    const Graph twice = vjp(reverse_, all);
    verify(twice, "vjp of vjp");
    Bindings in = reverse_in_;
    double scale = 0;
    const double left = with_cotangents(reverse_, twice, tangents, in, scale);
    const double right = with_gradients(reverse_, twice, all, in);
    expect("vjp of vjp against jvp of vjp", agree(left, right, scale));
  }

  // The op's own rule and the sweep over its decomposition are the same function.
  void decomposed() {
    if (!op_.decompose || reverse_.outputs().empty() || sample_.grad != GradCheck::kYes) return;
    const Graph body = expand_to_graph(op_, sample_.attrs, operand_types(sample_));
    const Bindings own = run_graph(reverse_, reverse_in_);
    const Bindings other = run_graph(vjp(body, wrt_), reverse_in_);
    for (const std::string& name : wrt_) {
      expect("own rule against decomposition",
             compare_wide(own.at("d_" + name), other.at("d_" + name), 1e-9));
    }
  }

  const OpDef& op_;
  const Sample& sample_;
  Graph primal_;
  Bindings in_;
  std::vector<std::string> wrt_;
  Noise noise_;
  Bindings direction_, tangents_;
  Graph reverse_;
  Bindings reverse_in_;
  CheckResult result_;
};

bool has_half(const Sample& s) {
  return std::any_of(s.operands.begin(), s.operands.end(), [](const SampleOperand& o) {
    return is_float(o.dtype) && size_of(o.dtype) < 4;
  });
}

Tensor stack(const std::vector<Tensor>& parts) {
  Dims shape = parts[0].shape;
  shape.insert(shape.begin(), int64_t(parts.size()));
  Tensor r(parts[0].dtype, shape);
  r.f.clear();
  r.i.clear();
  r.c.clear();
  for (const Tensor& p : parts) {
    r.f.insert(r.f.end(), p.f.begin(), p.f.end());
    r.i.insert(r.i.end(), p.i.begin(), p.i.end());
    r.c.insert(r.c.end(), p.c.begin(), p.c.end());
  }
  return r;
}

// Inference accepted the symbolic sizes of g; so must the decompositions of its calls.
void check_symbolic(const Graph& g) {
  verify(g, "vmap of symbolic size");
  for (const Node& n : g.nodes()) {
    if (!n.op->decompose) continue;
    std::vector<TensorType> operands;
    for (Value v : n.operands) operands.push_back(g.type(v));
    verify(expand_to_graph(*n.op, n.attrs, operands), "decomposition of symbolic size");
  }
}

// vmap of g over the named inputs against a loop over `lanes` examples.
void compare_with_loop(std::string_view what, const Graph& g, const std::vector<std::string>& names,
                       const std::vector<Bindings>& lanes, CheckResult& result) {
  try {
    const Graph batched = vmap(g, int64_t(lanes.size()), names);
    verify(batched, "vmap");
    verify(vmap(g, 0, names), "vmap of size 0");
    check_symbolic(vmap(g, Dim::symbol("lanes"), names));
    Bindings in = lanes[0];
    std::vector<Bindings> loop;
    for (const Bindings& lane : lanes) {
      Bindings one = lanes[0];
      for (const std::string& n : names) one[n] = lane.at(n);
      loop.push_back(run_graph(g, one));
    }
    for (const std::string& n : names) {
      std::vector<Tensor> parts;
      parts.reserve(lanes.size());
      for (const Bindings& lane : lanes) parts.push_back(lane.at(n));
      in[n] = stack(parts);
    }
    for (const auto& [name, value] : run_graph(batched, in)) {
      std::vector<Tensor> parts;
      parts.reserve(loop.size());
      for (const Bindings& one : loop) parts.push_back(one.at(name));
      const std::string problem = compare_wide(value, stack(parts), 1e-11);
      ++result.checks;
      if (!problem.empty()) result.failures.push_back(fmt::format("{}: {}", what, problem));
    }
  } catch (const Error& e) {
    result.failures.push_back(fmt::format("{}: {}", what, e.message()));
  }
}

std::vector<Bindings> draw_lanes(const OpDef& op, const Sample& s, int count) {
  std::vector<Bindings> lanes;
  for (int k = 0; k < count; ++k) {
    Sample lane = s;
    if (k > 0) lane.name += fmt::format("#{}", k);  // another draw, the same distribution
    lanes.push_back(bind_operands(op, lane));
  }
  return lanes;
}

}  // namespace

CheckResult check_derivatives(const OpDef& op, const Sample& sample) {
  if (sample.grad == GradCheck::kNo || has_half(sample)) return check_types_only(op, sample);
  return DerivativeCheck(op, sample).run();
}

CheckResult check_batching(const OpDef& op, const Sample& s) {
  CheckResult result;
  if ((op.flags & kBindsSize) != 0) return result;  // lanes cannot have sizes of their own
  int64_t elements = 0;
  for (const SampleOperand& o : s.operands) elements += num_elements(o.shape);
  if (s.operands.empty() || elements > kBatchingElements) return result;
  const Graph g = call_graph(op, s.attrs, operand_types(s));
  std::vector<Bindings> lanes = draw_lanes(op, s, 3);
  std::vector<std::string> all;
  for (Value v : g.inputs()) all.push_back(g.name_of(v));
  for (const std::string& name : all)
    compare_with_loop("vmap of " + name, g, {name}, lanes, result);
  if (all.size() > 1) compare_with_loop("vmap", g, all, lanes, result);
  if (has_half(s) || s.grad == GradCheck::kNo) return result;

  const std::vector<std::string> wrt = differentiable_inputs(g);
  if (wrt.empty() || op.has(kNoGradient)) return result;
  try {
    const Graph reverse = vjp(g, wrt);
    Noise noise;
    std::vector<std::string> names = all;
    for (Value v : reverse.inputs()) {
      const std::string& name = reverse.name_of(v);
      if (name.rfind("ct_", 0) != 0) continue;
      names.push_back(name);
      for (Bindings& lane : lanes) {
        lane[name] = noise.like(reverse.type(v).dtype, reverse.type(v).shape.static_dims());
      }
    }
    compare_with_loop("vmap of vjp", reverse, names, lanes, result);
    // vjp of vmap: the same numbers, from the batched graph.
    const Graph batched = vjp(vmap(g, int64_t(lanes.size()), all), wrt);
    Bindings in;
    for (const std::string& n : names) {
      std::vector<Tensor> parts;
      parts.reserve(lanes.size());
      for (const Bindings& lane : lanes) parts.push_back(lane.at(n));
      in[n] = stack(parts);
    }
    const Bindings got = run_graph(batched, in);
    for (const std::string& n : wrt) {
      std::vector<Tensor> parts;
      parts.reserve(lanes.size());
      for (const Bindings& lane : lanes) parts.push_back(run_graph(reverse, lane).at("d_" + n));
      const std::string problem = compare_wide(got.at("d_" + n), stack(parts), 1e-10);
      ++result.checks;
      if (!problem.empty()) result.failures.push_back("vjp of vmap: " + problem);
    }
  } catch (const Error& e) {
    result.failures.push_back("vmap and vjp: " + e.message());
  }
  return result;
}

}  // namespace rlx
