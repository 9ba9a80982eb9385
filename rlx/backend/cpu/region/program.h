// A region's body as a program of the stage machine: how the CPU runs chains of elementwise ops
// without writing the values in between. Kernels use it for whole tensors, for tiles (epilogues)
// and for rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/base/dtype.h"
#include "rlx/ir/graph.h"

namespace rlx::cpu {

// How an input lies in the rectangle of rows and columns that a run computes.
enum class RegionForm : uint8_t {
  kColumns,  // an element for every column, one after the other; rows at any distance, also 0
  kRow,      // one element per row
  kSingle,   // one element for all
};

struct RegionInput {
  RegionForm form = RegionForm::kColumns;
  DType stored = DType::kF32;  // in memory: the body's dtype, or f32 where that has 16 bits and the
                               // rounding is not strict
};

struct RegionOptions {
  bool strict = false;              // as strict_rounding of ElementwiseRegion
  bool streaming = false;           // results that nobody reads soon pass by the cache
  std::vector<RegionInput> inputs;  // empty: kColumns as the body says
  // Results by their dtype in memory; empty: as the body says. f32 may stand for 16 bits as above.
  std::vector<DType> stored_results;
  std::string_view target;  // "scalar", "avx2", "avx3"; empty: the best that the machine has
};

inline constexpr size_t kMaxRegionTensors = 64;  // inputs, and results

// First element of an input or result, and the bytes from one row to the next.
struct RegionRows {
  void* base = nullptr;  // inputs are only read
  int64_t row_stride = 0;
  int64_t column_stride = 0;  // bytes from one element to the next; 0: side by side
};

class RegionProgram {
 public:
  // Why the machine cannot run the body (normal form, see scalar_body), or an empty text.
  static std::string_view refuses(const Graph& body);
  // The body in normal form. The program is immutable and may run on many threads at once.
  static RegionProgram compile(const Graph& body, const RegionOptions& options = {});

  size_t inputs() const;
  size_t results() const;
  // Of each thread that runs it, aligned to 64 bytes.
  int64_t scratch_bytes() const;
  // On one thread, operands in the cache.
  double nanoseconds_per_element() const;

  // Result 0 may lie where an input lies (equal base, stride and element size, kColumns); no other
  // result may touch an input. A result without a base is computed and dropped.
  // Elements do not depend on their place: any split of rows and columns gives the same bits.
  void run(std::span<const RegionRows> inputs, std::span<const RegionRows> results, int64_t columns,
           int64_t rows, void* scratch) const;

 private:
  struct Code;
  explicit RegionProgram(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace rlx::cpu
