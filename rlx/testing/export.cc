#include "rlx/testing/export.h"

#include <cmath>
#include <fstream>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/samples.h"
#include "rlx/testing/call_graph.h"

namespace rlx {
namespace {

using reference::Tensor;

std::string quoted(std::string_view s) {
  std::string r = "\"";
  for (char c : s) {
    if (c < ' ' || c > '~') {  // attributes may be bytes
      r += fmt::format("\\u{:04x}", uint8_t(c));
      continue;
    }
    if (c == '"' || c == '\\') r += '\\';
    r += c;
  }
  return r + "\"";
}

std::string json(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{:.17g}", v);
}

std::string json(const Field& f, const FieldValue& v) {
  if (std::holds_alternative<std::monostate>(v)) return "null";
  switch (f.type) {
    case FieldType::kBool:
      return std::get<bool>(v) ? "true" : "false";
    case FieldType::kInt:
      return fmt::format("{}", std::get<int64_t>(v));
    case FieldType::kDouble:
      return json(std::get<double>(v));
    case FieldType::kString:
      return quoted(std::get<std::string>(v));
    case FieldType::kDType:
      return quoted(to_string(std::get<DType>(v)));
    case FieldType::kInts:
      return dims_to_string(std::get<std::vector<int64_t>>(v));
    case FieldType::kDim:
      return std::get<Dim>(v).to_string();
    case FieldType::kShape:
      return std::get<Shape>(v).to_string();
    case FieldType::kEnum:
      return quoted(f.enum_names[size_t(std::get<int64_t>(v))]);
    case FieldType::kDoubles: {
      std::string s;
      for (double x : std::get<std::vector<double>>(v)) s += (s.empty() ? "" : ", ") + json(x);
      return "[" + s + "]";
    }
    case FieldType::kArray:
    case FieldType::kTypes:
    case FieldType::kGraph:
      return quoted("(not exported)");
  }
  return "null";
}

class Writer {
 public:
  Writer(const OpDef& op, const std::string& folder)
      : json_(folder + "/" + std::string(op.name) + ".json"),
        bin_(folder + "/" + std::string(op.name) + ".bin", std::ios::binary) {
    if (!json_ || !bin_) fail(ErrorKind::kIo, "cannot write into '{}'", folder);
  }
  void text(const std::string& s) { json_ << s; }
  std::string tensor(const Tensor& t) {
    const int64_t offset = offset_;
    const auto put = [&](const auto& v) {
      const auto bytes = std::streamsize(v.size() * sizeof(v[0]));
      bin_.write(reinterpret_cast<const char*>(v.data()), bytes);
      offset_ += bytes;
    };
    put(t.f);
    put(t.i);
    put(t.c);
    return fmt::format(R"({{"dtype": "{}", "shape": {}, "offset": {}}})", to_string(t.dtype),
                       dims_to_string(t.shape), offset);
  }
  void finish() {
    json_.flush();
    bin_.flush();
    if (!json_ || !bin_) fail(ErrorKind::kIo, "writing the samples failed");
  }

 private:
  std::ofstream json_, bin_;
  int64_t offset_ = 0;
};

std::string list(Writer& w, const std::vector<Tensor>& tensors) {
  std::string s;
  for (const Tensor& t : tensors) s += (s.empty() ? "" : ", ") + w.tensor(t);
  return "[" + s + "]";
}

}  // namespace

int export_samples(const OpDef& op, const std::string& folder) {
  Writer w(op, folder);
  int count = 0;
  w.text(fmt::format("{{\"op\": {}, \"cases\": [", quoted(op.name)));
  for (const Sample& s : samples_of(op).samples()) {
    std::vector<Tensor> operands;
    for (const Array& a : draw_operands(op, s)) operands.push_back(reference::widen(a));
    const Attrs attrs = infer_call(op, s.attrs, operand_types(s)).attrs;
    std::vector<Tensor> results;
    try {
      results = reference::evaluate(op, attrs, operands);
    } catch (const Error&) {
      continue;  // a run-time error is the right answer here; conformance checks its text
    }
    std::string fields;
    for (const Field& f : attrs.table()->fields) {
      fields += fmt::format("{}{}: {}", fields.empty() ? "" : ", ", quoted(f.name),
                            json(f, f.get(attrs.get())));
    }
    w.text(fmt::format("{}\n{{\"name\": {}, \"attrs\": {{{}}}, \"operands\": {}, \"results\": {}}}",
                       count ? "," : "", quoted(s.name), fields, list(w, operands),
                       list(w, results)));
    ++count;
  }
  w.text("\n]}\n");
  w.finish();
  return count;
}

}  // namespace rlx
