// Attributes as data. An op's attributes are a plain struct; RLX_FIELDS lists its fields once, and
// equality, hashing, printing, parsing, serialization and keyword arguments derive from that list.
// Field types are a closed set: bool, int64_t, double, std::string, DType, enumerations (listed by
// RLX_ENUM), std::vector<int64_t>, std::vector<double>, Dim, Shape, std::vector<TensorType>, Array,
// GraphRef, and std::optional of these.
// Another type does not compile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/base/shape.h"

namespace rlx {

class Graph;
using GraphRef = std::shared_ptr<const Graph>;

// monostate is an empty optional; enumerations travel as their number.
using FieldValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, DType, std::vector<int64_t>,
                 Dim, Shape, Array, GraphRef, std::vector<double>, std::vector<TensorType>>;

enum class FieldType : uint8_t {
  kBool,
  kInt,
  kDouble,
  kString,
  kDType,
  kInts,
  kDim,
  kShape,
  kArray,
  kGraph,
  kEnum,
  kDoubles,
  kTypes,
};

struct Field {
  std::string_view name;
  FieldType type = FieldType::kBool;
  std::span<const std::string_view> enum_names;  // of an enumeration, in the order of its values
  bool optional = false;
  FieldValue (*get)(const void* attrs) = nullptr;
  // Throws Error(kUser) on a wrong type or an enumeration value out of range.
  void (*set)(void* attrs, const FieldValue& value) = nullptr;
};

struct FieldTable {
  const std::type_info* type;  // Attrs::as compares this; addresses differ between libraries
  std::span<const Field> fields;
  std::shared_ptr<void> (*make)(const void* from);  // a default value, or a copy of *from
  const Field* find(std::string_view name) const;
};

// Doubles by bits (NaN equals NaN), arrays by type and bytes, graphs by structure.
bool field_equal(const FieldValue& a, const FieldValue& b);
size_t field_hash(const FieldValue& v);
[[noreturn]] void throw_field_type(std::string_view field, FieldType expected);
[[noreturn]] void throw_enum_range(std::string_view field, int64_t value, size_t count);

// Specialized by RLX_ENUM.
template <class E>
struct EnumNames;

namespace field_detail {

template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&t)[N]) { std::copy_n(t, N, text); }  // NOLINT
};

template <class T>
struct IsOptional : std::false_type {
  using Inner = T;
};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Inner = T;
};

template <class T>
constexpr FieldType field_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return FieldType::kBool;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return FieldType::kInt;
  } else if constexpr (std::is_same_v<T, double>) {
    return FieldType::kDouble;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return FieldType::kString;
  } else if constexpr (std::is_same_v<T, DType>) {
    return FieldType::kDType;
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return FieldType::kInts;
  } else if constexpr (std::is_same_v<T, Dim>) {
    return FieldType::kDim;
  } else if constexpr (std::is_same_v<T, Shape>) {
    return FieldType::kShape;
  } else if constexpr (std::is_same_v<T, Array>) {
    return FieldType::kArray;
  } else if constexpr (std::is_same_v<T, GraphRef>) {
    return FieldType::kGraph;
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return FieldType::kDoubles;
  } else if constexpr (std::is_same_v<T, std::vector<TensorType>>) {
    return FieldType::kTypes;
  } else {
    static_assert(std::is_enum_v<T>, "not a type that an attribute can have");
    return FieldType::kEnum;
  }
}

template <class T>
constexpr std::span<const std::string_view> enum_names() {
  if constexpr (field_type<T>() == FieldType::kEnum) {
    return EnumNames<T>::value;
  } else {
    return {};
  }
}

template <class T>
FieldValue to_value(const T& v) {
  if constexpr (IsOptional<T>::value) {
    return v ? to_value(*v) : FieldValue{};
  } else if constexpr (field_type<T>() == FieldType::kEnum) {
    return FieldValue(std::in_place_type<int64_t>, int64_t(v));
  } else {
    return FieldValue(std::in_place_type<T>, v);
  }
}

template <class T>
T from_value(std::string_view field, const FieldValue& v) {
  using Inner = typename IsOptional<T>::Inner;
  if constexpr (IsOptional<T>::value) {
    if (std::holds_alternative<std::monostate>(v)) return std::nullopt;
    return from_value<Inner>(field, v);
  } else if constexpr (field_type<T>() == FieldType::kEnum) {
    const auto* p = std::get_if<int64_t>(&v);
    if (!p) throw_field_type(field, FieldType::kEnum);
    if (*p < 0 || size_t(*p) >= enum_names<T>().size()) {
      throw_enum_range(field, *p, enum_names<T>().size());
    }
    return T(*p);
  } else {
    const auto* p = std::get_if<T>(&v);
    if (!p) throw_field_type(field, field_type<T>());
    return *p;
  }
}

template <Name N, auto M>
struct Member;
template <Name N, class S, class T, T S::*M>
struct Member<N, M> {
  using Inner = typename IsOptional<T>::Inner;
  static constexpr std::string_view name{N.text, sizeof(N.text) - 1};
  static constexpr Field field{
      name,
      field_type<Inner>(),
      enum_names<Inner>(),
      IsOptional<T>::value,
      [](const void* p) { return to_value(static_cast<const S*>(p)->*M); },
      [](void* p, const FieldValue& v) { static_cast<S*>(p)->*M = from_value<T>(name, v); }};
};

template <class S, class... Members>
struct Table {
  static constexpr Field fields[] = {Members::field..., Field{}};  // padded: no zero-size array
  static constexpr FieldTable value{
      &typeid(S), {fields, sizeof...(Members)}, [](const void* from) -> std::shared_ptr<void> {
        return from ? std::make_shared<S>(*static_cast<const S*>(from)) : std::make_shared<S>();
      }};
};

}  // namespace field_detail

// RLX_ENUM(E, "A", "B"): the names of E's values 0, 1, ... in order. Outside any namespace, before
// the first RLX_FIELDS that uses E.
#define RLX_ENUM(E, ...)                                       \
  template <>                                                  \
  struct rlx::EnumNames<E> {                                   \
    static constexpr std::string_view value[] = {__VA_ARGS__}; \
  }

template <class E>
constexpr std::string_view enum_name(E value) {
  return EnumNames<E>::value[size_t(value)];
}
template <class E>
inline constexpr size_t kEnumCount = std::size(EnumNames<E>::value);

// For up to 40 fields.
#define RLX_FIELDS(S, ...) &::rlx::field_detail::Table<S RLX_EACH_(S, __VA_ARGS__)>::value
#define RLX_P_ ()
#define RLX_X_(...) RLX_X1_(RLX_X1_(RLX_X1_(__VA_ARGS__)))
#define RLX_X1_(...) RLX_X2_(RLX_X2_(RLX_X2_(__VA_ARGS__)))
#define RLX_X2_(...) RLX_X3_(RLX_X3_(RLX_X3_(__VA_ARGS__)))
#define RLX_X3_(...) __VA_ARGS__
#define RLX_EACH_(S, ...) __VA_OPT__(RLX_X_(RLX_EACH1_(S, __VA_ARGS__)))
#define RLX_EACH1_(S, m, ...) \
  , ::rlx::field_detail::Member<#m, &S::m> __VA_OPT__(RLX_EACH2_ RLX_P_(S, __VA_ARGS__))
#define RLX_EACH2_() RLX_EACH1_

// An immutable, type-erased attribute value: shared on copy.
class Attrs {
 public:
  Attrs() = default;
  Attrs(const FieldTable* table, std::shared_ptr<const void> value)
      : table_(table), value_(std::move(value)) {}
  template <class S>
  static Attrs of(const FieldTable* table, S value) {
    check_type(table, typeid(S));
    return Attrs(table, std::make_shared<const S>(std::move(value)));
  }
  // The struct behind; throws if it is not an S.
  template <class S>
  const S& as() const {
    check_type(table_, typeid(S));
    return *static_cast<const S*>(value_.get());
  }
  const FieldTable* table() const { return table_; }
  const void* get() const { return value_.get(); }
  FieldValue field(std::string_view name) const;                     // throws on an unknown name
  Attrs with(std::string_view name, const FieldValue& value) const;  // a changed copy
  // "axis = 1, keep_dims = true": all fields that differ from the default; long tensors are elided.
  std::string to_string() const;
  size_t hash() const;
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  static void check_type(const FieldTable* table, const std::type_info& type);
  const FieldTable* table_ = nullptr;
  std::shared_ptr<const void> value_;
};

struct NoAttrs {};

}  // namespace rlx
