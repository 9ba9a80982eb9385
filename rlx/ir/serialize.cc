#include "rlx/ir/serialize.h"

#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "rlx/base/error.h"
#include "rlx/base/file.h"
#include "rlx/ir/op.h"
#include "rlx/ir/wire.h"

namespace rlx {
namespace {

using wire::Tag;

static_assert(std::endian::native == std::endian::little, "numbers are stored as they are");

class Writer {
 public:
  std::vector<std::byte> file(const Graph& g) {
    out_.resize(wire::kHeader);
    graph(g);
    const uint64_t strings_at = out_.size();
    u32(uint32_t(strings_.size()));
    for (const std::string* s : strings_) {
      u32(uint32_t(s->size()));
      raw(s->data(), s->size());
    }
    std::vector<std::byte> file = std::move(out_);
    const uint64_t size = file.size();
    std::memcpy(file.data(), wire::kMagic.data(), 8);
    std::memcpy(file.data() + 8, &wire::kVersion, 4);
    std::memcpy(file.data() + 16, &size, 8);
    std::memcpy(file.data() + 24, &strings_at, 8);
    return file;
  }

 private:
  void raw(const void* p, size_t n) {
    const size_t old = out_.size();
    out_.resize(old + n);
    if (n > 0) std::memcpy(out_.data() + old, p, n);
  }
  template <class T>
  void number(T v) {
    raw(&v, sizeof(v));
  }
  void u8(uint8_t v) { number(v); }
  void u32(uint32_t v) { number(v); }
  void count(size_t n) {
    if (n > std::numeric_limits<uint32_t>::max()) {
      user_error("a graph file holds at most 2^32 - 1 entries in a list");
    }
    u32(uint32_t(n));
  }

  void string(std::string_view s) {
    if (s.size() > std::numeric_limits<uint32_t>::max()) user_error("a string is over 4 GiB");
    const auto [it, is_new] = ids_.emplace(s, uint32_t(strings_.size()));
    if (is_new) strings_.push_back(&it->first);
    u32(it->second);
  }

  void dim(const Dim& d) {
    u8(d.is_static() ? 0 : 1);
    if (d.is_static()) {
      number(d.value());
    } else {
      string(d.to_string());
    }
  }
  void shape(const Shape& s) {
    u8(uint8_t(s.rank()));
    for (const Dim& d : s) dim(d);
  }

  void array(const Array& array) {
    const Array a = array.dense();
    string(to_string(a.dtype()));
    u8(uint8_t(a.rank()));
    for (int64_t d : a.shape()) number(d);
    out_.resize((out_.size() + wire::kAlignment - 1) / wire::kAlignment * wire::kAlignment);
    raw(a.raw(), size_t(a.byte_size()));
  }

  void tag(Tag t) { u8(uint8_t(t)); }

  void value(const Field& field, const FieldValue& v) {
    if (std::holds_alternative<std::monostate>(v)) return tag(Tag::kNone);
    switch (field.type) {
      case FieldType::kBool:
        tag(Tag::kBool);
        return u8(std::get<bool>(v) ? 1 : 0);
      case FieldType::kInt:
        tag(Tag::kInt);
        return number(std::get<int64_t>(v));
      case FieldType::kDouble:
        tag(Tag::kDouble);
        return number(std::get<double>(v));
      case FieldType::kString:
        tag(Tag::kString);
        return string(std::get<std::string>(v));
      case FieldType::kDType:
        tag(Tag::kDType);
        return string(to_string(std::get<DType>(v)));
      case FieldType::kInts: {
        const auto& ints = std::get<std::vector<int64_t>>(v);
        tag(Tag::kInts);
        count(ints.size());
        return raw(ints.data(), ints.size() * sizeof(int64_t));
      }
      case FieldType::kDim:
        tag(Tag::kDim);
        return dim(std::get<Dim>(v));
      case FieldType::kShape:
        tag(Tag::kShape);
        return shape(std::get<Shape>(v));
      case FieldType::kArray:
        if (!std::get<Array>(v).defined()) return tag(Tag::kUndefinedArray);
        tag(Tag::kArray);
        return array(std::get<Array>(v));
      case FieldType::kGraph:
        if (!std::get<GraphRef>(v)) return tag(Tag::kNullGraph);
        tag(Tag::kGraph);
        return graph(*std::get<GraphRef>(v));
      case FieldType::kEnum:
        tag(Tag::kEnum);
        return string(field.enum_names[size_t(std::get<int64_t>(v))]);
      case FieldType::kDoubles: {
        const auto& numbers = std::get<std::vector<double>>(v);
        tag(Tag::kDoubles);
        count(numbers.size());
        return raw(numbers.data(), numbers.size() * sizeof(double));
      }
      case FieldType::kTypes: {
        const auto& types = std::get<std::vector<TensorType>>(v);
        tag(Tag::kTypes);
        count(types.size());
        for (const TensorType& t : types) {
          string(to_string(t.dtype));
          shape(t.shape);
        }
        return;
      }
    }
  }

  void attributes(const Attrs& attrs) {
    std::vector<std::pair<const Field*, FieldValue>> changed;
    if (attrs.table()) {
      const auto defaults = attrs.table()->make(nullptr);
      for (const Field& f : attrs.table()->fields) {
        FieldValue v = f.get(attrs.get());
        if (!field_equal(v, f.get(defaults.get()))) changed.emplace_back(&f, std::move(v));
      }
    }
    count(changed.size());
    for (const auto& [f, v] : changed) {
      string(f->name);
      value(*f, v);
    }
  }

  void handle(Value v) {
    u32(v.node);
    u32(v.index);
  }

  void node(const Node& n) {
    string(n.op->name);
    string(n.label);
    attributes(n.attrs);
    count(n.operands.size());
    for (Value v : n.operands) handle(v);
    count(n.results.size());
    for (const TensorType& t : n.results) {
      string(to_string(t.dtype));
      shape(t.shape);
    }
  }

  void graph(const Graph& g) {
    string(g.name());
    count(g.size());
    for (const Node& n : g.nodes()) node(n);
    count(g.outputs().size());
    for (const Output& o : g.outputs()) {
      string(o.name);
      handle(o.value);
    }
    count(g.updates().size());
    for (const Update& u : g.updates()) {
      string(u.param);
      handle(u.value);
    }
  }

  std::vector<std::byte> out_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<const std::string*> strings_;  // the keys of ids_, which stay where they are
};

}  // namespace

std::vector<std::byte> serialize(const Graph& graph) { return Writer().file(graph); }

void save_graph(const Graph& graph, const std::string& path) { write_file(path, serialize(graph)); }

Graph load_graph(const std::string& path, OpLookup lookup) {
  const std::vector<std::byte> bytes = read_file(path);
  try {
    return deserialize(bytes, lookup);
  } catch (const Error& e) {
    throw e.with_context("'" + path + "'");
  }
}

}  // namespace rlx
