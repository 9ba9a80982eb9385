#include "rlx/compile/kernel.h"

namespace rlx {

TensorDesc TensorDesc::dense(DType dtype, Dims dims) {
  TensorDesc d{dtype, std::move(dims), {}};
  d.strides = dense_strides(d.dims);
  return d;
}

TensorDesc TensorDesc::dense(const TensorType& type) {
  return dense(type.dtype, type.shape.static_dims());
}

bool TensorDesc::is_dense() const {
  int64_t step = 1;
  bool dense = true;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 0) return true;
    if (dims[i] != 1 && strides[i] != step) dense = false;
    step *= dims[i];
  }
  return dense;
}

}  // namespace rlx
