// A dimension: a static size, or an expression over symbols that is bound when a graph is
// specialized. Expressions are kept in a canonical form (polynomials with integer coefficients
// over atoms: symbols and floor divisions), so equal sizes compare equal: 2*n + n == 3*n.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlx {

struct DimExpr;

using SymbolBindings = std::map<std::string, int64_t, std::less<>>;

class Dim {
 public:
  Dim() = default;
  // Any integer; throws if it does not fit int64_t. Sizes convert on purpose.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Dim(T value)  // NOLINT(google-explicit-constructor)
      : value_(int64_t(value)) {
    if (!std::in_range<int64_t>(value)) too_large();
  }
  // A named size; names are [A-Za-z_][A-Za-z0-9_]*.
  static Dim symbol(std::string_view name);

  bool is_static() const { return expr_ == nullptr; }
  int64_t value() const;  // throws if symbolic
  bool is(int64_t v) const { return is_static() && value_ == v; }

  // The size under the bindings; throws on an unbound symbol or overflow.
  int64_t evaluate(const SymbolBindings& bindings) const;
  // Replaces the bound symbols, leaves the others.
  Dim substitute(const SymbolBindings& bindings) const;
  // If this is a lone symbol, its name.
  std::optional<std::string> as_symbol() const;
  void collect_symbols(std::vector<std::string>& out) const;

  std::string to_string() const;  // parses back to an equal Dim
  static Dim parse(std::string_view text);
  size_t hash() const;

  friend bool operator==(const Dim& a, const Dim& b);
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  // floor(a / b), b a positive static size.
  friend Dim floor_div(const Dim& a, int64_t b);
  // a / b if b divides a as a polynomial (or number), else nothing.
  friend std::optional<Dim> exact_div(const Dim& a, const Dim& b);

 private:
  [[noreturn]] static void too_large();
  friend struct DimExpr;
  int64_t value_ = 0;
  std::shared_ptr<const DimExpr> expr_;
};

}  // namespace rlx
