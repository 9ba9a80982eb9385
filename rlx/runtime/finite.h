// Finds the step that makes a NaN or an infinity out of operands that have none.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rlx/compile/plan.h"

namespace rlx {

// What a float or complex tensor holds. Both parts of complex numbers count.
struct FiniteCounts {
  int64_t elements = 0;
  int64_t nan = 0, infinite = 0;
  double min = 0, max = 0;                      // of the finite numbers
  int64_t first_nan = -1, first_infinite = -1;  // flat row-major index of the element
  bool examined = false;
};
// Of the elements that the desc describes from `first` on; not examined if the dtype is another.
FiniteCounts count_finite(const TensorDesc& desc, const void* first);

// For debugging runs on one thread: a step may overwrite its operands, so they are looked at
// before.
class FiniteCheck {
 public:
  // `extents`: of the plan's symbols; read whenever a step is looked at.
  FiniteCheck(const Plan& plan, std::span<const int64_t> extents)
      : plan_(plan), extents_(extents) {}
  void before(const PlanStep& step, void* const* operands);
  // Throws Error(kUser) if a result holds a NaN and no operand does, or an infinity and no operand
  // does; the text says where, and what the operands held.
  void after(const PlanStep& step, void* const* results) const;

 private:
  bool is_packed_form(const PlanView& view) const;
  // What this run uses of operand (or, from operands.size() on, result) `position`; nothing if
  // that is not known.
  std::optional<TensorDesc> used_part(const PlanStep& step, size_t position) const;

  const Plan& plan_;
  std::span<const int64_t> extents_;
  std::vector<FiniteCounts> operands_;
};

}  // namespace rlx
