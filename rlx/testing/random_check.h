// What must hold for every graph, whatever its ops: the checks of unit tests and of the fuzzer.
#pragma once

#include <string>

#include "rlx/testing/random_graph.h"

namespace rlx {

struct RandomChecks {
  bool round_trips = true;  // text and binary form give an equal graph
  bool threads = true;      // two threads give the bits of one
};

// The first thing that does not hold, or an empty text. Compares, bit for bit (any NaN equals any
// other), two runs one after the other of the plain graph (no passes, no fusion, every view copied)
// with those of the optimized one under strict rounding, in guarded memory and on two threads; a
// graph with a symbol also with the same graph at fixed sizes, for several sizes.
std::string check_random_graph(const RandomGraph& c, const RandomChecks& checks = {});

// A graph with a symbol under a bound for it, against the same graph at fixed sizes, and fused
// against its calls one by one. Sums over a bounded axis have an order of their own: against fixed
// sizes f64 is compared up to rounding then, other dtypes not at all. `supported` tells whether the
// graph compiles under a bound, which some ops refuse.
std::string check_bounded_sizes(const RandomGraph& c, bool* supported);

// Equal types and bits, but for the payload of NaN; else where they differ.
std::string difference_of_bits(const Array& got, const Array& wanted);

}  // namespace rlx
