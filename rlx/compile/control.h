// Control steps: each body is planned on its own, with an arena inside the step's scratch, and then
// linked into the plan around it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rlx/compile/draft.h"

namespace rlx {

// Where a leaf or an output of a body lies, in terms of the control step.
struct BodyPlace {
  enum class Kind : uint8_t { kOperand, kResult, kOperandSlice, kResultSlice, kWord };
  Kind kind = Kind::kOperand;
  uint32_t position = 0;  // of the operand or result; kWord is the step's own word of memory
};

struct BodyDraft {
  Plan plan;
  std::vector<BodyPlace> inputs, outputs, params;
  int64_t arena_offset = 0;  // in the step's scratch
};

struct ControlDraft {
  PlanControl control;
  std::optional<PlanExtent> length;  // of a Scan, where it is bounded
  std::vector<BodyDraft> bodies;
};

// Plans the bodies of an If, While or Scan step. Fills in DraftStep::control and the kernel's
// scratch and estimate of time. Frozen captures stay frozen inside, so that kernels may pack them.
void prepare_control(DraftStep& step, const Draft& draft, const KernelTable& kernels,
                     const CompileOptions& options);

// Appends the steps, bodies, storages, constants and packings of a control step's bodies to the
// plan, which holds the step itself already.
void link_bodies(Plan& plan, size_t step, ControlDraft& control);

// Layout to segments, of a graph in which every call has a kernel. Defined in pipeline.cc.
Plan plan_legal_graph(const Graph& graph, const KernelTable& kernels,
                      const CompileOptions& options);

// The entry of control steps, which no backend implements: dense operands and results.
extern const KernelEntry kControlEntry;

}  // namespace rlx
