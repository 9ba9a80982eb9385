// From the stages that lowering plans to those that run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rlx/backend/cpu/region/stages.h"

namespace rlx::cpu::region {

// a and b are numbers of slots, c of a call.
struct PlannedStage {
  StepKey key;
  uint16_t a = 0, b = 0, c = 0;
};

// The stages of one instruction set and width, as in StageTable.
struct StageFinder {
  void (*(*stage)(StageOp op, Form a, Form b, Ends ends))() = nullptr;
  void (*(*loop)(const StepKey* steps, size_t count))() = nullptr;
};

// The plan ends with kNext. Loads, and the last store, become part of the stages next to them where
// those can do it; where there is a loop for the whole program, that runs.
std::vector<Stage> link(std::span<const PlannedStage> plan, const StageFinder& find);

}  // namespace rlx::cpu::region
