#include "rlx/backend/cpu/region/program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "hwy/targets.h"
#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/region/code.h"
#include "rlx/backend/cpu/region/native.h"
#include "rlx/base/error.h"
#include "rlx/ops/elementwise_region.h"

namespace rlx::cpu {

using namespace region;  // NOLINT: this file is part of it

namespace {

// Bodies beyond this have no place in slots of 16 bits.
constexpr size_t kMaxNodes = 10000;
// Elements that are brought together where rows are short or strided.
constexpr int64_t kSegment = 1024;
constexpr int64_t kLargestElement = 16;

const StageTable& table_of(std::string_view name) {
  const StageTable* best = &kStagesScalar;
#if defined(__x86_64__)
  const int64_t supported = hwy::SupportedTargets();
  const bool avx2 = (supported & HWY_AVX2) != 0, avx3 = (supported & HWY_AVX3_DL) != 0;
  if (avx2) best = &kStagesAvx2;
  if (avx3) best = &kStagesAvx3;
  if (name == kStagesScalar.name) best = &kStagesScalar;
  if (name == kStagesAvx2.name && avx2) best = &kStagesAvx2;
#endif
  if (!name.empty() && name != best->name) {
    fail(ErrorKind::kUnsupported, "this machine cannot run the stages for {}", name);
  }
  return *best;
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void copy_one(std::byte* to, const std::byte* from, int64_t size) {
  switch (size) {
    case 1:
      *to = *from;
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    default:
      std::memcpy(to, from, 16);
  }
}

template <class T>
void repeat_as(std::byte* to, const std::byte* from, int64_t count) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  for (int64_t k = 0; k < count; ++k) std::memcpy(to + k * int64_t(sizeof(T)), &value, sizeof(T));
}

void repeat(std::byte* to, const std::byte* from, int64_t size, int64_t count) {
  switch (size) {
    case 1:
      std::memset(to, int(*from), size_t(count));
      return;
    case 2:
      return repeat_as<uint16_t>(to, from, count);
    case 4:
      return repeat_as<uint32_t>(to, from, count);
    case 8:
      return repeat_as<uint64_t>(to, from, count);
    default:
      return repeat_as<std::array<uint64_t, 2>>(to, from, count);
  }
}

// As often as row functions may read it: a group of theirs, and a whole vector.
int64_t scalar_copies(int64_t size) { return std::max(kRowGroup, 64 / size); }

// One line of elements; strides in bytes.
void copy_line(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
               int64_t size, int64_t count) {
  if (to_stride == size && from_stride == size) {
    std::memcpy(to, from, size_t(count * size));
    return;
  }
  for (int64_t k = 0; k < count; ++k) copy_one(to + k * to_stride, from + k * from_stride, size);
}

// ---- Functions on groups in memory ----

void run_row(const CallInit& c, const std::byte* const* in, std::byte* out, int64_t group) {
  Row r;
  for (size_t i = 0; i < c.operands; ++i) {
    r.in[i] = in[i];
    r.step[i] = c.step[i];
  }
  r.out = out;
  r.count = group;
  if (group >= kRowGroup) return c.row(r);
  // Narrow registers: row functions see a whole group of theirs.
  alignas(64) std::byte wide[4][size_t(kRowGroup * kLargestElement)] = {};
  for (size_t i = 0; i < c.operands; ++i) {
    if (c.step[i] == 0) continue;
    std::memcpy(wide[i], in[i], size_t(group * c.size[i]));
    r.in[i] = wide[i];
  }
  r.out = wide[3];
  r.count = kRowGroup;
  c.row(r);
  std::memcpy(out, wide[3], size_t(group * c.out_size));
}

void run_call(const Context& ctx, uint32_t index, size_t at) {
  const CallInit& c = static_cast<const CallInit*>(ctx.calls)[index];
  const std::byte* in[3] = {};
  for (size_t i = 0; i < c.operands; ++i) {
    const Slot& s = ctx.slots[c.in[i]];
    in[i] = s.base + ((at * c.size[i]) & s.mask);
  }
  const Slot& s = ctx.slots[c.out];
  std::byte* out = s.base + ((at * c.out_size) & s.mask);
  const auto group = int64_t(ctx.group);
  const auto half = [](const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); };
  const auto single = [](const std::byte* p) { return reinterpret_cast<const float*>(p); };
  switch (c.kind) {
    case CallKind::kRow:
      return run_row(c, in, out, group);
    case CallKind::kWidenF16:
      return f16_to_f32(half(in[0]), reinterpret_cast<float*>(out), group);
    case CallKind::kWidenBF16:
      return bf16_to_f32(half(in[0]), reinterpret_cast<float*>(out), group);
    case CallKind::kNarrowF16:
      if (c.step[0] == 0) break;
      return f32_to_f16(single(in[0]), reinterpret_cast<uint16_t*>(out), group);
    case CallKind::kNarrowBF16:
      if (c.step[0] == 0) break;
      return f32_to_bf16(single(in[0]), reinterpret_cast<uint16_t*>(out), group);
    case CallKind::kCopy:
      if (c.step[0] == 0) return repeat(out, in[0], c.out_size, group);
      std::memmove(out, in[0], size_t(group * c.out_size));
      return;
  }
  // A scalar to 16 bits.
  uint16_t bits = 0;
  c.kind == CallKind::kNarrowF16 ? f32_to_f16(single(in[0]), &bits, 1)
                                 : f32_to_bf16(single(in[0]), &bits, 1);
  repeat(out, reinterpret_cast<const std::byte*>(&bits), 2, group);
}

}  // namespace

struct RegionProgram::Code {
  const StageTable* table = nullptr;
  bool wide = false, streaming = false;
  bool has_rows = false;  // inputs of one element per row
  int64_t group = 0;
  region::Code rows, flat;  // the second reads inputs per row as columns; empty if there are none
  std::vector<RegionInput> inputs;
  std::vector<DType> body_inputs;
  std::vector<int64_t> input_size, result_size;
  int64_t tile_bytes = 0;  // then slots, then pads, then segments
  int64_t slots_at = 0, pads_at = 0, segments_at = 0, bytes = 0;
};

namespace {

// One call of `run`.
template <class Code>
class Runner {
 public:
  Runner(const Code& code, std::span<const RegionRows> inputs, std::span<const RegionRows> results,
         void* scratch)
      : code_(code),
        inputs_(inputs),
        results_(results),
        scratch_(static_cast<std::byte*>(scratch)),
        slots_(reinterpret_cast<Slot*>(scratch_ + code.slots_at)) {}

  void run(int64_t columns, int64_t rows) {
    bool dense = true, contiguous = !code_.has_rows;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (code_.inputs[i].form != RegionForm::kColumns) continue;
      const bool line = is_line(inputs_[i], code_.input_size[i], columns);
      dense &= line;
      contiguous &= line && inputs_[i].row_stride == columns * code_.input_size[i];
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      const bool line = is_line(results_[i], code_.result_size[i], columns);
      dense &= line;
      contiguous &=
          line && (!results_[i].base || results_[i].row_stride == columns * code_.result_size[i]);
    }
    if (contiguous) {
      columns *= rows;
      rows = 1;
    }
    if (dense && (rows == 1 || columns >= 4 * code_.group)) {
      run_rows(columns, rows);
    } else {
      run_segments(columns, rows);
    }
  }

 private:
  static bool is_line(const RegionRows& r, int64_t size, int64_t columns) {
    return r.column_stride == 0 || r.column_stride == size || columns == 1 || !r.base;
  }
  static std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }

  // ---- Slots ----

  void bind(const region::Code& part) {
    part_ = &part;
    context_.slots = slots_;
    context_.first = part.stages.data();
    context_.call = run_call;
    context_.calls = part.calls.data();
    context_.group = size_t(code_.group);
    context_.streaming = code_.streaming;
    for (size_t k = 0; k < part.slots.size(); ++k) {
      const SlotInit& s = part.slots[k];
      if (s.kind == SlotKind::kConstant) {
        // Read only.
        auto* base = reinterpret_cast<const std::byte*>(part.constants.data()) + s.offset;
        slots_[k] = {const_cast<std::byte*>(base), 0};
      } else {
        slots_[k] = {scratch_ + s.offset, 0};
      }
    }
  }

  // The scalars of a row (of the first for kSingle).
  void fill_scalars(int64_t row, bool all) {
    // Stages read one element, and that where it lies; only row functions want copies.
    const bool in_place = part_->calls.empty();
    for (size_t k = 0; k < part_->slots.size(); ++k) {
      const SlotInit& s = part_->slots[k];
      if (s.kind != SlotKind::kScalar && s.kind != SlotKind::kScalarMask) continue;
      const bool per_row = code_.inputs[s.index].form == RegionForm::kRow;
      if (!per_row && !all) continue;
      const RegionRows& in = inputs_[s.index];
      std::byte* from = bytes(in.base) + (per_row ? row * in.row_stride : 0);
      if (in_place && s.kind == SlotKind::kScalar && !is_half(code_.inputs[s.index].stored)) {
        slots_[k].base = from;
      } else {
        fill_scalar(s, from, slots_[k].base);
      }
    }
  }

  void fill_scalar(const SlotInit& s, const std::byte* from, std::byte* to) const {
    const DType stored = code_.inputs[s.index].stored;
    if (s.kind == SlotKind::kScalarMask) {
      std::memset(to, *from != std::byte(0) ? 0xFF : 0, 64);
      return;
    }
    if (is_half(stored)) {
      float wide = 0;
      const auto* half = reinterpret_cast<const uint16_t*>(from);
      stored == DType::kF16 ? f16_to_f32(half, &wide, 1) : bf16_to_f32(half, &wide, 1);
      std::byte copy[sizeof(wide)];
      std::memcpy(copy, &wide, sizeof(wide));
      repeat(to, copy, sizeof(wide), scalar_copies(sizeof(wide)));
      return;
    }
    const int64_t size = stored_size(stored);
    repeat(to, from, size, scalar_copies(size));
  }

  void point(uint16_t slot, std::byte* base, size_t mask) {
    if (slot != kNoSlot) slots_[slot] = {base, mask};
  }

  std::byte* pad(size_t k) const { return scratch_ + code_.pads_at + int64_t(k) * pad_bytes(); }
  int64_t pad_bytes() const { return aligned(code_.group * kLargestElement); }

  void enter(int64_t elements) {
    context_.end = size_t(elements) * (code_.wide ? sizeof(double) : sizeof(float));
    code_.wide ? code_.table->enter_f64(&context_) : code_.table->enter_f32(&context_);
  }

  // `count` elements in a line from where the pointers are. What is left of whole groups passes
  // through pads.
  void run_line(int64_t count) {
    const size_t n = inputs_.size();
    const int64_t whole = count / code_.group * code_.group, rest = count - whole;
    for (size_t i = 0; i < n; ++i) point(part_->input_slot[i], in_[i], ~size_t(0));
    for (size_t i = 0; i < results_.size(); ++i) {
      out_[i] ? point(part_->result_slot[i], out_[i], ~size_t(0))
              : point(part_->result_slot[i], pad(n + i), 0);
    }
    if (whole > 0) enter(whole);
    if (rest == 0) return;
    for (size_t i = 0; i < n; ++i) {
      if (part_->input_slot[i] == kNoSlot) continue;
      const int64_t size = code_.input_size[i];
      std::memcpy(pad(i), in_[i] + whole * size, size_t(rest * size));
      std::memset(pad(i) + rest * size, 0, size_t((code_.group - rest) * size));
      point(part_->input_slot[i], pad(i), ~size_t(0));
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      point(part_->result_slot[i], pad(n + i), ~size_t(0));
    }
    enter(code_.group);
    for (size_t i = 0; i < results_.size(); ++i) {
      const int64_t size = code_.result_size[i];
      if (out_[i]) std::memcpy(out_[i] + whole * size, pad(n + i), size_t(rest * size));
    }
  }

  // ---- Row by row ----

  void run_rows(int64_t columns, int64_t rows) {
    bind(code_.rows);
    for (int64_t row = 0; row < rows; ++row) {
      fill_scalars(row, row == 0);
      for (size_t i = 0; i < inputs_.size(); ++i) {
        in_[i] = bytes(inputs_[i].base) + row * inputs_[i].row_stride;
      }
      for (size_t i = 0; i < results_.size(); ++i) {
        out_[i] =
            results_[i].base ? bytes(results_[i].base) + row * results_[i].row_stride : nullptr;
      }
      run_line(columns);
    }
  }

  // ---- Segments: short or strided rows are brought into a line ----

  void run_segments(int64_t columns, int64_t rows) {
    bind(code_.has_rows ? code_.flat : code_.rows);
    fill_scalars(0, true);
    int64_t rows_at_once = 1, columns_at_once = std::min(columns, kSegment);
    if (columns < kSegment) {
      rows_at_once = kSegment / columns;
      // A whole number of groups, if that is possible.
      const int64_t step = code_.group / std::gcd(code_.group, columns);
      if (rows_at_once >= step) rows_at_once -= rows_at_once % step;
    }
    for (int64_t row = 0; row < rows; row += rows_at_once) {
      const int64_t r = std::min(rows_at_once, rows - row);
      for (int64_t column = 0; column < columns; column += columns_at_once) {
        run_segment(row, r, column, std::min(columns_at_once, columns - column),
                    row == 0 || columns > columns_at_once);
      }
    }
  }

  void run_segment(int64_t row, int64_t rows, int64_t column, int64_t columns, bool first) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (part_->input_slot[i] == kNoSlot) continue;
      in_[i] = bring(i, row, rows, column, columns, first);
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      const RegionRows& r = results_[i];
      const int64_t size = code_.result_size[i];
      out_[i] = nullptr;
      if (r.base) {
        out_[i] = is_together(r, size, rows, columns)
                      ? bytes(r.base) + row * r.row_stride + column * size
                      : segment(inputs_.size() + i);
      }
    }
    run_line(rows * columns);
    for (size_t i = 0; i < results_.size(); ++i) {
      if (out_[i] == segment(inputs_.size() + i)) send(i, row, rows, column, columns);
    }
  }

  static bool is_together(const RegionRows& r, int64_t size, int64_t rows, int64_t columns) {
    return is_line(r, size, columns) && (rows == 1 || r.row_stride == columns * size);
  }

  std::byte* segment(size_t k) const {
    return scratch_ + code_.segments_at + int64_t(k) * kSegment * kLargestElement;
  }

  std::byte* bring(size_t i, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   bool first) const {
    const RegionRows& r = inputs_[i];
    const int64_t size = code_.input_size[i];
    std::byte* from = bytes(r.base) + row * r.row_stride;
    std::byte* to = segment(i);
    if (code_.inputs[i].form == RegionForm::kRow) {
      for (int64_t k = 0; k < rows; ++k) {
        repeat(to + k * columns * size, from + k * r.row_stride, size, columns);
      }
      return to;
    }
    const int64_t stride = r.column_stride == 0 ? size : r.column_stride;
    from += column * stride;
    if (is_together(r, size, rows, columns)) return from;
    if (r.row_stride == 0 && !first) return to;  // the same as last time
    for (int64_t k = 0; k < rows; ++k) {
      copy_line(to + k * columns * size, size, from + k * r.row_stride, stride, size, columns);
    }
    return to;
  }

  void send(size_t i, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    const RegionRows& r = results_[i];
    const int64_t size = code_.result_size[i];
    const int64_t stride = r.column_stride == 0 ? size : r.column_stride;
    std::byte* to = bytes(r.base) + row * r.row_stride + column * stride;
    for (int64_t k = 0; k < rows; ++k) {
      copy_line(to + k * r.row_stride, stride, out_[i] + k * columns * size, size, size, columns);
    }
  }

  const Code& code_;
  std::span<const RegionRows> inputs_, results_;
  std::byte* scratch_;
  Slot* slots_;
  const region::Code* part_ = nullptr;
  Context context_;
  std::byte* in_[kMaxRegionTensors];
  std::byte* out_[kMaxRegionTensors];
};

}  // namespace

std::string_view RegionProgram::refuses(const Graph& body) {
  if (body.size() > kMaxNodes) return "a body of more than 10000 nodes";
  if (body.inputs().size() > kMaxRegionTensors) return "more than 64 operands";
  if (body.outputs().size() > kMaxRegionTensors) return "more than 64 results";
  for (const Node& n : body.nodes()) {
    if (n.op->has(kLeaf)) continue;
    std::vector<DType> types;
    for (Value v : n.operands) types.push_back(body.type(v).dtype);
    if (!can_run(n, types)) return "a node that has no row function";
  }
  return {};
}

RegionProgram RegionProgram::compile(const Graph& given, const RegionOptions& options) {
  const GraphRef rounding = rounding_body({std::make_shared<const Graph>(given), options.strict});
  const Graph body = absorb_negations(*rounding);
  if (const std::string_view why = refuses(body); !why.empty()) {
    fail(ErrorKind::kUnsupported, "the stage machine does not run this region: {}", why);
  }
  auto code = std::make_shared<Code>();
  code->table = &table_of(options.target);
  code->wide = computes_in_f64(body);
  code->streaming = options.streaming;
  code->group = code->wide ? code->table->group_f64 : code->table->group_f32;
  code->inputs = options.inputs;
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    if (options.inputs.empty()) {
      code->inputs.push_back({RegionForm::kColumns, body.type(body.inputs()[i]).dtype});
    }
    code->has_rows |= code->inputs[i].form == RegionForm::kRow;
    code->input_size.push_back(stored_size(code->inputs[i].stored));
  }
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    const DType stored = options.stored_results.empty() ? body.type(body.outputs()[i].value).dtype
                                                        : options.stored_results[i];
    code->result_size.push_back(stored_size(stored));
  }
  code->rows = lower(body, options, *code->table, code->wide, false);
  if (code->has_rows) code->flat = lower(body, options, *code->table, code->wide, true);
  const auto slots = int64_t(std::max(code->rows.slots.size(), code->flat.slots.size()));
  const auto tensors = int64_t(code->input_size.size() + code->result_size.size());
  code->tile_bytes = aligned(std::max(code->rows.tile_bytes, code->flat.tile_bytes));
  code->slots_at = code->tile_bytes;
  code->pads_at = code->slots_at + aligned(slots * int64_t(sizeof(Slot)));
  code->segments_at = code->pads_at + tensors * aligned(code->group * kLargestElement);
  code->bytes = code->segments_at + tensors * kSegment * kLargestElement;
  return RegionProgram(std::move(code));
}

size_t RegionProgram::inputs() const { return code_->input_size.size(); }
size_t RegionProgram::results() const { return code_->result_size.size(); }
int64_t RegionProgram::scratch_bytes() const { return code_->bytes; }
double RegionProgram::nanoseconds_per_element() const { return code_->rows.nanoseconds; }

void RegionProgram::run(std::span<const RegionRows> inputs, std::span<const RegionRows> results,
                        int64_t columns, int64_t rows, void* scratch) const {
  if (columns <= 0 || rows <= 0) return;
  Runner<Code>(*code_, inputs, results, scratch).run(columns, rows);
}

}  // namespace rlx::cpu
