#include "rlx/ir/field.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "rlx/base/error.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/text.h"

namespace rlx {
namespace {

constexpr std::string_view kFieldTypeNames[] = {
    "a bool",  "an integer", "a number", "a string", "a dtype", "integers", "a size",
    "a shape", "a tensor",   "a graph",  "a name",   "numbers", "types"};

size_t combine(size_t h, size_t x) { return h * 1099511628211ull ^ (x + (h >> 29)); }

}  // namespace

const Field* FieldTable::find(std::string_view name) const {
  for (const Field& f : fields) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

void throw_field_type(std::string_view field, FieldType expected) {
  user_error("attribute '{}' wants {}", field, kFieldTypeNames[size_t(expected)]);
}

void throw_enum_range(std::string_view field, int64_t value, size_t count) {
  user_error("attribute '{}' has the value number {}, there are {}", field, value, count);
}

bool field_equal(const FieldValue& a, const FieldValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) {
    return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(std::get<double>(b));
  }
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto same = [](double p, double q) {
      return std::bit_cast<uint64_t>(p) == std::bit_cast<uint64_t>(q);
    };
    return std::ranges::equal(*x, std::get<std::vector<double>>(b), same);
  }
  if (const auto* x = std::get_if<Array>(&a)) return x->same_bits(std::get<Array>(b));
  if (const auto* x = std::get_if<GraphRef>(&a)) {
    const GraphRef& y = std::get<GraphRef>(b);
    return *x == y || (*x && y && **x == *y);
  }
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Array> || std::is_same_v<T, GraphRef>) {
          return false;  // handled above
        } else {
          return x == std::get<T>(b);
        }
      },
      a);
}

size_t field_hash(const FieldValue& v) {
  return combine(v.index(),
                 std::visit(
                     [](const auto& x) -> size_t {
                       using T = std::decay_t<decltype(x)>;
                       if constexpr (std::is_same_v<T, std::monostate>) {
                         return 0;
                       } else if constexpr (std::is_same_v<T, double>) {
                         return std::bit_cast<uint64_t>(x);
                       } else if constexpr (std::is_same_v<T, DType>) {
                         return size_t(x);
                       } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
                         size_t h = x.size();
                         for (int64_t e : x) h = combine(h, size_t(e));
                         return h;
                       } else if constexpr (std::is_same_v<T, std::vector<double>>) {
                         size_t h = x.size();
                         for (double e : x) h = combine(h, std::bit_cast<uint64_t>(e));
                         return h;
                       } else if constexpr (std::is_same_v<T, std::vector<TensorType>>) {
                         size_t h = x.size();
                         for (const TensorType& t : x) {
                           h = combine(combine(h, size_t(t.dtype)), t.shape.hash());
                         }
                         return h;
                       } else if constexpr (std::is_same_v<T, Shape> || std::is_same_v<T, Dim>) {
                         return x.hash();
                       } else if constexpr (std::is_same_v<T, Array>) {
                         const Array d = x.dense();
                         const std::string_view bytes(static_cast<const char*>(d.raw()),
                                                      size_t(d.byte_size()));
                         return combine(size_t(x.dtype()), std::hash<std::string_view>()(bytes));
                       } else if constexpr (std::is_same_v<T, GraphRef>) {
                         return x ? x->hash() : 0;
                       } else {
                         return std::hash<T>()(x);
                       }
                     },
                     v));
}

void Attrs::check_type(const FieldTable* table, const std::type_info& type) {
  if (!table || *table->type != type) internal_error("attributes read as another op's type");
}

FieldValue Attrs::field(std::string_view name) const {
  const Field* f = table_ ? table_->find(name) : nullptr;
  if (!f) user_error("there is no attribute '{}'", name);
  return f->get(value_.get());
}

Attrs Attrs::with(std::string_view name, const FieldValue& value) const {
  const Field* f = table_ ? table_->find(name) : nullptr;
  if (!f) user_error("there is no attribute '{}'", name);
  auto changed = table_->make(value_.get());
  f->set(changed.get(), value);
  return Attrs(table_, std::move(changed));
}

std::string Attrs::to_string() const {
  std::string s;
  if (!table_) return s;
  const auto defaults = table_->make(nullptr);
  for (const Field& f : table_->fields) {
    const FieldValue v = f.get(value_.get());
    if (field_equal(v, f.get(defaults.get()))) continue;
    s += fmt::format("{}{} = {}", s.empty() ? "" : ", ", f.name,
                     print_field(f, v, {.max_elements = 16}));
  }
  return s;
}

size_t Attrs::hash() const {
  size_t h = 0;
  if (!table_) return h;
  for (const Field& f : table_->fields) h = combine(h, field_hash(f.get(value_.get())));
  return h;
}

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.value_ == b.value_) return true;
  if (!a.table_ || !b.table_ || *a.table_->type != *b.table_->type) return false;
  for (const Field& f : a.table_->fields) {
    if (!field_equal(f.get(a.value_.get()), f.get(b.value_.get()))) return false;
  }
  return true;
}

}  // namespace rlx
