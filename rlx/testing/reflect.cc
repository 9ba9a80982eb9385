#include "rlx/testing/reflect.h"

#include <algorithm>
#include <set>

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/table.h"
#include "rlx/testing/call_graph.h"

namespace rlx {
namespace {

constexpr int64_t kLarge = 1000;  // elements of one operand or result

bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n >= 3;
}

// The dtype that the call is about: of its first operand, else of its first result. Index and
// condition operands of another class don't count.
DType main_dtype(const std::vector<TensorType>& operands, const std::vector<TensorType>& results) {
  if (!results.empty() && std::any_of(operands.begin(), operands.end(), [&](const TensorType& t) {
        return t.dtype == results[0].dtype;
      })) {
    return results[0].dtype;
  }
  return operands.empty() ? results.at(0).dtype : operands[0].dtype;
}

class Reflection {
 public:
  explicit Reflection(const OpDef& op) : op_(op) {}

  std::vector<std::string> run() {
    for (const Sample& s : samples_of(op_).samples()) add(s);
    for (const Field& f : op_.fields->fields) check_field(f);
    for (int t = 0; t < kNumDTypes + kNumPackedDTypes; ++t) {
      if (row_of(op_).dtypes.contains(DType(t)) && !dtypes_.count(DType(t))) {
        miss("dtype {}", to_string(DType(t)));
      }
    }
    if (has_axes_) {
      if (!zero_) miss("a size 0");
      if (!one_) miss("a size 1");
      if (!prime_) miss("a prime size");
      if (!large_) miss("a tensor of at least {} elements", kLarge);
    }
    check_pairs();
    return missing_;
  }

 private:
  template <class... Args>
  void miss(fmt::format_string<Args...> text, Args&&... args) {
    missing_.push_back(fmt::vformat(text, fmt::make_format_args(args...)));
  }

  void add(const Sample& s) {
    Call c{s.attrs, operand_types(s), {}};
    const InferredCall inferred = infer_call(op_, s.attrs, c.operands);
    c.attrs = inferred.attrs;
    c.results = inferred.results;
    for (const auto* list : {&c.operands, &c.results}) {
      for (const TensorType& t : *list) {
        dtypes_.insert(t.dtype);
        large_ |= t.shape.num_elements().value() >= kLarge;
        has_axes_ |= t.shape.rank() > 0;
        for (const Dim& d : t.shape) {
          zero_ |= d.is(0);
          one_ |= d.is(1);
          prime_ |= is_prime(d.value());
        }
      }
    }
    calls_.push_back(std::move(c));
  }

  void check_field(const Field& f) {
    std::set<int64_t> seen;
    bool empty = false;
    for (const Call& c : calls_) {
      const FieldValue v = f.get(c.attrs.get());
      empty |= std::holds_alternative<std::monostate>(v);
      if (const auto* b = std::get_if<bool>(&v)) seen.insert(*b);
      if (const auto* i = std::get_if<int64_t>(&v)) seen.insert(*i);
    }
    if (f.type == FieldType::kBool && seen.size() < 2) miss("both values of '{}'", f.name);
    if (f.type == FieldType::kEnum) {
      for (size_t e = 0; e < f.enum_names.size(); ++e) {
        if (!seen.count(int64_t(e))) miss("{} = {}", f.name, f.enum_names[e]);
      }
    }
    if (f.optional && !empty) miss("'{}' absent", f.name);
  }

  // For every call, would another dtype have been accepted? Then some sample must show it.
  void check_pairs() {
    for (const Field& f : op_.fields->fields) {
      if (f.type != FieldType::kEnum) continue;
      std::set<std::pair<int64_t, DType>> have, accepted;
      for (const Call& c : calls_) {
        const FieldValue field = f.get(c.attrs.get());
        if (std::holds_alternative<std::monostate>(field)) continue;
        const int64_t value = std::get<int64_t>(field);
        const DType main = main_dtype(c.operands, c.results);
        have.insert({value, main});
        if (c.operands.empty()) continue;  // there is none to change
        for (int t = 0; t < kNumDTypes + kNumPackedDTypes; ++t) {
          if (accepted.count({value, DType(t)})) continue;
          std::vector<TensorType> types = c.operands;
          for (TensorType& x : types) {
            if (x.dtype == main) x.dtype = DType(t);
          }
          if (accepts(c.attrs, types)) accepted.insert({value, DType(t)});
        }
      }
      for (const auto& [value, t] : accepted) {
        if (!have.count({value, t})) {
          miss("{} = {} with {}", f.name, f.enum_names[size_t(value)], to_string(t));
        }
      }
    }
  }

  bool accepts(const Attrs& attrs, const std::vector<TensorType>& types) const {
    try {
      infer_call(op_, attrs, types);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  struct Call {
    Attrs attrs;
    std::vector<TensorType> operands, results;
  };
  const OpDef& op_;
  std::vector<Call> calls_;
  std::set<DType> dtypes_;
  bool zero_ = false, one_ = false, prime_ = false, large_ = false;
  bool has_axes_ = false;  // an op of scalars has no sizes to vary
  std::vector<std::string> missing_;
};

}  // namespace

std::vector<std::string> missing_in_samples(const OpDef& op) { return Reflection(op).run(); }

}  // namespace rlx
