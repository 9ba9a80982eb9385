#include "rlx/backend/cpu/group/tile_program.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/base/error.h"
#include "rlx/ir/leaf.h"
#include "rlx/ops/activation.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(ActivationBackward);

namespace cpu {
namespace {

RowFn row_of(const Graph& body, const Node& n) {
  std::vector<DType> types;
  for (Value v : n.operands) types.push_back(body.type(v).dtype);
  return elementwise_row(n, types);
}

// For one element, about.
double row_nanoseconds(const Node& n) {
  const double scale = std::max(1.0, double(size_of(n.results[0].dtype)) / 4);
  if (n.op == &kActivationOp || n.op == &kActivationBackwardOp) {
    return (n.attrs.as<ActivationAttrs>().kind == ActivationKind::kRelu ? 0.08 : 0.6) * scale;
  }
  return 0.08 * scale;
}

int64_t padded(int64_t count) { return (count + kRowGroup - 1) / kRowGroup * kRowGroup; }

// Copies of the element at `from` (wide) in [begin, end) of `to`.
void fill(std::byte* to, const std::byte* from, int64_t size, int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; ++k) std::memcpy(to + k * size, from, size_t(size));
}

// Sizes and strides without axes of size 1, neighbours joined where they are one in memory.
void join(const Dims& dims, const Dims& strides, Dims& sizes, Dims& steps) {
  for (size_t a = 0; a < dims.size(); ++a) {
    if (dims[a] == 1) continue;
    if (!sizes.empty() && steps.back() == dims[a] * strides[a]) {
      sizes.back() *= dims[a];
      steps.back() = strides[a];
    } else {
      sizes.push_back(dims[a]);
      steps.push_back(strides[a]);
    }
  }
}

}  // namespace

// --- TileOperand

TileOperand::TileOperand(DType dtype, const Dims& dims, const Dims& strides) : dtype_(dtype) {
  join(dims, strides, dims_, strides_);
  form_ = dims_.empty()                           ? Form::kSplat
          : dims_.size() == 1 && strides_[0] == 1 ? Form::kDense
          : dims_.size() == 1 && strides_[0] == 0 ? Form::kSplat
                                                  : Form::kRows;
}

int64_t TileOperand::offset(int64_t flat) const {
  if (form_ == Form::kDense) return flat;
  int64_t offset = 0;
  for (size_t a = dims_.size(); a-- > 0;) {
    offset += flat % dims_[a] * strides_[a];
    flat /= dims_[a];
  }
  return offset;
}

std::optional<int64_t> TileOperand::row_stride(int64_t flat, int64_t row_step, int64_t rows,
                                               int64_t columns) const {
  if (form_ == Form::kDense) return row_step;
  if (form_ == Form::kSplat) return 0;
  const int64_t row = dims_.back();
  if (dims_.size() == 1) return row_step * strides_[0];  // one stretch
  if (flat % row + columns > row) return std::nullopt;
  if (rows == 1) return 0;
  const int64_t count = dims_[dims_.size() - 2], first = flat / row % count;
  if (row_step % row != 0 || first + (rows - 1) * (row_step / row) >= count) return std::nullopt;
  return row_step / row * strides_[dims_.size() - 2];
}

void TileOperand::gather(const void* base, int64_t flat, int64_t count, void* to) const {
  const int64_t size = size_of(dtype_), row = dims_.back(), stride = strides_.back();
  auto* out = static_cast<std::byte*>(to);
  while (count > 0) {
    const auto* from = static_cast<const std::byte*>(base) + offset(flat) * size;
    const int64_t n = std::min(count, row - flat % row);
    if (stride == 1) {
      std::memcpy(out, from, size_t(n * size));
    } else {
      for (int64_t k = 0; k < n; ++k) {
        std::memcpy(out + k * size, from + k * stride * size, size_t(size));
      }
    }
    out += n * size;
    flat += n;
    count -= n;
  }
}

// --- Making

struct TileProgram::Tile {
  std::array<const std::byte*, kMostValues> at;  // of each value: the tile's first element
  std::array<int64_t, kMostValues> step;
  std::byte* slots;
  std::byte* bits;  // a buffer for 16-bit elements
  int64_t first;    // of the stretch
  int64_t flat, count;
  int64_t phase = -1, phase_count = 0;  // where in a row the tile before began
  bool fresh = true;                    // the first tile of the stretch

  std::byte* slot(uint32_t i, int64_t bytes) const { return slots + int64_t(i) * bytes; }
};

std::string_view TileProgram::refuses(const Graph& body) {
  if (body.size() > kMostValues) return "more than 64 elementwise values";
  for (const Node& n : body.nodes()) {
    for (const TensorType& t : n.results) {
      const bool number = (is_float(t.dtype) && (size_of(t.dtype) >= 4 || is_half(t.dtype))) ||
                          is_integer(t.dtype) || t.dtype == DType::kBool;
      if (!number || is_packed(t.dtype)) return "a dtype that row functions do not take";
    }
    if (is_signature_leaf(n)) continue;
    if (is_constant(n)) {
      if (n.attrs.as<ConstantAttrs>().value.num_elements() != 1) {
        return "a constant of several elements in the body";
      }
      continue;
    }
    if (!row_of(body, n)) return "an elementwise call without a row function";
  }
  return {};
}

TileProgram::TileProgram(const Graph& body, const Dims& dims,
                         std::span<const std::optional<TensorDesc>> inputs,
                         std::span<const uint8_t> handed) {
  for (uint32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    dtypes_.push_back(n.results[0].dtype);
    if (is_signature_leaf(n)) {
      const std::optional<TensorDesc>& desc = inputs[inputs_.size()];
      Input in{id, !desc, {}};
      if (desc) {
        Dims strides(dims.size(), 0);
        const size_t shift = dims.size() - desc->dims.size();
        for (size_t a = 0; a < desc->dims.size(); ++a) {
          if (desc->dims[a] != 1) strides[a + shift] = desc->strides[a];
        }
        in.operand.emplace_back(desc->dtype, dims, strides);
      }
      inputs_.push_back(std::move(in));
    } else {
      add_node(body, n, id);
    }
  }
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    const Value v = body.outputs()[i].value;
    outputs_.push_back({v.node, handed[i] != 0, body.type(v).dtype});
  }
  allocate_slots();
  choose_tile();
}

void TileProgram::add_node(const Graph& body, const Node& n, uint32_t id) {
  const DType t = n.results[0].dtype;
  if (is_constant(n)) {
    ConstantValue c{id, {}};
    std::byte wide[16];
    const Array& value = n.attrs.as<ConstantAttrs>().value;
    std::memcpy(wide, value.raw(), size_t(size_of(t)));
    if (is_half(t)) {
      float f;
      widen_elements(t, value.raw(), 1, &f);
      std::memcpy(wide, &f, sizeof f);
    }
    const int64_t size = row_size(t);
    fill(c.copies.data(), wide, size, 0, int64_t(c.copies.size()) / size);
    constants_.push_back(c);
    return;
  }
  Op op{row_of(body, n), id, {}, t};
  for (Value v : n.operands) op.operands.push_back(v.node);
  if (!op.row) internal_error("{}: no row function", n.op->name);
  ops_.push_back(std::move(op));
  ns_ += row_nanoseconds(n) + 0.03;
}

// Inputs keep their slots through a stretch; temporaries share theirs once they are read.
void TileProgram::allocate_slots() {
  slots_.assign(dtypes_.size(), ~uint32_t(0));
  for (const Input& in : inputs_) slots_[in.value] = num_slots_++;
  std::vector<size_t> last(dtypes_.size(), 0);
  for (size_t k = 0; k < ops_.size(); ++k) {
    for (uint32_t v : ops_[k].operands) last[v] = k;
  }
  for (const Output& o : outputs_) last[o.value] = ops_.size();
  std::vector<uint8_t> temporary(dtypes_.size(), 0);
  std::vector<uint32_t> free_slots;
  for (size_t k = 0; k < ops_.size(); ++k) {
    temporary[ops_[k].result] = 1;
    if (free_slots.empty()) free_slots.push_back(num_slots_++);
    slots_[ops_[k].result] = free_slots.back();
    free_slots.pop_back();
    std::vector<uint32_t> read = ops_[k].operands;
    read.push_back(ops_[k].result);  // it may be dead at once
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (uint32_t v : read) {
      if (temporary[v] && last[v] <= k) free_slots.push_back(slots_[v]);
    }
  }
  int64_t largest = 4;
  for (DType t : dtypes_) largest = std::max(largest, row_size(t));
  slot_bytes_ = kTile * largest;
  scratch_bytes_ = int64_t(num_slots_) * slot_bytes_ + kTile * 2;
}

// Rows of some length are walked one by one; shorter ones several at a time, if possible so many
// that tiles are whole groups and begin where a row begins.
void TileProgram::choose_tile() {
  constexpr int64_t kLongRow = 128;
  row_ = 0;
  for (const Input& in : inputs_) {
    if (in.handed || in.operand[0].is_dense() || in.operand[0].repeats()) continue;
    row_ = row_ == 0 ? in.operand[0].row() : std::gcd(row_, in.operand[0].row());
  }
  if (row_ == 0) {
    row_ = 1;
    return;
  }
  by_rows_ = row_ >= kLongRow;
  if (by_rows_) return;
  const int64_t groups = std::lcm(row_, kRowGroup);
  tile_ = groups <= kTile ? kTile / groups * groups : kTile / row_ * row_;
}

// --- Running

int64_t TileProgram::tile_at(int64_t flat, int64_t rest) const {
  if (by_rows_) return std::min({kTile, rest, row_ - flat % row_});
  return std::min(rest, tile_ - flat % row_);
}

void TileProgram::repeat(uint32_t value, DType dtype, const std::byte* from, Tile& t) const {
  std::byte* slot = t.slot(slots_[value], slot_bytes_);
  const int64_t size = row_size(dtype);
  alignas(16) std::byte wide[16];
  if (is_half(dtype)) {
    widen_elements(dtype, from, 1, wide);
  } else {
    std::memcpy(wide, from, size_t(size));
  }
  fill(slot, wide, size, 0, std::max(kRowGroup, 64 / size));
  t.at[value] = slot;
  t.step[value] = 0;
}

// Contiguous elements: where they lie, if the row functions can take them there.
void TileProgram::copy_in(uint32_t value, DType dtype, const std::byte* from, Tile& t) const {
  const int64_t size = row_size(dtype);
  t.step[value] = 1;
  if (!is_half(dtype) && t.count % kRowGroup == 0) {
    t.at[value] = from;
    return;
  }
  std::byte* slot = t.slot(slots_[value], slot_bytes_);
  if (is_half(dtype)) {
    widen_elements(dtype, from, t.count, slot);
  } else if (from != slot) {
    std::memcpy(slot, from, size_t(t.count * size));
  }
  fill(slot, slot + (t.count - 1) * size, size, t.count, padded(t.count));
  t.at[value] = slot;
}

void TileProgram::load_row(size_t i, const TileOperand& x, const std::byte* from, Tile& t) const {
  const uint32_t value = inputs_[i].value;
  const DType dtype = x.dtype();
  const int64_t size = size_of(dtype);
  if (t.flat % x.row() + t.count <= x.row() && (x.row_repeats() || x.row_is_contiguous())) {
    from += x.offset(t.flat) * size;
    return x.row_repeats() ? repeat(value, dtype, from, t) : copy_in(value, dtype, from, t);
  }
  std::byte* slot = t.slot(slots_[value], slot_bytes_);
  t.at[value] = slot;
  t.step[value] = 1;
  // The same columns as in the tile before.
  if (x.is_periodic() && x.row() == row_ && t.phase == t.flat % row_ && t.count <= t.phase_count)
    return;
  std::byte* to = is_half(dtype) ? t.bits : slot;
  x.gather(from, t.flat, t.count, to);
  if (is_half(dtype)) widen_elements(dtype, to, t.count, slot);
  const int64_t wide = row_size(dtype);
  fill(slot, slot + (t.count - 1) * wide, wide, t.count, padded(t.count));
}

void TileProgram::load(size_t i, const TileArgs& args, Tile& t) const {
  const Input& in = inputs_[i];
  const auto* from = static_cast<const std::byte*>(args.inputs[i]);
  if (in.handed) {
    const DType wide = is_half(dtypes_[in.value]) ? DType::kF32 : dtypes_[in.value];
    return copy_in(in.value, wide, from + (t.flat - t.first) * size_of(wide), t);
  }
  const TileOperand& x = in.operand[0];
  if (x.repeats()) {
    if (t.fresh) repeat(in.value, x.dtype(), from, t);
    return;
  }
  if (x.is_dense()) {
    return copy_in(in.value, x.dtype(), from + t.flat * size_of(x.dtype()), t);
  }
  load_row(i, x, from, t);
}

void TileProgram::compute(const Op& op, void* direct, Tile& t) const {
  Row row;
  for (size_t k = 0; k < op.operands.size(); ++k) {
    row.in[k] = t.at[op.operands[k]];
    row.step[k] = t.step[op.operands[k]];
  }
  row.out = direct ? direct : t.slot(slots_[op.result], slot_bytes_);
  row.count = padded(t.count);
  op.row(row);
  if (is_half(op.round)) {
    narrow_elements(op.round, row.out, row.count, t.bits);
    widen_elements(op.round, t.bits, row.count, row.out);
  }
  t.at[op.result] = static_cast<const std::byte*>(row.out);
  t.step[op.result] = 1;
}

// Where the last call may write its result at once: nothing is read after it.
void* TileProgram::direct_result(const TileArgs& args, const Tile& t) const {
  if (t.count % kRowGroup != 0) return nullptr;
  const uint32_t last = ops_.back().result;
  void* found = nullptr;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& o = outputs_[i];
    if (o.value != last) {
      // Another result may be read from memory that this one overwrites.
      if (t.at[o.value] < t.slots || t.at[o.value] >= t.bits) return nullptr;
      continue;
    }
    if (found || (is_half(o.dtype) && !o.handed)) return nullptr;
    const int64_t at = o.handed ? t.flat - t.first : t.flat;
    found = static_cast<std::byte*>(args.outputs[i]) + at * row_size(o.dtype);
  }
  return found;
}

void TileProgram::store(size_t i, const TileArgs& args, const Tile& t) const {
  const Output& o = outputs_[i];
  const std::byte* from = t.at[o.value];
  auto* base = static_cast<std::byte*>(args.outputs[i]);
  const int64_t wide = row_size(o.dtype);
  const bool half = is_half(o.dtype) && !o.handed;
  const int64_t at = o.handed ? t.flat - t.first : t.flat;
  std::byte* to = base + at * (half ? 2 : wide);
  if (t.step[o.value] == 0) {  // a number everywhere
    std::byte* bits = half ? t.bits : nullptr;
    if (half) narrow_elements(o.dtype, from, 1, bits);
    return fill(to, half ? bits : from, half ? 2 : wide, 0, t.count);
  }
  if (half) {
    narrow_elements(o.dtype, from, t.count, to);
  } else if (from != to) {
    std::memcpy(to, from, size_t(t.count * wide));
  }
}

void TileProgram::run_tile(const TileArgs& args, Tile& t) const {
  for (size_t i = 0; i < inputs_.size(); ++i) load(i, args, t);
  for (size_t k = 0; k < ops_.size(); ++k) {
    compute(ops_[k], k + 1 == ops_.size() ? direct_result(args, t) : nullptr, t);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) store(i, args, t);
}

void TileProgram::run(const TileArgs& args, int64_t flat, int64_t count, void* scratch) const {
  Tile t;
  t.slots = static_cast<std::byte*>(scratch);
  t.bits = t.slots + int64_t(num_slots_) * slot_bytes_;
  t.first = flat;
  for (const ConstantValue& c : constants_) {
    t.at[c.value] = c.copies.data();
    t.step[c.value] = 0;
  }
  for (const int64_t end = flat + count; flat < end; flat += t.count) {
    t.flat = flat;
    t.count = tile_at(flat, end - flat);
    run_tile(args, t);
    t.fresh = false;
    t.phase_count = t.phase == flat % row_ ? std::max(t.phase_count, t.count) : t.count;
    t.phase = flat % row_;
  }
}

}  // namespace cpu
}  // namespace rlx
