// Text form of graphs: printing, and parsing back to an equal graph. Grammar: docs/text-format.md.
#pragma once

#include <string>
#include <string_view>

#include "rlx/ir/field.h"

namespace rlx {

struct OpDef;

// Finds an op by its name: ops/table.h gives this function to the parser and the deserializer,
// which live below the table.
using OpLookup = const OpDef* (*)(std::string_view name);

struct PrintOptions {
  int64_t max_elements = -1;  // longer tensors are elided (and then do not parse back); -1: never
  bool labels = false;        // node labels as comments
};
std::string print(const Graph& graph, const PrintOptions& options = {});
// Throws Error(kUser) with line and column. Depth, counts and lengths are limited. Types are
// inferred again and compared with the text.
Graph parse(std::string_view text, OpLookup lookup);

// One attribute value as it stands in the text of a node.
std::string print_field(const Field& field, const FieldValue& value,
                        const PrintOptions& options = {});

}  // namespace rlx
