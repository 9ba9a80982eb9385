#include "rlx/base/error.h"
#include "rlx/compile/bodies.h"
#include "rlx/compile/bounds.h"
#include "rlx/compile/control.h"
#include "rlx/compile/custom_kernel.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/table.h"

namespace rlx {

RLX_USE_OP(Custom);
RLX_USE_OP(FillTail);

namespace {

// Decompositions point upward in ops.def, so this depth is never reached by a correct table.
constexpr int kMaxDepth = 64;

class Legalizer {
 public:
  Legalizer(const KernelTable& kernels, const LegalizeOptions& options,
            std::vector<LegalizeNote>* notes)
      : kernels_(kernels), options_(options), notes_(notes) {}

  Graph visit_all(const Graph& graph) {
    return rewrite(graph, [&](Builder& b, const Node& n, std::span<const Value> operands) {
      return visit(b, n, operands, 0);
    });
  }

 private:
  std::optional<std::vector<Value>> visit(Builder& b, const Node& n,
                                          std::span<const Value> operands, int depth) {
    const RowClass cls = row_of(*n.op).cls;
    if (n.op->has(kControl)) {
      return copy_with_bodies(b, n, operands, [&](const Graph& body) { return visit_all(body); });
    }
    const bool custom = n.op == &kCustomOp;
    if (cls == RowClass::kStructural && !custom) return std::nullopt;
    std::vector<TensorType> types;
    for (Value v : operands) types.push_back(b.type(v));
    std::string reasons;
    if (custom) {
      if (has_entry(n, types, reasons)) return std::nullopt;
      refuse_custom(n, types, reasons);
    }
    if (cls != RowClass::kAlias) {
      // A FillTail reaches as far as its readers do in each run; calls in its place would not.
      const bool fill = n.op == &kFillTailOp && !options_.bounds.empty();
      const bool decompose = options_.force_decompose && n.op->decompose && !fill;
      if (!decompose && has_entry(n, types, reasons)) return std::nullopt;
      if (fill) refuse(n, types, reasons);
      if (decompose) reasons = "decomposition is forced";
    }
    if (!n.op->decompose || depth >= kMaxDepth) refuse(n, types, reasons);
    if (notes_ && cls != RowClass::kAlias) {
      notes_->push_back({std::string(n.op->name), "decomposed: " + reasons});
    }
    Graph body = expand_to_graph(*n.op, n.attrs, types);
    // A call that needs no fills may consist of calls that do.
    if (!options_.bounds.empty()) body = mask_bounded(body, options_.bounds);
    return inline_graph(b, body, operands,
                        [&](Builder& inner, const Node& m, std::span<const Value> values) {
                          return visit(inner, m, values, depth + 1);
                        });
  }

  bool has_entry(const Node& n, std::span<const TensorType> types, std::string& reasons) const {
    return select_entry(kernels_, *n.op, n.attrs, types, n.results, options_, &reasons) != nullptr;
  }

  static std::string list_of(std::span<const TensorType> types) {
    std::string list;
    for (const TensorType& t : types) list += (list.empty() ? "" : ", ") + t.to_string();
    return list;
  }

  [[noreturn]] static void refuse_custom(const Node& n, std::span<const TensorType> types,
                                         const std::string& reason) {
    fail(ErrorKind::kUnsupported, "Custom '{}'({}){}{}: {}", n.attrs.as<CustomAttrs>().name,
         list_of(types), n.label.empty() ? "" : " at ", n.label, reason);
  }

  [[noreturn]] void refuse(const Node& n, std::span<const TensorType> types,
                           const std::string& reasons) const {
    fail(ErrorKind::kUnsupported,
         "{}({}){}{}: no kernel of the device '{}' runs this call and the op has no "
         "decomposition; {}",
         n.op->name, list_of(types), n.label.empty() ? "" : " at ", n.label, kernels_.name(),
         reasons);
  }

  const KernelTable& kernels_;
  const LegalizeOptions& options_;
  std::vector<LegalizeNote>* notes_;
};

// Of a call with static shapes.
const KernelEntry* first_entry(const KernelTable& kernels, const OpDef& op, const Attrs& attrs,
                               std::span<const TensorType> operands,
                               std::span<const TensorType> results, const LegalizeOptions& options,
                               std::string* reasons) {
  const auto note = [&](std::string_view entry, std::string_view why) {
    if (reasons) *reasons += fmt::format("{}{}: {}", reasons->empty() ? "" : "; ", entry, why);
  };
  if (op.has(kControl)) return &kControlEntry;
  if (&op == &kCustomOp) {
    static const CustomKernels none;
    const CustomKernels& custom = options.custom ? *options.custom : none;
    return custom.select(kernels.name(), attrs, operands, results, reasons);
  }
  const KernelList* list = kernels.find(op);
  if (!list || list->entries.empty()) {
    note(kernels.name(), "has no kernel for this op");
    return nullptr;
  }
  std::vector<TensorDesc> in, out;
  for (const TensorType& t : operands) in.push_back(TensorDesc::dense(t));
  for (const TensorType& t : results) out.push_back(TensorDesc::dense(t));
  bool forced_here = false;
  for (const KernelEntry& e : list->entries) forced_here |= e.name == options.force_entry;
  for (const KernelEntry& e : list->entries) {
    if (forced_here && e.name != options.force_entry) continue;
    const std::string_view why = e.fits ? e.fits({op, attrs, in, out, {}, {}}) : std::string_view();
    if (why.empty()) return &e;
    note(e.name, why);
  }
  return nullptr;
}

}  // namespace

// Sizes that have a bound only are judged at the bound.
const KernelEntry* select_entry(const KernelTable& kernels, const OpDef& op, const Attrs& attrs,
                                std::span<const TensorType> operands,
                                std::span<const TensorType> results, const LegalizeOptions& options,
                                std::string* reasons) {
  const SymbolBindings& bounds = options.bounds;
  if (bounds.empty()) return first_entry(kernels, op, attrs, operands, results, options, reasons);
  std::vector<TensorType> in, out;
  for (const TensorType& t : operands) in.push_back(substitute_symbols(t, bounds));
  for (const TensorType& t : results) out.push_back(substitute_symbols(t, bounds));
  return first_entry(kernels, op, substitute_symbols(attrs, bounds), in, out, options, reasons);
}

Graph legalize(const Graph& graph, const KernelTable& kernels, const LegalizeOptions& options,
               std::vector<LegalizeNote>* notes) {
  return Legalizer(kernels, options, notes).visit_all(graph);
}

}  // namespace rlx
