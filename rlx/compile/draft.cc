#include "rlx/compile/draft.h"

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ops/control.h"

namespace rlx {

RLX_USE_OP(Copy);
RLX_USE_OP(While);
RLX_USE_OP(Scan);

uint32_t Draft::add_buffer(StorageKind kind, uint32_t index, DType dtype, int64_t elements) {
  const auto id = uint32_t(buffers.size());
  DraftBuffer b;
  b.kind = kind;
  b.index = index;
  b.dtype = dtype;
  b.elements = elements;
  b.bytes = bytes_of(dtype, elements);
  b.owner = id;
  buffers.push_back(b);
  return id;
}

uint32_t Draft::add_extent(const Dim& size) {
  const PlanExtent extent = extent_of(plan.symbols, size);
  for (uint32_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].kind != StorageKind::kExtent) continue;
    const PlanExtent& other = plan.extents[buffers[b].index];
    if (other == extent) return b;
  }
  plan.extents.push_back(extent);
  return add_buffer(StorageKind::kExtent, uint32_t(plan.extents.size() - 1), DType::kI64, 1);
}

DraftView Draft::whole(uint32_t buffer, const Dims& dims) const {
  return {buffer, 0, TensorDesc::dense(buffers[buffer].dtype, dims)};
}

std::vector<uint32_t> set_symbols_of(const Draft& draft, const DraftStep& step) {
  const std::vector<PlanSymbol>& all = draft.plan.symbols;
  std::vector<uint32_t> found;
  if (std::ranges::none_of(all, &PlanSymbol::set_by_step)) return found;
  std::vector<std::string> names;
  if (step.live) {
    for (const auto* shapes : {&step.live->operands, &step.live->results}) {
      for (const Shape& shape : *shapes) {
        for (const Dim& d : shape) d.collect_symbols(names);
      }
    }
    collect_symbols(step.live->attrs, names);
  }
  for (const DraftView& v : step.operands) {
    const DraftBuffer& b = draft.buffers[v.buffer];
    if (b.kind == StorageKind::kExtent) {
      names.push_back(all[draft.plan.extents[b.index].symbol].name);
    }
  }
  for (uint32_t s = 0; s < all.size(); ++s) {
    const bool reads = std::ranges::find(names, all[s].name) != names.end();
    if (all[s].set_by_step && reads && step.sets != s) found.push_back(s);
  }
  return found;
}

BufferUses uses_of(const Draft& draft) {
  BufferUses uses;
  uses.writers.resize(draft.buffers.size());
  uses.readers.resize(draft.buffers.size());
  for (uint32_t s = 0; s < draft.steps.size(); ++s) {
    for (const DraftView& v : draft.steps[s].operands) uses.readers[v.buffer].push_back(s);
    for (const DraftView& v : draft.steps[s].results) {
      if (v.used()) uses.writers[v.buffer].push_back(s);
    }
  }
  return uses;
}

bool is_whole(const Draft& draft, const DraftView& view) {
  const DraftBuffer& b = draft.buffers[view.buffer];
  return view.offset == 0 && view.desc.dtype == b.dtype && view.desc.is_dense() &&
         view.desc.num_elements() == b.elements;
}

bool may_overwrite(const DraftStep& step, size_t operand, size_t result) {
  if (!step.op->has(kControl)) {
    return result == 0 && operand < 32 && (step.entry->in_place >> operand & 1);
  }
  size_t carries = 0;
  if (step.op == &kWhileOp) carries = size_t(step.attrs.as<WhileAttrs>().num_carries);
  if (step.op == &kScanOp) carries = size_t(step.attrs.as<ScanAttrs>().num_carries);
  return operand == result && operand < carries;
}

namespace {

const KernelEntry& copy_entry(const KernelTable& kernels, const Attrs& attrs,
                              const TensorDesc& desc) {
  const TensorType type{desc.dtype, Shape(std::span<const int64_t>(desc.dims))};
  std::string reasons;
  const KernelEntry* entry =
      select_entry(kernels, kCopyOp, attrs, {&type, 1}, {&type, 1}, LegalizeOptions{}, &reasons);
  if (!entry) {
    fail(ErrorKind::kUnsupported, "the device '{}' cannot copy {}: {}", kernels.name(),
         type.to_string(), reasons);
  }
  return *entry;
}

Attrs copy_attrs() { return Attrs(kCopyOp.fields, kCopyOp.fields->make(nullptr)); }

}  // namespace

DraftStep make_copy(const KernelTable& kernels, const DraftView& from, const DraftView& to,
                    std::string label, const Shape& live) {
  DraftStep step;
  step.op = &kCopyOp;
  step.attrs = copy_attrs();
  step.label = std::move(label);
  step.entry = &copy_entry(kernels, step.attrs, from.desc);
  if (!accepts(operand_form(*step.entry, 0), from.desc) ||
      !accepts(step.entry->result_form, to.desc)) {
    internal_error(
        "the copy kernel {} takes strides {} and writes strides {}, it must copy {} to {}",
        step.entry->name, to_string(operand_form(*step.entry, 0)),
        to_string(step.entry->result_form), to_string(from.desc), to_string(to.desc));
  }
  step.operands = {from};
  step.results = {to};
  step.inserted = true;
  if (!live.is_static()) {
    step.live = std::make_shared<const LiveCall>(LiveCall{step.attrs, {live}, {live}});
  }
  return step;
}

bool can_copy(const KernelTable& kernels, const TensorDesc& from, const TensorDesc& to) {
  const KernelEntry& entry = copy_entry(kernels, copy_attrs(), from);
  return accepts(operand_form(entry, 0), from) && accepts(entry.result_form, to);
}

double copy_nanoseconds(const KernelTable& kernels, const TensorDesc& from) {
  const Attrs attrs = copy_attrs();
  const KernelEntry& entry = copy_entry(kernels, attrs, from);
  const TensorDesc to = TensorDesc::dense(from.dtype, from.dims);
  return entry.prepare({kCopyOp, attrs, {&from, 1}, {&to, 1}, {}, {}}).nanoseconds;
}

}  // namespace rlx
