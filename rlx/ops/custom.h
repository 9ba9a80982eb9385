// Custom: a call of an operator that a program brings along. What the graph says of it is data; its
// kernel is registered with a Session (rlx/compile/custom_kernel.h).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

enum class CustomBatching : uint8_t {
  kNone,         // cannot be batched
  kLeadingAxes,  // the kernel treats leading axes of its operands alike
  kLoop,         // lane after lane, by a Scan
};

// The rules are graphs without params and updates, linear in the derivatives that they take:
//   vjp: [operands, results, cotangents of the differentiable results] -> cotangents of the
//        differentiable operands
//   jvp: [operands, results, tangents of the differentiable operands] -> tangents of the
//        differentiable results
struct CustomAttrs {
  std::string name;
  std::string attributes;  // bytes for the kernel, opaque to everybody else
  std::vector<TensorType> results;
  GraphRef vjp;              // null: none
  GraphRef jvp;              // null: none
  bool no_gradient = false;  // derivatives are zero by definition
  CustomBatching batching = CustomBatching::kNone;
};

// What the rules of a definition see of a call.
struct CustomRuleCall {
  std::string_view attributes;
  std::span<const Value> operands;
  std::span<const Value> results;
  // vjp: one cotangent for each differentiable result; jvp: one tangent for each differentiable
  // operand.
  std::span<const Value> derivatives;
};

// An operator as a program defines it, to build calls of it. The functions run while graphs are
// built, never later.
struct CustomDefinition {
  using Infer = std::function<std::vector<TensorType>(std::span<const TensorType> operands,
                                                      std::string_view attributes)>;
  using Rule = std::function<std::vector<Value>(Builder&, const CustomRuleCall&)>;
  std::string name;
  Infer infer;  // result types; must work on symbolic sizes if calls have any
  Rule vjp;     // one value for each differentiable operand; an invalid one is zero
  Rule jvp;     // one value for each differentiable result; an invalid one is zero
  bool no_gradient = false;
  CustomBatching batching = CustomBatching::kNone;
};

// Appends a call. Throws Error(kUser) with the operator's name if its inference refuses the
// operands or a rule gives other types than it must.
std::vector<Value> custom(Builder& b, const CustomDefinition& definition,
                          std::span<const Value> operands, std::string attributes = {});

}  // namespace rlx

RLX_ENUM(rlx::CustomBatching, "None", "LeadingAxes", "Loop");
