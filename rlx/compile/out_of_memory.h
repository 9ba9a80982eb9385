// Callers of the compiler see rlx::Error only: also where the standard library runs out of memory.
#pragma once

#include <new>
#include <stdexcept>
#include <string_view>

#include "rlx/base/error.h"

namespace rlx {

// Calls f; a failed allocation, or a container beyond its largest size, throws Error(kDevice) that
// names the graph.
template <class F>
auto convert_memory_errors(std::string_view graph, F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::kDevice, "not enough memory to compile '{}'", graph);
  } catch (const std::length_error&) {
    fail(ErrorKind::kDevice, "not enough memory to compile '{}'", graph);
  }
}

}  // namespace rlx
