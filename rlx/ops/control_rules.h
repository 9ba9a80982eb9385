// What the rules of ops with bodies share.
#pragma once

#include <span>
#include <vector>

#include "rlx/ir/builder.h"
#include "rlx/ops/batch.h"
#include "rlx/ops/body.h"
#include "rlx/ops/control.h"
#include "rlx/ops/tangent.h"

namespace rlx {

using Mask = std::vector<uint8_t>;

// Positions whose mask is set; of the types that have derivatives.
std::vector<size_t> positions(std::span<const uint8_t> mask);
std::vector<size_t> differentiable_positions(std::span<const TensorType> types);
std::vector<Value> pick(std::span<const Value> values, std::span<const size_t> at);
// Which of the values are valid; tangents of those in the mask, zeros where there are none.
Mask valid_ones(std::span<const Value> values);
std::vector<Value> tangents_in(Builder& b, std::span<const Value> primals,
                               std::span<const Value> tangents, std::span<const uint8_t> mask);
// One tangent for each primal: the next of `packed` where the mask is set, else none.
std::vector<Value> spread(std::span<const Value> packed, std::span<const uint8_t> mask);
std::vector<Dual> duals_of(std::span<const Value> primals, std::span<const Value> tangents);
std::vector<Lane> lanes_of(std::span<const Value> values, std::span<const uint8_t> batched);

// Of derivatives given as graphs (CustomFn, Custom): a vjp takes operands, results and cotangents
// of the differentiable results and gives those of the differentiable operands; a jvp the other way
// round. A missing graph passes.
enum class RuleMode : uint8_t { kVjp, kJvp };
void check_rule_graph(const GraphRef& rule, std::string_view what,
                      std::span<const TensorType> operands, std::span<const TensorType> results,
                      RuleMode mode);
// One for each differentiable value, zeros where there is none; and back, invalid for the others.
std::vector<Value> pack_derivatives(Builder& b, std::span<const Value> values,
                                    std::span<const Value> derivatives);
std::vector<Value> unpack_derivatives(const Builder& b, std::span<const Value> values,
                                      std::span<const Value> packed);

// Sets what is set in `more`; whether that changes the mask.
bool widen(Mask& mask, const Mask& more);

// x where the lane's predicate [size] holds, else y; both have the batch axis.
Value select_lanes(Builder& b, Value predicate, Value x, Value y);

// The call of a Scan; operands are carries, captures, xs.
std::vector<Value> scan_call(Builder& b, ScanAttrs attrs, std::span<const Value> operands);
// A While with max_iterations as a Scan over as many steps, which do nothing once the condition
// fails. Throws Error(kUnsupported) without max_iterations.
ScanAttrs while_as_scan(const WhileAttrs& a, std::span<const TensorType> operands);

}  // namespace rlx
