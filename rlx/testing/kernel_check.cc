#include "rlx/testing/kernel_check.h"

#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/text.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/call_graph.h"
#include "rlx/testing/compare.h"
#include "rlx/testing/layouts.h"
#include "rlx/testing/sample_operators.h"
#include "rlx/transform/vmap.h"

namespace rlx {
namespace {

// Beyond this many elements only the contiguous layout is run.
constexpr int64_t kLayoutElements = 20000;
// Beyond this many elements no batches are run.
constexpr int64_t kBatchElements = 5000;
constexpr int64_t kLanes = 3;

using reference::Tensor;

// Four workers whatever the machine has, so that runs of width 5 are real.
ThreadPool& pool() {
  static ThreadPool p(4);
  return p;
}

// Equal bits, except that any NaN equals any other.
std::string compare_bits(const Array& a, const Array& b) {
  if (a.same_bits(b)) return {};
  if (is_packed(a.dtype())) return "bits of blocks differ";
  const Tensor x = reference::widen(a), y = reference::widen(b);
  const auto same = [](double u, double v) {
    return (std::isnan(u) && std::isnan(v)) ||
           std::bit_cast<uint64_t>(u) == std::bit_cast<uint64_t>(v);
  };
  for (int64_t k = 0; k < x.size(); ++k) {
    const auto i = size_t(k);
    const bool equal =
        !x.f.empty()   ? same(x.f[i], y.f[i])
        : !x.c.empty() ? same(x.c[i].real(), y.c[i].real()) && same(x.c[i].imag(), y.c[i].imag())
                       : x.i[i] == y.i[i];
    if (!equal) {
      return x.f.empty()
                 ? fmt::format("bits differ at {}", k)
                 : fmt::format("bits differ at {}: {:.17g} against {:.17g}", k, x.f[i], y.f[i]);
    }
  }
  return {};
}

std::vector<Array> run_once(const Graph& graph, const std::vector<Array>& inputs) {
  SessionOptions options;
  options.threads = 1;
  Session session(cpu_device(), options);
  add_sample_kernels(session);
  return session.compile(graph).run(inputs);
}

class KernelCheck {
 public:
  KernelCheck(const OpDef& op, const Sample& s)
      : op_(op), sample_(s), operands_(draw_operands(op, s)) {}

  CheckResult run() {
    round_trips();
    check_decomposition();
    int64_t elements = 0;
    for (const Array& a : operands_) elements += a.num_elements();
    for (OperandLayout layout : kOperandLayouts) {
      if (layout != OperandLayout::kContiguous &&
          (operands_.empty() || elements > kLayoutElements)) {
        continue;
      }
      check_layout(layout);
    }
    if (elements <= kBatchElements) check_batch_invariance();
    return std::move(result_);
  }

 private:
  void expect(const std::string& what, const std::string& problem) {
    ++result_.checks;
    if (!problem.empty()) result_.failures.push_back(what + ": " + problem);
  }

  void round_trips() {
    const Graph g = call_graph(op_, sample_.attrs, operand_types(sample_));
    expect("text", parse_graph(print(g)) == g ? "" : "does not parse back to an equal graph");
    expect("binary", deserialize(serialize(g), find_op) == g ? "" : "does not load an equal graph");
  }

  // The decomposition against the direct formula, both in float64.
  void check_decomposition() {
    if (!op_.decompose || has_narrow_float()) return;
    std::vector<Tensor> wide;
    for (const Array& a : operands_) wide.push_back(reference::widen(a));
    std::vector<Tensor> direct;
    try {
      direct = reference::evaluate(op_, sample_.attrs, wide);
    } catch (const Error&) {
      return;  // check_layout expects the error
    }
    const Graph body = expand_to_graph(op_, sample_.attrs, operand_types(sample_));
    std::map<std::string, Tensor> inputs;
    for (size_t i = 0; i < wide.size(); ++i) inputs[fmt::format("arg{}", i)] = wide[i];
    const std::vector<Tensor> other = reference::evaluate(body, inputs);
    for (size_t i = 0; i < other.size(); ++i) {
      // The constants of a decomposition are rounded to the operands' dtype.
      const double relative = has_single() ? 5e-7 : 1e-11;
      expect(fmt::format("decomposition, result {}", i),
             compare_wide(other[i], direct[i], relative));
    }
  }

  bool has_narrow_float() const {
    for (const Array& a : operands_) {
      if (is_float(a.dtype()) && size_of(a.dtype()) < 4) return true;
    }
    return false;
  }

  bool has_single() const {
    for (const Array& a : operands_) {
      if (a.dtype() == DType::kF32 || a.dtype() == DType::kC64) return true;
    }
    return false;
  }

  std::set<std::string> entries_that_fit() const {
    std::set<std::string> names;
    const KernelList* list = cpu_device().kernels().find(op_);
    if (!list) return names;
    const std::vector<TensorType> types = operand_types(sample_);
    const InferredCall call = infer_call(op_, sample_.attrs, types);
    for (const KernelEntry& e : list->entries) {
      LegalizeOptions only;
      only.force_entry = e.name;
      if (select_entry(cpu_device().kernels(), op_, call.attrs, types, call.results, only)) {
        names.insert(std::string(e.name));
      }
    }
    return names;
  }

  void check_layout(OperandLayout layout) {
    const LaidOutCall call = lay_out(op_, sample_.attrs, operands_, layout);
    std::vector<Tensor> wide, expected;
    for (const Array& a : call.operands) wide.push_back(reference::widen(a));
    std::string error;
    try {
      expected = reference::evaluate(op_, sample_.attrs, wide);
    } catch (const Error& e) {
      error = e.message();
    }
    const std::string where(to_string(layout));
    // What rounding and order of sums promise holds for all entries and layouts alike.
    std::vector<Array> first;
    CompileOptions options;
    options.guard_zones = true;
    options.strict_rounding = true;  // what is fused differs by layout
    Tolerance allowed = tolerance();
    // A row of equal values is the worst case of a variance: x - mean is rounding alone.
    if (layout == OperandLayout::kBroadcast && row_of(op_).family == "Normalization") {
      allowed.scale *= 32;
    }
    std::set<std::string> entries = entries_that_fit();
    if (entries.empty()) entries.insert("");
    for (const std::string& entry : entries) {
      options.legalize.force_entry = entry;
      check_run(where + (entry.empty() ? "" : ", " + entry), call, options, expected, error,
                allowed, &first);
    }
    const bool broadcast = layout == OperandLayout::kBroadcast;
    if (!broadcast) compare_with_contiguous(where, first);
    if (layout == OperandLayout::kContiguous && op_.decompose) {
      // Each step of a decomposition rounds: its error is that of a short composition.
      Tolerance loose = tolerance();
      loose.extra_ulps += 24;
      loose.reduction = std::max<int64_t>(loose.reduction, 64);
      options.legalize.force_entry.clear();
      options.legalize.force_decompose = true;
      check_run("decomposed", call, options, expected, error, loose, nullptr);
    }
  }

  // An example alone has the same bits as in a batch, whichever operands the batch shares.
  void check_batch_invariance() {
    if (operands_.empty() || !op_.batching) return;
    std::vector<std::vector<Array>> lanes;
    for (int64_t k = 0; k < kLanes; ++k) {
      Sample lane = sample_;
      if (k > 0) lane.name += fmt::format("#{}", k);
      lanes.push_back(draw_operands(op_, lane));
    }
    const Graph one = call_graph(op_, sample_.attrs, operand_types(sample_));
    const size_t n = operands_.size();
    for (size_t shared = 0; shared <= n; ++shared) {  // operand `shared` is not batched; n: all are
      if (n == 1 && shared == 0) continue;
      std::vector<std::string> names;
      std::vector<Array> stacked;
      for (size_t i = 0; i < n; ++i) {
        if (i != shared) names.push_back(fmt::format("arg{}", i));
        stacked.push_back(i == shared ? lanes[0][i] : stack(lanes, i));
      }
      try {
        const std::vector<Array> batch = run_once(vmap(one, kLanes, names), stacked);
        for (int64_t k = 0; k < kLanes; ++k) {
          std::vector<Array> alone = lanes[size_t(k)];
          if (shared < n) alone[shared] = lanes[0][shared];
          const std::vector<Array> got = run_once(one, alone);
          for (size_t i = 0; i < got.size(); ++i) {
            expect(fmt::format("batch, operand {} shared, result {}", shared, i),
                   compare_bits(lane_of(batch[i], k), got[i]));
          }
        }
      } catch (const Error&) {
        // Calls that fail on purpose (index out of range): check_layout has seen the error.
      }
    }
  }

  static Array stack(const std::vector<std::vector<Array>>& lanes, size_t operand) {
    const Array& first = lanes[0][operand];
    Dims shape = first.shape();
    shape.insert(shape.begin(), kLanes);
    Array all = Array::uninitialized(first.dtype(), shape);
    for (int64_t k = 0; k < kLanes; ++k) lane_of(all, k).copy_from(lanes[size_t(k)][operand]);
    return all;
  }

  static Array lane_of(const Array& all, int64_t k) {
    const Dims shape(all.shape().begin() + 1, all.shape().end());
    const int64_t bytes = bytes_of(all.dtype(), num_elements(shape));
    auto* data = static_cast<char*>(const_cast<void*>(all.raw())) + k * bytes;
    return Array::borrow(all.dtype(), data, shape, {}, std::make_shared<Array>(all));
  }

  Tolerance tolerance() const { return {sample_.reduction, sample_.extra_ulps, sample_.scale}; }

  void check_run(const std::string& where, const LaidOutCall& call, const CompileOptions& options,
                 const std::vector<Tensor>& expected, const std::string& error,
                 const Tolerance& tolerance, std::vector<Array>* first) {
    std::vector<Array> base;
    for (int threads : {1, 2, 5}) {
      const std::string what = fmt::format("{}, {} threads", where, threads);
      std::vector<Array> got;
      try {
        SessionOptions session_options;
        session_options.threads = threads;
        session_options.executor = &pool();
        Session session(cpu_device(), session_options);
        add_sample_kernels(session);
        got = session.compile(call.graph, options).run(call.inputs);
      } catch (const Error& e) {
        // The same mistake is found, maybe named with other words around it.
        const bool same = !error.empty() && e.message().find(error) != std::string::npos;
        expect(what, same ? "" : fmt::format("error '{}', expected '{}'", e.message(), error));
        continue;
      }
      if (!error.empty()) {
        expect(what, fmt::format("no error, expected '{}'", error));
        continue;
      }
      for (size_t i = 0; i < got.size(); ++i) {
        if (threads == 1) {
          expect(fmt::format("{}, result {}", what, i), compare(got[i], expected[i], tolerance));
        } else if (i < base.size()) {
          expect(fmt::format("{}, result {} against 1 thread", what, i),
                 compare_bits(got[i], base[i]));
        }
      }
      if (threads == 1) base = got;
    }
    if (!first || base.empty()) return;
    if (first->empty()) *first = base;
    for (size_t i = 0; i < base.size(); ++i) {
      expect(where + " against another entry", compare_bits(base[i], (*first)[i]));
    }
  }

  void compare_with_contiguous(const std::string& where, const std::vector<Array>& got) {
    if (contiguous_.empty()) contiguous_ = got;
    for (size_t i = 0; i < got.size() && i < contiguous_.size(); ++i) {
      expect(where + " against contiguous", compare_bits(got[i], contiguous_[i]));
    }
  }

  const OpDef& op_;
  const Sample& sample_;
  std::vector<Array> operands_;
  std::vector<Array> contiguous_;
  CheckResult result_;
};

}  // namespace

CheckResult check_kernels(const OpDef& op, const Sample& sample) {
  return KernelCheck(op, sample).run();
}

CheckResult check_wrong_call(const OpDef& op, const WrongCall& wrong) {
  CheckResult r{{}, 1};
  if (wrong.error.empty()) r.failures.push_back("the sample expects no particular error");
  try {
    infer_call(op, wrong.attrs, wrong.operands);
    r.failures.push_back(fmt::format("no error, expected '{}'", wrong.error));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUser) {
      r.failures.push_back(fmt::format("error of kind {}: {}", to_string(e.kind()), e.message()));
    } else if (e.message().find(wrong.error) == std::string::npos) {
      r.failures.push_back(fmt::format("error '{}', expected '{}'", e.message(), wrong.error));
    }
  }
  return r;
}

}  // namespace rlx
