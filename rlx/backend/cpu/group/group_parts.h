// The body of a group taken apart: what comes before its root call, the root, what comes after.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "rlx/backend/cpu/group/part_program.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// An elementwise part: a body for TileProgram and what its inputs and outputs are.
struct GroupPart {
  static constexpr size_t kHanded = ~size_t(0);
  std::shared_ptr<const Graph> body;
  std::vector<size_t> inputs;   // operands of the group; kHanded: the root's result
  std::vector<size_t> outputs;  // results of the group; kHanded: what the root reads
  bool empty() const { return body == nullptr; }
};

struct GroupParts {
  const Node* root = nullptr;
  // By operand of the root: the group's operand, or kHanded if the first part computes it.
  std::vector<size_t> root_operands;
  // Result of the group that is the root's value itself, if one is; the second part has it too.
  std::optional<size_t> root_result;
  GroupPart before, after;
};

// Takes the body apart. Bodies compute in f32 where the group has 16-bit floats (the root too), and
// round where the group does. Part `after` is never empty: it stores the root's result, if nothing
// else. The text says why the body is none for these kernels; then the parts are incomplete.
struct SplitGroup {
  GroupParts parts;
  std::string_view reason;
};
SplitGroup split_group(const KernelCall& call);

// The dtype in which values are computed.
DType wide_dtype(DType t);

// The program of a part. `dims` is its iteration space. `over_input` as in PartProgram.
PartProgram part_program(const KernelCall& call, const GroupPart& part, const Dims& dims,
                         size_t over_input = 0);
// Whether the part's tensors broadcast to the space, and its results have it; or why not.
std::string_view part_reason(const KernelCall& call, const GroupPart& part, const Dims& dims);

}  // namespace rlx::cpu
