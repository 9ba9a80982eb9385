// Sizes that a graph sets while it runs, as passes see them: a call of BindSize gives a symbol its
// value, and types after it mention the symbol.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// Of OpDef::flags, above OpFlags: the attributes are BindSizeAttrs. Such a call is never folded,
// and it lives as long as the symbol is mentioned, though nobody reads its result.
inline constexpr uint32_t kBindsSize = uint32_t(1) << 17;

struct BindSizeAttrs {
  std::string symbol;
  Dim bound;  // the largest value
};

bool binds_size(const Node& node);
// Whether a call in the graph or in a body sets a size.
bool binds_sizes(const Graph& graph);
// The first body in the attributes that does, or null.
const Graph* body_that_binds(const Node& node);

// The sizes in the attributes, without those in bodies; the bodies.
void for_each_size(const Attrs& attrs, const std::function<void(const Dim&)>& f);
void for_each_body(const Attrs& attrs, const std::function<void(const Graph&)>& f);

// Appends the symbols of the results' types, the attributes and the nodes of bodies.
void collect_symbols(const Node& node, std::vector<std::string>& out);
void collect_symbols(const Attrs& attrs, std::vector<std::string>& out);
void collect_body_symbols(const Attrs& attrs, std::vector<std::string>& out);

// For walks from the end of a graph that find what is needed: the sizes that needed nodes mention.
class MentionedSizes {
 public:
  explicit MentionedSizes(const Graph& graph);
  void add(const Node& needed);
  // Whether the node sets a size that is mentioned.
  bool needs(const Node& node) const;

 private:
  bool any_set_;
  std::vector<std::string> symbols_;
};

}  // namespace rlx
