// What a backend runs natively, counted from the op table and the samples.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/compile/kernel.h"
#include "rlx/ops/samples.h"

namespace rlx {

enum class KindStatus : uint8_t {
  kNative,      // every cell has a kernel entry that fits
  kStructural,  // a leaf, a view, a control step, or the user's own: needs no kernel of a backend
  kAlias,       // rewritten to other kinds, which run every cell natively
  kDecomposed,  // some cell runs as other kinds because no entry fits
  kMissing,     // some cell does not run at all, or the kind is only planned
};
inline constexpr std::array<std::string_view, 5> kKindStatusNames = {
    "native", "structural", "alias", "decomposed", "missing"};
inline std::string_view to_string(KindStatus s) { return kKindStatusNames[size_t(s)]; }

// How one sampled call runs.
enum class CellStatus : uint8_t { kNative, kDecomposed, kMissing };
struct Cell {
  DType dtype = DType::kF32;
  CellStatus status = CellStatus::kNative;
  bool vector = false;  // by hand-vectorized kernels only (of native cells)
  std::string why;      // the refusals, of other cells
};

// The cells (kind x dtype x sample) of one kind in one dtype.
struct DTypeCells {
  DType dtype = DType::kF32;
  int cells = 0;
  int native = 0;
  int vector = 0;
};

struct KindCoverage {
  std::string_view name, family;
  bool internal = false;  // a primitive: not one of the public kinds
  bool planned = false;
  KindStatus status = KindStatus::kMissing;
  std::vector<DTypeCells> dtypes;  // in the order of DType; those that samples use
  std::string gap;                 // the first cell that is not native: "f16_last: <reasons>"
  int cells() const;
  int native() const;
};

// On which sort of kernels the native cells of a dtype run.
enum class KernelCode : uint8_t { kVector, kMixed, kGeneric };
// The dtypes of the kind whose native cells run so: "f32 f64". Empty for structural kinds.
std::string dtypes_with(const KindCoverage& kind, KernelCode code);

struct Coverage {
  std::string_view backend;
  std::vector<KindCoverage> kinds;  // in the order of ops.def
  // Public kinds (or internal ones) of that status.
  int count(KindStatus status, bool internal = false) const;
  // "cpu: N native (S structural, A alias), M decomposed, K missing of 183", where N includes S
  // and A; internal kinds are not counted.
  std::string summary() const;
};

// The dtype under which a call is counted: the result's if an operand shares it or no operand has
// a dtype of the op's table row, else that of the first operand that has one (Compare, Cast).
DType cell_dtype(const OpDef& op, std::span<const TensorType> operands,
                 std::span<const TensorType> results);

Cell cell_of(const KernelTable& kernels, const OpDef& op, const Sample& sample);
Coverage coverage_of(const KernelTable& kernels);

// docs/coverage.md: statuses and kernels by kind, without the numbers of cells, which change with
// every new sample.
std::string coverage_markdown(const Coverage& coverage);

}  // namespace rlx
