// Any bytes are refused with an Error(kIo), or are a graph that holds and round-trips.
#include <cstdlib>

#include "rlx/base/error.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rlx::Graph graph;
  try {
    graph = rlx::deserialize(std::as_bytes(std::span(data, size)), rlx::find_op);
  } catch (const rlx::Error& e) {
    if (e.kind() != rlx::ErrorKind::kIo && e.kind() != rlx::ErrorKind::kDevice) std::abort();
    return 0;
  }
  rlx::verify(graph);
  if (!(rlx::deserialize(rlx::serialize(graph), rlx::find_op) == graph)) std::abort();
  return 0;
}
