#include "rlx/compile/plan.h"

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/view.h"

namespace rlx {
namespace {

std::string_view to_string(StorageKind kind) {
  constexpr std::string_view kNames[] = {"arena",    "input",  "output", "param",
                                         "constant", "packed", "slice",  "extent"};
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
    case StorageKind::kSlice:
    case StorageKind::kExtent:
      text = fmt::format("{}{}", to_string(s.kind),
                         s.kind == StorageKind::kSlice ? v.storage : s.index);
      break;
  }
  if (s.kind == StorageKind::kArena || v.offset != 0) text += fmt::format("+{}", v.offset);
  return text;
}

std::string view_text(const Plan& plan, const PlanView& v) {
  return place_text(plan, v) + " " + to_string(v.desc);
}

class Printer {
 public:
  Printer(const Plan& plan, const PlanPrintOptions& options, std::string& out)
      : plan_(plan), options_(options), out_(out) {}

  void segments(const std::vector<Segment>& segments, uint32_t commit, size_t depth) {
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& s = segments[i];
      if (s.barrier_before) line(depth, "barrier");
      line(depth, fmt::format("{}{}", s.serial ? "serial" : "parallel",
                              i >= commit ? " writes params" : ""));
      for (uint32_t step = s.begin; step < s.end; ++step) print(step, depth + 1);
    }
  }

 private:
  void line(size_t depth, std::string_view text) {
    out_.append(2 * depth, ' ');
    out_ += text;
    out_ += '\n';
  }

  void print(uint32_t index, size_t depth) {
    const PlanStep& step = plan_.steps[index];
    std::string results, operands;
    for (const PlanView& v : step.results) {
      results += (results.empty() ? "" : ", ") + view_text(plan_, v);
    }
    for (const PlanView& v : step.operands) {
      operands += (operands.empty() ? "" : ", ") + view_text(plan_, v);
    }
    const std::string_view name = step.control ? step.op->name : step.entry->name;
    std::string text = fmt::format("{}: {} = {}({})", index, results, name, operands);
    if (step.kernel.scratch_bytes > 0)
      text += fmt::format(" scratch arena+{}", step.scratch_offset);
    if (!step.variants.empty()) {
      text += fmt::format(" and {} for smaller sizes", step.variants.size());
    }
    if (options_.costs) text += fmt::format(" {:.0f} ns", step.kernel.nanoseconds);
    line(depth, text);
    if (step.control) bodies(*step.control, depth + 1);
  }

  void bodies(const PlanControl& control, size_t depth) {
    constexpr std::string_view kNames[3][2] = {
        {"then", "else"}, {"condition", "body"}, {"body", ""}};
    for (size_t i = 0; i < control.bodies.size(); ++i) {
      line(depth, kNames[size_t(control.kind)][i]);
      const std::vector<Segment>& body = plan_.bodies[control.bodies[i]].segments;
      segments(body, uint32_t(body.size()), depth + 1);
    }
  }

  const Plan& plan_;
  const PlanPrintOptions& options_;
  std::string& out_;
};

int64_t view_bytes(const std::vector<PlanView>& views) {
  int64_t bytes = 0;
  for (const PlanView& v : views) {
    bytes += int64_t(sizeof(PlanView) + 2 * v.desc.dims.size() * sizeof(int64_t));
  }
  return bytes;
}

}  // namespace

std::optional<PlanExtent> find_extent(std::span<const PlanSymbol> symbols, const Dim& size) {
  for (uint32_t s = 0; s < symbols.size(); ++s) {
    if (const auto line = linear_in(size, symbols[s].name)) return PlanExtent{s, *line};
  }
  return std::nullopt;
}

PlanExtent extent_of(std::span<const PlanSymbol> symbols, const Dim& size) {
  if (const auto extent = find_extent(symbols, size)) return *extent;
  fail(ErrorKind::kUnsupported,
       "the size {} cannot be bounded: it must be a multiple of one bounded size plus a number",
       size.to_string());
}

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
    bytes += int64_t(sizeof(PlanStep)) + view_bytes(s.operands) + view_bytes(s.results);
    for (const PlanVariant& v : s.variants) {
      bytes += int64_t(sizeof(PlanVariant)) + view_bytes(v.operands) + view_bytes(v.results);
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
  Printer(plan, options, out).segments(plan.segments, plan.commit_segment, 1);
  return out;
}

}  // namespace rlx
