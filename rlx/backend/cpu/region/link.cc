#include "rlx/backend/cpu/region/link.h"

#include "rlx/base/error.h"

namespace rlx::cpu::region {
namespace {

uint32_t offset_of(uint16_t slot) { return uint32_t(slot * sizeof(Slot)); }

bool is_load(const PlannedStage& s) {
  return s.key.op == StageOp::kLoad && s.key.a == Form::kMemory;
}

Stage stage_of(const PlannedStage& p) {
  Stage s;
  s.a = offset_of(p.a);
  s.b = offset_of(p.b);
  const bool calls = p.key.op == StageOp::kCall || p.key.op == StageOp::kCallTo;
  if (calls) s.c = p.c;
  return s;
}

// Load, steps, store, next. Empty if there is no loop for it.
std::vector<Stage> as_loop(std::span<const PlannedStage> plan, const StageFinder& find) {
  const size_t n = plan.size();
  if (n < 4 || !is_load(plan[0]) || plan[n - 2].key.op != StageOp::kStore) return {};
  std::vector<StepKey> keys;
  std::vector<Stage> stages;
  for (const PlannedStage& p : plan.subspan(1, n - 3)) {
    keys.push_back(p.key);
    stages.push_back(stage_of(p));
  }
  stages[0].run = find.loop(keys.data(), keys.size());
  if (!stages[0].run) return {};
  stages[0].c = offset_of(plan[0].a);
  stages[0].d = offset_of(plan[n - 2].a);
  return stages;
}

}  // namespace

std::vector<Stage> link(std::span<const PlannedStage> plan, const StageFinder& find) {
  if (std::vector<Stage> loop = as_loop(plan, find); !loop.empty()) return loop;
  const auto with = [&](size_t i, Ends ends) {
    const StepKey& k = plan[i].key;
    return find.stage(k.op, k.a, k.b, ends);
  };
  std::vector<Stage> stages;
  const size_t n = plan.size();
  for (size_t i = 0; i < n; ++i) {
    if (is_load(plan[i]) && i + 1 < n && with(i + 1, Ends::kLoad)) {
      Stage s = stage_of(plan[i + 1]);
      s.run = with(i + 1, Ends::kLoad);
      s.c = offset_of(plan[i].a);
      stages.push_back(s);
      ++i;
      continue;
    }
    Stage s = stage_of(plan[i]);
    const bool store_follows = i + 3 == n && plan[i + 1].key.op == StageOp::kStore;
    if (store_follows && with(i, Ends::kStore)) {
      s.run = with(i, Ends::kStore);
      s.d = offset_of(plan[i + 1].a);
      i = n;
    } else if (i + 2 == n && plan[i].key.op == StageOp::kStore) {
      s.run = find.stage(StageOp::kStoreNext, Form::kMemory, Form::kMemory, Ends::kNone);
      i = n;
    } else {
      s.run = with(i, Ends::kNone);
      if (!s.run) internal_error("the stage machine has no stage {}", int(plan[i].key.op));
    }
    stages.push_back(s);
  }
  return stages;
}

}  // namespace rlx::cpu::region
