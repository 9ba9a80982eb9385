// Graph passes, one file each. Every pass takes a graph and returns a new one with the same inputs,
// params, outputs and updates, and does the same in the bodies of control flow.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rlx/compile/kernel.h"
#include "rlx/ir/graph.h"

namespace rlx {

class CustomKernels;

// Replaces bound symbols in all types and attributes, and infers the types again.
Graph substitute_symbols(const Graph& graph, const SymbolBindings& bindings);
Attrs substitute_symbols(const Attrs& attrs, const SymbolBindings& bindings);
TensorType substitute_symbols(const TensorType& type, const SymbolBindings& bindings);

// Normal forms: aliases expanded, identities removed (x + 0, x * 1, double transposes, reshapes of
// reshapes, casts to the same type, StopGradient), algebra that is exact in every dtype only.
Graph canonicalize(const Graph& graph);

// Evaluates calls whose operands are all Constants. `evaluate` runs one call on the target device,
// so folding never changes a result. Random ops, and results above max_bytes, stay.
struct FoldOptions {
  std::function<std::vector<Array>(const OpDef&, const Attrs&, const std::vector<Array>&)> evaluate;
  int64_t max_bytes = 1 << 20;         // of one call's results
  int64_t max_total_bytes = 64 << 20;  // of all
};
Graph fold_constants(const Graph& graph, const FoldOptions& options);

// Merges equal calls (same op, attributes and operands; draws with equal seed and key too).
Graph merge_common(const Graph& graph);

// Control flow with less to do: Scans with equal steps over the same operands run once; unused
// outputs, carries and inputs are dropped; carries that never change are captured; equal inputs and
// outputs merged; small constants put into the bodies; an If on a constant and a Scan of length 0
// or 1 replaced by what they do.
Graph simplify_control(const Graph& graph);

// Drops nodes that no output or update needs. Inputs and params stay: they are the signature.
Graph drop_dead(const Graph& graph);

// Per call: the first entry that fits, else the decomposition, else an error that lists each
// entry's reason.
struct LegalizeOptions {
  bool force_decompose = false;  // decompose whatever can be
  std::string force_entry;       // only this entry may run its op: for tests
  // Sizes at which a call with symbols is judged.
  SymbolBindings bounds;
  // Of the op Custom, which no device knows. A Session fills it in.
  std::shared_ptr<const CustomKernels> custom;
};
struct LegalizeNote {
  std::string op;
  std::string text;  // "decomposed: softmax:row: axis is not the last"
};
Graph legalize(const Graph& graph, const KernelTable& kernels, const LegalizeOptions& options,
               std::vector<LegalizeNote>* notes = nullptr);
// The entry that runs the call with dense operands, or null; reasons (if given) gets the refusals.
const KernelEntry* select_entry(const KernelTable& kernels, const OpDef& op, const Attrs& attrs,
                                std::span<const TensorType> operands,
                                std::span<const TensorType> results, const LegalizeOptions& options,
                                std::string* reasons = nullptr);

}  // namespace rlx
