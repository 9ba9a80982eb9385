#include "rlx/testing/coverage.h"

#include <gtest/gtest.h>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/table.h"

namespace rlx {
namespace {

const Coverage& cpu_coverage() {
  static const Coverage coverage = coverage_of(cpu::kernel_table());
  return coverage;
}

// A backend without a single kernel.
class NoKernels final : public KernelTable {
 public:
  std::string_view name() const override { return "empty"; }
  const KernelList* find(const OpDef&) const override { return nullptr; }
};

// The CPU's kernels but those of one op.
class AllBut final : public KernelTable {
 public:
  explicit AllBut(std::string_view op) : op_(op) {}
  std::string_view name() const override { return "partial"; }
  const KernelList* find(const OpDef& op) const override {
    return op.name == op_ ? nullptr : cpu::kernel_table().find(op);
  }

 private:
  std::string_view op_;
};

const KindCoverage& kind(const Coverage& coverage, std::string_view name) {
  for (const KindCoverage& k : coverage.kinds) {
    if (k.name == name) return k;
  }
  ADD_FAILURE() << name << " is not in the coverage";
  return coverage.kinds.front();
}

TEST(Coverage, EveryBuiltKindRunsNativelyOnTheCpu) {
  for (const KindCoverage& k : cpu_coverage().kinds) {
    if (k.planned) continue;
    EXPECT_NE(k.status, KindStatus::kMissing) << k.name << ": " << k.gap;
    EXPECT_NE(k.status, KindStatus::kDecomposed) << k.name << ": " << k.gap;
    EXPECT_EQ(k.native(), k.cells()) << k.name << ": " << k.gap;
  }
}

TEST(Coverage, NumbersAddUp) {
  const Coverage& c = cpu_coverage();
  int all = 0, internal = 0, planned = 0, built = 0;
  for (size_t s = 0; s < kKindStatusNames.size(); ++s) {
    all += c.count(KindStatus(s));
    internal += c.count(KindStatus(s), true);
  }
  for (const OpRow& row : op_table()) {
    planned += row.cls == RowClass::kPlanned;
    built +=
        row.cls == RowClass::kOp || row.cls == RowClass::kStructural || row.cls == RowClass::kAlias;
  }
  EXPECT_EQ(all, kNumPublicKinds);
  EXPECT_EQ(all + internal, int(op_table().size()));
  EXPECT_EQ(planned + built, kNumPublicKinds);
  EXPECT_EQ(c.count(KindStatus::kMissing), planned);
  EXPECT_EQ(c.summary(), "cpu: " + std::to_string(built) + " native (" +
                             std::to_string(c.count(KindStatus::kStructural)) + " structural, " +
                             std::to_string(c.count(KindStatus::kAlias)) +
                             " alias), 0 decomposed, " + std::to_string(planned) +
                             " missing of 183");
}

TEST(Coverage, ADeviceWithoutKernelsRunsNothingNatively) {
  const Coverage c = coverage_of(NoKernels());
  EXPECT_EQ(c.count(KindStatus::kNative), 0);
  EXPECT_EQ(c.count(KindStatus::kAlias), 0);
  EXPECT_EQ(kind(c, "Reshape").status, KindStatus::kStructural);
  EXPECT_EQ(kind(c, "Softmax").status, KindStatus::kDecomposed);
  EXPECT_EQ(kind(c, "Softmax").native(), 0);
  EXPECT_EQ(kind(c, "Concat").status, KindStatus::kMissing);
  EXPECT_NE(kind(c, "Concat").gap.find("empty: has no kernel for this op"), std::string::npos)
      << kind(c, "Concat").gap;
}

TEST(Coverage, AnAliasIsAsNativeAsWhatItStandsFor) {
  EXPECT_EQ(kind(cpu_coverage(), "Conv3d").status, KindStatus::kAlias);
  const Coverage c = coverage_of(AllBut("Conv"));
  EXPECT_EQ(kind(c, "Conv").status, kind(c, "Conv3d").status);
  EXPECT_NE(kind(c, "Conv3d").status, KindStatus::kAlias);
}

TEST(Coverage, CellsAreCountedUnderTheDTypeOfTheCall) {
  const auto dtype = [](std::string_view op, const std::vector<DType>& operands, DType result) {
    std::vector<TensorType> types;
    types.reserve(operands.size());
    for (DType t : operands) types.push_back({t, {}});
    const TensorType r{result, {}};
    return cell_dtype(*find_op(op), types, {&r, 1});
  };
  using enum DType;
  EXPECT_EQ(dtype("Softmax", {kF16}, kF16), kF16);
  EXPECT_EQ(dtype("Where", {kBool, kI8, kI8}, kI8), kI8);
  EXPECT_EQ(dtype("Compare", {kF64, kF64}, kBool), kF64);
  EXPECT_EQ(dtype("Cast", {kF32}, kI32), kF32);
  EXPECT_EQ(dtype("Gather", {kBF16, kI64}, kBF16), kBF16);
  EXPECT_EQ(dtype("RngUniform", {kU64}, kF32), kF32);
  EXPECT_EQ(dtype("Iota", {}, kI16), kI16);
}

TEST(Coverage, DTypesAreGroupedByTheSortOfTheirKernels) {
  KindCoverage k;
  k.status = KindStatus::kDecomposed;
  k.dtypes = {{DType::kI8, 4, 4, 0},
              {DType::kF16, 4, 0, 0},
              {DType::kF32, 4, 3, 3},
              {DType::kF64, 4, 4, 3}};
  EXPECT_EQ(dtypes_with(k, KernelCode::kVector), "f32");
  EXPECT_EQ(dtypes_with(k, KernelCode::kMixed), "f64");
  EXPECT_EQ(dtypes_with(k, KernelCode::kGeneric), "i8");
  k.status = KindStatus::kStructural;
  EXPECT_EQ(dtypes_with(k, KernelCode::kGeneric), "");
}

TEST(Coverage, TheTableNamesEveryKindOnce) {
  const std::string text = coverage_markdown(cpu_coverage());
  EXPECT_NE(text.find(cpu_coverage().summary()), std::string::npos);
  EXPECT_NE(text.find("| Softmax | Reduction | native | "), std::string::npos);
  EXPECT_NE(text.find("- Splat: GaussianSplatRender, "), std::string::npos);
}

}  // namespace
}  // namespace rlx
