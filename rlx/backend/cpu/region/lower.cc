// From a body to stages: an order of its nodes in which few values are alive, then one walk that
// knows what is in the registers.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "rlx/backend/cpu/kernels/elementwise_rows.h"
#include "rlx/backend/cpu/region/code.h"
#include "rlx/backend/cpu/region/link.h"
#include "rlx/backend/cpu/region/native.h"
#include "rlx/backend/cpu/region/schedule.h"
#include "rlx/base/error.h"
#include "rlx/ir/leaf.h"

namespace rlx::cpu::region {
namespace {

constexpr uint32_t kNone = ~uint32_t(0);

// Where a value can be read: as lanes (what registers hold) or as a row (what row functions see).
// The two differ for bool only: masks, and bytes.
struct Place {
  uint16_t lanes = kNoSlot, row = kNoSlot;
  bool scalar = false;
};

class Lowering {
 public:
  Lowering(const Graph& body, const RegionOptions& options, const StageTable& table, bool wide,
           bool as_columns)
      : body_(body),
        options_(options),
        wide_(wide),
        find_(wide ? StageFinder{table.find_f64, table.find_loop_f64}
                   : StageFinder{table.find_f32, table.find_loop_f32}),
        lane_(wide ? 8 : 4),
        group_(wide ? table.group_f64 : table.group_f32),
        places_(body.size()),
        schedule_(schedule(body, options, wide, as_columns)),
        uses_(schedule_.uses),
        order_(schedule_.order),
        results_(schedule_.results) {}

  Code run() {
    for (size_t i = 0; i < results_.size(); ++i) {
      code_.result_slot.push_back(add_slot({SlotKind::kResult, uint16_t(i), 0}));
    }
    place_leaves();
    prefetch();
    for (position_ = 0; position_ < order_.size(); ++position_) emit_node(order_[position_]);
    finish();
    code_.tile_bytes = tile_bytes_;
    return std::move(code_);
  }

 private:
  DType dtype(uint32_t id) const { return body_.node(id).results[0].dtype; }
  bool native(DType t) const { return is_native(t, wide_); }
  bool leaf(uint32_t id) const { return is_leaf(body_.node(id)); }

  std::vector<uint32_t> operands_of(uint32_t id) const {
    return region::operands_of(body_, schedule_, id);
  }

  NativeOp native_of(uint32_t id) const {
    const Node& n = body_.node(id);
    std::vector<DType> types;
    for (Value v : n.operands) types.push_back(dtype(v.node));
    return native_op(n, types, wide_);
  }

  size_t input_index(uint32_t id) const {
    const auto& inputs = body_.inputs();
    return size_t(std::find(inputs.begin(), inputs.end(), Value{id, 0}) - inputs.begin());
  }

  // ---- Slots ----

  uint16_t add_slot(SlotInit s) {
    code_.slots.push_back(s);
    if (code_.slots.size() >= kNoSlot) internal_error("a region program needs too many slots");
    return uint16_t(code_.slots.size() - 1);
  }

  uint16_t new_tile(int64_t element) {
    auto& free = free_tiles_[element];
    if (!free.empty()) {
      const uint16_t slot = free.back();
      free.pop_back();
      return slot;
    }
    const uint16_t slot = add_slot({SlotKind::kTile, uint16_t(element), tile_bytes_});
    // Row functions work on whole groups of theirs.
    tile_bytes_ += (std::max(group_, kRowGroup) * element + 63) / 64 * 64;
    return slot;
  }

  void free_slot(uint16_t slot) {
    if (slot == kNoSlot || code_.slots[slot].kind != SlotKind::kTile) return;
    free_tiles_[code_.slots[slot].index].push_back(slot);
  }

  uint16_t scalar_slot(SlotKind kind, size_t input) {
    const uint16_t slot = add_slot({kind, uint16_t(input), tile_bytes_});
    tile_bytes_ += kScalarBytes;
    return slot;
  }

  uint16_t constant_slot(const void* element, size_t size) {
    const size_t at = code_.constants.size();
    code_.constants.resize(at + kScalarBytes / sizeof(uint64_t));
    auto* to = reinterpret_cast<std::byte*>(&code_.constants[at]);
    for (size_t k = 0; k < size_t(kScalarBytes); k += size) std::memcpy(to + k, element, size);
    return add_slot({SlotKind::kConstant, 0, int64_t(at * sizeof(uint64_t))});
  }

  void place_leaves() {
    code_.input_slot.assign(body_.inputs().size(), kNoSlot);
    for (size_t i = 0; i < body_.inputs().size(); ++i) {
      const uint32_t id = body_.inputs()[i].node;
      if (uses_[id] == 0) continue;
      Place& p = places_[id];
      const RegionInput in = schedule_.inputs[i];
      if (in.form != RegionForm::kColumns) {
        p.scalar = true;
        p.row = scalar_slot(SlotKind::kScalar, i);
        if (native(dtype(id))) {
          p.lanes = dtype(id) == DType::kBool ? scalar_slot(SlotKind::kScalarMask, i) : p.row;
        }
        continue;
      }
      code_.input_slot[i] = add_slot({SlotKind::kInput, uint16_t(i), 0});
      if (is_half(in.stored)) {
        if (!native(in.stored)) p.row = widened(id, in.stored);
      } else {
        p.row = code_.input_slot[i];
        if (native(dtype(id)) && dtype(id) != DType::kBool) p.lanes = p.row;
      }
    }
    for (uint32_t id = 0; id < body_.size(); ++id) {
      if (is_constant(body_.node(id)) && uses_[id] != 0) place_constant(id);
    }
  }

  void place_constant(uint32_t id) {
    const Array& value = body_.node(id).attrs.as<ConstantAttrs>().value;
    Place& p = places_[id];
    p.scalar = true;
    if (is_half(dtype(id))) {
      const auto wide = float(value.at(0));
      p.row = constant_slot(&wide, sizeof(wide));
    } else {
      const Array dense = value.dense();
      p.row = constant_slot(dense.raw(), size_t(size_of(dtype(id))));
    }
    if (!native(dtype(id))) return;
    p.lanes = p.row;
    if (dtype(id) == DType::kBool) {
      const uint64_t mask = value.at(0) != 0 ? ~uint64_t(0) : 0;
      p.lanes = constant_slot(&mask, sizeof(mask));
    }
  }

  // Long functions keep the processor from seeing the next loads in time.
  void prefetch() {
    const bool any = std::any_of(order_.begin(), order_.end(), [&](uint32_t id) {
      const NativeOp op = native_of(id);
      return op.is_long ||
             (!op.rounds && op.unary == StageOp::kCount && op.forms[0] == StageOp::kCount);
    });
    if (!any) return;
    // The distance is that of elements as wide as the registers'.
    for (size_t i = 0; i < code_.input_slot.size(); ++i) {
      const bool fits = stored_size(schedule_.inputs[i].stored) == lane_;
      if (fits && code_.input_slot[i] != kNoSlot) emit(StageOp::kPrefetch, code_.input_slot[i]);
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      const bool fits = stored_size(results_[i].stored) == lane_;
      if (fits && !options_.streaming) emit(StageOp::kPrefetch, code_.result_slot[i]);
    }
  }

  // ---- Stages ----

  void emit(StageOp op, uint16_t a = 0, uint16_t b = 0, uint16_t c = 0, Form fa = Form::kMemory,
            Form fb = Form::kMemory) {
    plan_.push_back({{op, fa, fb}, a, b, c});
    code_.nanoseconds += stage_nanoseconds(op) * lane_ / 4;
  }

  Form form(uint32_t id) const { return places_[id].scalar ? Form::kScalar : Form::kMemory; }

  // The value as lanes in memory; leaves the registers alone.
  uint16_t lanes(uint32_t id) {
    Place& p = places_[id];
    if (p.lanes != kNoSlot) return p.lanes;
    p.lanes = new_tile(lane_);
    if (dtype(id) == DType::kBool) {
      emit(StageOp::kWidenBool, p.row, p.lanes);
    } else {  // only inputs of 16 bits
      const size_t i = input_index(id);
      const bool f16 = schedule_.inputs[i].stored == DType::kF16;
      emit(f16 ? StageOp::kWidenF16 : StageOp::kWidenBF16, code_.input_slot[i], p.lanes);
    }
    return p.lanes;
  }

  uint16_t row(uint32_t id) {
    Place& p = places_[id];
    if (p.row != kNoSlot) return p.row;
    if (dtype(id) != DType::kBool) return lanes(id);
    p.row = new_tile(1);
    if (acc_ != id) {
      emit(StageOp::kLoad, p.lanes);
      acc_ = id;
    }
    emit(StageOp::kStoreBool, p.row);
    return p.row;
  }

  void load(uint32_t id) {
    if (acc_ == id) return;
    acc_ = id;
    const Place& p = places_[id];
    if (p.lanes != kNoSlot) return emit(StageOp::kLoad, p.lanes, 0, 0, form(id));
    if (dtype(id) == DType::kBool) return emit(StageOp::kLoadBool, p.row);
    const size_t i = input_index(id);
    emit(schedule_.inputs[i].stored == DType::kF16 ? StageOp::kLoadF16 : StageOp::kLoadBF16,
         code_.input_slot[i]);
  }

  // An input of 16 bits where registers hold f64: rows of f32.
  uint16_t widened(uint32_t id, DType stored) {
    CallInit c;
    c.kind = stored == DType::kF16 ? CallKind::kWidenF16 : CallKind::kWidenBF16;
    c.operands = 1;
    c.in[0] = code_.input_slot[input_index(id)];
    c.size[0] = 2;
    c.step[0] = 1;
    c.out = new_tile(4);
    c.out_size = 4;
    emit(StageOp::kCall, 0, 0, add_call(c));
    return c.out;
  }

  uint16_t add_call(const CallInit& c) {
    code_.calls.push_back(c);
    if (code_.calls.size() >= kNoSlot) internal_error("a region program has too many calls");
    return uint16_t(code_.calls.size() - 1);
  }

  // ---- Nodes ----

  void emit_node(uint32_t id) {
    const Node& n = body_.node(id);
    const std::vector<uint32_t> operands = operands_of(id);
    std::vector<DType> types;
    for (Value v : n.operands) types.push_back(dtype(v.node));
    const NativeOp op = native_of(id);
    if (op.unary != StageOp::kCount) {
      emit_unary(op, operands[0]);
    } else if (op.rounds) {
      load(operands[0]);
    } else if (n.operands.size() == 2 && operands.size() == 3) {
      emit_folded(op, n, operands);
    } else if (op.forms[0] != StageOp::kCount) {
      operands.size() == 2 ? emit_binary(op, operands) : emit_ternary(op, operands);
    } else {
      emit_call(id, n, operands, types);
      for (uint32_t o : operands) release(o);
      settle(id, true);
      return;
    }
    for (uint32_t o : operands) release(o);
    acc_ = id;
    if (is_half(dtype(id))) emit_rounding(dtype(id));
    settle(id, false);
  }

  void emit_rounding(DType t) {
    if (work_ == kNoSlot) work_ = new_tile(lane_);
    emit(t == DType::kF16 ? StageOp::kRoundF16 : StageOp::kRoundBF16, work_);
  }

  void emit_unary(const NativeOp& op, uint32_t operand) {
    load(operand);
    emit(op.unary);
  }

  void emit_binary(const NativeOp& op, std::span<const uint32_t> o) {
    if (o[0] == o[1] && op.forms[0] == StageOp::kMul) {
      load(o[0]);
      return emit(StageOp::kSquare);
    }
    const size_t first = acc_ == o[0] ? 0 : acc_ == o[1] ? 1 : places_[o[0]].scalar ? 1 : 0;
    const uint32_t other = o[1 - first];
    const uint16_t slot = lanes(other);
    load(o[first]);
    const StageOp stage = op.forms[first];
    if (fuse_product(stage, slot, form(other))) return;
    emit(stage, slot, 0, 0, form(other));
  }

  // A product that nobody else wants and the sum or difference that takes it, as one stage.
  bool fuse_product(StageOp stage, uint16_t slot, Form f) {
    if (plan_.empty() || plan_.back().key.op != StageOp::kMul || !product_is_free_) return false;
    const StageOp fused = stage == StageOp::kAdd    ? StageOp::kMulAdd
                          : stage == StageOp::kSub  ? StageOp::kMulSub
                          : stage == StageOp::kRSub ? StageOp::kMulRSub
                                                    : StageOp::kCount;
    if (fused == StageOp::kCount) return false;
    const PlannedStage product = plan_.back();
    plan_.pop_back();
    code_.nanoseconds -= stage_nanoseconds(StageOp::kMul) * lane_ / 4;
    emit(fused, product.a, slot, 0, product.key.a, f);
    return true;
  }

  // A sum or difference with a folded product: its factors stand in the product's place.
  void emit_folded(const NativeOp& op, const Node& n, std::span<const uint32_t> o) {
    const bool first = schedule_.folded[schedule_.roots[n.operands[0].node]] != 0;
    uint32_t a = o[first ? 0 : 1], b = o[first ? 1 : 2];
    const uint32_t x = o[first ? 2 : 0];
    if (places_[a].scalar) std::swap(a, b);  // one order, so that loops know it
    const uint16_t slot_a = lanes(a), slot_b = lanes(b);
    load(x);
    const StageOp stage = op.forms[0] == StageOp::kAdd ? StageOp::kAddMul
                          : first                      ? StageOp::kRSubMul
                                                       : StageOp::kSubMul;
    emit(stage, slot_a, slot_b, 0, form(a), form(b));
  }

  void emit_ternary(const NativeOp& op, std::span<const uint32_t> o) {
    size_t first = 0;
    while (first < 3 && acc_ != o[first]) ++first;
    if (first == 3) {
      first = 0;
      while (first < 2 && places_[o[first]].scalar) ++first;
    }
    const uint32_t a = o[first == 0 ? 1 : 0], b = o[first == 2 ? 1 : 2];
    const uint16_t slot_a = lanes(a), slot_b = lanes(b);
    load(o[first]);
    emit(op.forms[first], slot_a, slot_b, 0, form(a), form(b));
  }

  void emit_call(uint32_t id, const Node& n, std::span<const uint32_t> o,
                 std::span<const DType> types) {
    CallInit c;
    c.row = elementwise_row(n, types);
    c.operands = uint8_t(o.size());
    // What is in the registers would be lost, and converting another operand needs them.
    if (acc_ != kNone && std::find(o.begin(), o.end(), acc_) != o.end()) store_for_call(acc_);
    for (size_t i = 0; i < o.size(); ++i) {
      c.in[i] = row(o[i]);
      c.step[i] = places_[o[i]].scalar ? 0 : 1;
      c.size[i] = uint8_t(row_size(dtype(o[i])));
    }
    const bool half = is_half(dtype(id));
    c.out_size = uint8_t(row_size(dtype(id)));
    c.out = new_tile(c.out_size);
    Place& p = places_[id];
    p.row = c.out;
    acc_ = kNone;
    if (native(dtype(id)) && dtype(id) != DType::kBool) {
      p.lanes = c.out;
      const bool in_acc = half || wants_registers(id);
      emit(in_acc ? StageOp::kCallTo : StageOp::kCall, 0, c.out, add_call(c));
      if (in_acc) acc_ = id;
      if (half) {
        emit_rounding(dtype(id));
        emit(StageOp::kStore, p.lanes);
      }
    } else {
      emit(StageOp::kCall, 0, 0, add_call(c));
      if (half) round_row(p.row, dtype(id));
    }
    code_.nanoseconds += call_nanoseconds(n);
  }

  // Of f32 rows where registers hold f64: through 16 bits and back.
  void round_row(uint16_t slot, DType t) {
    const uint16_t narrow = new_tile(2);
    const bool f16 = t == DType::kF16;
    const auto convert = [&](CallKind kind, uint16_t from, uint8_t size, uint16_t to,
                             uint8_t out_size) {
      CallInit c;
      c.kind = kind;
      c.operands = 1;
      c.in[0] = from;
      c.size[0] = size;
      c.step[0] = 1;
      c.out = to;
      c.out_size = out_size;
      emit(StageOp::kCall, 0, 0, add_call(c));
    };
    convert(f16 ? CallKind::kNarrowF16 : CallKind::kNarrowBF16, slot, 4, narrow, 2);
    convert(f16 ? CallKind::kWidenF16 : CallKind::kWidenBF16, narrow, 2, slot, 4);
    free_slot(narrow);
  }

  void store_for_call(uint32_t id) {
    Place& p = places_[id];
    if (dtype(id) == DType::kBool) {
      if (p.row == kNoSlot) {
        p.row = new_tile(1);
        emit(StageOp::kStoreBool, p.row);
      }
    } else if (p.lanes == kNoSlot) {
      p.lanes = new_tile(lane_);
      emit(StageOp::kStore, p.lanes);
    }
  }

  // How often the next node reads the value.
  uint32_t next_reads(uint32_t id) const {
    if (position_ + 1 >= order_.size()) return 0;
    const std::vector<uint32_t> o = operands_of(order_[position_ + 1]);
    return uint32_t(std::count(o.begin(), o.end(), id));
  }

  // The next node is the last to read the value and takes it from the registers.
  bool next_uses_up(uint32_t id) const {
    const uint32_t reads = next_reads(id);
    if (reads == 0 || reads != uses_[id]) return false;
    return reads == 1 || (reads == 2 && native_of(order_[position_ + 1]).forms[0] == StageOp::kMul);
  }

  // Whether the next node takes its operand from the registers, or a result does.
  bool wants_registers(uint32_t id) const {
    for (const ScheduledResult& r : results_) {
      if (r.node == id) return true;
    }
    if (next_reads(id) == 0) return false;
    const NativeOp op = native_of(order_[position_ + 1]);
    return op.rounds || op.unary != StageOp::kCount || op.forms[0] != StageOp::kCount;
  }

  void release(uint32_t id) {
    if (--uses_[id] != 0 || leaf(id)) return release_leaf(id);
    Place& p = places_[id];
    free_slot(p.lanes);
    if (p.row != p.lanes) free_slot(p.row);
    p = {};
  }

  // Widened copies of inputs live in tiles too.
  void release_leaf(uint32_t id) {
    if (uses_[id] != 0 || !leaf(id)) return;
    Place& p = places_[id];
    free_slot(p.lanes);
    if (p.row != p.lanes) free_slot(p.row);
  }

  // After a node: its results are stored, and it goes to memory if the next node does not use it
  // up.
  void settle(uint32_t id, bool from_call) {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].node != id || (i == 0 && position_ < schedule_.last_read)) continue;
      store_result(i);
      --uses_[id];
    }
    Place& p = places_[id];
    product_is_free_ = false;
    if (uses_[id] == 0) {
      free_slot(p.lanes);
      if (p.row != p.lanes) free_slot(p.row);
      p = {};
      return;
    }
    if (from_call || p.lanes != kNoSlot) return;  // it is in memory
    if (next_uses_up(id)) {
      product_is_free_ = uses_[id] == 1;
      return;
    }
    p.lanes = new_tile(lane_);
    emit(StageOp::kStore, p.lanes);
  }

  void store_result(size_t i) {
    const uint32_t id = results_[i].node;
    const DType stored = results_[i].stored;
    const uint16_t slot = code_.result_slot[i];
    if (native(dtype(id))) {
      load(id);
      if (stored == DType::kBool) return emit(StageOp::kStoreBool, slot);
      if (stored == DType::kF16) return emit(StageOp::kStoreF16, slot);
      if (stored == DType::kBF16) return emit(StageOp::kStoreBF16, slot);
      return emit(options_.streaming ? StageOp::kStream : StageOp::kStore, slot);
    }
    CallInit c;
    c.kind = CallKind::kCopy;
    if (stored == DType::kF16) c.kind = CallKind::kNarrowF16;
    if (stored == DType::kBF16) c.kind = CallKind::kNarrowBF16;
    c.operands = 1;
    if (acc_ != kNone && places_[acc_].lanes == kNoSlot) store_for_call(acc_);
    c.in[0] = row(id);
    c.size[0] = uint8_t(row_size(dtype(id)));
    c.step[0] = places_[id].scalar ? 0 : 1;
    c.out = slot;
    c.out_size = uint8_t(stored_size(stored));
    emit(StageOp::kCall, 0, 0, add_call(c));
    acc_ = kNone;
  }

  // Results that are inputs or constants, and result 0 if it had to wait.
  void finish() {
    position_ = order_.size();
    for (size_t i = results_.size(); i-- > 0;) {
      if (leaf(results_[i].node) || (i == 0 && waits())) store_result(i);
    }
    emit(StageOp::kNext);
    code_.stages = link(plan_, find_);
  }

  bool waits() const {
    const auto at = std::find(order_.begin(), order_.end(), results_[0].node);
    return at != order_.end() && size_t(at - order_.begin()) < schedule_.last_read;
  }

  const Graph& body_;
  const RegionOptions& options_;
  const bool wide_;
  const StageFinder find_;
  const int64_t lane_, group_;
  std::vector<Place> places_;
  Schedule schedule_;
  std::vector<uint32_t>& uses_;  // reads that are still to come
  const std::vector<uint32_t>& order_;
  const std::vector<ScheduledResult>& results_;
  size_t position_ = 0;
  std::map<int64_t, std::vector<uint16_t>> free_tiles_;
  int64_t tile_bytes_ = 0;
  uint32_t acc_ = kNone;     // whose lanes are in the registers
  uint16_t work_ = kNoSlot;  // for rounding to 16 bits
  std::vector<PlannedStage> plan_;
  bool product_is_free_ = false;
  Code code_;
};

}  // namespace

bool computes_in_f64(const Graph& body) {
  int64_t single = 0, wide = 0;
  for (const Node& n : body.nodes()) {
    if (n.op->has(kLeaf)) continue;
    const DType t = n.results[0].dtype;
    const DType of = n.operands.empty() ? t : body.type(n.operands.back()).dtype;
    const bool is_wide = t == DType::kF64 || of == DType::kF64;
    const bool is_single = is_float(t) && t != DType::kF64;
    wide += is_wide;
    single += is_single && !is_wide;
  }
  return wide > single;
}

Code lower(const Graph& body, const RegionOptions& options, const StageTable& table, bool wide,
           bool as_columns) {
  return Lowering(body, options, table, wide, as_columns).run();
}

}  // namespace rlx::cpu::region
