#include "rlx/runtime/finite.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "rlx/base/error.h"

namespace rlx {
namespace {

void count(double x, int64_t flat, FiniteCounts& c) {
  if (std::isnan(x)) {
    if (c.nan++ == 0) c.first_nan = flat;
  } else if (std::isinf(x)) {
    if (c.infinite++ == 0) c.first_infinite = flat;
  } else {
    const bool first = c.min > c.max;
    c.min = first ? x : std::min(c.min, x);
    c.max = first ? x : std::max(c.max, x);
  }
}

// f(flat, offset) for every element in row-major order.
template <class F>
void for_each_offset(const TensorDesc& desc, F&& f) {
  const int64_t n = desc.num_elements();
  Dims index(desc.dims.size(), 0);
  int64_t offset = 0;
  for (int64_t flat = 0; flat < n; ++flat) {
    f(flat, offset);
    for (size_t a = index.size(); a-- > 0;) {
      offset += desc.strides[a];
      if (++index[a] < desc.dims[a]) break;
      offset -= index[a] * desc.strides[a];
      index[a] = 0;
    }
  }
}

std::string index_text(const TensorDesc& desc, int64_t flat) {
  std::string text;
  for (size_t a = desc.dims.size(); a-- > 0;) {
    text = std::to_string(flat % desc.dims[a]) + (text.empty() ? "" : ", " + text);
    flat /= desc.dims[a];
  }
  return "[" + text + "]";
}

std::string type_text(const TensorDesc& desc) {
  return TensorType{desc.dtype, Shape(std::span<const int64_t>(desc.dims))}.to_string();
}

std::string describe(const TensorDesc& desc, const FiniteCounts& c) {
  if (!c.examined) return type_text(desc) + " not examined";
  if (c.nan + c.infinite == c.elements) {
    return fmt::format("{} with {} NaN and {} infinities", type_text(desc), c.nan, c.infinite);
  }
  std::string text = fmt::format("{} from {:.6g} to {:.6g}", type_text(desc), c.min, c.max);
  if (c.nan > 0) text += fmt::format(", {} NaN", c.nan);
  if (c.infinite > 0) text += fmt::format(", {} infinities", c.infinite);
  return text;
}

}  // namespace

FiniteCounts count_finite(const TensorDesc& desc, const void* first) {
  FiniteCounts c;
  c.elements = desc.num_elements();
  if (!is_differentiable(desc.dtype)) return c;
  c.examined = true;
  c.min = 1;
  c.max = -1;
  visit_dtype(desc.dtype, [&]<class T>() {
    const auto* p = static_cast<const T*>(first);
    for_each_offset(desc, [&](int64_t flat, int64_t offset) {
      if constexpr (std::is_same_v<T, std::complex<float>> ||
                    std::is_same_v<T, std::complex<double>>) {
        count(p[offset].real(), flat, c);
        count(p[offset].imag(), flat, c);
      } else {
        count(double(p[offset]), flat, c);
      }
    });
  });
  if (c.min > c.max) c.min = c.max = 0;
  return c;
}

bool FiniteCheck::is_packed_form(const PlanView& view) const {
  const Storage& s = plan_.storages[view.storage];
  if (s.kind == StorageKind::kPacked) return true;
  return s.kind == StorageKind::kConstant && plan_.constants[s.index].dtype() != view.desc.dtype;
}

std::optional<TensorDesc> FiniteCheck::used_part(const PlanStep& step, size_t position) const {
  const bool is_operand = position < step.operands.size();
  const PlanView& v =
      is_operand ? step.operands[position] : step.results[position - step.operands.size()];
  if (step.live.empty()) return v.desc;
  const auto& axes = step.live[position];
  if (!axes) return std::nullopt;
  TensorDesc desc = v.desc;
  for (const LiveAxis& a : *axes) {
    desc.dims[a.axis] = a.extent.line.at(extents_[a.extent.symbol]);
  }
  return desc;
}

void FiniteCheck::before(const PlanStep& step, void* const* operands) {
  operands_.clear();
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const auto desc = used_part(step, i);
    const bool examine = desc && !is_packed_form(step.operands[i]);
    operands_.push_back(examine ? count_finite(*desc, operands[i]) : FiniteCounts());
  }
}

void FiniteCheck::after(const PlanStep& step, void* const* results) const {
  const auto none_has = [&](int64_t FiniteCounts::*what) {
    return std::ranges::none_of(operands_, [&](const FiniteCounts& c) { return c.*what > 0; });
  };
  for (size_t i = 0; i < step.results.size(); ++i) {
    const auto desc = used_part(step, step.operands.size() + i);
    if (!step.results[i].used() || !desc) continue;
    const FiniteCounts c = count_finite(*desc, results[i]);
    const bool nan = c.nan > 0 && none_has(&FiniteCounts::nan);
    if (!nan && !(c.infinite > 0 && none_has(&FiniteCounts::infinite))) continue;
    std::string text = fmt::format("makes the first {}, at {} of result {} ({}); kernel {}",
                                   nan ? "NaN" : "infinity",
                                   index_text(*desc, nan ? c.first_nan : c.first_infinite), i,
                                   describe(*desc, c), step.entry->name);
    for (size_t k = 0; k < operands_.size(); ++k) {
      const TensorDesc operand = used_part(step, k).value_or(step.operands[k].desc);
      text += fmt::format("; operand {}: {}", k, describe(operand, operands_[k]));
    }
    throw_error(ErrorKind::kUser, text);
  }
}

}  // namespace rlx
