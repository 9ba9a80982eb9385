// rlx coverage: which kinds the CPU runs natively. The counting stands in rlx/testing/coverage.h.
#include "rlx/testing/coverage.h"

#include <fmt/core.h>

#include "rlx/backend/cpu/cpu.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {
namespace {

// "f32 vector, i32 generic, u8 3 of 5 vector"; a dtype with gaps says how many cells are native.
std::string kernels_of(const KindCoverage& kind) {
  std::string text;
  for (const DTypeCells& d : kind.dtypes) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(d.dtype));
    if (kind.status == KindStatus::kStructural) continue;
    if (d.native < d.cells) text += fmt::format(" {}/{} native", d.native, d.cells);
    if (d.vector == d.native) {
      text += " vector";
    } else if (d.vector == 0) {
      text += " generic";
    } else {
      text += fmt::format(" {}/{} vector", d.vector, d.native);
    }
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
