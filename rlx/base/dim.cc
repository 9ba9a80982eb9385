#include "rlx/base/dim.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <numeric>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {
namespace {
// Larger expressions are refused: they come from malformed files, and the cost of polynomial
// arithmetic must stay bounded. Floor divisions are kept as text, which would double in size with
// every square of a nested one; what these limits let through, Dim::parse reads back.
constexpr size_t kMaxTerms = 256;
constexpr size_t kMaxDegree = 32;
constexpr size_t kMaxText = 4096;
constexpr int kMaxFloorDepth = 16;
constexpr int kMaxParseDepth = 64;
}  // namespace

// An atom is a symbol ("n") or a floor division whose text is canonical ("floor(n + 1, 2)").
struct Atom {
  std::string key;                       // canonical text, the identity of the atom
  std::shared_ptr<const Dim> numerator;  // of a floor division, else null
  int64_t divisor = 1;
  int depth = 0;  // of nested floor divisions
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

void Dim::too_large() { user_error("a size is at most 2^63 - 1"); }

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
      if (ma.size() + mb.size() > kMaxDegree) {
        user_error("a size expression has a degree above {}", kMaxDegree);
      }
      Monomial m = ma;
      m.insert(m.end(), mb.begin(), mb.end());
      std::sort(m.begin(), m.end());
      e.add(m, checked_mul(ca, cb));
    }
  }
  return DimExpr::wrap(std::move(e));
}

namespace {

// Canonical pieces of floor(rest / b), where 0 < coefficient < b in every term of `rest`.
struct Quotient {
  DimExpr rest;
  int64_t divisor;
};

// floor((g*p + k) / (g*b)) = floor((p + floor(k / g)) / b)
void cancel_common_factor(Quotient& q) {
  int64_t common = q.divisor;
  for (const auto& [m, c] : q.rest.terms) {
    if (!m.empty()) common = std::gcd(common, c);
  }
  if (common == 1) return;
  DimExpr reduced;
  for (const auto& [m, c] : q.rest.terms) {
    if (c >= common) reduced.add(m, c / common);
  }
  q = {std::move(reduced), q.divisor / common};
}

// floor((floor(x / a) + k) / b) = floor((x + a*k) / (a*b)): the inner division, or null.
const Atom* sole_floor(const DimExpr& e) {
  const Atom* found = nullptr;
  for (const auto& [m, c] : e.terms) {
    if (m.empty()) continue;
    if (found || c != 1 || m.size() != 1 || !m[0].numerator) return nullptr;
    found = &m[0];
  }
  return found;
}

}  // namespace

Dim floor_div(const Dim& a, int64_t b) {
  if (b <= 0) user_error("a size can only be divided by a positive number, not {}", b);
  if (!a.expr_) return Dim(floor_div(a.value_, b));
  // Split off the part that b divides: floor((b*p + r) / b) = p + floor(r / b).
  DimExpr whole;
  Quotient q{{}, b};
  int depth = 0;
  for (const auto& [m, c] : a.expr_->terms) {
    const int64_t quotient = floor_div(c, b);
    const int64_t remainder = c % b < 0 ? c % b + b : c % b;
    if (quotient != 0) whole.add(m, quotient);
    if (remainder != 0) q.rest.add(m, remainder);
  }
  cancel_common_factor(q);
  const Dim tail = DimExpr::wrap(q.rest);
  if (tail.is_static()) {
    return DimExpr::wrap(std::move(whole)) + Dim(floor_div(tail.value_, q.divisor));
  }
  int64_t product = 0;
  if (const Atom* inner = sole_floor(q.rest);
      inner && !__builtin_mul_overflow(inner->divisor, q.divisor, &product)) {
    const Dim offset = tail - DimExpr::atom(*inner);
    return DimExpr::wrap(std::move(whole)) +
           floor_div(*inner->numerator + Dim(inner->divisor) * offset, product);
  }
  for (const auto& [m, c] : q.rest.terms) {
    for (const Atom& atom : m) depth = std::max(depth, atom.depth);
  }
  if (++depth > kMaxFloorDepth) {
    user_error("a size expression nests more than {} floor divisions", kMaxFloorDepth);
  }
  std::string key = fmt::format("floor({}, {})", tail.to_string(), q.divisor);
  if (key.size() > kMaxText) user_error("a size expression is longer than {} bytes", kMaxText);
  return DimExpr::wrap(std::move(whole)) +
         DimExpr::atom({std::move(key), std::make_shared<const Dim>(tail), q.divisor, depth});
}

namespace {

// The lexicographic monomial order on exponents, which multiplication preserves (the map's order
// is not one): the first atom in which the exponents differ decides.
bool exponents_less(const Monomial& a, const Monomial& b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (x == a.end() || y == b.end()) return y != b.end();
  return *y < *x;
}

const std::pair<const Monomial, int64_t>& leading_term(const DimExpr& e) {
  return *std::max_element(e.terms.begin(), e.terms.end(), [](const auto& a, const auto& b) {
    return exponents_less(a.first, b.first);
  });
}

std::optional<int64_t> exact_quotient(int64_t a, int64_t b) {
  if (b == -1) return checked_sub(0, a);
  if (b == 0 || a % b != 0) return std::nullopt;
  return a / b;
}

}  // namespace

std::optional<Dim> exact_div(const Dim& a, const Dim& b) {
  if (b.is(0)) return std::nullopt;
  // Each step cancels the leading term of what is left; if b divides, its leading term does too.
  const DimExpr divisor = DimExpr::of(b);
  const auto& [lead, coefficient] = leading_term(divisor);
  Dim rest = a, quotient(int64_t(0));
  for (size_t step = 0; step <= kMaxTerms; ++step) {
    if (rest.is(0)) return quotient;
    const DimExpr r = DimExpr::of(rest);
    const auto& [m, c] = leading_term(r);
    const std::optional<int64_t> factor = exact_quotient(c, coefficient);
    if (!factor || !std::includes(m.begin(), m.end(), lead.begin(), lead.end())) {
      return std::nullopt;
    }
    Monomial q;
    std::set_difference(m.begin(), m.end(), lead.begin(), lead.end(), std::back_inserter(q));
    DimExpr term;
    term.add(q, *factor);
    const Dim t = DimExpr::wrap(std::move(term));
    quotient = quotient + t;
    rest = rest - t * b;
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
    if (text_.size() > kMaxText) {
      user_error("a size expression is longer than {} bytes", kMaxText);
    }
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
    Dim d = term(false);
    for (;;) {
      if (eat('+')) {
        d = d + term(false);
      } else if (eat('-')) {
        d = d + term(true);
      } else {
        --depth_;
        return d;
      }
    }
  }
  Dim term(bool negative) {
    Dim d = factor(negative);
    while (eat('*')) d = d * factor(false);
    return d;
  }
  bool at_digit() const {
    return pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]));
  }
  // The sign belongs to the number: the least 64-bit integer has no positive counterpart.
  int64_t number(bool negative) {
    skip();
    if (!at_digit()) bad();
    int64_t v = 0;
    while (at_digit()) {
      const int64_t digit = text_[pos_++] - '0';
      v = checked_add(checked_mul(v, 10), negative ? -digit : digit);
    }
    return v;
  }
  Dim factor(bool negative) {
    if (++depth_ > kMaxParseDepth) bad();
    skip();
    Dim d = negative && !at_digit() ? Dim(int64_t(0)) - factor_body(false) : factor_body(negative);
    --depth_;
    return d;
  }
  Dim factor_body(bool negative) {
    if (at_digit()) return Dim(number(negative));
    if (eat('-')) return factor(true);
    if (eat('(')) {
      Dim d = sum();
      if (!eat(')')) bad();
      return d;
    }
    const size_t start = pos_;
    while (pos_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_')) {
      ++pos_;
    }
    const std::string_view name = text_.substr(start, pos_ - start);
    if (name.empty()) bad();
    if (name != "floor") return Dim::symbol(name);
    if (!eat('(')) bad();
    const Dim numerator = sum();
    if (!eat(',')) bad();
    const int64_t divisor = number(false);
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
