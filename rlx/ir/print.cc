#include "rlx/ir/graph.h"
#include "rlx/ir/lexer.h"
#include "rlx/ir/op.h"
#include "rlx/ir/tensor_text.h"
#include "rlx/ir/text.h"

namespace rlx {
namespace {

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  std::string take() { return std::move(out_); }

  void graph(const Graph& g) {
    out_ += "graph " + (is_word(g.name()) ? g.name() : quote(g.name())) + " {\n";
    indent_ += 2;
    const std::vector<uint64_t> first = first_handles(g);
    for (uint32_t id = 0; id < g.size(); ++id) node(g.node(id), id, first);
    for (const Output& o : g.outputs()) {
      line(fmt::format("output {} = {}\n", quote(o.name), handle(o.value, first)));
    }
    for (const Update& u : g.updates()) {
      line(fmt::format("update {} = {}\n", quote(u.param), handle(u.value, first)));
    }
    indent_ -= 2;
    line("}");
  }

  void value(const Field& field, const FieldValue& v) {
    if (std::holds_alternative<std::monostate>(v)) {
      out_ += "none";
      return;
    }
    switch (field.type) {
      case FieldType::kBool:
        out_ += std::get<bool>(v) ? "true" : "false";
        break;
      case FieldType::kInt:
        out_ += std::to_string(std::get<int64_t>(v));
        break;
      case FieldType::kDouble:
        out_ += print_double(std::get<double>(v));
        break;
      case FieldType::kString:
        out_ += quote(std::get<std::string>(v));
        break;
      case FieldType::kDType:
        out_ += to_string(std::get<DType>(v));
        break;
      case FieldType::kInts:
        out_ += dims_to_string(std::get<std::vector<int64_t>>(v));
        break;
      case FieldType::kDim:
        dim(std::get<Dim>(v));
        break;
      case FieldType::kShape:
        out_ += std::get<Shape>(v).to_string();
        break;
      case FieldType::kArray:
        out_ += print_tensor(std::get<Array>(v), options_.max_elements);
        break;
      case FieldType::kGraph:
        if (const GraphRef& body = std::get<GraphRef>(v)) {
          graph(*body);
        } else {
          out_ += "null";
        }
        break;
      case FieldType::kEnum:
        enumerator(field.enum_names[size_t(std::get<int64_t>(v))]);
        break;
      case FieldType::kDoubles:
        list(std::get<std::vector<double>>(v), [](double x) { return print_double(x); });
        break;
      case FieldType::kTypes:
        list(std::get<std::vector<TensorType>>(v),
             [](const TensorType& t) { return t.to_string(); });
        break;
    }
  }

 private:
  template <class T, class Item>
  void list(const std::vector<T>& values, const Item& item) {
    out_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += item(values[i]);
    }
    out_ += ']';
  }

  // Results are numbered through the graph: the number of each node's first one.
  static std::vector<uint64_t> first_handles(const Graph& g) {
    std::vector<uint64_t> first;
    first.reserve(g.size());
    uint64_t next = 0;
    for (const Node& n : g.nodes()) {
      first.push_back(next);
      next += n.results.size();
    }
    return first;
  }

  static std::string handle(Value v, const std::vector<uint64_t>& first) {
    if (v.node >= first.size()) return "%invalid";  // printing must not fail in a report of a bug
    return fmt::format("%{}", first[v.node] + v.index);
  }

  void line(std::string_view text) {
    out_.append(size_t(indent_), ' ');
    out_ += text;
  }

  void node(const Node& n, uint32_t id, const std::vector<uint64_t>& first) {
    line("");
    for (uint32_t i = 0; i < n.results.size(); ++i) {
      out_ += (i ? ", " : "") + handle({id, i}, first);
    }
    if (!n.results.empty()) out_ += " = ";
    out_ += n.op->name;
    out_ += '(';
    for (size_t i = 0; i < n.operands.size(); ++i) {
      out_ += (i ? ", " : "") + handle(n.operands[i], first);
    }
    out_ += ')';
    attributes(n.attrs);
    for (size_t i = 0; i < n.results.size(); ++i) {
      out_ += (i ? ", " : " : ") + n.results[i].to_string();
    }
    if (options_.labels && !n.label.empty()) out_ += "  // " + quote(n.label);
    out_ += '\n';
  }

  void attributes(const Attrs& attrs) {
    if (!attrs.table()) return;
    const auto defaults = attrs.table()->make(nullptr);
    bool any = false;
    for (const Field& f : attrs.table()->fields) {
      const FieldValue v = f.get(attrs.get());
      if (field_equal(v, f.get(defaults.get()))) continue;
      out_ += any ? ", " : "{";
      out_ += f.name;
      out_ += " = ";
      value(f, v);
      any = true;
    }
    if (any) out_ += '}';
  }

  // "none" is the empty optional, so a symbol or an enumerator of that name is set apart.
  void dim(const Dim& d) {
    const std::string text = d.to_string();
    out_ += text == "none" ? "(none)" : text;
  }
  void enumerator(std::string_view name) {
    out_ += is_word(name) && name != "none" ? std::string(name) : quote(name);
  }

  const PrintOptions& options_;
  std::string out_;
  int indent_ = 0;
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  Printer p(options);
  p.graph(graph);
  return p.take() + "\n";
}

std::string print_field(const Field& field, const FieldValue& value, const PrintOptions& options) {
  Printer p(options);
  p.value(field, value);
  return p.take();
}

}  // namespace rlx
