#include "rlx/ops/infer_util.h"

namespace rlx {

void expect_same_last_axis(const InferContext& c, const Shape& result) {
  const Shape& from = c[0].shape;
  if (!is_packed(c[0].dtype)) return;
  if (result.rank() > 0 && result[result.rank() - 1] == from[from.rank() - 1]) return;
  user_error("{} moves as whole rows: the last axis {} cannot become that of {}",
             to_string(c[0].dtype), from[from.rank() - 1].to_string(), result.to_string());
}

void expect_operands(const InferContext& c, size_t count) { expect_operands(c, count, count); }

void expect_operands(const InferContext& c, size_t least, size_t most) {
  const size_t n = c.operands.size();
  if (n >= least && n <= most) return;
  if (least == most) user_error("expected {} operand{}, got {}", least, least == 1 ? "" : "s", n);
  user_error("expected {} to {} operands, got {}", least, most, n);
}

void expect_dtype(const InferContext& c, size_t i, DTypeSet allowed, std::string_view what) {
  const DType t = c.operands[i].dtype;
  if (!allowed.contains(t)) {
    user_error("{} is {}, expected one of: {}", what, to_string(t), allowed.to_string());
  }
}

void expect_same_dtype(const InferContext& c, size_t i, size_t j) {
  const DType a = c.operands[i].dtype, b = c.operands[j].dtype;
  if (a != b) {
    user_error("operands {} and {} have the dtypes {} and {}: cast one of them", i, j, to_string(a),
               to_string(b));
  }
}

void expect_same_type(const InferContext& c, size_t i, size_t j) {
  if (c.operands[i] != c.operands[j]) {
    user_error("operands {} and {} must have one type, they are {} and {}", i, j,
               c.operands[i].to_string(), c.operands[j].to_string());
  }
}

void expect_rank(const InferContext& c, size_t i, int64_t rank, std::string_view what) {
  if (c.operands[i].shape.rank() != rank) {
    user_error("{} must have rank {}, it is {}", what, rank, c.operands[i].to_string());
  }
}

void expect_min_rank(const InferContext& c, size_t i, int64_t rank, std::string_view what) {
  if (c.operands[i].shape.rank() < rank) {
    user_error("{} must have at least rank {}, it is {}", what, rank, c.operands[i].to_string());
  }
}

std::vector<TensorType> infer_same_as_first(const InferContext& c) { return {c.operands[0]}; }

}  // namespace rlx
