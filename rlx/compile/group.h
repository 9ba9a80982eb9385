// Fusion: elementwise calls of one shape become ElementwiseRegions, and calls with elementwise
// neighbours Groups. After legalization; unfusing is inlining.
#pragma once

#include <vector>

#include "rlx/compile/passes.h"

namespace rlx {

struct GroupOptions {
  // 16-bit values are rounded after every call, as without fusion; else they stay in f32 within a
  // region or group.
  bool strict_rounding = false;
  // Also where it was measured not to pay: for tests.
  bool always = false;
};

// The graph with regions and groups that the device's kernels take. Nothing is computed twice, and
// no weight changes its storage. `notes` gets a line for each one formed, with the bytes that it
// saves, and for each one that nearly was, with the reason.
Graph form_groups(const Graph& graph, const KernelTable& kernels, const GroupOptions& options,
                  const LegalizeOptions& legalize, std::vector<LegalizeNote>* notes = nullptr);

}  // namespace rlx
