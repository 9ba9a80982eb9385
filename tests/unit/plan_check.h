// Planning: whole graphs planned and run, in all the ways that must not change a bit.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rlx/compile/pipeline.h"
#include "rlx/compile/plan.h"
#include "rlx/compile/view.h"
#include "rlx/runtime/session.h"
#include "tests/unit/fake_device.h"
#include "tests/unit/test_util.h"

namespace rlx::plan_check {

inline std::shared_ptr<const Plan> plan_of(const Graph& g, const CompileOptions& options = {}) {
  return compile_plan(g, fake::device().kernels(), options);
}

struct Outcome {
  std::vector<Array> outputs;
  std::map<std::string, Array> weights;  // afterwards
};

inline Outcome run_once(const Graph& g, const std::vector<Array>& inputs,
                        const std::map<std::string, Array>& weights, int threads,
                        CompileOptions options) {
  Session session(fake::device(), rlx::threads(threads));
  session.weights().set(weights);
  Executable e = session.compile(g, std::move(options));
  Outcome out;
  out.outputs = e.run(inputs);
  for (const std::string& name : session.weights().names()) {
    out.weights.emplace(name, session.weights().get(name));
  }
  return out;
}

// Runs under every layout policy, on 1, 2 and 5 threads, with and without guard zones, and expects
// the same bits from all.
inline Outcome run_all_ways(const Graph& g, const std::vector<Array>& inputs,
                            const std::map<std::string, Array>& weights = {}) {
  Outcome first = run_once(g, inputs, weights, 1, {});
  const auto expect_same = [&](int threads, bool guards, LayoutPolicy layout) {
    CompileOptions options;
    options.guard_zones = guards;
    options.layout = layout;
    const Outcome next = run_once(g, inputs, weights, threads, options);
    for (size_t i = 0; i < first.outputs.size(); ++i) {
      EXPECT_TRUE(next.outputs[i].same_bits(first.outputs[i]))
          << threads << " threads, layout " << int(layout) << ", output " << i;
    }
    for (const auto& [name, array] : first.weights) {
      EXPECT_TRUE(next.weights.at(name).same_bits(array)) << threads << " threads, " << name;
    }
  };
  for (const bool guards : {false, true}) {
    expect_same(1, guards, LayoutPolicy::kNeverCopy);
    expect_same(1, guards, LayoutPolicy::kAlwaysCopy);
    for (const int threads : {2, 5}) expect_same(threads, guards, LayoutPolicy::kByCost);
  }
  return first;
}

// Steps that touch the same bytes, one of them writing, are in one serial segment or have a barrier
// between them. Checked pair by pair.
inline void expect_ordered(const Plan& plan) {
  struct Range {
    uint32_t storage;
    int64_t begin, end;
    bool write;
  };
  std::vector<std::vector<Range>> ranges(plan.steps.size());
  std::vector<int> epoch(plan.steps.size()), segment(plan.steps.size());
  int barriers = 0;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    barriers += plan.segments[i].barrier_before;
    for (uint32_t s = plan.segments[i].begin; s < plan.segments[i].end; ++s) {
      epoch[s] = barriers;
      segment[s] = int(i);
    }
    const uint32_t s = plan.segments[i].begin;
    if (!plan.segments[i].serial) barriers += int(plan.steps[s].kernel.phases.size()) - 1;
  }
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    const auto add = [&](const PlanView& v, bool write) {
      if (v.used()) {
        ranges[s].push_back(
            {v.storage, v.offset, v.offset + extent(v.desc) * size_of(v.desc.dtype), write});
      }
    };
    for (const PlanView& v : step.operands) add(v, false);
    for (const PlanView& v : step.results) add(v, true);
    if (step.kernel.scratch_bytes) {
      ranges[s].push_back(
          {0, step.scratch_offset, step.scratch_offset + step.kernel.scratch_bytes, true});
    }
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (size_t j = i + 1; j < plan.steps.size(); ++j) {
      if (epoch[i] != epoch[j] || segment[i] == segment[j]) continue;
      for (const Range& a : ranges[i]) {
        for (const Range& b : ranges[j]) {
          EXPECT_FALSE(a.storage == b.storage && (a.write || b.write) && a.begin < b.end &&
                       b.begin < a.end)
              << "steps " << i << " and " << j << " without a barrier\n"
              << to_string(plan);
        }
      }
    }
  }
}

}  // namespace rlx::plan_check
