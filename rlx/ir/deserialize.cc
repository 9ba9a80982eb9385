#include <cstring>
#include <optional>

#include "rlx/base/checked.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/lexer.h"
#include "rlx/ir/limits.h"
#include "rlx/ir/op.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/tensor_text.h"
#include "rlx/ir/wire.h"

namespace rlx {
namespace {

using wire::Tag;

// The strings of a file may be named many times: what all copies together may take.
constexpr int64_t kMaxStringBytes = int64_t(1) << 29;

constexpr Tag tag_of(FieldType t) {
  switch (t) {
    case FieldType::kBool:
      return Tag::kBool;
    case FieldType::kInt:
      return Tag::kInt;
    case FieldType::kDouble:
      return Tag::kDouble;
    case FieldType::kString:
      return Tag::kString;
    case FieldType::kDType:
      return Tag::kDType;
    case FieldType::kInts:
      return Tag::kInts;
    case FieldType::kDim:
      return Tag::kDim;
    case FieldType::kShape:
      return Tag::kShape;
    case FieldType::kArray:
      return Tag::kArray;
    case FieldType::kGraph:
      return Tag::kGraph;
    case FieldType::kEnum:
      return Tag::kEnum;
    case FieldType::kDoubles:
      return Tag::kDoubles;
    case FieldType::kTypes:
      return Tag::kTypes;
  }
  return Tag::kNone;
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, OpLookup lookup)
      : bytes_(bytes), end_(bytes.size()), lookup_(lookup) {}

  Graph file() {
    const size_t strings_at = header();
    const size_t body = std::exchange(pos_, strings_at);
    strings();
    if (pos_ != bytes_.size()) bad("bytes are left behind the strings");
    pos_ = body;
    end_ = strings_at;
    Graph g = graph();
    if (pos_ != end_) bad("bytes are left behind the graph");
    return g;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const { bad_at(pos_, what); }
  [[noreturn]] static void bad_at(size_t pos, std::string_view what) {
    fail(ErrorKind::kIo, "not a valid graph file, byte {}: {}", pos, what);
  }
  // Runs code of ops, which reports its own kinds of errors.
  template <class F>
  static decltype(auto) at(size_t pos, F&& f) {
    try {
      return f();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kDevice) throw;  // out of memory is not the file's fault
      bad_at(pos, e.message());
    }
  }

  size_t remaining() const { return end_ - pos_; }
  const std::byte* take(size_t n) {
    if (n > remaining()) bad(fmt::format("{} bytes are expected, {} are left", n, remaining()));
    const std::byte* p = bytes_.data() + pos_;
    pos_ += n;
    return p;
  }
  template <class T>
  T number() {
    T v;
    std::memcpy(&v, take(sizeof(T)), sizeof(T));
    return v;
  }
  uint8_t u8() { return number<uint8_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  // The length of a list whose entries take at least `size` bytes.
  size_t count(size_t size) {
    const size_t start = pos_;
    const size_t n = u32();
    if (n > remaining() / size) {
      bad_at(start, fmt::format("{} entries do not fit in {} bytes", n, remaining()));
    }
    return n;
  }

  size_t header() {
    const bool ours = bytes_.size() >= 8 && std::memcmp(bytes_.data(), wire::kMagic.data(), 8) == 0;
    if (!ours) fail(ErrorKind::kIo, "this is not a graph file: it does not begin with RLXGRAPH");
    take(8);
    if (const uint32_t version = u32(); version != wire::kVersion) {
      bad_at(8, fmt::format("the format version is {}, this library reads {}", version,
                            wire::kVersion));
    }
    if (u32() != 0) bad_at(12, "reserved bits are set");
    if (const uint64_t size = number<uint64_t>(); size != bytes_.size()) {
      bad_at(16, fmt::format("the file should have {} bytes, it has {}", size, bytes_.size()));
    }
    const uint64_t strings_at = number<uint64_t>();
    if (strings_at < wire::kHeader || strings_at > bytes_.size()) {
      bad_at(24, "the strings are outside of the file");
    }
    while (pos_ < wire::kHeader) {
      if (u8() != 0) bad_at(pos_ - 1, "reserved bits are set");
    }
    return size_t(strings_at);
  }

  void strings() {
    const size_t n = count(4);
    strings_.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      const size_t length = u32();
      if (length > Lexer::kMaxString) bad(fmt::format("a string has {} bytes", length));
      strings_.emplace_back(reinterpret_cast<const char*>(take(length)), length);
    }
    dims_.resize(n);
  }

  uint32_t string_id() {
    const size_t start = pos_;
    const uint32_t id = u32();
    if (id >= strings_.size()) {
      bad_at(start, fmt::format("string {} of {}", id, strings_.size()));
    }
    return id;
  }
  std::string_view name() { return strings_[string_id()]; }
  std::string string() {
    const size_t start = pos_;
    const std::string_view s = name();
    string_bytes_ -= int64_t(s.size());
    if (string_bytes_ < 0) bad_at(start, "the strings of the graph are over 512 MiB");
    return std::string(s);
  }

  DType dtype() {
    const size_t start = pos_;
    const std::string_view s = name();
    const auto t = parse_dtype(s);
    if (!t) bad_at(start, fmt::format("'{}' is not a dtype", excerpt(s)));
    return *t;
  }

  Dim dim() {
    const size_t start = pos_;
    const uint8_t kind = u8();
    if (kind == 0) return Dim(number<int64_t>());
    if (kind != 1) bad_at(start, fmt::format("{} is not a kind of size", kind));
    // Parsed once: an expensive expression may be named often.
    const uint32_t id = string_id();
    if (!dims_[id]) dims_[id] = at(start, [&] { return Dim::parse(strings_[id]); });
    return *dims_[id];
  }

  int rank() {
    const size_t start = pos_;
    const uint8_t r = u8();
    if (r > kMaxRank) bad_at(start, fmt::format("rank {} is above {}", r, kMaxRank));
    return r;
  }
  Shape shape() {
    Shape s;
    for (int i = rank(); i > 0; --i) s.push_back(dim());
    return s;
  }

  Array array() {
    const size_t start = pos_;
    const DType t = dtype();
    Dims dims(static_cast<size_t>(rank()));
    for (int64_t& d : dims) {
      d = number<int64_t>();
      if (d < 0) bad("a size is negative");
    }
    const int64_t size = at(start, [&] { return byte_size(t, dims); });
    while (pos_ % wire::kAlignment != 0) {
      if (u8() != 0) bad_at(pos_ - 1, "padding is not zero");
    }
    const std::byte* data = take(size_t(size));  // before memory is taken
    Array a = at(start, [&] { return Array::uninitialized(t, dims); });
    if (size > 0) std::memcpy(a.mutable_raw(), data, size_t(size));
    if (!valid_bytes(a)) bad_at(start, "a bool of the tensor is neither 0 nor 1");
    return a;
  }

  FieldValue enumerator(const Field& f) {
    const size_t start = pos_;
    const std::string_view s = name();
    for (size_t i = 0; i < f.enum_names.size(); ++i) {
      if (f.enum_names[i] == s) return int64_t(i);
    }
    bad_at(start, fmt::format("the attribute '{}' has no value '{}': it may come from a newer "
                              "version",
                              f.name, excerpt(s)));
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> v(count(8));
    const size_t bytes = v.size() * sizeof(int64_t);
    if (bytes > 0) std::memcpy(v.data(), take(bytes), bytes);
    return v;
  }

  std::vector<double> doubles() {
    std::vector<double> v(count(8));
    const size_t bytes = v.size() * sizeof(double);
    if (bytes > 0) std::memcpy(v.data(), take(bytes), bytes);
    return v;
  }

  std::vector<TensorType> types() {
    std::vector<TensorType> v(count(8));
    for (TensorType& t : v) {
      t.dtype = dtype();
      t.shape = shape();
    }
    return v;
  }

  FieldValue value(const Field& f) {
    const size_t start = pos_;
    const auto tag = Tag(u8());
    if (tag == Tag::kNone && f.optional) return std::monostate();
    if (tag == Tag::kNullGraph && f.type == FieldType::kGraph) return GraphRef();
    if (tag == Tag::kUndefinedArray && f.type == FieldType::kArray) return Array();
    if (tag != tag_of(f.type)) {
      bad_at(start, fmt::format("the attribute '{}' has a value of kind {}, expected {}", f.name,
                                int(tag), int(tag_of(f.type))));
    }
    switch (f.type) {
      case FieldType::kBool: {
        const uint8_t v = u8();
        if (v > 1) bad_at(start, fmt::format("the attribute '{}' is neither 0 nor 1", f.name));
        return v == 1;
      }
      case FieldType::kInt:
        return number<int64_t>();
      case FieldType::kDouble:
        return number<double>();
      case FieldType::kString:
        return string();
      case FieldType::kDType:
        return dtype();
      case FieldType::kInts:
        return integers();
      case FieldType::kDim:
        return dim();
      case FieldType::kShape:
        return shape();
      case FieldType::kArray:
        return array();
      case FieldType::kGraph:
        return GraphRef(std::make_shared<const Graph>(graph()));
      case FieldType::kEnum:
        return enumerator(f);
      case FieldType::kDoubles:
        return doubles();
      case FieldType::kTypes:
        return types();
    }
    bad_at(start, "unknown kind of attribute");
  }

  Attrs attributes(const OpDef& op) {
    const FieldTable& table = *op.fields;
    auto attrs = table.make(nullptr);
    std::vector<uint8_t> seen(table.fields.size(), 0);
    for (size_t i = count(5); i > 0; --i) {
      const size_t start = pos_;
      const std::string_view s = name();
      const Field* f = table.find(s);
      if (!f) {
        bad_at(start, fmt::format("{} has no attribute '{}': it may come from a newer version",
                                  op.name, excerpt(s)));
      }
      if (seen[size_t(f - table.fields.data())]++) {
        bad_at(start, fmt::format("the attribute '{}' is given twice", f->name));
      }
      const FieldValue v = value(*f);
      at(start, [&] { f->set(attrs.get(), v); });
    }
    return Attrs(&table, std::move(attrs));
  }

  Value handle() {
    const uint32_t node = u32();
    return {node, u32()};
  }

  void node(Graph& g) {
    const size_t start = pos_;
    if (++nodes_ > limits::kMaxNodes) bad("there are more than 10 million nodes");
    const std::string_view s = name();
    const OpDef* op = lookup_(s);
    if (!op) bad_at(start, fmt::format("the op '{}' is unknown or not built", excerpt(s)));
    Builder b(g);
    b.set_label(string());
    Attrs attrs = attributes(*op);
    std::vector<Value> operands(count(8));
    for (Value& v : operands) v = handle();
    const auto results = at(start, [&] { return b.call(*op, std::move(attrs), operands); });
    const size_t types_at = pos_;
    if (const size_t n = count(5); n != results.size()) {
      bad_at(types_at,
             fmt::format("{} gives {} results, the file has {}", op->name, results.size(), n));
    }
    for (Value v : results) {
      const DType t = dtype();
      const TensorType written{t, shape()};
      if (const TensorType& inferred = g.type(v); written != inferred) {
        bad_at(types_at, fmt::format("{} gives {}, the file says {}", op->name,
                                     inferred.to_string(), written.to_string()));
      }
    }
  }

  Graph graph() {
    if (++depth_ > limits::kMaxDepth) {
      bad(fmt::format("graphs nest deeper than {}", limits::kMaxDepth));
    }
    Graph g(string());
    for (size_t i = count(20); i > 0; --i) node(g);
    for (size_t i = count(12); i > 0; --i) {
      const size_t start = pos_;
      std::string s = string();
      const Value v = handle();
      at(start, [&] { g.add_output(std::move(s), v); });
    }
    for (size_t i = count(12); i > 0; --i) {
      const size_t start = pos_;
      std::string s = string();
      const Value v = handle();
      at(start, [&] { g.add_update(std::move(s), v); });
    }
    --depth_;
    return g;
  }

  std::span<const std::byte> bytes_;
  size_t pos_ = 0;
  size_t end_;
  OpLookup lookup_;
  std::vector<std::string_view> strings_;
  std::vector<std::optional<Dim>> dims_;  // of strings that were read as sizes
  int depth_ = 0;
  int64_t nodes_ = 0;
  int64_t string_bytes_ = kMaxStringBytes;
};

}  // namespace

Graph deserialize(std::span<const std::byte> bytes, OpLookup lookup) {
  return Reader(bytes, lookup).file();
}

}  // namespace rlx
