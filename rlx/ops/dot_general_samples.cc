#include "rlx/ops/dot_general.h"

#include <cmath>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(DotGeneral);

namespace {

Sample make(std::string name, DType t, Dims x, Dims y, DotGeneralAttrs attrs) {
  int64_t k = is_complex(t) ? 2 : 1;
  for (const int64_t a : attrs.lhs_contracting) {
    k *= std::max<int64_t>(x[size_t(a < 0 ? a + int64_t(x.size()) : a)], 1);
  }
  Draw draw;
  if (is_integer(t)) {
    draw = {Draw::kInteger, class_of(t) == DTypeClass::kSigned ? -100. : 0., 110};
  }
  Sample s;
  s.name = std::move(name);
  s.attrs = Attrs::of(kDotGeneralOp.fields, std::move(attrs));
  s.operands = {{t, std::move(x), draw}, {t, std::move(y), draw}};
  s.grad = is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo;
  s.reduction = k;
  s.scale = 4 * std::sqrt(double(k));
  return s;
}

std::vector<Sample> samples() {
  const DType f = DType::kF32;
  // In the order of the attributes: lhs and rhs contracting, lhs and rhs batch.
  std::vector<Sample> s = {
      make("matrix", f, {3, 4}, {4, 5}, {{1}, {0}, {}, {}}),
      make("transposed_left", f, {4, 3}, {4, 5}, {{0}, {0}, {}, {}}),
      make("transposed_right", f, {3, 4}, {5, 4}, {{-1}, {-1}, {}, {}}),
      make("inner", f, {7}, {7}, {{0}, {0}, {}, {}}),
      make("outer", f, {2, 3}, {4}, {}),
      make("scalars", f, {}, {}, {}),
      make("batch", f, {2, 3, 4}, {2, 4, 5}, {{2}, {1}, {0}, {0}}),
      make("batch_inside", f, {3, 2, 4}, {4, 5, 2}, {{2}, {0}, {1}, {2}}),
      make("two_batches", f, {2, 3, 4, 5}, {3, 2, 5, 6}, {{3}, {2}, {0, 1}, {1, 0}}),
      make("two_contracted", f, {2, 3, 4}, {4, 3, 5}, {{1, 2}, {1, 0}, {}, {}}),
      make("crossed", f, {3, 4, 2, 5}, {5, 2, 3, 6}, {{3, 0}, {0, 2}, {2}, {1}}),
      make("all_contracted", f, {3, 4}, {4, 3}, {{0, 1}, {1, 0}, {}, {}}),
      make("only_batch", f, {5, 3}, {3, 5}, {{}, {}, {0, 1}, {1, 0}}),
      make("empty_sum", f, {3, 0}, {0, 4}, {{1}, {0}, {}, {}}),
      make("empty_free", f, {0, 3}, {3, 4}, {{1}, {0}, {}, {}}),
      make("size_one", f, {1, 1, 1}, {1, 1, 1}, {{2}, {1}, {0}, {0}}),
      make("large", f, {4, 37, 41, 5}, {5, 41, 43, 4}, {{2, 3}, {1, 0}, {0}, {3}}),
  };
  for (const DType t : {DType::kF64, DType::kF16, DType::kBF16, DType::kF32, DType::kI8,
                        DType::kI16, DType::kI32, DType::kI64, DType::kU8, DType::kU16, DType::kU32,
                        DType::kU64, DType::kC64, DType::kC128}) {
    s.push_back(make(std::string(to_string(t)), t, {3, 2, 5}, {5, 4, 2}, {{2}, {0}, {1}, {2}}));
  }
  return s;
}

std::vector<WrongCall> wrong_calls() {
  const auto wrong = [](std::string name, DotGeneralAttrs attrs, std::string error,
                        DType y = DType::kF32) {
    return WrongCall{std::move(name),
                     Attrs::of(kDotGeneralOp.fields, std::move(attrs)),
                     {{DType::kF32, {2, 3}}, {y, {3, 4}}},
                     std::move(error)};
  };
  return {
      wrong("lengths", {{1}, {}, {}, {}}, "1 contracting axes on the left, 0 on the right"),
      wrong("batch_lengths", {{}, {}, {0}, {}}, "1 batch axes on the left, 0 on the right"),
      wrong("sizes", {{0}, {0}, {}, {}}, "axis 0 of [2, 3] has 2, axis 0 of [3, 4] has 3"),
      wrong("twice", {{1, -1}, {0, 1}, {}, {}}, "axis 1 of the left operand is listed twice"),
      wrong("both_lists", {{1}, {0}, {1}, {0}}, "axis 1 of the left operand is listed twice"),
      wrong("range", {{2}, {0}, {}, {}}, "axis 2 is out of range for rank 2"),
      wrong("dtypes", {{1}, {0}, {}, {}}, "f32 and f64: cast one of them", DType::kF64),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(DotGeneral) = {samples, wrong_calls};

}  // namespace rlx
