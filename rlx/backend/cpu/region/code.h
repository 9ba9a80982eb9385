// What lowering makes of a body, and runs read.
#pragma once

#include <cstdint>
#include <vector>

#include "rlx/backend/cpu/kernels/elementwise_loop.h"
#include "rlx/backend/cpu/region/program.h"
#include "rlx/backend/cpu/region/stages.h"

namespace rlx::cpu::region {

inline constexpr uint16_t kNoSlot = 0xFFFF;

enum class SlotKind : uint8_t {
  kInput,       // moves along the caller's memory
  kResult,      // the same
  kScalar,      // copies of an input's one element, as a row function sees it
  kScalarMask,  // the same as a mask (bool)
  kConstant,    // in Code::constants
  kTile,        // a group in the scratch
};

struct SlotInit {
  SlotKind kind = SlotKind::kTile;
  uint16_t index = 0;  // of the input or result
  int64_t offset = 0;  // in the scratch or the constants
};

enum class CallKind : uint8_t { kRow, kWidenF16, kWidenBF16, kNarrowF16, kNarrowBF16, kCopy };

// A function on groups in memory.
struct CallInit {
  CallKind kind = CallKind::kRow;
  RowFn row = nullptr;
  uint8_t operands = 0;
  uint8_t step[3] = {}, size[3] = {};  // step 0: a scalar; sizes of elements
  uint16_t in[3] = {}, out = 0;
  uint8_t out_size = 0;
};

struct Code {
  std::vector<Stage> stages;
  std::vector<SlotInit> slots;
  std::vector<CallInit> calls;
  std::vector<uint64_t> constants;
  std::vector<uint16_t> input_slot, result_slot;  // the moving ones
  int64_t tile_bytes = 0;                         // of all kTile and scalar slots
  double nanoseconds = 0;                         // per element
};

// A scalar is repeated so often: a whole vector of the smallest element, a group of the largest.
inline constexpr int64_t kScalarBytes = 256;

// Elements of 4 or of 8 bytes in the registers: whichever most nodes compute in.
bool computes_in_f64(const Graph& body);
// `as_columns`: inputs of one element per row are read as columns.
Code lower(const Graph& body, const RegionOptions& options, const StageTable& table, bool wide,
           bool as_columns);

}  // namespace rlx::cpu::region
