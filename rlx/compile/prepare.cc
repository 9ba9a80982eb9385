#include "rlx/compile/prepare.h"

#include <algorithm>
#include <map>

#include "rlx/base/error.h"
#include "rlx/compile/control.h"
#include "rlx/compile/custom_kernel.h"
#include "rlx/compile/memory.h"

namespace rlx {

RLX_USE_OP(Custom);
RLX_USE_OP(FillTail);

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
    trim_fills();
  }

 private:
  void prepare(DraftStep& step) {
    if (step.op->has(kControl)) return prepare_control(step, draft_, kernels_, options_);
    const std::vector<DraftView> operands = step.operands;  // before any is packed
    step.kernel = bind(step, step.attrs, *step.entry, step.operands, step.results);
    if (step.live) add_variants(step, operands);
  }

  // Operands that the kernel wants packed are replaced.
  PreparedKernel bind(const DraftStep& step, const Attrs& attrs, const KernelEntry& entry,
                      std::vector<DraftView>& operand_views,
                      const std::vector<DraftView>& result_views) {
    std::vector<TensorDesc> operands, results;
    std::vector<uint8_t> used;
    for (const DraftView& v : operand_views) operands.push_back(v.desc);
    for (const DraftView& v : result_views) {
      results.push_back(v.desc);
      used.push_back(v.used());
    }
    std::vector<Array> arrays(operands.size());
    std::vector<const Array*> frozen(operands.size(), nullptr);
    for (size_t i = 0; i < operands.size(); ++i) {
      arrays[i] = frozen_data(operand_views[i]);
      if (arrays[i].defined()) frozen[i] = &arrays[i];
    }
    const KernelCall call{*step.op, attrs, operands, results, used, frozen};
    PreparedKernel kernel = step.op == &kCustomOp
                                ? options_.legalize.custom->prepare(kernels_.name(), call)
                                : entry.prepare(call);
    for (const Phase& p : kernel.phases) {
      if (!p.run || p.chunks < 0) internal_error("{}: a phase without work", entry.name);
    }
    for (const Packing& p : kernel.packings) {
      if (p.operand >= arrays.size() || !frozen[p.operand]) {
        internal_error("{}: packs operand {}, which is not frozen", entry.name, p.operand);
      }
      pack(operand_views[p.operand], arrays[p.operand], p);
    }
    return kernel;
  }

  // --- Smaller sizes

  void add_variants(DraftStep& step, const std::vector<DraftView>& operands) {
    const std::vector<PlanSymbol>& all = draft_.plan.symbols;
    for (uint32_t s = 0; s < all.size(); ++s) {
      const auto uses = [&](const Shape& shape) {
        return !bounded_symbols(shape, {{all[s].name, all[s].bound}}).empty();
      };
      if (std::ranges::any_of(step.live->operands, uses) ||
          std::ranges::any_of(step.live->results, uses)) {
        step.symbols.push_back(s);
      }
    }
    std::vector<std::vector<int64_t>> sizes{{}};  // all combinations
    for (uint32_t s : step.symbols) {
      std::vector<std::vector<int64_t>> longer;
      for (const std::vector<int64_t>& prefix : sizes) {
        for (int64_t size : steps_to(all[s].bound, step.symbols.size())) {
          longer.push_back(prefix);
          longer.back().push_back(size);
        }
      }
      sizes = std::move(longer);
    }
    if (sizes.size() > kMaxVariants) return;
    const auto volume = [](const std::vector<int64_t>& v) {
      double product = 1;
      for (int64_t x : v) product *= double(x);
      return product;
    };
    std::ranges::stable_sort(sizes, {}, volume);
    sizes.pop_back();  // the step itself
    for (std::vector<int64_t>& up_to : sizes) add_variant(step, operands, std::move(up_to));
  }

  // A filled tail must reach as far as its readers read, whatever variants a run picks; so must
  // copies of it.
  void trim_fills() {
    const BufferUses uses = uses_of(draft_);
    std::vector<uint8_t> filled(draft_.buffers.size(), 0);
    std::vector<DraftStep*> fills;
    for (DraftStep& step : draft_.steps) {
      const bool copy = step.inserted && filled[step.operands[0].buffer];
      if (step.op != &kFillTailOp && !copy) continue;
      filled[step.results[0].buffer] = 1;
      fills.push_back(&step);
    }
    std::reverse(fills.begin(), fills.end());
    for (DraftStep* fill : fills) {
      for (uint32_t r : uses.readers[fill->results[0].buffer]) trim(*fill, draft_.steps[r]);
    }
  }

  static void trim(DraftStep& fill, const DraftStep& reader) {
    const auto has = [&](const DraftVariant& v) {
      return std::ranges::find(reader.variants, v.up_to, &DraftVariant::up_to) !=
             reader.variants.end();
    };
    const bool same = fill.symbols == reader.symbols &&
                      fill.variants.size() == reader.variants.size() &&
                      std::ranges::all_of(fill.variants, has);
    if (fill.symbols.size() == 1 && fill.symbols == reader.symbols) {
      std::erase_if(fill.variants, [&](const DraftVariant& v) { return !has(v); });
    } else if (!same) {
      fill.variants.clear();
    }
  }

  static constexpr size_t kMaxVariants = 64;

  // Powers of two (of four for several symbols at once) and the bound.
  static std::vector<int64_t> steps_to(int64_t bound, size_t symbols) {
    std::vector<int64_t> sizes;
    for (int64_t size = 1; size<bound; size *= symbols> 1 ? 4 : 2) sizes.push_back(size);
    sizes.push_back(bound);
    return sizes;
  }

  // Same strides, fewer elements. Left out where no kernel takes that; a larger one does the work.
  void add_variant(DraftStep& step, const std::vector<DraftView>& operands,
                   std::vector<int64_t> up_to) {
    SymbolBindings sizes = options_.bounds;
    for (size_t i = 0; i < up_to.size(); ++i) {
      sizes[draft_.plan.symbols[step.symbols[i]].name] = up_to[i];
    }
    DraftVariant v;
    std::vector<TensorType> operand_types, result_types;
    const auto shrink = [&](const std::vector<DraftView>& from, const std::vector<Shape>& shapes,
                            std::vector<DraftView>& to, std::vector<TensorType>& types) {
      to = from;
      for (size_t i = 0; i < to.size(); ++i) {
        const Shape shape = shapes[i].substitute(sizes);
        to[i].desc.dims = shape.static_dims();
        types.push_back({to[i].desc.dtype, shape});
      }
    };
    shrink(operands, step.live->operands, v.operands, operand_types);
    shrink(step.results, step.live->results, v.results, result_types);
    const auto too_small = [](const DraftView& view) {
      return std::ranges::any_of(view.desc.dims, [](int64_t size) { return size < 0; });
    };
    if (std::ranges::any_of(v.operands, too_small) || std::ranges::any_of(v.results, too_small))
      return;
    const Attrs attrs = substitute_symbols(step.live->attrs, sizes);
    v.entry =
        select_entry(kernels_, *step.op, attrs, operand_types, result_types, options_.legalize);
    if (!v.entry || (step.entry->in_place & ~v.entry->in_place) != 0) return;
    for (size_t i = 0; i < v.operands.size(); ++i) {
      if (!accepts(operand_form(*v.entry, i), v.operands[i].desc)) return;
    }
    for (const DraftView& r : v.results) {
      if (!accepts(v.entry->result_form, r.desc)) return;
    }
    v.kernel = bind(step, attrs, *v.entry, v.operands, v.results);
    v.up_to = std::move(up_to);
    step.variants.push_back(std::move(v));
  }

  // The operand as an array, if it never changes between runs.
  Array frozen_data(const DraftView& v) {
    const DraftBuffer& b = draft_.buffers[v.buffer];
    Array whole;
    if (b.kind == StorageKind::kConstant) {
      whole = draft_.plan.constants[b.index];
    } else if (b.kind == StorageKind::kParam && draft_.plan.params[b.index].packable) {
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
