// What a plan does, for people: one row per step, and totals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rlx/compile/plan.h"

namespace rlx {

struct Report {
  struct Row {
    std::string op, label, entry;
    double flops = 0;
    double bytes = 0;        // read and written
    double nanoseconds = 0;  // the kernel's own estimate, on one thread
    bool vector = false;     // hand-vectorized kernel
    bool serial = false;     // not shared between threads
    bool inserted = false;   // a copy that the graph does not contain
    int depth = 0;           // of bodies around it; flops, bytes and time are those of one trip
  };
  std::vector<Row> rows;
  std::vector<LegalizeNote> notes;  // decomposed calls
  PlanCounts counts;
  int64_t barriers = 0;
  MemoryEstimate memory;
  // Of an executable so far: calls whose arrays were not dense (or overlapped) and were copied.
  int64_t staged_inputs = 0;
  int64_t staged_outputs = 0;

  double flops() const;
  double bytes() const;
  std::string to_string() const;
};

Report report_of(const Plan& plan, int threads = 1);

}  // namespace rlx
