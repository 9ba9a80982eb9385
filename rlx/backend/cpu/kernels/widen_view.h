#pragma once

#include <cstdint>
#include <vector>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// A strided f16 or bf16 operand as f32 in scratch. Axes keep the order they have in memory, so a
// dense or transposed view converts in one stream; axes of stride 0 stay as they are.
class WidenView {
 public:
  explicit WidenView(const TensorDesc& view);

  const TensorDesc& result() const { return result_; }  // f32, with the strides in scratch
  int64_t elements() const { return elements_; }        // of the scratch
  int64_t chunks() const;
  void run(int64_t chunk, const uint16_t* from, float* to) const;
  double nanoseconds() const { return double(elements_) * 0.15; }

 private:
  struct Axis {
    int64_t size, stride;
  };
  TensorDesc result_;
  std::vector<Axis> outer_;  // outermost first, around rows of row_.size elements
  Axis row_{1, 1};
  int64_t elements_ = 0, rows_ = 0, rows_per_chunk_ = 1;
  bool is_bf16_ = false;
};

}  // namespace rlx::cpu
