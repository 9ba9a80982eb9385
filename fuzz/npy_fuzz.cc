// Any bytes are refused with an Error, or are an array that round-trips.
#include <cstdlib>

#include "rlx/base/error.h"
#include "rlx/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rlx::Array array;
  try {
    array = rlx::read_npy(std::as_bytes(std::span(data, size)));
  } catch (const rlx::Error&) {
    return 0;
  }
  if (!rlx::read_npy(rlx::write_npy(array)).same_bits(array)) std::abort();
  return 0;
}
