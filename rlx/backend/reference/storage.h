// Element access for kernels that move values without computing on them.
#pragma once

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {

// Calls f(from, to) with the element vectors of two tensors of one dtype.
template <class F>
void with_elements(const Tensor& from, Tensor& to, F&& f) {
  if (is_complex(to.dtype)) {
    f(from.c, to.c);
  } else if (to.is_float()) {
    f(from.f, to.f);
  } else {
    f(from.i, to.i);
  }
}

// Calls f(from, to) with two pointers to the numbers of from and to; integers as uint64_t, so that
// sums and products wrap.
template <class F>
void with_numbers(const Tensor& a, const Tensor& b, Tensor& to, F&& f) {
  if (is_complex(to.dtype)) {
    f(a.c.data(), b.c.data(), to.c.data());
  } else if (to.is_float()) {
    f(a.f.data(), b.f.data(), to.f.data());
  } else {
    f(reinterpret_cast<const uint64_t*>(a.i.data()), reinterpret_cast<const uint64_t*>(b.i.data()),
      reinterpret_cast<uint64_t*>(to.i.data()));
  }
}

}  // namespace rlx::reference
