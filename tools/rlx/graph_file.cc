#include "tools/rlx/graph_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "rlx/base/error.h"
#include "rlx/base/file.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/text.h"
#include "rlx/ops/build.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/program.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {
namespace {

constexpr std::string_view kMagic = "RLXGRAPH";

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

}  // namespace

Graph load(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    return text.starts_with(kMagic) ? deserialize(bytes, find_op) : parse_graph(text);
  } catch (const Error& e) {
    throw e.with_context("'" + path + "'");
  }
}

void save(const Graph& graph, const std::string& path) {
  if (path.ends_with(".rlxb")) return save_graph(graph, path);
  if (!path.ends_with(".rlx")) {
    throw UsageError("--save: '" + path + "' ends neither in .rlx (text) nor in .rlxb (binary)");
  }
  const std::string text = print(graph);
  write_file(path, std::as_bytes(std::span(text)));
}

SymbolBindings parse_dims(const std::vector<std::string>& dims, std::string_view option) {
  SymbolBindings bindings;
  for (const std::string& d : dims) {
    const size_t equals = d.find('=');
    int64_t size = -1;
    if (equals != std::string::npos) {
      const char* end = d.data() + d.size();
      const auto [stop, error] = std::from_chars(d.data() + equals + 1, end, size);
      if (error != std::errc() || stop != end) size = -1;
    }
    if (size < 0) {
      throw UsageError(fmt::format("{}: expected SYMBOL=SIZE, got '{}'", option, d));
    }
    if (!bindings.emplace(d.substr(0, equals), size).second) {
      throw UsageError(fmt::format("{}: '{}' is given twice", option, d.substr(0, equals)));
    }
  }
  return bindings;
}

Graph bind_dims(const Graph& graph, const SymbolBindings& dims) {
  if (dims.empty()) return graph;
  const std::vector<std::string> symbols = free_symbols(graph);
  for (const auto& [symbol, size] : dims) {
    if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) {
      user_error("'{}' has no symbolic size '{}'; it has: {}", graph.name(), symbol,
                 symbols.empty() ? "none" : joined(symbols));
    }
  }
  return substitute_symbols(graph, dims);
}

Graph bind_given(const Graph& graph, const std::map<std::string, Array>& inputs) {
  Graph given(graph.name());
  Builder b(given);
  std::vector<Array> arrays;
  for (Value v : graph.inputs()) {
    const auto it = inputs.find(graph.name_of(v));
    if (it == inputs.end()) continue;
    input(b, it->first, graph.type(v).dtype, graph.type(v).shape);
    arrays.push_back(it->second);
  }
  const SymbolBindings bindings = bind_symbols(given, arrays);
  return bindings.empty() ? graph : substitute_symbols(graph, bindings);
}

void require_static(const Graph& graph) {
  const std::vector<std::string> symbols = free_symbols(graph);
  if (symbols.empty()) return;
  user_error("'{}' has sizes that are not known: {}; give them with --dims {}=SIZE,...",
             graph.name(), joined(symbols), symbols.front());
}

}  // namespace rlx::cli
