// Elementwise nodes over a stretch of an iteration space, tile by tile: every node is one call of
// its kernel's row function on a tile that stays in the cache. Knows nothing of instruction sets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/backend/cpu/kernels/elementwise_rows.h"
#include "rlx/ir/graph.h"

namespace rlx::cpu {

// How a program reads a tensor that broadcasts to its space.
class TileOperand {
 public:
  // Strides are those of the space: 0 where the tensor is broadcast.
  TileOperand(DType dtype, const Dims& dims, const Dims& strides);

  DType dtype() const { return dtype_; }
  bool is_dense() const { return form_ == Form::kDense; }
  bool repeats() const { return form_ == Form::kSplat; }
  // Elements from which on the operand starts anew or jumps; stretches within it are cheap.
  int64_t row() const { return dims_.empty() ? 1 : dims_.back(); }
  // Whether one row is a single number, or contiguous.
  bool row_repeats() const { return strides_.empty() || strides_.back() == 0; }
  bool row_is_contiguous() const { return !strides_.empty() && strides_.back() == 1; }
  // Every row is the same.
  bool is_periodic() const { return dims_.size() == 2 && strides_[0] == 0 && strides_[1] == 1; }
  int64_t offset(int64_t flat) const;  // in elements
  // For `rows` stretches of `columns` elements, row_step apart, from `flat` on: elements from one
  // to the next, if that is the same everywhere and no stretch goes past the end of a row.
  std::optional<int64_t> row_stride(int64_t flat, int64_t row_step, int64_t rows,
                                    int64_t columns) const;
  int64_t column_stride() const { return strides_.empty() ? 0 : strides_.back(); }
  // Copies the elements [flat, flat + count) to `to`, in the operand's dtype.
  void gather(const void* base, int64_t flat, int64_t count, void* to) const;

 private:
  enum class Form : uint8_t { kDense, kSplat, kRows };
  DType dtype_;
  Form form_;
  Dims dims_, strides_;  // joined where they are one in memory
};

// First elements of the tensors, in the order of the body's inputs and outputs; of what is handed
// over, the first element of the stretch.
struct TileArgs {
  const void* const* inputs;
  void* const* outputs;
};

class TileProgram {
 public:
  static constexpr int64_t kTile = 256;  // elements

  // `body` is a graph of elementwise calls and one-element constants whose shapes do not matter;
  // every node is rounded to its own dtype. Its inputs are tensors that broadcast to the space
  // `dims`; where none is given, the input is handed over by the caller: a contiguous stretch, f16
  // and bf16 as f32. Outputs are dense in the space, or handed over, where `handed` says so.
  TileProgram(const Graph& body, const Dims& dims,
              std::span<const std::optional<TensorDesc>> inputs, std::span<const uint8_t> handed);
  // Why a body cannot run this way, or an empty text.
  static std::string_view refuses(const Graph& body);

  int64_t scratch_bytes() const { return scratch_bytes_; }  // 64-byte aligned, for a run
  double nanoseconds_per_element() const { return ns_; }

  // The elements [flat, flat + count) of the space. A handed-over input may be the memory of an
  // output: all reads of an element precede its writes.
  void run(const TileArgs& args, int64_t flat, int64_t count, void* scratch) const;

 private:
  struct Input {
    uint32_t value;
    bool handed = false;
    std::vector<TileOperand> operand;  // one, unless handed over
  };
  struct Op {
    RowFn row;
    uint32_t result;
    std::vector<uint32_t> operands;
    DType round;  // f16 or bf16: the result is rounded to it; else anything
  };
  struct Output {
    uint32_t value;
    bool handed = false;
    DType dtype;
  };
  struct ConstantValue {
    uint32_t value;
    alignas(64) std::array<std::byte, 128> copies;  // at least a group
  };
  static constexpr uint32_t kMostValues = 64;
  struct Tile;

  void add_node(const Graph& body, const Node& n, uint32_t id);
  void allocate_slots();
  void choose_tile();
  int64_t tile_at(int64_t flat, int64_t rest) const;
  void load(size_t i, const TileArgs& args, Tile& t) const;
  void load_row(size_t i, const TileOperand& x, const std::byte* from, Tile& t) const;
  void repeat(uint32_t value, DType dtype, const std::byte* from, Tile& t) const;
  void copy_in(uint32_t value, DType dtype, const std::byte* from, Tile& t) const;
  void compute(const Op& op, void* direct, Tile& t) const;
  void* direct_result(const TileArgs& args, const Tile& t) const;
  void store(size_t i, const TileArgs& args, const Tile& t) const;
  void run_tile(const TileArgs& args, Tile& t) const;

  std::vector<Input> inputs_;
  std::vector<ConstantValue> constants_;
  std::vector<Op> ops_;
  std::vector<Output> outputs_;
  std::vector<DType> dtypes_;    // of values
  std::vector<uint32_t> slots_;  // of values: their place in the scratch
  uint32_t num_slots_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  int64_t row_ = 1;       // of the operands that are not dense; 1 if all are
  bool by_rows_ = false;  // tiles end where rows end
  int64_t tile_ = kTile;  // else: a multiple of the row, if one fits
  double ns_ = 0;
};

}  // namespace rlx::cpu
