// Writes sampled calls with the direct reference's results, to be checked by other libraries.
#pragma once

#include <string>

#include "rlx/ir/op.h"

namespace rlx {

// <folder>/<Op>.json describes the cases (attributes, types, byte offsets), <folder>/<Op>.bin holds
// the numbers: floats as f64, integers and bools as i64 (u64 as its bit pattern), complex numbers
// as c128. Returns the number of cases.
int export_samples(const OpDef& op, const std::string& folder);

}  // namespace rlx
