#include "rlx/testing/coverage.h"

#include <algorithm>
#include <map>

#include "rlx/base/error.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/table.h"
#include "rlx/testing/call_graph.h"

namespace rlx {
namespace {

// An alias is what canonicalize makes of it.
Cell alias_cell(const KernelTable& kernels, const OpDef& op, const Sample& sample) {
  Cell cell;
  const Graph call = call_graph(op, sample.attrs, operand_types(sample));
  std::vector<LegalizeNote> notes;
  Graph native;
  try {
    native = legalize(canonicalize(call), kernels, {}, &notes);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    cell.status = CellStatus::kMissing;
    cell.why = e.message();
    return cell;
  }
  if (!notes.empty()) {
    cell.status = CellStatus::kDecomposed;
    cell.why = notes.front().op + ": " + notes.front().text;
    return cell;
  }
  cell.vector = true;
  for (const Node& n : native.nodes()) {
    if (row_of(*n.op).cls == RowClass::kStructural) continue;
    std::vector<TensorType> types;
    for (Value v : n.operands) types.push_back(native.type(v));
    cell.vector &= select_entry(kernels, *n.op, n.attrs, types, n.results, {})->vector;
  }
  return cell;
}

KindStatus status_of(RowClass cls, const std::vector<Cell>& cells) {
  const auto any = [&](CellStatus s) {
    return std::any_of(cells.begin(), cells.end(), [&](const Cell& c) { return c.status == s; });
  };
  if (cls == RowClass::kStructural) return KindStatus::kStructural;
  if (cells.empty() || any(CellStatus::kMissing)) return KindStatus::kMissing;
  if (any(CellStatus::kDecomposed)) return KindStatus::kDecomposed;
  return cls == RowClass::kAlias ? KindStatus::kAlias : KindStatus::kNative;
}

KindCoverage kind_of(const KernelTable& kernels, const OpRow& row) {
  KindCoverage kind;
  kind.name = row.name;
  kind.family = row.family;
  kind.internal = row.cls == RowClass::kPrimitive;
  kind.planned = row.cls == RowClass::kPlanned;
  if (kind.planned) return kind;
  std::vector<Cell> cells;
  std::map<DType, DTypeCells> dtypes;
  for (const Sample& sample : samples_of(*row.def).samples()) {
    cells.push_back(cell_of(kernels, *row.def, sample));
    const Cell& cell = cells.back();
    DTypeCells& d = dtypes[cell.dtype];
    d.dtype = cell.dtype;
    ++d.cells;
    d.native += cell.status == CellStatus::kNative;
    d.vector += cell.vector;
    if (cell.status != CellStatus::kNative && kind.gap.empty()) {
      kind.gap = sample.name + ": " + cell.why;
    }
  }
  for (const auto& [dtype, d] : dtypes) kind.dtypes.push_back(d);
  kind.status = status_of(row.cls, cells);
  return kind;
}

void add_rows(const Coverage& coverage, bool internal, std::string& out) {
  out += "| Kind | Family | Status | Vector kernels | Both | Generic kernels |\n";
  out += "|---|---|---|---|---|---|\n";
  for (const KindCoverage& k : coverage.kinds) {
    if (k.planned || k.internal != internal) continue;
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", k.name, k.family, to_string(k.status),
                       dtypes_with(k, KernelCode::kVector), dtypes_with(k, KernelCode::kMixed),
                       dtypes_with(k, KernelCode::kGeneric));
  }
}

}  // namespace

int KindCoverage::cells() const {
  int n = 0;
  for (const DTypeCells& d : dtypes) n += d.cells;
  return n;
}

int KindCoverage::native() const {
  int n = 0;
  for (const DTypeCells& d : dtypes) n += d.native;
  return n;
}

std::string dtypes_with(const KindCoverage& kind, KernelCode code) {
  std::string text;
  if (kind.status == KindStatus::kStructural) return text;
  for (const DTypeCells& d : kind.dtypes) {
    if (d.native == 0) continue;
    const KernelCode found = d.vector == d.native ? KernelCode::kVector
                             : d.vector == 0      ? KernelCode::kGeneric
                                                  : KernelCode::kMixed;
    if (found == code) text += fmt::format("{}{}", text.empty() ? "" : " ", to_string(d.dtype));
  }
  return text;
}

int Coverage::count(KindStatus status, bool internal) const {
  return int(std::count_if(kinds.begin(), kinds.end(), [&](const KindCoverage& k) {
    return k.internal == internal && k.status == status;
  }));
}

std::string Coverage::summary() const {
  const int structural = count(KindStatus::kStructural), alias = count(KindStatus::kAlias);
  return fmt::format("{}: {} native ({} structural, {} alias), {} decomposed, {} missing of {}",
                     backend, count(KindStatus::kNative) + structural + alias, structural, alias,
                     count(KindStatus::kDecomposed), count(KindStatus::kMissing), kNumPublicKinds);
}

DType cell_dtype(const OpDef& op, std::span<const TensorType> operands,
                 std::span<const TensorType> results) {
  const DType result = results[0].dtype;
  for (const TensorType& t : operands) {
    if (t.dtype == result) return result;
  }
  const DTypeSet row = row_of(op).dtypes;
  for (const TensorType& t : operands) {
    if (row.contains(t.dtype)) return t.dtype;
  }
  return result;
}

Cell cell_of(const KernelTable& kernels, const OpDef& op, const Sample& sample) {
  const std::vector<TensorType> operands = operand_types(sample);
  const InferredCall call = infer_call(op, sample.attrs, operands);
  const RowClass cls = row_of(op).cls;
  Cell cell;
  if (cls == RowClass::kAlias) {
    cell = alias_cell(kernels, op, sample);
  } else if (cls != RowClass::kStructural) {
    const KernelEntry* entry =
        select_entry(kernels, op, call.attrs, operands, call.results, {}, &cell.why);
    if (entry) {
      cell.why.clear();
      cell.vector = entry->vector;
    } else {
      cell.status = op.decompose ? CellStatus::kDecomposed : CellStatus::kMissing;
    }
  }
  cell.dtype = cell_dtype(op, operands, call.results);
  return cell;
}

Coverage coverage_of(const KernelTable& kernels) {
  Coverage coverage{.backend = kernels.name(), .kinds = {}};
  for (const OpRow& row : op_table()) coverage.kinds.push_back(kind_of(kernels, row));
  return coverage;
}

std::string coverage_markdown(const Coverage& coverage) {
  std::string out = fmt::format(
      "# Coverage of the {0} backend\n\n"
      "Generated by `rlx coverage --markdown` from the op table, the samples and the kernel table; "
      "a test\ncompares this file with what the command prints.\n\n"
      "A *cell* is one sampled call of a kind in one dtype. A kind is *native* if some kernel "
      "entry "
      "fits\nevery cell; *structural* if it is a leaf, a view or a control step, or (Custom) runs "
      "kernels\nthat the program brings along, and so needs none of the backend; an *alias* if it "
      "is "
      "rewritten to other\nkinds that run natively; *decomposed* if a cell runs as other "
      "kinds because no entry fits;\n*missing* if a cell does not run at all or the kind is only "
      "planned. The last three columns say, by\ndtype, whether hand-vectorized or generic kernels "
      "run the cells.\n\n"
      "    {1}\n\n",
      coverage.backend, coverage.summary());
  out += "## Built kinds\n\n";
  add_rows(coverage, false, out);
  out += "\n## Internal primitives\n\nNeeded by rules and decompositions; not counted above.\n\n";
  add_rows(coverage, true, out);
  out += "\n## Planned kinds\n\nNames in the table and nothing else yet.\n\n";
  std::vector<std::pair<std::string_view, std::string>> families;
  for (const KindCoverage& k : coverage.kinds) {
    if (!k.planned) continue;
    auto it = std::find_if(families.begin(), families.end(),
                           [&](const auto& f) { return f.first == k.family; });
    if (it == families.end()) it = families.insert(it, {k.family, ""});
    it->second += fmt::format("{}{}", it->second.empty() ? "" : ", ", k.name);
  }
  for (const auto& [family, names] : families) out += fmt::format("- {}: {}\n", family, names);
  return out;
}

}  // namespace rlx
