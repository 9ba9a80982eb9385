#include "rlx/compile/plan.h"

#include "rlx/base/checked.h"
#include "rlx/compile/view.h"

namespace rlx {
namespace {

std::string_view to_string(StorageKind kind) {
  constexpr std::string_view kNames[] = {"arena", "input", "output", "param", "constant", "packed"};
  return kNames[size_t(kind)];
}

std::string place_text(const Plan& plan, const PlanView& v) {
  if (!v.used()) return "unused";
  const Storage& s = plan.storages[v.storage];
  std::string text;
  switch (s.kind) {
    case StorageKind::kArena:
      text = "arena";
      break;
    case StorageKind::kInput:
      text = plan.inputs[s.index].name;
      break;
    case StorageKind::kOutput:
      text = plan.outputs[s.index].name;
      break;
    case StorageKind::kParam:
      text = plan.params[s.index].name;
      break;
    case StorageKind::kConstant:
    case StorageKind::kPacked:
      text = fmt::format("{}{}", to_string(s.kind), s.index);
      break;
  }
  if (s.kind == StorageKind::kArena || v.offset != 0) text += fmt::format("+{}", v.offset);
  return text;
}

std::string view_text(const Plan& plan, const PlanView& v) {
  return place_text(plan, v) + " " + to_string(v.desc);
}

void print_step(const Plan& plan, size_t index, bool costs, std::string& out) {
  const PlanStep& step = plan.steps[index];
  std::string results, operands;
  for (const PlanView& v : step.results) {
    results += (results.empty() ? "" : ", ") + view_text(plan, v);
  }
  for (const PlanView& v : step.operands) {
    operands += (operands.empty() ? "" : ", ") + view_text(plan, v);
  }
  out += fmt::format("    {}: {} = {}({})", index, results, step.entry->name, operands);
  if (step.kernel.scratch_bytes > 0) out += fmt::format(" scratch arena+{}", step.scratch_offset);
  if (costs) out += fmt::format(" {:.0f} ns", step.kernel.nanoseconds);
  out += '\n';
}

}  // namespace

int64_t MemoryEstimate::total() const {
  return checked_add(
      checked_add(checked_add(arena, thread_scratch), checked_add(weights, constants)),
      packed_weights);
}

std::string MemoryEstimate::to_string() const {
  return fmt::format(
      "arena {} + thread scratch {} + weights {} + packed weights {} + constants {} = {} bytes",
      arena, thread_scratch, weights, packed_weights, constants, total());
}

MemoryEstimate Plan::estimate(int threads) const {
  MemoryEstimate e;
  e.arena = arena_bytes;
  e.thread_scratch = checked_mul(thread_scratch_bytes, threads);
  for (const PlanParam& p : params) {
    e.weights = checked_add(e.weights, rlx::byte_size(p.dtype, p.dims));
  }
  e.packed_weights = packed_constant_bytes;
  for (const PackedParam& p : packed) e.packed_weights = checked_add(e.packed_weights, p.bytes);
  for (const Array& a : constants) {
    if (a.defined()) e.constants = checked_add(e.constants, a.byte_size());
  }
  e.constants -= packed_constant_bytes;
  return e;
}

int64_t Plan::byte_size() const {
  int64_t bytes = int64_t(sizeof(Plan));
  for (const Array& a : constants) bytes += a.defined() ? a.byte_size() : 0;
  for (const PlanStep& s : steps) {
    bytes += int64_t(sizeof(PlanStep));
    for (const auto* views : {&s.operands, &s.results}) {
      for (const PlanView& v : *views) {
        bytes += int64_t(sizeof(PlanView) + 2 * v.desc.dims.size() * sizeof(int64_t));
      }
    }
  }
  return bytes;
}

std::string to_string(const Plan& plan, const PlanPrintOptions& options) {
  std::string out = fmt::format("plan {}\n", plan.name);
  const auto tensor = [&](std::string_view what, const PlanTensor& t, std::string_view note) {
    out += fmt::format("  {} {} {}{}\n", what, t.name, t.type().to_string(), note);
  };
  for (const PlanTensor& t : plan.inputs) tensor("input", t, "");
  for (const PlanParam& t : plan.params) {
    tensor("param", t, t.updated ? " updated" : t.is_mutable ? " mutable" : "");
  }
  for (const PlanTensor& t : plan.outputs) tensor("output", t, "");
  out +=
      fmt::format("  arena {} bytes, {} alive at most\n", plan.arena_bytes, plan.counts.live_bytes);
  for (const std::string& d : plan.decisions) out += "  layout " + d + '\n';
  for (const LegalizeNote& n : plan.notes) out += fmt::format("  {} {}\n", n.op, n.text);
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const Segment& s = plan.segments[i];
    if (s.barrier_before) out += "  barrier\n";
    out += fmt::format("  {}{}\n", s.serial ? "serial" : "parallel",
                       i >= plan.commit_segment ? " writes params" : "");
    for (uint32_t step = s.begin; step < s.end; ++step) {
      print_step(plan, step, options.costs, out);
    }
  }
  return out;
}

}  // namespace rlx
