#include "rlx/backend/cpu/kernels/widen_view.h"

#include <algorithm>
#include <numeric>

#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kChunkElements = 16 << 10;
constexpr int64_t kRowElements = 4 << 10;  // longer rows are cut, so that chunks are alike

}  // namespace

WidenView::WidenView(const TensorDesc& view) : result_(view), is_bf16_(view.dtype == DType::kBF16) {
  result_.dtype = DType::kF32;
  elements_ = view.num_elements();
  if (elements_ == 0) return;
  std::vector<size_t> order(view.dims.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return view.strides[i] > view.strides[j]; });
  std::vector<Axis> axes;
  elements_ = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t a = order[i];
    int64_t& stride = result_.strides[a];
    if (view.dims[a] == 1 || stride == 0) {
      stride = 0;
      continue;
    }
    if (!axes.empty() && axes.back().size * axes.back().stride == stride) {
      axes.back().size *= view.dims[a];
    } else {
      axes.push_back({view.dims[a], stride});
    }
    stride = elements_;
    elements_ = checked_mul(elements_, view.dims[a]);
  }
  if (!axes.empty()) {
    row_ = axes.front();
    axes.erase(axes.begin());
  }
  std::reverse(axes.begin(), axes.end());
  outer_ = std::move(axes);
  // A divisor of the row's length as near below the limit as there is.
  int64_t piece = std::min(row_.size, kRowElements);
  while (row_.size % piece != 0) --piece;
  if (piece < row_.size) {
    outer_.push_back({row_.size / piece, piece * row_.stride});
    row_.size = piece;
  }
  rows_ = elements_ / row_.size;
  rows_per_chunk_ = std::max<int64_t>(1, kChunkElements / row_.size);
}

int64_t WidenView::chunks() const { return elements_ == 0 ? 0 : ceil_div(rows_, rows_per_chunk_); }

void WidenView::run(int64_t chunk, const uint16_t* from, float* to) const {
  const int64_t end = std::min(rows_, (chunk + 1) * rows_per_chunk_);
  for (int64_t row = chunk * rows_per_chunk_; row < end; ++row) {
    int64_t rest = row, at = 0;
    for (size_t a = outer_.size(); a-- > 0;) {
      at += rest % outer_[a].size * outer_[a].stride;
      rest /= outer_[a].size;
    }
    float* out = to + row * row_.size;
    if (row_.stride == 1) {
      (is_bf16_ ? bf16_to_f32 : f16_to_f32)(from + at, out, row_.size);
      continue;
    }
    uint16_t gathered[256];
    for (int64_t i = 0; i < row_.size; i += 256) {
      const int64_t n = std::min<int64_t>(256, row_.size - i);
      for (int64_t k = 0; k < n; ++k) gathered[k] = from[at + (i + k) * row_.stride];
      (is_bf16_ ? bf16_to_f32 : f16_to_f32)(gathered, out + i, n);
    }
  }
}

}  // namespace rlx::cpu
