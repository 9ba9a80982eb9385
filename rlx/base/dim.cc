#include "rlx/base/dim.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {
namespace {
// An expression with more terms than this is refused: it comes from a malformed file, and the
// cost of polynomial arithmetic must stay bounded.
constexpr size_t kMaxTerms = 256;
constexpr int kMaxParseDepth = 32;
}  // namespace

// An atom is a symbol ("n") or a floor division whose text is canonical ("floor(n + 1, 2)").
struct Atom {
  std::string key;                       // canonical text, the identity of the atom
  std::shared_ptr<const Dim> numerator;  // of a floor division, else null
  int64_t divisor = 1;
  bool operator<(const Atom& o) const { return key < o.key; }
  bool operator==(const Atom& o) const { return key == o.key; }
};
using Monomial = std::vector<Atom>;  // sorted; repeated for powers

struct DimExpr {
  std::map<Monomial, int64_t> terms;  // no zero coefficients; the empty monomial is the constant

  static DimExpr of(const Dim& d) {
    if (d.expr_) return *d.expr_;
    DimExpr e;
    if (d.value_ != 0) e.terms[{}] = d.value_;
    return e;
  }
  static Dim wrap(DimExpr e) {
    if (e.terms.empty()) return Dim(int64_t(0));
    if (e.terms.size() == 1 && e.terms.begin()->first.empty()) return Dim(e.terms.begin()->second);
    Dim d;
    d.expr_ = std::make_shared<const DimExpr>(std::move(e));
    return d;
  }
  void add(const Monomial& m, int64_t c) {
    int64_t& slot = terms[m];
    slot = checked_add(slot, c);
    if (slot == 0) terms.erase(m);
    if (terms.size() > kMaxTerms) user_error("a size expression has more than {} terms", kMaxTerms);
  }
  static Dim atom(Atom a) {
    DimExpr e;
    e.terms[{std::move(a)}] = 1;
    return wrap(std::move(e));
  }
};

Dim Dim::symbol(std::string_view name) {
  const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const bool ok = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
                  std::all_of(name.begin(), name.end(), word) && name != "floor";
  if (!ok) user_error("'{}' is not a name for a symbolic size: use letters, digits and _", name);
  return DimExpr::atom({std::string(name), nullptr, 1});
}

int64_t Dim::value() const {
  if (expr_) user_error("the size {} is symbolic; bind its symbols first", to_string());
  return value_;
}

int64_t Dim::evaluate(const SymbolBindings& bindings) const {
  const Dim d = substitute(bindings);
  if (!d.is_static()) user_error("the size {} has unbound symbols", d.to_string());
  return d.value_;
}

Dim Dim::substitute(const SymbolBindings& bindings) const {
  if (!expr_) return *this;
  Dim sum(int64_t(0));
  for (const auto& [monomial, coefficient] : expr_->terms) {
    Dim term(coefficient);
    for (const Atom& a : monomial) {
      if (a.numerator) {
        term = term * floor_div(a.numerator->substitute(bindings), a.divisor);
      } else if (auto it = bindings.find(a.key); it != bindings.end()) {
        term = term * Dim(it->second);
      } else {
        term = term * DimExpr::atom(a);
      }
    }
    sum = sum + term;
  }
  return sum;
}

std::optional<std::string> Dim::as_symbol() const {
  if (!expr_ || expr_->terms.size() != 1) return std::nullopt;
  const auto& [monomial, coefficient] = *expr_->terms.begin();
  if (coefficient != 1 || monomial.size() != 1 || monomial[0].numerator) return std::nullopt;
  return monomial[0].key;
}

void Dim::collect_symbols(std::vector<std::string>& out) const {
  if (!expr_) return;
  for (const auto& [monomial, coefficient] : expr_->terms) {
    for (const Atom& a : monomial) {
      if (a.numerator) {
        a.numerator->collect_symbols(out);
      } else if (std::find(out.begin(), out.end(), a.key) == out.end()) {
        out.push_back(a.key);
      }
    }
  }
}

std::string Dim::to_string() const {
  if (!expr_) return std::to_string(value_);
  std::string s;
  for (const auto& [monomial, coefficient] : expr_->terms) {
    std::string term;
    for (const Atom& a : monomial) term += (term.empty() ? "" : "*") + a.key;
    const uint64_t magnitude = coefficient < 0 ? 0 - uint64_t(coefficient) : uint64_t(coefficient);
    if (term.empty()) {
      term = std::to_string(magnitude);
    } else if (magnitude != 1) {
      term = std::to_string(magnitude) + "*" + term;
    }
    if (s.empty()) {
      s = (coefficient < 0 ? "-" : "") + term;
    } else {
      s += (coefficient < 0 ? " - " : " + ") + term;
    }
  }
  return s;
}

size_t Dim::hash() const {
  return expr_ ? std::hash<std::string>()(to_string()) : std::hash<int64_t>()(value_);
}

bool operator==(const Dim& a, const Dim& b) {
  if (!a.expr_ || !b.expr_) return !a.expr_ && !b.expr_ && a.value_ == b.value_;
  return a.expr_ == b.expr_ || a.expr_->terms == b.expr_->terms;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (!a.expr_ && !b.expr_) return Dim(checked_add(a.value_, b.value_));
  DimExpr e = DimExpr::of(a);
  for (const auto& [m, c] : DimExpr::of(b).terms) e.add(m, c);
  return DimExpr::wrap(std::move(e));
}

Dim operator-(const Dim& a, const Dim& b) {
  if (!a.expr_ && !b.expr_) return Dim(checked_sub(a.value_, b.value_));
  return a + Dim(int64_t(-1)) * b;
}

Dim operator*(const Dim& a, const Dim& b) {
  if (!a.expr_ && !b.expr_) return Dim(checked_mul(a.value_, b.value_));
  DimExpr e;
  const DimExpr x = DimExpr::of(a), y = DimExpr::of(b);
  for (const auto& [ma, ca] : x.terms) {
    for (const auto& [mb, cb] : y.terms) {
      Monomial m = ma;
      m.insert(m.end(), mb.begin(), mb.end());
      std::sort(m.begin(), m.end());
      e.add(m, checked_mul(ca, cb));
    }
  }
  return DimExpr::wrap(std::move(e));
}

Dim floor_div(const Dim& a, int64_t b) {
  if (b <= 0) user_error("a size can only be divided by a positive number, not {}", b);
  if (!a.expr_) return Dim(floor_div(a.value_, b));
  // Split off the part that b divides: floor((b*p + r) / b) = p + floor(r / b).
  DimExpr whole, rest;
  for (const auto& [m, c] : a.expr_->terms) {
    const int64_t q = floor_div(c, b);
    if (q != 0) whole.add(m, q);
    if (c - q * b != 0) rest.add(m, c - q * b);
  }
  Dim tail = DimExpr::wrap(std::move(rest));
  if (tail.is_static()) return DimExpr::wrap(std::move(whole)) + Dim(floor_div(tail.value_, b));
  const std::string key = fmt::format("floor({}, {})", tail.to_string(), b);
  return DimExpr::wrap(std::move(whole)) +
         DimExpr::atom({key, std::make_shared<const Dim>(tail), b});
}

std::optional<Dim> exact_div(const Dim& a, const Dim& b) {
  if (!b.expr_) {
    if (b.value_ == 0) return std::nullopt;
    if (!a.expr_) {
      if (b.value_ == -1) return Dim(checked_sub(0, a.value_));
      return a.value_ % b.value_ == 0 ? std::optional(Dim(a.value_ / b.value_)) : std::nullopt;
    }
    DimExpr e;
    for (const auto& [m, c] : a.expr_->terms) {
      if (b.value_ == -1 || c % b.value_ != 0) return std::nullopt;
      e.add(m, c / b.value_);
    }
    return DimExpr::wrap(std::move(e));
  }
  // Multivariate division by repeated cancellation of the last (lexicographically largest) term.
  const auto& [lead_b, coef_b] = *b.expr_->terms.rbegin();
  Dim rest = a, quotient(int64_t(0));
  for (size_t step = 0; step <= kMaxTerms; ++step) {
    if (rest.is(0)) return quotient;
    const DimExpr r = DimExpr::of(rest);
    bool cancelled = false;
    for (auto it = r.terms.rbegin(); it != r.terms.rend() && !cancelled; ++it) {
      const auto& [m, c] = *it;
      if (c % coef_b != 0 || !std::includes(m.begin(), m.end(), lead_b.begin(), lead_b.end())) {
        continue;
      }
      Monomial q;
      std::set_difference(m.begin(), m.end(), lead_b.begin(), lead_b.end(), std::back_inserter(q));
      DimExpr term;
      term.add(q, c / coef_b);
      const Dim t = DimExpr::wrap(std::move(term));
      quotient = quotient + t;
      rest = rest - t * b;
      cancelled = true;
    }
    if (!cancelled) return std::nullopt;
  }
  return std::nullopt;
}

namespace {

// sum := term (('+'|'-') term)*   term := factor ('*' factor)*
// factor := number | symbol | 'floor(' sum ',' number ')' | '-' factor | '(' sum ')'
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}
  Dim parse() {
    Dim d = sum();
    skip();
    if (pos_ != text_.size()) bad();
    return d;
  }

 private:
  [[noreturn]] void bad() const { user_error("'{}' is not a size expression", text_); }
  void skip() {
    while (pos_ < text_.size() && text_[pos_] == ' ') ++pos_;
  }
  bool eat(char c) {
    skip();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  Dim sum() {
    if (++depth_ > kMaxParseDepth) bad();
    Dim d = term();
    for (;;) {
      if (eat('+')) {
        d = d + term();
      } else if (eat('-')) {
        d = d - term();
      } else {
        --depth_;
        return d;
      }
    }
  }
  Dim term() {
    Dim d = factor();
    while (eat('*')) d = d * factor();
    return d;
  }
  int64_t number() {
    skip();
    int64_t v = 0;
    const size_t start = pos_;
    while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) {
      v = checked_add(checked_mul(v, 10), text_[pos_++] - '0');
    }
    if (pos_ == start) bad();
    return v;
  }
  Dim factor() {
    if (++depth_ > kMaxParseDepth) bad();
    Dim d = factor_body();
    --depth_;
    return d;
  }
  Dim factor_body() {
    if (eat('-')) return Dim(int64_t(0)) - factor();
    if (eat('(')) {
      Dim d = sum();
      if (!eat(')')) bad();
      return d;
    }
    skip();
    if (pos_ >= text_.size()) bad();
    if (std::isdigit(static_cast<unsigned char>(text_[pos_]))) return Dim(number());
    const size_t start = pos_;
    while (pos_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_')) {
      ++pos_;
    }
    const std::string_view name = text_.substr(start, pos_ - start);
    if (name != "floor") return Dim::symbol(name);
    if (!eat('(')) bad();
    const Dim numerator = sum();
    if (!eat(',')) bad();
    const int64_t divisor = number();
    if (!eat(')')) bad();
    return floor_div(numerator, divisor);
  }

  std::string_view text_;
  size_t pos_ = 0;
  int depth_ = 0;
};

}  // namespace

Dim Dim::parse(std::string_view text) { return DimParser(text).parse(); }

}  // namespace rlx
