// Bytes decide how a random graph is made; whatever it is, compiling and running it changes no bit.
#include <cstdio>
#include <cstdlib>

#include "rlx/ir/text.h"
#include "rlx/testing/random_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr rlx::DType kDTypes[] = {rlx::DType::kF32, rlx::DType::kF64, rlx::DType::kBF16,
                                    rlx::DType::kF16};
  rlx::RandomGraphOptions options;
  options.style = rlx::RandomGraphStyle::kEverything;
  options.dtype = kDTypes[data[0] % 4];
  options.symbolic = data[0] / 4 % 4 == 0;
  options.calls = 1 + data[1] % 16;
  options.choices = std::span(data, size).subspan(2);
  const rlx::RandomGraph c = rlx::random_graph(options);
  const std::string text = rlx::check_random_graph(c);
  if (text.empty()) return 0;
  std::fprintf(stderr, "%s\n%s", text.c_str(), rlx::print(c.graph).c_str());
  std::abort();
}
