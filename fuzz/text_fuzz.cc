// Any text is refused with an Error(kUser), or is a graph that holds and prints to a fixed point.
#include <cstdlib>

#include "rlx/base/error.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rlx::Graph graph;
  try {
    graph = rlx::parse_graph(text);
  } catch (const rlx::Error& e) {
    if (e.kind() != rlx::ErrorKind::kUser && e.kind() != rlx::ErrorKind::kDevice) std::abort();
    return 0;
  }
  rlx::verify(graph);
  const std::string printed = rlx::print(graph);
  const rlx::Graph again = rlx::parse_graph(printed);
  if (!(again == graph) || rlx::print(again) != printed) std::abort();
  return 0;
}
