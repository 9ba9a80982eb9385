#include <optional>
#include <unordered_map>

#include "rlx/ir/builder.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/lexer.h"
#include "rlx/ir/limits.h"
#include "rlx/ir/op.h"
#include "rlx/ir/tensor_text.h"
#include "rlx/ir/text.h"

namespace rlx {
namespace {

constexpr size_t kMaxText = size_t(1) << 32;

template <class Names>
std::string join(const Names& names) {
  std::string s;
  for (const auto& n : names) s += (s.empty() ? "" : ", ") + std::string(n);
  return s.empty() ? "none" : s;
}

class Parser {
 public:
  Parser(std::string_view text, OpLookup lookup) : in_(text), lookup_(lookup) {}

  Graph file() {
    Graph g = graph();
    if (!in_.done()) in_.fail(in_.pos(), "there is text behind the graph");
    return g;
  }

 private:
  using Values = std::unordered_map<std::string_view, Value>;

  Graph graph() {
    const size_t start = in_.skip();
    if (++depth_ > limits::kMaxDepth) {
      in_.fail(start, fmt::format("graphs nest deeper than {}", limits::kMaxDepth));
    }
    if (!in_.eat_word("graph")) in_.fail(start, "expected 'graph <name> {'");
    Graph g(in_.peek() == '"' ? in_.string("a name") : std::string(in_.word("the graph's name")));
    Values values;
    in_.expect('{');
    while (!in_.eat('}')) statement(g, values);
    --depth_;
    return g;
  }

  void statement(Graph& g, Values& values) {
    const size_t start = in_.skip();
    if (in_.peek() == '%') return node(g, values);
    const std::string_view word = in_.word("a node, an output, an update or '}'");
    if (in_.peek() == '(') return call(g, values, word, start, {});
    if (word != "output" && word != "update") {
      in_.fail(start, fmt::format("expected a node, an output, an update or '}}', found '{}'",
                                  excerpt(word)));
    }
    std::string name = in_.string("a name");
    in_.expect('=');
    const Value v = operand(values);
    in_.at(start, [&] {
      if (word == "output") {
        g.add_output(std::move(name), v);
      } else {
        g.add_update(std::move(name), v);
      }
    });
  }

  void node(Graph& g, Values& values) {
    std::vector<std::string_view> handles;
    do {
      const size_t pos = in_.skip();
      handles.push_back(in_.handle());
      if (values.contains(handles.back())) {
        in_.fail(pos, fmt::format("%{} is already a value", excerpt(handles.back())));
      }
    } while (in_.eat(','));
    in_.expect('=');
    const size_t start = in_.skip();
    call(g, values, in_.word("the name of an op"), start, handles);
  }

  // `start`: where the op's name stands.
  void call(Graph& g, Values& values, std::string_view name, size_t start,
            const std::vector<std::string_view>& handles) {
    const OpDef* op = lookup_(name);
    if (!op) {
      in_.fail(start, fmt::format("the op '{}' is unknown or not built", excerpt(name)));
    }
    if (++nodes_ > limits::kMaxNodes) {
      in_.fail(start, fmt::format("there are more than {} nodes", limits::kMaxNodes));
    }
    std::vector<Value> operands;
    in_.expect('(');
    if (!in_.eat(')')) {
      do {
        operands.push_back(operand(values));
      } while (in_.eat(','));
      in_.expect(')');
    }
    Attrs attrs = attributes(*op);
    const auto results =
        in_.at(start, [&] { return Builder(g).call(*op, std::move(attrs), operands); });
    if (results.size() != handles.size()) {
      in_.fail(start, fmt::format("{} has {} results, {} are named", op->name, results.size(),
                                  handles.size()));
    }
    check_types(g, results);
    for (size_t i = 0; i < handles.size(); ++i) {
      if (!values.emplace(handles[i], results[i]).second) {
        in_.fail(start, fmt::format("%{} is named twice", excerpt(handles[i])));
      }
    }
  }

  Value operand(const Values& values) {
    const size_t pos = in_.skip();
    const std::string_view name = in_.handle();
    const auto it = values.find(name);
    if (it == values.end()) {
      in_.fail(pos, fmt::format("%{} is not the result of an earlier node", excerpt(name)));
    }
    return it->second;
  }

  // Types may be left out in texts that people write.
  void check_types(const Graph& g, const std::vector<Value>& results) {
    if (!in_.eat(':')) return;
    for (size_t i = 0; i < results.size(); ++i) {
      if (i > 0) in_.expect(',');
      const size_t pos = in_.skip();
      const TensorType written{dtype(), shape()};
      if (const TensorType& inferred = g.type(results[i]); written != inferred) {
        in_.fail(pos, fmt::format("the text says {}, {} gives {}", written.to_string(),
                                  g.node(results[i]).op->name, inferred.to_string()));
      }
    }
  }

  Attrs attributes(const OpDef& op) {
    const FieldTable& table = *op.fields;
    auto attrs = table.make(nullptr);
    std::vector<uint8_t> seen(table.fields.size(), 0);
    if (in_.eat('{') && !in_.eat('}')) {
      do {
        const size_t pos = in_.skip();
        const std::string_view name = in_.word("the name of an attribute");
        const Field* f = table.find(name);
        if (!f) {
          std::vector<std::string_view> names;
          for (const Field& x : table.fields) names.push_back(x.name);
          in_.fail(pos, fmt::format("{} has no attribute '{}'; it has: {}", op.name, excerpt(name),
                                    join(names)));
        }
        if (seen[size_t(f - table.fields.data())]++) {
          in_.fail(pos, fmt::format("the attribute '{}' is given twice", f->name));
        }
        in_.expect('=');
        const size_t value_pos = in_.skip();
        const FieldValue v = value(*f);
        in_.at(value_pos, [&] { f->set(attrs.get(), v); });
      } while (in_.eat(','));
      in_.expect('}');
    }
    return Attrs(&table, std::move(attrs));
  }

  FieldValue value(const Field& f) {
    if (f.optional && in_.eat_word("none")) return std::monostate();
    const size_t pos = in_.skip();
    switch (f.type) {
      case FieldType::kBool:
        if (in_.eat_word("true")) return true;
        if (in_.eat_word("false")) return false;
        in_.fail(pos, "expected true or false");
      case FieldType::kInt:
        return in_.integer();
      case FieldType::kDouble:
        return number();
      case FieldType::kString:
        return in_.string("a string");
      case FieldType::kDType:
        return dtype();
      case FieldType::kInts:
        return list<int64_t>([&] { return in_.integer(); });
      case FieldType::kDim: {
        const std::string_view token = in_.until(",}");
        return in_.at(pos, [&] { return Dim::parse(token); });
      }
      case FieldType::kShape:
        return shape();
      case FieldType::kArray:
        return parse_tensor(in_, tensor_bytes_);
      case FieldType::kGraph:
        if (in_.eat_word("null")) return GraphRef();
        return GraphRef(std::make_shared<const Graph>(graph()));
      case FieldType::kEnum:
        return enumerator(f);
      case FieldType::kDoubles:
        return list<double>([&] { return number(); });
      case FieldType::kTypes:
        return list<TensorType>([&] {
          const DType t = dtype();
          return TensorType{t, shape()};
        });
    }
    in_.fail(pos, "unknown kind of attribute");
  }

  FieldValue enumerator(const Field& f) {
    const size_t pos = in_.skip();
    const std::string name =
        in_.peek() == '"' ? in_.string("a name") : std::string(in_.word("a name"));
    for (size_t i = 0; i < f.enum_names.size(); ++i) {
      if (f.enum_names[i] == name) return int64_t(i);
    }
    in_.fail(pos, fmt::format("the attribute '{}' has no value '{}'; there are: {}", f.name,
                              excerpt(name), join(f.enum_names)));
  }

  template <class T, class Item>
  std::vector<T> list(const Item& item) {
    std::vector<T> v;
    in_.expect('[');
    if (in_.eat(']')) return v;
    do {
      v.push_back(item());
    } while (in_.eat(','));
    in_.expect(']');
    return v;
  }

  double number() {
    const size_t pos = in_.skip();
    const std::string_view token = in_.number();
    return in_.at(pos, [&] { return parse_double(token); });
  }

  DType dtype() {
    const size_t pos = in_.skip();
    const std::string_view name = in_.word("a dtype");
    if (const auto t = parse_dtype(name)) return *t;
    in_.fail(pos, fmt::format("'{}' is not a dtype; there are: {}", excerpt(name),
                              dtypes::kAnyOrPacked.to_string()));
  }

  Shape shape() {
    Shape s;
    in_.expect('[');
    if (in_.eat(']')) return s;
    do {
      const size_t pos = in_.skip();
      if (s.rank() == kMaxRank) {
        in_.fail(pos, fmt::format("a shape has at most {} axes", kMaxRank));
      }
      const std::string_view token = in_.until(",]");
      s.push_back(in_.at(pos, [&] { return Dim::parse(token); }));
    } while (in_.eat(','));
    in_.expect(']');
    return s;
  }

  Lexer in_;
  OpLookup lookup_;
  int depth_ = 0;
  int64_t nodes_ = 0;
  int64_t tensor_bytes_ = limits::kMaxTensorBytes;
};

}  // namespace

Graph parse(std::string_view text, OpLookup lookup) {
  if (text.size() > kMaxText) user_error("a graph's text has at most {} bytes", kMaxText);
  return Parser(text, lookup).file();
}

}  // namespace rlx
