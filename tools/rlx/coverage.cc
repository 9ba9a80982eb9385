// rlx coverage: which kinds the CPU runs natively. The counting stands in rlx/testing/coverage.h.
#include "rlx/testing/coverage.h"

#include <fmt/core.h>

#include "rlx/backend/cpu/cpu.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {
namespace {

// "vector f32 f64, generic i8", and how many cells are native where not all are.
std::string kernels_of(const KindCoverage& kind) {
  constexpr std::string_view kNames[] = {"vector", "both", "generic"};
  std::string text;
  for (const KernelCode code : {KernelCode::kVector, KernelCode::kMixed, KernelCode::kGeneric}) {
    const std::string dtypes = dtypes_with(kind, code);
    if (dtypes.empty()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kNames[size_t(code)], dtypes);
  }
  for (const DTypeCells& d : kind.dtypes) {
    if (d.native == d.cells) continue;
    text += fmt::format("{}{} {}/{} native", text.empty() ? "" : ", ", to_string(d.dtype), d.native,
                        d.cells);
  }
  return text;
}

void print_kind(const KindCoverage& kind) {
  fmt::print("{:32} {:11} {:>11}  {}\n", kind.name,
             kind.planned ? "planned" : std::string(to_string(kind.status)),
             fmt::format("{}/{}", kind.native(), kind.cells()), kernels_of(kind));
  if (!kind.gap.empty()) fmt::print("    {}\n", kind.gap);
}

}  // namespace

void coverage(const CoverageArgs& args) {
  const Coverage coverage = coverage_of(cpu::kernel_table());
  if (args.markdown) {
    fmt::print("{}", coverage_markdown(coverage));
    return;
  }
  fmt::print("{:32} {:11} {:>11}  {}\n", "kind", "status", "cells", "kernels");
  for (const KindCoverage& k : coverage.kinds) {
    if (!k.internal && (args.all || !k.planned)) print_kind(k);
  }
  fmt::print("\ninternal primitives (not counted)\n");
  for (const KindCoverage& k : coverage.kinds) {
    if (k.internal) print_kind(k);
  }
  fmt::print("\nmissing are the {} planned kinds{}\n{}\n", coverage.count(KindStatus::kMissing),
             args.all ? "" : " (--all lists them)", coverage.summary());
}

}  // namespace rlx::cli
