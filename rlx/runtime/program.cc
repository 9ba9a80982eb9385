#include "rlx/runtime/program.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/base/cpu_info.h"
#include "rlx/base/error.h"
#include "rlx/compile/out_of_memory.h"
#include "rlx/ir/verify.h"
#include "rlx/runtime/eval.h"

namespace rlx {
namespace {

[[noreturn]] void wrong_input(std::string_view graph, std::string_view input,
                              const TensorType& expected, const Array& given,
                              const SymbolBindings& bindings) {
  std::string sizes;
  for (const auto& [symbol, size] : bindings) {
    sizes += fmt::format("{}{} = {}", sizes.empty() ? " with " : ", ", symbol, size);
  }
  user_error("input '{}' of '{}': expected {}{}, got {}", input, graph, expected.to_string(), sizes,
             given.defined() ? given.type().to_string() : "an undefined array");
}

// The dim as a line in its only unbound symbol; nothing if it is not one (n * n, floor(n / 2)).
std::optional<LinearDim> line_of(const Dim& dim, const std::string& symbol,
                                 const SymbolBindings& bindings) {
  return linear_in(dim.substitute(bindings), symbol);
}

std::vector<std::string> unbound(const Dim& dim, const SymbolBindings& bindings) {
  std::vector<std::string> symbols;
  dim.collect_symbols(symbols);
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  std::erase_if(symbols, [&](const std::string& s) { return bindings.contains(s); });
  return symbols;
}

// Symbols that get a value when a plan is compiled: all but the bounded ones.
std::vector<std::string> specialized_symbols(const Graph& graph, const SymbolBindings& bounds) {
  std::vector<std::string> symbols = free_symbols(graph), of_inputs;
  for (Value v : graph.inputs()) {
    for (const Dim& d : graph.type(v).shape) d.collect_symbols(of_inputs);
  }
  for (const auto& [name, bound] : bounds) {
    if (bound < 0) user_error("the bound {} of the size '{}' is negative", bound, name);
    if (std::ranges::find(of_inputs, name) == of_inputs.end()) {
      user_error("no input of '{}' has the size '{}', which is given a bound", graph.name(), name);
    }
  }
  for (Value v : graph.params()) {
    if (!bounded_symbols(graph.type(v).shape, bounds).empty()) {
      user_error("the param '{}' of type {} cannot have a bounded size", graph.name_of(v),
                 graph.type(v).to_string());
    }
  }
  std::erase_if(symbols, [&](const std::string& s) { return bounds.contains(s); });
  return symbols;
}

}  // namespace

SymbolBindings bind_symbols(const Graph& graph, std::span<const Array> inputs) {
  SymbolBindings bindings;
  struct Pending {
    size_t input;
    int64_t axis;
  };
  std::vector<Pending> pending;
  const auto wrong = [&](size_t i) {
    const Value v = graph.inputs()[i];
    wrong_input(graph.name(), graph.name_of(v), graph.type(v), inputs[i], bindings);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph.type(graph.inputs()[i]);
    if (!inputs[i].defined() || inputs[i].dtype() != type.dtype ||
        inputs[i].rank() != type.shape.rank()) {
      wrong(i);
    }
    for (int64_t a = 0; a < type.shape.rank(); ++a) pending.push_back({i, a});
  }
  // Each round settles the dims without an unknown symbol, and those that are linear in their only
  // one. The others wait for an input that tells more.
  for (bool progress = true; progress;) {
    progress = false;
    std::erase_if(pending, [&](const Pending& p) {
      const Dim& dim = graph.type(graph.inputs()[p.input]).shape[p.axis];
      const int64_t size = inputs[p.input].shape()[size_t(p.axis)];
      const std::vector<std::string> symbols = unbound(dim, bindings);
      if (symbols.size() > 1) return false;
      if (symbols.empty()) {
        if (dim.evaluate(bindings) != size) wrong(p.input);
      } else {
        const auto line = line_of(dim, symbols[0], bindings);
        if (!line) return false;
        const auto value = line->solve(size);
        if (!value) wrong(p.input);
        bindings[symbols[0]] = *value;
      }
      progress = true;
      return true;
    });
  }
  for (const std::string& symbol : free_symbols(graph)) {
    if (!bindings.contains(symbol)) {
      user_error("the shapes of the inputs of '{}' do not determine the size '{}'", graph.name(),
                 symbol);
    }
  }
  return bindings;
}

void check_input_count(std::string_view graph, std::span<const std::string> names, size_t given) {
  if (given == names.size()) return;
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  user_error("'{}' takes {} inputs ({}), {} were given", graph, names.size(),
             list.empty() ? "none" : list, given);
}

bool solve_extents(const Plan& plan, std::span<const Array> inputs, std::span<int64_t> extents) {
  constexpr int64_t kUnknown = -1;
  for (size_t s = 0; s < extents.size(); ++s) {
    extents[s] = plan.symbols[s].set_by_step ? plan.symbols[s].bound : kUnknown;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanTensor& expected = plan.inputs[i];
    if (!inputs[i].defined() || inputs[i].dtype() != expected.dtype) return false;
    const Dims& dims = inputs[i].shape();
    if (dims.size() != expected.dims.size()) return false;
    size_t next = 0;  // of the live axes
    for (size_t a = 0; a < dims.size(); ++a) {
      if (next == expected.live.size() || expected.live[next].axis != a) {
        if (dims[a] != expected.dims[a]) return false;
        continue;
      }
      const PlanExtent& extent = expected.live[next++].extent;
      const auto value = extent.line.solve(dims[a]);
      int64_t& known = extents[extent.symbol];
      if (!value || *value > plan.symbols[extent.symbol].bound) return false;
      if (known != kUnknown && known != *value) return false;
      known = *value;
    }
  }
  return true;
}

Dim size_of(const Plan& plan, const PlanExtent& extent) {
  return extent.line.base + extent.line.slope * Dim::symbol(plan.symbols[extent.symbol].name);
}

void check_inputs(const Plan& plan, std::span<const Array> inputs) {
  std::vector<int64_t> extents(plan.symbols.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (solve_extents(plan, inputs.first(i + 1), extents)) continue;
    const PlanTensor& expected = plan.inputs[i];
    TensorType type = expected.type();
    SymbolBindings known;
    for (const LiveAxis& axis : expected.live) {
      const PlanSymbol& symbol = plan.symbols[axis.extent.symbol];
      type.shape[axis.axis] = size_of(plan, axis.extent);
      known[symbol.name + " up to"] = symbol.bound;
    }
    wrong_input(plan.name, expected.name, type, inputs[i], known);
  }
}

SessionCore::SessionCore(const Device& session_device, const SessionOptions& options)
    : device(session_device),
      executor(options.executor ? *options.executor : ThreadPool::shared()),
      threads(options.threads > 0 ? options.threads : default_width()),
      budget(std::make_shared<MemoryBudget>(options.memory_limit)),
      weights(budget),
      plans(options.plan_cache_entries, options.plan_cache_bytes) {
  if (options.threads < 0) {
    user_error("a session has {} threads; it must not be negative", options.threads);
  }
}

Program::Program(std::shared_ptr<SessionCore> core, const Graph& graph, CompileOptions options)
    : core_(std::move(core)),
      graph_(graph),
      options_(std::move(options)),
      id_(core_->next_program.fetch_add(1)),
      symbols_(specialized_symbols(graph, options_.bounds)) {
  verify(graph_, "the builder");
  check_set_sizes(graph_, options_.bounds);
  options_.threads = core_->threads;
  if (!options_.legalize.custom) {
    const std::lock_guard lock(core_->custom_mutex);
    options_.legalize.custom = core_->custom;
  }
  for (Value v : graph_.inputs()) input_names_.push_back(graph_.name_of(v));
  for (const Output& o : graph_.outputs()) output_names_.push_back(o.name);
  if (!options_.fold.evaluate) {
    options_.fold.evaluate = [&device = core_->device](const OpDef& op, const Attrs& attrs,
                                                       const std::vector<Array>& operands) {
      return eval(device, op, attrs, operands);
    };
  }
  if (!options_.frozen_param) {
    options_.frozen_param = [weights = &core_->weights](std::string_view name) {
      return weights->peek(name);
    };
  }
  if (symbols_.empty()) {
    static_plan_ = std::make_shared<CachedPlan>();
    static_plan_->plan = compile(graph_);
  }
}

Program::~Program() {
  if (!symbols_.empty()) core_->plans.drop_program(id_);
}

std::shared_ptr<CachedPlan> Program::plan_for(std::span<const Array> inputs) {
  if (static_plan_) return static_plan_;
  SymbolBindings bindings = bind_symbols(graph_, inputs);
  std::erase_if(bindings, [&](const auto& b) { return options_.bounds.contains(b.first); });
  PlanCache::Key key{id_, {}};
  for (const std::string& s : symbols_) key.second.push_back(bindings.at(s));
  const std::lock_guard lock(compiling_);
  if (auto cached = core_->plans.find(key)) {
    hits_.fetch_add(1, std::memory_order_relaxed);
    return cached;
  }
  return core_->plans.insert(std::move(key), convert_memory_errors(name(), [&] {
                               return compile(substitute_symbols(graph_, bindings));
                             }));
}

std::shared_ptr<const Plan> Program::compile(const Graph& graph) {
  auto plan = compile_plan(graph, core_->device.kernels(), options_);
  compiles_.fetch_add(1, std::memory_order_relaxed);
  return plan;
}

}  // namespace rlx
