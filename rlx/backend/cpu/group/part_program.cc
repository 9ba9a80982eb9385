#include "rlx/backend/cpu/group/part_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

// The body with its outputs in another order.
Graph reordered(const Graph& body, std::span<const size_t> order) {
  Graph g("body");
  for (const Node& n : body.nodes()) g.append(n);
  for (size_t i = 0; i < order.size(); ++i) {
    g.add_output(fmt::format("out{}", i), body.outputs()[order[i]].value);
  }
  return g;
}

Dims strides_in(const Dims& dims, const TensorDesc& desc) {
  Dims strides(dims.size(), 0);
  const size_t shift = dims.size() - desc.dims.size();
  for (size_t a = 0; a < desc.dims.size(); ++a) {
    if (desc.dims[a] != 1) strides[a + shift] = desc.strides[a];
  }
  return strides;
}

}  // namespace

PartProgram::PartProgram(const Graph& body, const Dims& dims,
                         std::span<const std::optional<TensorDesc>> inputs,
                         std::span<const uint8_t> handed, size_t over_input)
    : tiles_(body, dims, inputs, handed), scratch_bytes_(tiles_.scratch_bytes()) {
  RegionOptions options;
  options.strict = true;  // the body says itself where it rounds
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType t = body.type(body.inputs()[i]).dtype;
    operands_.push_back(std::nullopt);
    handed_size_.push_back(row_size(t));
    RegionForm form = RegionForm::kColumns;
    if (inputs[i]) {
      operands_.back() = TileOperand(t, dims, strides_in(dims, *inputs[i]));
      const TileOperand& x = *operands_.back();
      form = x.repeats()                        ? RegionForm::kSingle
             : !x.is_dense() && x.row_repeats() ? RegionForm::kRow
                                                : RegionForm::kColumns;
    }
    options.inputs.push_back({form, t});
  }
  bool fits = body.size() > body.inputs().size();
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    const Value v = body.outputs()[i].value;
    const DType t = body.type(v).dtype;
    const auto& leaves = body.inputs();
    const auto leaf = std::find(leaves.begin(), leaves.end(), v);
    const bool passes = leaf != leaves.end() && !operands_[size_t(leaf - leaves.begin())];
    outputs_.push_back({handed[i] != 0, passes, handed[i] ? row_size(t) : size_of(t)});
    // The machine stores the body's dtype; 16 bits are handed over as f32.
    fits &= !(handed[i] && is_half(t));
    order_.push_back(i);
  }
  std::swap(order_[0], order_[over_input]);
  fits &= std::max(inputs.size(), order_.size()) <= kMaxRegionTensors;
  const Graph ordered = reordered(body, order_);
  if (!fits || !RegionProgram::refuses(ordered).empty()) return;
  region_.push_back(RegionProgram::compile(ordered, options));
  scratch_bytes_ = round_up(std::max(scratch_bytes_, region_[0].scratch_bytes()), 64);
}

double PartProgram::nanoseconds_per_element() const {
  return region_.empty() ? tiles_.nanoseconds_per_element() : region_[0].nanoseconds_per_element();
}

// Where the inputs of the rectangle lie; false if one of them bends within it.
bool PartProgram::place(const TileArgs& args, const PartRectangle& r,
                        std::span<RegionRows> in) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    auto* base = static_cast<std::byte*>(const_cast<void*>(args.inputs[i]));
    if (!operands_[i]) {
      in[i] = {base, r.handed_step * handed_size_[i], 0};
      continue;
    }
    const TileOperand& x = *operands_[i];
    const int64_t size = size_of(x.dtype());
    const auto stride = x.row_stride(r.flat, r.row_step, r.rows, r.columns);
    if (!stride) return false;
    in[i] = {base + x.offset(r.flat) * size, *stride * size, x.column_stride() * size};
  }
  return true;
}

void PartProgram::run_region(const TileArgs& args, const PartRectangle& r, std::span<RegionRows> in,
                             void* scratch) const {
  std::array<RegionRows, kMaxRegionTensors> out;
  for (size_t k = 0; k < order_.size(); ++k) {
    const Output& o = outputs_[order_[k]];
    auto* base = static_cast<std::byte*>(args.outputs[order_[k]]);
    const int64_t step = o.handed ? r.handed_step : r.row_step;
    if (!o.handed) base += r.flat * o.size;
    // Handed over in its own place: it is there.
    const bool is_there =
        o.passes_input &&
        std::any_of(in.begin(), in.end(), [&](const RegionRows& x) { return x.base == base; });
    out[k] = {is_there ? nullptr : base, step * o.size, 0};
  }
  region_[0].run(in, {out.data(), order_.size()}, r.columns, r.rows, scratch);
}

void PartProgram::run(const TileArgs& args, const PartRectangle& r, void* scratch) const {
  if (r.rows <= 0 || r.columns <= 0) return;
  std::array<RegionRows, kMaxRegionTensors> in;
  const std::span<RegionRows> places{in.data(), operands_.size()};
  if (!region_.empty() && place(args, r, places)) return run_region(args, r, places, scratch);
  const bool contiguous = r.row_step == r.columns && r.handed_step == r.columns;
  if (contiguous && region_.empty()) return tiles_.run(args, r.flat, r.rows * r.columns, scratch);
  // Row by row, each as it can be.
  std::array<const void*, kMaxRegionTensors> inputs;
  std::array<void*, kMaxRegionTensors> outputs;
  for (int64_t row = 0; row < r.rows; ++row) {
    const int64_t handed = row * r.handed_step;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const auto* base = static_cast<const std::byte*>(args.inputs[i]);
      inputs[i] = operands_[i] ? base : base + handed * handed_size_[i];
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      auto* base = static_cast<std::byte*>(args.outputs[i]);
      outputs[i] = outputs_[i].handed ? base + handed * outputs_[i].size : base;
    }
    const TileArgs own{inputs.data(), outputs.data()};
    const PartRectangle one{r.flat + row * r.row_step, 0, 1, r.columns, 0};
    if (!region_.empty() && place(own, one, places)) {
      run_region(own, one, places, scratch);
    } else {
      tiles_.run(own, one.flat, one.columns, scratch);
    }
  }
}

}  // namespace rlx::cpu
