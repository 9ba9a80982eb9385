#include "rlx/compile/prepare.h"

#include <map>

#include "rlx/base/error.h"
#include "rlx/compile/control.h"
#include "rlx/compile/memory.h"

namespace rlx {
namespace {

class Prepare {
 public:
  Prepare(Draft& draft, const KernelTable& kernels, const CompileOptions& options)
      : draft_(draft), kernels_(kernels), options_(options) {}

  void run() {
    for (DraftStep& step : draft_.steps) {
      try {
        prepare(step);
      } catch (const Error& e) {
        throw e.with_context(step.label.empty()
                                 ? std::string(step.op->name)
                                 : fmt::format("{} at {}", step.op->name, step.label));
      }
    }
  }

 private:
  void prepare(DraftStep& step) {
    if (step.op->has(kControl)) return prepare_control(step, draft_, kernels_, options_);
    std::vector<TensorDesc> operands, results;
    std::vector<uint8_t> used;
    for (const DraftView& v : step.operands) operands.push_back(v.desc);
    for (const DraftView& v : step.results) {
      results.push_back(v.desc);
      used.push_back(v.used());
    }
    std::vector<Array> arrays(step.operands.size());
    std::vector<const Array*> frozen(step.operands.size(), nullptr);
    for (size_t i = 0; i < step.operands.size(); ++i) {
      arrays[i] = frozen_data(step.operands[i]);
      if (arrays[i].defined()) frozen[i] = &arrays[i];
    }
    step.kernel = step.entry->prepare({*step.op, step.attrs, operands, results, used, frozen});
    for (const Phase& p : step.kernel.phases) {
      if (!p.run || p.chunks < 0) internal_error("{}: a phase without work", step.entry->name);
    }
    for (const Packing& p : step.kernel.packings) {
      if (p.operand >= arrays.size() || !frozen[p.operand]) {
        internal_error("{}: packs operand {}, which is not frozen", step.entry->name, p.operand);
      }
      pack(step.operands[p.operand], arrays[p.operand], p);
    }
  }

  // The operand as an array, if it never changes between runs.
  Array frozen_data(const DraftView& v) {
    const DraftBuffer& b = draft_.buffers[v.buffer];
    Array whole;
    if (b.kind == StorageKind::kConstant) {
      whole = draft_.plan.constants[b.index];
    } else if (b.kind == StorageKind::kParam && !draft_.plan.params[b.index].is_mutable) {
      whole = param_data(b.index);
    }
    if (!whole.defined()) return whole;
    const auto* first =
        static_cast<const std::byte*>(whole.raw()) + bytes_of(v.desc.dtype, v.offset);
    return Array::borrow(v.desc.dtype, const_cast<std::byte*>(first), v.desc.dims, v.desc.strides,
                         std::make_shared<Array>(whole), false);
  }

  Array param_data(uint32_t index) {
    if (!options_.frozen_param) return {};
    const auto [it, added] = params_.try_emplace(index);
    if (added) {
      const PlanParam& p = draft_.plan.params[index];
      Array array = options_.frozen_param(p.name);
      if (array.defined() && (array.dtype() != p.dtype || array.shape() != p.dims)) {
        user_error("the param '{}' is {} in the graph, its value is {}", p.name,
                   p.type().to_string(), array.type().to_string());
      }
      if (array.defined()) it->second = is_aligned(array) ? array.dense() : array.copy();
    }
    return it->second;
  }

  void pack(DraftView& view, const Array& source, const Packing& packing) {
    const DraftBuffer b = draft_.buffers[view.buffer];
    Plan& plan = draft_.plan;
    // The kernel's key says how, the view says what.
    const std::string key = fmt::format("{}|{}+{}{}", packing.key, to_string(view.desc),
                                        view.offset, dims_to_string(view.desc.strides));
    const auto [it, added] = packed_.try_emplace({view.buffer, key}, 0);
    if (added) {
      if (b.kind == StorageKind::kConstant) {
        Array packed = Array::uninitialized(DType::kU8, {packing.bytes});
        packing.pack(source.raw(), packed.mutable_raw());
        plan.packed_constant_bytes += packing.bytes;
        plan.constants.push_back(std::move(packed));
        it->second = draft_.add_buffer(StorageKind::kConstant, uint32_t(plan.constants.size() - 1),
                                       DType::kU8, packing.bytes);
      } else {
        plan.packed.push_back(
            {b.index, key, packing.bytes, bytes_of(view.desc.dtype, view.offset), packing.pack});
        it->second = draft_.add_buffer(StorageKind::kPacked, uint32_t(plan.packed.size() - 1),
                                       DType::kU8, packing.bytes);
      }
    }
    view.buffer = it->second;
    view.offset = 0;
  }

  Draft& draft_;
  const KernelTable& kernels_;
  const CompileOptions& options_;
  std::map<uint32_t, Array> params_;
  std::map<std::pair<uint32_t, std::string>, uint32_t> packed_;  // buffer and key -> packed buffer
};

}  // namespace

void prepare_steps(Draft& draft, const KernelTable& kernels, const CompileOptions& options) {
  Prepare(draft, kernels, options).run();
}

}  // namespace rlx
