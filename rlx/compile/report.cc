#include "rlx/compile/report.h"

#include <fmt/format.h>

namespace rlx {

double Report::flops() const {
  double sum = 0;
  for (const Row& r : rows) sum += r.flops;
  return sum;
}

double Report::bytes() const {
  double sum = 0;
  for (const Row& r : rows) sum += r.bytes;
  return sum;
}

std::string Report::to_string() const {
  std::string out = fmt::format("{:24} {:28} {:>12} {:>12} {:>12}  {}\n", "op", "kernel", "flops",
                                "bytes", "estimate ns", "notes");
  for (const Row& r : rows) {
    std::string text;
    if (r.inserted) text += "inserted ";
    if (!r.vector && r.entry != "control") text += "generic ";
    if (r.serial) text += "serial ";
    text += r.label;
    const std::string op = std::string(2 * size_t(r.depth), ' ') + r.op;
    out += fmt::format("{:24} {:28} {:12.4g} {:12.4g} {:12.4g}  {}\n", op, r.entry, r.flops,
                       r.bytes, r.nanoseconds, text);
  }
  for (const LegalizeNote& n : notes) out += fmt::format("{}: {}\n", n.op, n.text);
  out += fmt::format(
      "{} steps, {} barriers, {} copies inserted, {} concat slots, {} in place, {} updates without "
      "a copy; {:.4g} flops, {:.4g} bytes\n",
      rows.size(), barriers, counts.copies, counts.concat_slots, counts.in_place,
      counts.direct_updates, flops(), bytes());
  out += fmt::format("{}; {} bytes alive at most\n", memory.to_string(), counts.live_bytes);
  if (staged_inputs + staged_outputs > 0) {
    out += fmt::format("staged: {} inputs, {} outputs\n", staged_inputs, staged_outputs);
  }
  return out;
}

namespace {

void add_rows(Report& report, const Plan& plan, const std::vector<Segment>& segments, int depth) {
  for (const Segment& segment : segments) {
    report.barriers += segment.barrier_before;
    for (uint32_t s = segment.begin; s < segment.end; ++s) {
      const PlanStep& step = plan.steps[s];
      Report::Row row{std::string(step.op->name),
                      step.label,
                      std::string(step.entry->name),
                      step.flops,
                      step.bytes,
                      step.kernel.nanoseconds,
                      step.entry->vector,
                      segment.serial,
                      step.inserted,
                      depth};
      // A control step's own work is that of its bodies.
      if (step.control) row.flops = row.bytes = 0;
      report.rows.push_back(std::move(row));
      if (!step.control) continue;
      for (uint32_t body : step.control->bodies) {
        add_rows(report, plan, plan.bodies[body].segments, depth + 1);
      }
    }
    const PlanStep& first = plan.steps[segment.begin];
    if (!segment.serial && !first.control) {
      report.barriers += int64_t(first.kernel.phases.size()) - 1;
    }
  }
}

}  // namespace

Report report_of(const Plan& plan, int threads) {
  Report report;
  add_rows(report, plan, plan.segments, 0);
  report.notes = plan.notes;
  report.counts = plan.counts;
  report.memory = plan.estimate(threads);
  return report;
}

}  // namespace rlx
