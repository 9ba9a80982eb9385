// Views: descriptions of memory that another value owns. All functions are pure arithmetic on
// sizes, strides and offsets, in elements.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "rlx/compile/kernel.h"
#include "rlx/ir/graph.h"

namespace rlx {

// A description relative to the first element of the memory it describes.
struct StridedView {
  int64_t offset = 0;  // in elements
  TensorDesc desc;
};

// The description of a Reshape, Transpose, Expand, Narrow or StopGradient call's result in terms of
// its operand's memory. Nothing if strides cannot express it (a Reshape that splits or joins axes
// which are not adjacent in memory).
std::optional<StridedView> view_of(const Node& call, const StridedView& operand);

// True for the ops that view_of understands.
bool is_view_op(const OpDef& op);

// Strides of the same elements in the same order under new sizes, if there are such.
std::optional<Dims> reshape_strides(std::span<const int64_t> dims, std::span<const int64_t> strides,
                                    std::span<const int64_t> new_dims);

bool accepts(StrideForm form, const TensorDesc& desc);
std::string_view to_string(StrideForm form);

// The form of operand i: the last one given repeats, none given means dense.
StrideForm operand_form(const KernelEntry& entry, size_t operand);

// Number of elements from the first to the last one that the view touches; 0 if it has none.
int64_t extent(const TensorDesc& desc);

// "f32[2, 3]", and the strides where they are not dense: "f32[2, 3]{1, 2}".
std::string to_string(const TensorDesc& desc);

}  // namespace rlx
