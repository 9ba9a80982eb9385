#include "rlx/compile/control.h"

#include <algorithm>
#include <map>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/memory.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/control.h"

namespace rlx {

RLX_USE_OP(Input);
RLX_USE_OP(Param);
RLX_USE_OP(Constant);
RLX_USE_OP(If);
RLX_USE_OP(While);
RLX_USE_OP(Scan);

constinit const KernelEntry kControlEntry = {.name = "control"};

namespace {

// Trips that the estimate of an open-ended loop assumes.
constexpr int64_t kAssumedTrips = 16;
// The condition of a While, or the index of a Scan.
constexpr int64_t kWordBytes = 64;

using Place = BodyPlace::Kind;

// --- Bodies as graphs whose leaves say where they lie

class BodyBuilder {
 public:
  BodyBuilder(const DraftStep& step, const Draft& draft, const Graph& body)
      : step_(step), draft_(draft), body_(body), graph_(body.name()), b_(graph_) {
    const auto taken = [&](const PlanParam& p) { return p.name.starts_with(carry_prefix_); };
    while (std::ranges::any_of(draft.plan.params, taken)) carry_prefix_ += '%';
  }

  void input(BodyPlace place) {
    const Value v = body_.inputs()[arguments_.size()];
    const TensorType& type = body_.type(v);
    const DraftBuffer* frozen = place.kind == Place::kOperand ? frozen_buffer(place) : nullptr;
    if (!frozen) {
      result_.inputs.push_back(place);
      arguments_.push_back(
          b_.op(kInputOp, InputAttrs{body_.name_of(v), type.dtype, type.shape}, {}));
    } else if (frozen->kind == StorageKind::kConstant) {
      const Array& value = draft_.plan.constants[frozen->index];
      arguments_.push_back(b_.op(kConstantOp, ConstantAttrs{value, type.shape, false}, {}));
    } else {
      // The name finds the weight's data; two captures of one weight are one param.
      const std::string& name = draft_.plan.params[frozen->index].name;
      Value& param = params_[name];
      if (!param.valid()) {
        result_.params.push_back(place);
        param = b_.op(kParamOp, ParamAttrs{name, type.dtype, type.shape, false}, {});
      }
      arguments_.push_back(param);
    }
  }

  // An input that the body's output of the same position replaces.
  void carry(uint32_t position) {
    const TensorType& type = body_.type(body_.inputs()[arguments_.size()]);
    const std::string name = carry_name(position);
    result_.params.push_back({Place::kResult, position});
    arguments_.push_back(b_.op(kParamOp, ParamAttrs{name, type.dtype, type.shape, true}, {}));
  }

  void calls() { values_ = inline_graph(b_, body_, arguments_); }
  void output(size_t index, BodyPlace place) {
    result_.outputs.push_back(place);
    graph_.add_output(body_.outputs()[index].name, values_[index]);
  }
  void update(uint32_t position) { graph_.add_update(carry_name(position), values_[position]); }

  BodyDraft finish(const KernelTable& kernels, const CompileOptions& options) {
    result_.plan = plan_legal_graph(graph_, kernels, options);
    return std::move(result_);
  }

 private:
  std::string carry_name(uint32_t position) const {
    return fmt::format("{}{}", carry_prefix_, position);
  }

  // The constant or frozen param that the operand is the whole of, or null.
  const DraftBuffer* frozen_buffer(BodyPlace place) const {
    const DraftView& v = step_.operands[place.position];
    const DraftBuffer& b = draft_.buffers[v.buffer];
    if (!is_whole(draft_, v)) return nullptr;
    if (b.kind == StorageKind::kConstant) {
      return draft_.plan.constants[b.index].shape() == v.desc.dims ? &b : nullptr;
    }
    const bool frozen = b.kind == StorageKind::kParam && draft_.plan.params[b.index].packable &&
                        draft_.plan.params[b.index].dims == v.desc.dims;
    return frozen ? &b : nullptr;
  }

  const DraftStep& step_;
  const Draft& draft_;
  const Graph& body_;
  Graph graph_;
  Builder b_;
  std::string carry_prefix_ = "carry%";
  std::map<std::string, Value> params_;  // frozen captures
  std::vector<Value> arguments_, values_;
  BodyDraft result_;
};

class Prepare {
 public:
  Prepare(DraftStep& step, const Draft& draft, const KernelTable& kernels,
          const CompileOptions& options)
      : step_(step), draft_(draft), kernels_(kernels), options_(options) {}

  void run() {
    // With bounded sizes the bodies keep their symbols: they are planned like the graph around
    // them.
    const Attrs& attrs = step_.live ? step_.live->attrs : step_.attrs;
    if (step_.op == &kIfOp) {
      conditional(attrs.as<IfAttrs>());
    } else if (step_.op == &kWhileOp) {
      loop(attrs.as<WhileAttrs>());
    } else if (step_.op == &kScanOp) {
      scan(attrs.as<ScanAttrs>());
    } else {
      internal_error("{} is no control step", step_.op->name);
    }
    place_arenas();
    control_.length = length_;
    step_.control = std::make_shared<ControlDraft>(std::move(control_));
  }

 private:
  void conditional(const IfAttrs& attrs) {
    control_.control.kind = PlanControl::Kind::kIf;
    double ns = 0;
    for (const GraphRef& branch : {attrs.then_branch, attrs.else_branch}) {
      BodyBuilder body(step_, draft_, *branch);
      for (uint32_t i = 1; i < step_.operands.size(); ++i) body.input({Place::kOperand, i});
      body.calls();
      for (uint32_t i = 0; i < step_.results.size(); ++i) body.output(i, {Place::kResult, i});
      ns = std::max(ns, add(body));
    }
    step_.kernel.nanoseconds = ns;
  }

  void loop(const WhileAttrs& attrs) {
    PlanControl& control = control_.control;
    control.kind = PlanControl::Kind::kWhile;
    control.carries = uint32_t(attrs.num_carries);
    control.max_trips = attrs.max_iterations.value_or(INT64_MAX);
    BodyBuilder condition(step_, draft_, *attrs.condition);
    for (uint32_t i = 0; i < step_.operands.size(); ++i) {
      condition.input({i < control.carries ? Place::kResult : Place::kOperand, i});
    }
    condition.calls();
    condition.output(0, {Place::kWord, 0});
    double ns = add(condition);

    BodyBuilder body(step_, draft_, *attrs.body);
    for (uint32_t i = 0; i < control.carries; ++i) body.carry(i);
    for (uint32_t i = control.carries; i < step_.operands.size(); ++i) {
      body.input({Place::kOperand, i});
    }
    body.calls();
    for (uint32_t i = 0; i < control.carries; ++i) body.update(i);
    ns += add(body);
    step_.kernel.nanoseconds = ns * double(std::min(control.max_trips, kAssumedTrips));
  }

  void scan(const ScanAttrs& attrs) {
    PlanControl& control = control_.control;
    control.kind = PlanControl::Kind::kScan;
    control.carries = uint32_t(attrs.num_carries);
    control.max_trips = step_.attrs.as<ScanAttrs>().length.value();
    if (!attrs.length.is_static()) length_ = extent_of(draft_.plan.symbols, attrs.length);
    control.reverse = attrs.reverse;
    const auto captures_end = uint32_t(attrs.num_carries + attrs.num_captures);
    BodyBuilder body(step_, draft_, *attrs.body);
    body.input({Place::kWord, 0});
    for (uint32_t i = 0; i < step_.operands.size(); ++i) {
      if (i < control.carries) {
        body.carry(i);
      } else {
        body.input({i < captures_end ? Place::kOperand : Place::kOperandSlice, i});
      }
    }
    body.calls();
    for (uint32_t i = 0; i < control.carries; ++i) body.update(i);
    for (uint32_t i = control.carries; i < step_.results.size(); ++i) {
      body.output(i, {Place::kResultSlice, i});
    }
    step_.kernel.nanoseconds = add(body) * double(control.max_trips);
  }

  // Returns the estimated time of one trip.
  double add(BodyBuilder& body) {
    CompileOptions options = options_;
    options.memory_limit = -1;  // the whole plan's
    control_.bodies.push_back(body.finish(kernels_, options));
    const Plan& plan = control_.bodies.back().plan;
    double ns = 0;
    for (const Segment& s : plan.segments) {
      for (uint32_t i = s.begin; i < s.end; ++i) ns += plan.steps[i].kernel.nanoseconds;
    }
    return ns;
  }

  // Bodies run one after the other and share memory, unless canaries stand in it. Nothing but the
  // word survives from one to the next.
  void place_arenas() {
    int64_t end = kWordBytes;
    for (BodyDraft& body : control_.bodies) {
      body.arena_offset = options_.guard_zones ? end : kWordBytes;
      end = std::max(end,
                     checked_add(body.arena_offset, round_up(body.plan.arena_bytes, kAlignment)));
      step_.kernel.thread_scratch_bytes =
          std::max(step_.kernel.thread_scratch_bytes, body.plan.thread_scratch_bytes);
    }
    step_.kernel.scratch_bytes = end;
  }

  DraftStep& step_;
  const Draft& draft_;
  const KernelTable& kernels_;
  const CompileOptions& options_;
  std::optional<PlanExtent> length_;
  ControlDraft control_;
};

// --- Linking

class Linker {
 public:
  Linker(Plan& plan, size_t step, ControlDraft& draft)
      : plan_(plan), step_(step), draft_(draft), control_(draft.control) {}

  void run() {
    const PlanView word{0, plan_.steps[step_].scratch_offset, TensorDesc()};
    if (control_.kind == PlanControl::Kind::kScan) control_.index = word;
    if (control_.kind == PlanControl::Kind::kWhile) control_.predicate = word;
    if (control_.kind == PlanControl::Kind::kIf) {
      control_.predicate = plan_.steps[step_].operands[0];
    }
    for (BodyDraft& body : draft_.bodies) link(body);
    if (draft_.length) control_.length = extent(*draft_.length);
    plan_.steps[step_].control = std::make_shared<const PlanControl>(std::move(control_));
  }

 private:
  struct Location {
    uint32_t storage = PlanView::kNone;
    int64_t offset = 0;
  };

  void link(BodyDraft& body) {
    Plan& from = body.plan;
    std::vector<Location> map;
    for (const Storage& s : from.storages) map.push_back(locate(body, s));
    const auto first_step = uint32_t(plan_.steps.size());
    const auto first_body = uint32_t(plan_.bodies.size());
    const auto move_view = [&](PlanView& v) {
      if (!v.used()) return;
      v.offset += map[v.storage].offset;
      v.storage = map[v.storage].storage;
    };
    const auto move_segments = [&](std::vector<Segment>& segments) {
      for (Segment& s : segments) {
        s.begin += first_step;
        s.end += first_step;
      }
    };
    for (PlanStep& step : from.steps) {
      for (PlanView& v : step.operands) move_view(v);
      for (PlanView& v : step.results) move_view(v);
      for (PlanVariant& variant : step.variants) {
        for (PlanView& v : variant.operands) move_view(v);
        for (PlanView& v : variant.results) move_view(v);
      }
      step.scratch_offset += map[0].offset;
      if (step.control) {
        PlanControl control = *step.control;
        for (uint32_t& b : control.bodies) b += first_body;
        for (PlanControl::Slice& s : control.slices) s.storage = map[s.storage].storage;
        move_view(control.predicate);
        move_view(control.index);
        if (control.length != PlanView::kNone)
          control.length = extent(from.extents[control.length]);
        step.control = std::make_shared<const PlanControl>(std::move(control));
      }
      plan_.steps.push_back(std::move(step));
    }
    for (PlanBody& inner : from.bodies) {
      move_segments(inner.segments);
      plan_.bodies.push_back(std::move(inner));
    }
    move_segments(from.segments);
    control_.bodies.push_back(uint32_t(plan_.bodies.size()));
    plan_.bodies.push_back({std::move(from.segments)});
    for (int64_t guard : from.guards) plan_.guards.push_back(guard + map[0].offset);
    add_notes(from);
  }

  Location locate(BodyDraft& body, const Storage& s) {
    switch (s.kind) {
      case StorageKind::kArena:
        return {0, plan_.steps[step_].scratch_offset + body.arena_offset};
      case StorageKind::kInput:
        return locate(body.inputs[s.index], s.bytes);
      case StorageKind::kOutput:
        return locate(body.outputs[s.index], s.bytes);
      case StorageKind::kParam:
        return locate(body.params[s.index], s.bytes);
      case StorageKind::kConstant:
        plan_.constants.push_back(body.plan.constants[s.index]);
        return add(s, plan_.constants.size() - 1);
      case StorageKind::kPacked: {
        PackedParam packed = body.plan.packed[s.index];
        const PlanView& weight = operand(body.params[packed.param]);
        packed.param = plan_.storages[weight.storage].index;
        return add_packed(s, std::move(packed));
      }
      case StorageKind::kSlice:
        return add(s, 0);
      case StorageKind::kExtent:
        return {extent_storage(extent(body.plan.extents[s.index])), 0};
    }
    internal_error("unknown kind of storage");
  }

  Location locate(const BodyPlace& place, int64_t bytes) {
    const PlanStep& step = plan_.steps[step_];
    switch (place.kind) {
      case Place::kOperand:
        return {operand(place).storage, operand(place).offset};
      case Place::kResult:
        return {step.results[place.position].storage, step.results[place.position].offset};
      case Place::kWord:
        return {0, step.scratch_offset};
      case Place::kOperandSlice:
      case Place::kResultSlice:
        break;
    }
    const Location slice = add({StorageKind::kSlice, 0, bytes}, 0);
    control_.slices.push_back(
        {slice.storage, place.position, place.kind == Place::kResultSlice, bytes});
    return slice;
  }

  const PlanView& operand(const BodyPlace& place) const {
    return plan_.steps[step_].operands[place.position];
  }

  // One storage for each packing: steps outside of the body may use it too.
  Location add_packed(const Storage& storage, PackedParam packed) {
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      if (plan_.storages[s].kind != StorageKind::kPacked) continue;
      const PackedParam& other = plan_.packed[plan_.storages[s].index];
      if (other.param == packed.param && other.key == packed.key &&
          other.source_offset == packed.source_offset) {
        return {s, 0};
      }
    }
    plan_.packed.push_back(std::move(packed));
    return add(storage, plan_.packed.size() - 1);
  }

  // All bodies have the symbols of the whole plan.
  uint32_t extent(const PlanExtent& e) {
    const auto it = std::ranges::find(plan_.extents, e);
    const auto index = uint32_t(it - plan_.extents.begin());
    if (it == plan_.extents.end()) plan_.extents.push_back(e);
    return index;
  }

  uint32_t extent_storage(uint32_t index) {
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      const Storage& storage = plan_.storages[s];
      if (storage.kind == StorageKind::kExtent && storage.index == index) return s;
    }
    return add({StorageKind::kExtent, 0, int64_t(sizeof(int64_t))}, index).storage;
  }

  Location add(Storage storage, size_t index) {
    storage.index = uint32_t(index);
    plan_.storages.push_back(storage);
    return {uint32_t(plan_.storages.size() - 1), 0};
  }

  void add_notes(Plan& from) {
    plan_.packed_constant_bytes += from.packed_constant_bytes;
    for (std::string& d : from.decisions) plan_.decisions.push_back(std::move(d));
    plan_.counts.copies += from.counts.copies;
    plan_.counts.concat_slots += from.counts.concat_slots;
    plan_.counts.in_place += from.counts.in_place;
  }

  Plan& plan_;
  const size_t step_;
  ControlDraft& draft_;
  PlanControl& control_;
};

}  // namespace

void prepare_control(DraftStep& step, const Draft& draft, const KernelTable& kernels,
                     const CompileOptions& options) {
  Prepare(step, draft, kernels, options).run();
}

void link_bodies(Plan& plan, size_t step, ControlDraft& control) {
  Linker(plan, step, control).run();
}

}  // namespace rlx
