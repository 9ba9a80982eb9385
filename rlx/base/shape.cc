#include "rlx/base/shape.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {

Shape Shape::slice(int64_t begin, int64_t end) const {
  return Shape(std::vector<Dim>(dims_.begin() + begin, dims_.begin() + end));
}

bool Shape::is_static() const {
  return std::all_of(dims_.begin(), dims_.end(), [](const Dim& d) { return d.is_static(); });
}

Dims Shape::static_dims() const {
  Dims d;
  d.reserve(dims_.size());
  for (const Dim& x : dims_) d.push_back(x.value());
  return d;
}

Dim Shape::num_elements() const {
  // A zero makes the product zero whatever the others are, so it must not trip the overflow check.
  for (const Dim& d : dims_) {
    if (d.is(0)) return Dim(0);
  }
  Dim n(1);
  for (const Dim& d : dims_) n = n * d;
  return n;
}

Shape Shape::substitute(const SymbolBindings& bindings) const {
  Shape s;
  for (const Dim& d : dims_) s.push_back(d.substitute(bindings));
  return s;
}

std::string Shape::to_string() const {
  std::string s = "[";
  for (size_t i = 0; i < dims_.size(); ++i) s += (i ? ", " : "") + dims_[i].to_string();
  return s + "]";
}

Shape Shape::parse(std::string_view text) {
  const auto bad = [&] { user_error("'{}' is not a shape: expected [d0, d1, ...]", text); };
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') bad();
  const std::string_view body = text.substr(1, text.size() - 2);
  Shape s;
  int depth = 0;
  size_t start = 0;
  if (body.find_first_not_of(' ') == std::string_view::npos) return s;
  for (size_t i = 0; i <= body.size(); ++i) {
    if (i < body.size() && body[i] == '(') ++depth;
    if (i < body.size() && body[i] == ')') --depth;
    if (i == body.size() || (body[i] == ',' && depth == 0)) {
      s.push_back(Dim::parse(body.substr(start, i - start)));
      if (s.rank() > kMaxRank) user_error("a shape has at most {} axes", kMaxRank);
      start = i + 1;
    }
  }
  return s;
}

size_t Shape::hash() const {
  size_t h = dims_.size();
  for (const Dim& d : dims_) h = h * 1000003 + d.hash();
  return h;
}

std::string TensorType::to_string() const {
  return std::string(rlx::to_string(dtype)) + shape.to_string();
}

int64_t normalize_axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    user_error("axis {} is out of range for rank {}: expected {} <= axis < {}", axis, rank, -rank,
               rank);
  }
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast(const Shape& a, const Shape& b) {
  const int64_t rank = std::max(a.rank(), b.rank());
  std::vector<Dim> dims(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const Dim da = ia < 0 ? Dim(1) : a[ia], db = ib < 0 ? Dim(1) : b[ib];
    if (da == db || db.is(1)) {
      dims[size_t(i)] = da;
    } else if (da.is(1)) {
      dims[size_t(i)] = db;
    } else {
      user_error("shapes {} and {} do not broadcast: {} against {} on axis {} from the right",
                 a.to_string(), b.to_string(), da.to_string(), db.to_string(), rank - i);
    }
  }
  return Shape(std::move(dims));
}

Dims dense_strides(std::span<const int64_t> dims) {
  Dims s(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    s[i] = step;
    step = checked_mul(step, std::max<int64_t>(dims[i], 1));
  }
  return s;
}

int64_t num_elements(std::span<const int64_t> dims) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  int64_t n = 1;
  for (int64_t d : dims) n = checked_mul(n, d);
  return n;
}

int64_t byte_size(DType t, std::span<const int64_t> dims) {
  const PackedBlock block = block_of(t);
  if (const int64_t row = dims.empty() ? 1 : dims.back(); row % block.elements != 0) {
    user_error("{}{}: the last axis is no whole number of blocks of {} elements", to_string(t),
               dims_to_string(dims), block.elements);
  }
  return bytes_of(t, num_elements(dims));
}

std::string dims_to_string(std::span<const int64_t> dims) {
  std::string s = "[";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + "]";
}

}  // namespace rlx
