#include "rlx/compile/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/memory.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/leaf.h"
#include "rlx/ops/extent.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Param);
RLX_USE_OP(Constant);
RLX_USE_OP(Concat);
RLX_USE_OP(Extent);
RLX_USE_OP(Custom);

namespace {

class Layout {
 public:
  // `live`: the same graph with bounded sizes as symbols, or null.
  Layout(const Graph& graph, const Graph* live, const KernelTable& kernels,
         const CompileOptions& options)
      : graph_(graph), live_(live), kernels_(kernels), options_(options), nodes_(graph.size()) {
    if (live && live->size() != graph.size()) internal_error("a graph changed with its sizes");
    for (const auto& [name, bound] : options.bounds) draft_.plan.symbols.push_back({name, bound});
    for (uint32_t id = 0; id < graph.size(); ++id) {
      nodes_[id].values.resize(graph.node(id).results.size());
    }
  }

  Draft run() {
    take_signature();
    mark_used();
    for (uint32_t id = 0; id < graph_.size(); ++id) describe(id);
    judge_views();
    for (uint32_t id = 0; id < graph_.size(); ++id) emit(id);
    for (const Output& o : graph_.outputs()) draft_.outputs.push_back(value(o.value).view);
    std::map<std::string_view, uint32_t> params;
    for (Value v : graph_.params()) params.emplace(graph_.name_of(v), nodes_[v.node].leaf);
    for (const Update& u : graph_.updates()) {
      draft_.updates.push_back({params.at(u.param), value(u.value).view});
    }
    return std::move(draft_);
  }

 private:
  static constexpr double kRefused = -1;

  struct ValueInfo {
    TensorDesc desc;           // as its consumers would see it without copies
    bool used = false;         // by a call, an output or an update
    bool of_constant = false;  // a view of a Constant
    bool forced = false;       // some consumer cannot use the view
    bool copied = false;       // the verdict
    double strided = 0;        // nanoseconds that strided reads cost in all consumers together
    int64_t strided_reads = 0;
    DraftView view;
    DraftView copy;
  };
  struct NodeInfo {
    std::vector<ValueInfo> values;
    const KernelEntry* entry = nullptr;  // of kernel calls
    std::vector<double> costs;           // per operand: extra nanoseconds, or kRefused
    bool needs_copy = false;             // a view op that strides cannot express
    uint32_t leaf = 0;                   // index of an input or param in the plan
  };

  ValueInfo& value(Value v) { return nodes_[v.node].values[v.index]; }

  void take_signature() {
    Plan& plan = draft_.plan;
    plan.name = graph_.name();
    const auto tensor = [&](const std::string& name, Value v) {
      const TensorType& t = graph_.type(v);
      if (!t.shape.is_static()) {
        user_error("'{}' has the type {}: bind its symbols before compiling a plan", name,
                   t.to_string());
      }
      Dims dims = t.shape.static_dims();
      byte_size(t.dtype, dims);
      return PlanTensor{name, t.dtype, std::move(dims), live_axes(v)};
    };
    for (Value v : graph_.inputs()) {
      nodes_[v.node].leaf = uint32_t(plan.inputs.size());
      plan.inputs.push_back(tensor(graph_.name_of(v), v));
    }
    std::set<std::string_view> updated;
    for (const Update& u : graph_.updates()) updated.insert(u.param);
    const bool training = options_.purpose == Purpose::kTraining ||
                          (options_.purpose == Purpose::kAuto && !updated.empty());
    for (Value v : graph_.params()) {
      nodes_[v.node].leaf = uint32_t(plan.params.size());
      const bool is_mutable = graph_.node(v).attrs.as<ParamAttrs>().is_mutable;
      const bool changes = is_mutable && (training || updated.contains(graph_.name_of(v)));
      plan.params.push_back({tensor(graph_.name_of(v), v), is_mutable, false, !changes});
    }
    for (const Output& o : graph_.outputs()) plan.outputs.push_back(tensor(o.name, o.value));
  }

  std::vector<LiveAxis> live_axes(Value v) const {
    std::vector<LiveAxis> axes;
    if (!live_) return axes;
    const Shape& shape = live_->type(v).shape;
    for (int64_t a = 0; a < shape.rank(); ++a) {
      if (shape[a].is_static()) continue;
      axes.push_back({uint32_t(a), extent_of(draft_.plan.symbols, shape[a])});
    }
    return axes;
  }

  // The call as it is with symbols, if it has any.
  std::shared_ptr<const LiveCall> live_call(uint32_t id) const {
    if (!live_) return nullptr;
    const Node& n = live_->node(id);
    LiveCall call{n.attrs, {}, {}};
    bool symbolic = n.op->has(kControl);
    const auto add = [&](std::vector<Shape>& to, const Shape& shape) {
      symbolic |= !shape.is_static();
      to.push_back(shape);
    };
    for (Value v : n.operands) add(call.operands, live_->type(v).shape);
    for (const TensorType& t : n.results) add(call.results, t.shape);
    return symbolic ? std::make_shared<const LiveCall>(std::move(call)) : nullptr;
  }

  uint32_t symbol_set_by(const Node& n) {
    const std::string& name = n.attrs.as<BindSizeAttrs>().symbol;
    std::vector<PlanSymbol>& all = draft_.plan.symbols;
    const auto it = std::ranges::find(all, name, &PlanSymbol::name);
    if (it == all.end()) internal_error("the size '{}' has no bound", name);
    it->set_by_step = true;
    return uint32_t(it - all.begin());
  }

  // A size that each run sets itself.
  bool is_live_extent(uint32_t id) const {
    return live_ && live_->node(id).op == &kExtentOp &&
           !live_->node(id).attrs.as<ExtentAttrs>().size.is_static();
  }

  void mark_used() {
    for (const Node& n : graph_.nodes()) {
      for (Value v : n.operands) value(v).used = true;
    }
    for (const Output& o : graph_.outputs()) value(o.value).used = true;
    for (const Update& u : graph_.updates()) value(u.value).used = true;
  }

  // Layouts of all values, assuming that nothing is copied but what must be.
  void describe(uint32_t id) {
    const Node& n = graph_.node(id);
    NodeInfo& info = nodes_[id];
    for (size_t i = 0; i < n.results.size(); ++i) {
      if (!n.results[i].shape.is_static()) {
        user_error("{} has the symbolic result type {}: bind its symbols before compiling a plan",
                   n.op->name, n.results[i].to_string());
      }
      info.values[i].desc = TensorDesc::dense(n.results[i]);
    }
    if (n.op->has(kLeaf)) {
      ValueInfo& v = info.values[0];
      v.of_constant = n.op == &kConstantOp;
      if (v.of_constant && n.attrs.as<ConstantAttrs>().splat && v.desc.num_elements() != 1) {
        std::fill(v.desc.strides.begin(), v.desc.strides.end(), 0);
      }
      return;
    }
    if (is_view_op(*n.op)) {
      ValueInfo& from = value(n.operands[0]);
      if (const auto view = view_of(n, {0, from.desc})) {
        info.values[0].desc = view->desc;
        info.values[0].of_constant = from.of_constant;
      } else {
        info.needs_copy = true;
        info.values[0].of_constant = copied_now(from);  // else it lies in the arena
        from.forced = true;
      }
      return;
    }
    if (is_live_extent(id)) return;
    std::vector<TensorType> types;
    for (Value v : n.operands) types.push_back(graph_.type(v));
    std::string reasons;
    info.entry =
        select_entry(kernels_, *n.op, n.attrs, types, n.results, options_.legalize, &reasons);
    if (!info.entry) internal_error("{}: no kernel after legalization: {}", n.op->name, reasons);
  }

  void judge_views() {
    for (uint32_t id = 0; id < graph_.size(); ++id) {
      if (nodes_[id].entry) weigh_operands(id);
    }
    for (uint32_t id = 0; id < graph_.size(); ++id) {
      for (uint32_t i = 0; i < nodes_[id].values.size(); ++i) judge({id, i});
    }
  }

  void weigh_operands(uint32_t id) {
    const Node& n = graph_.node(id);
    NodeInfo& info = nodes_[id];
    std::vector<TensorDesc> operands, results;
    for (Value v : n.operands) operands.push_back(value(v).desc);
    for (const ValueInfo& v : info.values) results.push_back(v.desc);
    const KernelCall call{*n.op, n.attrs, operands, results, {}, {}};
    info.costs.assign(n.operands.size(), 0);
    for (size_t i = 0; i < n.operands.size(); ++i) {
      ValueInfo& v = value(n.operands[i]);
      if (v.desc.is_dense()) continue;
      ++v.strided_reads;
      if (!accepts(operand_form(*info.entry, i), v.desc)) {
        info.costs[i] = kRefused;
        v.forced = true;
      } else if (info.entry->stride_cost) {
        info.costs[i] = std::max(0.0, info.entry->stride_cost(call, i));
        v.strided += info.costs[i];
      }
    }
  }

  void judge(Value id) {
    ValueInfo& v = value(id);
    if (v.desc.is_dense() || (v.strided_reads == 0 && !v.forced)) return;
    const double copy = copied_now(v) ? 0 : copy_nanoseconds(kernels_, v.desc);
    v.copied = v.forced;
    if (options_.layout == LayoutPolicy::kAlwaysCopy) v.copied = true;
    if (options_.layout == LayoutPolicy::kByCost && v.strided > copy) v.copied = true;
    const Node& n = graph_.node(id);
    draft_.plan.decisions.push_back(
        fmt::format("{} {} {}: {} strided reads cost {:.0f} ns, one copy {:.0f} ns: {}", n.op->name,
                    id.node, to_string(v.desc), v.strided_reads, v.strided, copy,
                    v.forced   ? "copied, a consumer cannot read it"
                    : v.copied ? "copied"
                               : "read in place"));
  }

  // Small views of constants are laid out while compiling.
  bool copied_now(const ValueInfo& v) const {
    return v.of_constant &&
           bytes_of(v.desc.dtype, v.desc.num_elements()) <= options_.fold.max_bytes;
  }

  void emit(uint32_t id) {
    const Node& n = graph_.node(id);
    if (n.op->has(kLeaf)) return emit_leaf(id, n);
    if (is_view_op(*n.op)) {
      const DraftView& from =
          nodes_[id].needs_copy ? copy_of(n.operands[0], n.label) : value(n.operands[0]).view;
      auto view = view_of(n, {from.offset, from.desc});
      if (!view) internal_error("{}: a dense operand has no view", n.op->name);
      nodes_[id].values[0].view = {from.buffer, view->offset, std::move(view->desc)};
      return;
    }
    if (is_live_extent(id)) {
      const Dim& size = live_->node(id).attrs.as<ExtentAttrs>().size;
      nodes_[id].values[0].view = draft_.whole(draft_.add_extent(size), {});
      return;
    }
    emit_step(id, n);
  }

  void emit_leaf(uint32_t id, const Node& n) {
    ValueInfo& v = nodes_[id].values[0];
    int64_t elements = v.desc.num_elements();
    StorageKind kind = n.op == &kParamOp ? StorageKind::kParam : StorageKind::kInput;
    uint32_t index = nodes_[id].leaf;
    if (n.op == &kConstantOp) {
      Array array = n.attrs.as<ConstantAttrs>().value.dense();
      if (!is_aligned(array)) array = array.copy();
      kind = StorageKind::kConstant;
      elements = array.num_elements();
      index = add_constant(std::move(array));
    }
    v.view = {draft_.add_buffer(kind, index, v.desc.dtype, elements), 0, v.desc};
  }

  void emit_step(uint32_t id, const Node& n) {
    NodeInfo& info = nodes_[id];
    DraftStep step;
    step.op = n.op;
    step.attrs = n.attrs;
    step.label = n.label;
    step.entry = info.entry;
    step.live = live_call(id);
    if (binds_size(n)) step.sets = symbol_set_by(n);
    for (size_t i = 0; i < n.operands.size(); ++i) {
      const ValueInfo& v = value(n.operands[i]);
      const bool use_copy =
          v.copied && (info.costs[i] != 0 || options_.layout == LayoutPolicy::kAlwaysCopy);
      step.operands.push_back(use_copy ? copy_of(n.operands[i], n.label) : v.view);
    }
    for (ValueInfo& v : info.values) {
      // Bodies write all of their outputs, and so do kernels of users.
      if (v.used || n.op->has(kControl) || n.op == &kCustomOp) {
        const uint32_t buffer =
            draft_.add_buffer(StorageKind::kArena, 0, v.desc.dtype, v.desc.num_elements());
        v.view = {buffer, 0, v.desc};
      }
      step.results.push_back({v.view.buffer, 0, v.desc});
    }
    draft_.steps.push_back(std::move(step));
  }

  // The dense copy of a value, made by its first consumer.
  const DraftView& copy_of(Value id, const std::string& label) {
    ValueInfo& v = value(id);
    if (v.copy.used()) return v.copy;
    if (copied_now(v)) {
      if (draft_.buffers[v.view.buffer].kind != StorageKind::kConstant) {
        internal_error("{}: a view of a constant lies in other memory", label);
      }
      const Array& source = draft_.plan.constants[draft_.buffers[v.view.buffer].index];
      const auto* data = static_cast<const std::byte*>(source.raw());
      const Array dense = Array::borrow(
          v.desc.dtype, const_cast<std::byte*>(data) + bytes_of(v.desc.dtype, v.view.offset),
          v.desc.dims, v.desc.strides, std::make_shared<Array>(source), false);
      const uint32_t buffer = draft_.add_buffer(StorageKind::kConstant, add_constant(dense.copy()),
                                                v.desc.dtype, v.desc.num_elements());
      return v.copy = draft_.whole(buffer, v.desc.dims);
    }
    const uint32_t buffer =
        draft_.add_buffer(StorageKind::kArena, 0, v.desc.dtype, v.desc.num_elements());
    v.copy = draft_.whole(buffer, v.desc.dims);
    const Shape live = live_ ? live_->type(id).shape : Shape();
    draft_.steps.push_back(make_copy(kernels_, v.view, v.copy, label, live));
    return v.copy;
  }

  uint32_t add_constant(Array array) {
    draft_.plan.constants.push_back(std::move(array));
    return uint32_t(draft_.plan.constants.size() - 1);
  }

  const Graph& graph_;
  const Graph* live_;
  const KernelTable& kernels_;
  const CompileOptions& options_;
  std::vector<NodeInfo> nodes_;
  Draft draft_;
};

// --- Concat slots

class Slots {
 public:
  Slots(Draft& draft, const KernelTable& kernels)
      : draft_(draft), kernels_(kernels), uses_(uses_of(draft)) {
    for (const Draft::Update& u : draft.updates) pinned_.push_back(u.view.buffer);
    std::sort(pinned_.begin(), pinned_.end());
  }

  // Outer Concats come later in the order, and give inner ones the strides to pass on.
  void run() {
    std::vector<std::vector<DraftStep>> placed(draft_.steps.size());
    std::vector<uint8_t> gone(draft_.steps.size(), 0);
    for (size_t s = draft_.steps.size(); s-- > 0;) {
      if (draft_.steps[s].op == &kConcatOp) gone[s] = fill(draft_.steps[s], placed[s]);
    }
    std::vector<DraftStep> steps;
    for (size_t s = 0; s < draft_.steps.size(); ++s) {
      if (!gone[s]) steps.push_back(std::move(draft_.steps[s]));
      for (DraftStep& copy : placed[s]) steps.push_back(std::move(copy));
    }
    draft_.steps = std::move(steps);
  }

 private:
  struct Producer {
    DraftView* result = nullptr;  // of the producing step; null if it cannot write the slot
    Dims strides;
  };

  bool fill(const DraftStep& concat, std::vector<DraftStep>& copies) {
    const DraftView& whole = concat.results[0];
    if (!whole.used()) return false;
    const auto axis = size_t(concat.attrs.as<ConcatAttrs>().axis);
    std::vector<DraftView> slots;
    std::vector<Producer> producers;
    int64_t start = 0;
    bool any = false;
    for (const DraftView& part : concat.operands) {
      DraftView slot{whole.buffer, whole.offset + start * whole.desc.strides[axis], part.desc};
      slot.desc.strides = whole.desc.strides;
      if (slot.desc.is_dense()) slot.desc.strides = dense_strides(slot.desc.dims);
      start += part.desc.dims[axis];
      producers.push_back(producer_of(part, slot));
      any |= producers.back().result != nullptr;
      slots.push_back(std::move(slot));
    }
    if (!any) return false;
    for (size_t i = 0; i < slots.size(); ++i) {
      const TensorDesc& part = concat.operands[i].desc;
      if (!producers[i].result && part.num_elements() > 0 &&
          !can_copy(kernels_, part, slots[i].desc)) {
        return false;
      }
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const DraftView& part = concat.operands[i];
      if (part.desc.num_elements() == 0) continue;
      if (DraftView* result = producers[i].result) {
        result->buffer = slots[i].buffer;
        result->offset = slots[i].offset;
        result->desc.strides = producers[i].strides;
        ++draft_.plan.counts.concat_slots;
      } else {
        const Shape live = concat.live ? concat.live->operands[i] : Shape();
        copies.push_back(make_copy(kernels_, part, slots[i], concat.label, live));
      }
    }
    return true;
  }

  // The result that holds `part` and nothing else, if its kernel can write it into `slot`.
  Producer producer_of(const DraftView& part, const DraftView& slot) {
    const uint32_t b = part.buffer;
    if (draft_.buffers[b].kind != StorageKind::kArena || !is_whole(draft_, part) ||
        part.desc.num_elements() == 0 || uses_.readers[b].size() != 1 ||
        uses_.writers[b].size() != 1 || std::binary_search(pinned_.begin(), pinned_.end(), b)) {
      return {};
    }
    DraftStep& step = draft_.steps[uses_.writers[b][0]];
    for (DraftView& result : step.results) {
      if (result.buffer != b) continue;
      auto strides = reshape_strides(slot.desc.dims, slot.desc.strides, result.desc.dims);
      if (!strides) return {};
      TensorDesc desc = result.desc;
      desc.strides = *strides;
      if (!accepts(step.entry->result_form, desc)) return {};
      return {&result, std::move(*strides)};
    }
    return {};
  }

  Draft& draft_;
  const KernelTable& kernels_;
  BufferUses uses_;
  std::vector<uint32_t> pinned_;
};

}  // namespace

Draft lay_out(const Graph& graph, const KernelTable& kernels, const CompileOptions& options) {
  if (options.bounds.empty()) return Layout(graph, nullptr, kernels, options).run();
  const Graph at_bounds = substitute_symbols(graph, options.bounds);
  return Layout(at_bounds, &graph, kernels, options).run();
}

void fill_concat_slots(Draft& draft, const KernelTable& kernels) { Slots(draft, kernels).run(); }

}  // namespace rlx
