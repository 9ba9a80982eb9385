#include "tools/rlx/bound_graph.h"

#include "rlx/io/npy.h"
#include "tools/rlx/arrays.h"
#include "tools/rlx/graph_file.h"

namespace rlx::cli {
namespace {

std::vector<std::string> leaf_names(const Graph& graph, const std::vector<Value>& leaves) {
  std::vector<std::string> names;
  names.reserve(leaves.size());
  for (Value v : leaves) names.push_back(graph.name_of(v));
  return names;
}

std::map<std::string, Array> load_files(const Graph& graph, const std::vector<Value>& leaves,
                                        const std::map<std::string, Source>& sources) {
  std::map<std::string, Array> arrays;
  for (Value v : leaves) {
    const std::string& name = graph.name_of(v);
    const Source& source = sources.at(name);
    if (source.random) continue;
    Array array = load_npy(source.file);
    if (graph.type(v).dtype == DType::kBF16 && array.dtype() == DType::kF32) {
      array = bf16_of_f32(array);
    }
    arrays.emplace(name, std::move(array));
  }
  return arrays;
}

// The graph's sizes must be known by now.
void draw_missing(const Graph& graph, const std::vector<Value>& leaves, uint64_t seed,
                  std::map<std::string, Array>& arrays) {
  for (Value v : leaves) {
    const std::string& name = graph.name_of(v);
    if (arrays.contains(name)) continue;
    const TensorType& type = graph.type(v);
    arrays.emplace(name, draw(type.dtype, type.shape.static_dims(), seed, name));
  }
}

}  // namespace

BoundGraph bind_values(const ValueArgs& args) {
  BoundGraph bound;
  bound.loaded = load(args.graph);
  Graph graph = bind_dims(bound.loaded, parse_dims(args.dims));
  const std::vector<std::string> input_names = leaf_names(graph, graph.inputs());
  const std::vector<std::string> param_names = leaf_names(graph, graph.params());
  const auto input_sources = assign_sources(args.inputs, input_names, "-i", "input");
  const auto param_sources = assign_sources(args.params, param_names, "-p", "param");
  std::map<std::string, Array> given = load_files(graph, graph.inputs(), input_sources);
  bound.params = load_files(graph, graph.params(), param_sources);
  graph = bind_given(graph, given);
  require_static(graph);
  draw_missing(graph, graph.inputs(), args.seed, given);
  draw_missing(graph, graph.params(), args.seed, bound.params);
  for (const std::string& name : input_names) bound.inputs.push_back(given.at(name));
  bound.graph = std::move(graph);
  return bound;
}

}  // namespace rlx::cli
