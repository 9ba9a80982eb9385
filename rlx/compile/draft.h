// The plan in the making: what layout, binding, schedule and memory planning hand to each other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rlx/compile/pipeline.h"
#include "rlx/compile/view.h"

namespace rlx {

// A piece of memory that holds one value (a Concat's holds its parts).
struct DraftBuffer {
  StorageKind kind = StorageKind::kArena;
  uint32_t index = 0;
  DType dtype = DType::kF32;
  int64_t elements = 0;
  int64_t bytes = 0;
  // In the arena: the buffer whose memory this one uses (itself, or what it took over in place).
  uint32_t owner = 0;
};

struct DraftView {
  static constexpr uint32_t kNone = ~uint32_t(0);
  uint32_t buffer = kNone;
  int64_t offset = 0;  // elements
  TensorDesc desc;
  bool used() const { return buffer != kNone; }
};

struct ControlDraft;

// A call with bounded sizes, as the graph has it; its desc's sizes are the bounds.
struct LiveCall {
  Attrs attrs;
  std::vector<Shape> operands, results;
};

struct DraftVariant {
  std::vector<int64_t> up_to;
  const KernelEntry* entry = nullptr;
  PreparedKernel kernel;
  std::vector<DraftView> operands, results;
};

struct DraftStep {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::string label;
  const KernelEntry* entry = nullptr;
  PreparedKernel kernel;
  std::shared_ptr<ControlDraft> control;  // of a control step, once it is prepared
  std::vector<DraftView> operands, results;
  std::shared_ptr<const LiveCall> live;  // null: all sizes are known
  uint32_t sets = PlanView::kNone;       // as PlanStep::sets
  std::vector<uint32_t> symbols;         // of the variants
  std::vector<DraftVariant> variants;
  bool inserted = false;
};

struct Draft {
  // Everything but steps, segments, storages and arena is final after the layout pass.
  Plan plan;
  std::vector<DraftBuffer> buffers;
  std::vector<DraftStep> steps;
  std::vector<DraftView> outputs;  // of the graph, by index
  struct Update {
    uint32_t param = 0;
    DraftView view;
  };
  std::vector<Update> updates;
  // Reads of the old value of a param must precede the step that overwrites it: (before, after).
  std::vector<std::pair<uint32_t, uint32_t>> order;

  uint32_t add_buffer(StorageKind kind, uint32_t index, DType dtype, int64_t elements);
  // The buffer that holds this size, a line in a bounded symbol.
  uint32_t add_extent(const Dim& size);
  // The view of a whole buffer with these sizes.
  DraftView whole(uint32_t buffer, const Dims& dims) const;
};

// The symbols of Plan::symbols that an earlier step sets and this one depends on.
std::vector<uint32_t> set_symbols_of(const Draft& draft, const DraftStep& step);

// Who touches each buffer, by step index in the order of `steps`.
struct BufferUses {
  std::vector<std::vector<uint32_t>> writers, readers;  // a step appears once per operand
};
BufferUses uses_of(const Draft& draft);

// True if the view covers its whole buffer in row-major order.
bool is_whole(const Draft& draft, const DraftView& view);

// Whether the step may write this result into the memory of this operand (same type and layout):
// kernels that say so, and the carries of loops.
bool may_overwrite(const DraftStep& step, size_t operand, size_t result);

// A Copy step: the entry of the device's Copy list that fits. `live` is the shape of both as the
// graph has it: with bounded sizes, the copy follows the extents.
DraftStep make_copy(const KernelTable& kernels, const DraftView& from, const DraftView& to,
                    std::string label, const Shape& live = {});
// Whether the device's Copy takes and writes these strides.
bool can_copy(const KernelTable& kernels, const TensorDesc& from, const TensorDesc& to);
// Estimated nanoseconds of a Copy of this view into dense memory.
double copy_nanoseconds(const KernelTable& kernels, const TensorDesc& from);

}  // namespace rlx
