// The plan: what a run executes. Steps with bound kernels, views into storages, one arena layout.
// Immutable and shared: clones and threads read it, nothing in it changes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/compile/bounds.h"
#include "rlx/compile/kernel.h"
#include "rlx/compile/passes.h"
#include "rlx/compile/size_checks.h"
#include "rlx/ir/graph.h"

namespace rlx {

// Where memory comes from. A clone owns the arena; the rest is bound from outside.
enum class StorageKind : uint8_t {
  kArena,     // intermediate values and scratch; the only one, storage 0
  kInput,     // bound per run
  kOutput,    // bound per run
  kParam,     // the session's weight store
  kConstant,  // the plan's own
  kPacked,    // a packed form of a param, in the weight store
  kSlice,     // one slice of a loop's operand or result: bound by its control step
  kExtent,    // one number, Plan::extents: the runner's own
};

struct Storage {
  StorageKind kind = StorageKind::kArena;
  uint32_t index = 0;  // into Plan::inputs, outputs, params, constants, packed, extents; else 0
  int64_t bytes = 0;
};

struct PlanView {
  static constexpr uint32_t kNone = ~uint32_t(0);
  uint32_t storage = kNone;  // kNone: a result that nobody reads
  int64_t offset = 0;        // bytes from the storage's start to the first element
  TensorDesc desc;
  bool used() const { return storage != kNone; }
};

// A bounded size: every run has its own extent, from 0 to the bound.
struct PlanSymbol {
  std::string name;
  int64_t bound = 0;
  bool set_by_step = false;  // PlanStep::sets; else by the inputs' shapes
};

// A size of a run: that of a line in the extent of Plan::symbols[symbol].
struct PlanExtent {
  uint32_t symbol = 0;
  LinearDim line;
  bool operator==(const PlanExtent&) const = default;
};
// Throws Error(kUnsupported) unless the size is a line in one of the symbols.
PlanExtent extent_of(std::span<const PlanSymbol> symbols, const Dim& size);
std::optional<PlanExtent> find_extent(std::span<const PlanSymbol> symbols, const Dim& size);

// An axis of bounded size.
struct LiveAxis {
  uint32_t axis = 0;
  PlanExtent extent;
};

// The same call at smaller sizes: taken where no extent is larger than `up_to`.
struct PlanVariant {
  std::vector<int64_t> up_to;  // by PlanStep::symbols
  const KernelEntry* entry = nullptr;
  PreparedKernel kernel;
  std::vector<PlanView> operands, results;
};

// What a control step does around its bodies. Carries live in the memory of the step's results.
struct PlanControl {
  enum class Kind : uint8_t { kIf, kWhile, kScan };
  // A storage of the body that lies at first + index * bytes of an operand (or result).
  struct Slice {
    uint32_t storage = 0;
    uint32_t position = 0;
    bool of_result = false;
    int64_t bytes = 0;
  };
  Kind kind = Kind::kIf;
  // Into Plan::bodies. kIf: taken on true, on false; kWhile: condition, body; kScan: body.
  std::vector<uint32_t> bodies;
  uint32_t carries = 0;   // operand i is copied to result i first, unless they share memory
  int64_t max_trips = 0;  // kWhile: the bound; kScan: the length, or its bound
  uint32_t length = PlanView::kNone;  // kScan: into Plan::extents, where the length is bounded
  bool reverse = false;               // kScan: the index runs downwards
  PlanView predicate;                 // kIf, kWhile: a bool
  PlanView index;                     // kScan: an i64 that the step writes before each trip
  std::vector<Slice> slices;
};

struct PlanStep {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::string label;
  const KernelEntry* entry = nullptr;
  PreparedKernel kernel;  // of a control step: no phases, an estimate of its time
  std::shared_ptr<const PlanControl> control;  // null: a kernel
  std::vector<PlanView> operands, results;
  int64_t scratch_offset = 0;         // in the arena, if the kernel wants scratch
  uint32_t sets = PlanView::kNone;    // into Plan::symbols: gets the value of operand 0, an i64
  std::vector<uint32_t> symbols;      // into Plan::symbols: what the variants depend on
  std::vector<PlanVariant> variants;  // from small to large; the step itself is at the bounds
  // Bounded axes of the operands, then of the results; empty if all sizes are known. Nothing of a
  // tensor with a size that is no line in one symbol.
  std::vector<std::optional<std::vector<LiveAxis>>> live;
  double flops = 0, bytes = 0;
  bool inserted = false;  // a Copy that the graph does not contain
};

// Steps [begin, end). A control step whose bodies hold shared segments stands alone in a segment
// that is not serial. A serial segment is run by whichever thread comes first, without barriers
// inside; any other segment is one step whose chunks all threads share.
struct Segment {
  uint32_t begin = 0, end = 0;
  bool serial = false;
  bool barrier_before = false;
};

// The steps that a control step runs, maybe many times.
struct PlanBody {
  std::vector<Segment> segments;
};

struct PlanTensor {
  std::string name;
  DType dtype = DType::kF32;
  Dims dims;                        // at the bounds
  std::vector<LiveAxis> live = {};  // axes that a run may make smaller
  TensorType type() const { return {dtype, Shape(std::span<const int64_t>(dims))}; }
};

struct PlanParam : PlanTensor {
  bool is_mutable = false;
  bool updated = false;   // the run writes it
  bool packable = false;  // it changes so rarely that packed forms of it pay
};

struct PackedParam {
  uint32_t param = 0;
  std::string key;
  int64_t bytes = 0;
  int64_t source_offset = 0;  // bytes
  std::function<void(const void* source, void* packed)> pack;
};

struct MemoryEstimate {
  int64_t arena = 0;           // intermediate values and shared scratch, per clone
  int64_t thread_scratch = 0;  // for all threads, per clone
  int64_t weights = 0;         // params, in the weight store
  int64_t packed_weights = 0;  // packed params and packed constants
  int64_t constants = 0;
  int64_t total() const;
  std::string to_string() const;
};

// What the planner did, in numbers.
struct PlanCounts {
  int64_t copies = 0;          // inserted Copy steps
  int64_t concat_slots = 0;    // producers that write straight into their place of a Concat
  int64_t in_place = 0;        // results that took over an operand's memory
  int64_t direct_updates = 0;  // updates written by their producer, without a copy
  int64_t live_bytes = 0;      // largest sum of values alive at one step: the arena's lower bound
};

struct Plan {
  std::string name;
  std::vector<PlanTensor> inputs, outputs;
  std::vector<PlanParam> params;
  std::vector<Array> constants;
  std::vector<PackedParam> packed;
  std::vector<Storage> storages;
  std::vector<PlanSymbol> symbols;  // all bounded sizes, by name
  std::vector<PlanExtent> extents;  // those that steps read
  std::vector<SizeCheck> size_checks;
  std::vector<PlanStep> steps;  // the plan's own first, then those of bodies
  std::vector<Segment> segments;
  std::vector<PlanBody> bodies;
  // From this segment on the run writes params: it is no longer cancelled. segments.size() if none.
  uint32_t commit_segment = 0;
  int64_t arena_bytes = 0;
  int64_t thread_scratch_bytes = 0;    // per thread
  int64_t packed_constant_bytes = 0;   // the part of the constants that are packed forms
  std::vector<int64_t> guards;         // arena offsets of 64-byte canaries (debugging option)
  std::vector<LegalizeNote> notes;     // decomposed calls, with the reasons
  std::vector<std::string> decisions;  // of the layout pass, one line each
  PlanCounts counts;

  MemoryEstimate estimate(int threads = 1) const;
  // Bytes that the plan itself keeps alive, for bounded caches.
  int64_t byte_size() const;
};

struct PlanPrintOptions {
  bool costs = false;  // estimated nanoseconds, which depend on the kernels' models
};
// One line a step: entry, result, operands with offsets and strides; barriers and serial segments
// between them.
std::string to_string(const Plan& plan, const PlanPrintOptions& options = {});

}  // namespace rlx
