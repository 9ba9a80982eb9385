#include "rlx/backend/cpu/kernels/elementwise_loop.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kBufferBytes = 4096;
// Rows shorter than this are not worth a call each: operands are gathered across them.
constexpr int64_t kShortRow = 256;
constexpr double kGatherNs = 0.8;  // per element, strided
constexpr int64_t kLargestElement = 16;

struct Wide {
  uint64_t low, high;
};

template <class T>
void copy_elements(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T v;
    std::memcpy(&v, from + i * from_stride, sizeof(T));
    std::memcpy(to + i * to_stride, &v, sizeof(T));
  }
}

// Strides in bytes. Dense on one side at least, which lets the loops vectorize.
void copy_strided(int64_t size, std::byte* to, int64_t to_stride, const std::byte* from,
                  int64_t from_stride, int64_t count) {
  if (to_stride == size && from_stride == size) {
    std::memcpy(to, from, size_t(count * size));
    return;
  }
  switch (size) {
    case 1:
      return copy_elements<uint8_t>(to, to_stride, from, from_stride, count);
    case 2:
      return copy_elements<uint16_t>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_elements<uint32_t>(to, to_stride, from, from_stride, count);
    case 8:
      return copy_elements<uint64_t>(to, to_stride, from, from_stride, count);
    default:
      return copy_elements<Wide>(to, to_stride, from, from_stride, count);
  }
}

int64_t padded(int64_t count) { return (count + kRowGroup - 1) / kRowGroup * kRowGroup; }

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

}  // namespace

// One block of every tensor: as it is in memory, and as the row function sees it.
struct ElementwiseLoop::Buffers {
  struct Buffer {
    alignas(64) std::byte data[kBufferBytes];
  };
  Buffer row[kMaxRowOperands + 1];
  Buffer memory;  // one 16-bit block at a time
};

ElementwiseLoop::ElementwiseLoop(std::span<const TensorDesc> operands, const TensorDesc& result,
                                 HalfMode halves) {
  if (operands.size() > size_t(kMaxRowOperands)) {
    internal_error("an elementwise kernel has at most {} operands", kMaxRowOperands);
  }
  dims_ = result.dims;
  elements_ = num_elements(dims_);
  for (const TensorDesc& t : operands) tensors_.push_back(describe(t, halves));
  tensors_.push_back(describe(result, halves));
  if (elements_ == 0) return;
  collapse();
  classify();
}

ElementwiseLoop::Tensor ElementwiseLoop::describe(const TensorDesc& desc, HalfMode halves) const {
  Tensor t;
  t.size = t.row_size = size_of(desc.dtype);
  if (halves == HalfMode::kWiden && desc.dtype == DType::kF16) t.half = Half::kF16;
  if (halves == HalfMode::kWiden && desc.dtype == DType::kBF16) t.half = Half::kBF16;
  if (t.half != Half::kNone) t.row_size = sizeof(float);
  t.strides.assign(dims_.size(), 0);
  const size_t shift = dims_.size() - desc.dims.size();
  for (size_t a = 0; a < desc.dims.size(); ++a) {
    if (desc.dims[a] != 1) t.strides[a + shift] = desc.strides[a] * t.size;
  }
  return t;
}

// Drops axes of size 1 and merges neighbours that every tensor walks in one go.
void ElementwiseLoop::collapse() {
  size_t kept = 0;
  const Dims full = dims_;
  for (size_t a = 0; a < full.size(); ++a) {
    if (full[a] == 1) continue;
    const bool merges =
        kept > 0 && std::all_of(tensors_.begin(), tensors_.end(), [&](const Tensor& t) {
          return t.strides[kept - 1] == t.strides[a] * full[a];
        });
    if (!merges) ++kept;
    dims_[kept - 1] = merges ? dims_[kept - 1] * full[a] : full[a];
    for (Tensor& t : tensors_) t.strides[kept - 1] = t.strides[a];
  }
  if (kept == 0) {  // one element: any stride will do
    dims_ = {1};
    for (Tensor& t : tensors_) t.strides = {t.size};
    return;
  }
  dims_.resize(kept);
  for (Tensor& t : tensors_) t.strides.resize(kept);
}

void ElementwiseLoop::classify() {
  by_rows_ = dims_.size() == 1 || dims_.back() >= kShortRow;
  int64_t largest = 1;
  for (Tensor& t : tensors_) {
    largest = std::max(largest, t.row_size);
    bool direct = t.strides.back() == t.size, repeated = t.strides.back() == 0;
    for (size_t a = dims_.size() - 1; !by_rows_ && a-- > 0;) {
      direct &= t.strides[a] == t.strides[a + 1] * dims_[a + 1];
      repeated &= t.strides[a] == 0;
    }
    t.form = direct ? Form::kDirect : repeated ? Form::kRepeated : Form::kGathered;
  }
  // A result has one place for every element, so it never repeats.
  if (tensors_.back().form == Form::kRepeated) {
    internal_error("an elementwise result cannot have a stride of 0");
  }
  block_ = kBufferBytes / largest;
}

int64_t ElementwiseLoop::offset_of(const Tensor& t, int64_t flat) const {
  int64_t offset = 0;
  for (size_t a = dims_.size(); a-- > 0;) {
    offset += flat % dims_[a] * t.strides[a];
    flat /= dims_[a];
  }
  return offset;
}

// Calls copy(offset in the tensor, elements before this piece, elements) along the last axis.
template <class Copy>
void ElementwiseLoop::walk(const Tensor& t, int64_t flat, int64_t count, Copy copy) const {
  std::array<int64_t, kMaxRank> index{};
  int64_t rest = flat, offset = 0;
  for (size_t a = dims_.size(); a-- > 0;) {
    index[a] = rest % dims_[a];
    rest /= dims_[a];
    offset += index[a] * t.strides[a];
  }
  const size_t last = dims_.size() - 1;
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(count - done, dims_[last] - index[last]);
    copy(offset, done, n);
    done += n;
    index[last] += n;
    offset += n * t.strides[last];
    for (size_t a = last; a > 0 && index[a] == dims_[a]; --a) {
      index[a] = 0;
      ++index[a - 1];
      offset += t.strides[a - 1] - dims_[a] * t.strides[a];
    }
  }
}

void ElementwiseLoop::gather(const Tensor& t, const std::byte* base, int64_t flat, int64_t count,
                             std::byte* to) const {
  walk(t, flat, count, [&](int64_t offset, int64_t done, int64_t n) {
    copy_strided(t.size, to + done * t.size, t.size, base + offset, t.strides.back(), n);
  });
}

void ElementwiseLoop::scatter(const Tensor& t, const std::byte* from, int64_t flat, int64_t count,
                              std::byte* base) const {
  walk(t, flat, count, [&](int64_t offset, int64_t done, int64_t n) {
    copy_strided(t.size, base + offset, t.strides.back(), from + done * t.size, t.size, n);
  });
}

// A whole vector of copies, as the row function sees them.
void ElementwiseLoop::repeat(const Tensor& t, const std::byte* from, std::byte* to) const {
  alignas(64) std::byte value[kLargestElement];
  std::memcpy(value, from, size_t(t.size));
  if (t.half == Half::kF16) {
    const float wide = float(f16::from_bits(*reinterpret_cast<const uint16_t*>(from)));
    std::memcpy(value, &wide, sizeof(wide));
  } else if (t.half == Half::kBF16) {
    const float wide = float(bf16::from_bits(*reinterpret_cast<const uint16_t*>(from)));
    std::memcpy(value, &wide, sizeof(wide));
  }
  // At least 64 bytes: vectors of small elements are longer than a group.
  const int64_t count = std::max(kRowGroup, 64 / t.row_size);
  copy_strided(t.row_size, to, t.row_size, value, 0, count);
}

// `count` elements from `begin` on, at most a block, through buffers where the row function cannot
// work in place.
void ElementwiseLoop::run_block(const void* const* operands, std::byte* result, int64_t begin,
                                int64_t count, RowFn row, Buffers& buffers) const {
  Row r;
  r.count = padded(count);
  const bool whole = r.count == count;
  for (size_t i = 0; i + 1 < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    std::byte* buffer = buffers.row[i].data;
    r.step[i] = t.form == Form::kRepeated ? 0 : 1;
    r.in[i] = buffer;
    const std::byte* from = bytes(operands[i]);
    if (t.form == Form::kRepeated) {
      repeat(t, from + offset_of(t, begin), buffer);
      continue;
    }
    const std::byte* memory = from;
    if (t.form == Form::kDirect) {
      memory += offset_of(t, begin);
      if (t.half == Half::kNone && whole) {
        r.in[i] = memory;
        continue;
      }
      if (t.half == Half::kNone) std::memcpy(buffer, memory, size_t(count * t.size));
    } else {
      std::byte* to = t.half == Half::kNone ? buffer : buffers.memory.data;
      gather(t, from, begin, count, to);
      memory = to;
    }
    if (t.half != Half::kNone) {
      auto* wide = reinterpret_cast<float*>(buffer);
      const auto* narrow = reinterpret_cast<const uint16_t*>(memory);
      t.half == Half::kF16 ? f16_to_f32(narrow, wide, count) : bf16_to_f32(narrow, wide, count);
    }
    // The rest of the last group computes the last element again: nothing else is known to be
    // harmless.
    copy_strided(t.row_size, buffer + count * t.row_size, t.row_size,
                 buffer + (count - 1) * t.row_size, 0, r.count - count);
  }
  const Tensor& t = tensors_.back();
  std::byte* direct = t.form == Form::kDirect ? result + offset_of(t, begin) : nullptr;
  std::byte* buffer = buffers.row[tensors_.size() - 1].data;
  const bool in_place = direct != nullptr && t.half == Half::kNone && whole;
  r.out = in_place ? direct : buffer;
  row(r);
  if (in_place) return;
  if (t.half != Half::kNone) {
    auto* narrow = reinterpret_cast<uint16_t*>(direct ? direct : buffers.memory.data);
    const auto* wide = reinterpret_cast<const float*>(buffer);
    t.half == Half::kF16 ? f32_to_f16(wide, narrow, count) : f32_to_bf16(wide, narrow, count);
    if (direct == nullptr) scatter(t, buffers.memory.data, begin, count, result);
  } else if (direct != nullptr) {
    std::memcpy(direct, buffer, size_t(count * t.size));
  } else {
    scatter(t, buffer, begin, count, result);
  }
}

// A range in which every tensor is direct, repeated or gathered as classified.
void ElementwiseLoop::run_segment(const void* const* operands, std::byte* result, int64_t begin,
                                  int64_t end, RowFn row) const {
  Buffers buffers;
  const bool plain = std::all_of(tensors_.begin(), tensors_.end(), [](const Tensor& t) {
    return t.form != Form::kGathered && t.half == Half::kNone;
  });
  if (plain) {  // all whole groups in one call
    const int64_t whole = (end - begin) / kRowGroup * kRowGroup;
    if (whole > 0) run_block(operands, result, begin, whole, row, buffers);
    begin += whole;
  }
  for (; begin < end; begin += block_) {
    run_block(operands, result, begin, std::min(block_, end - begin), row, buffers);
  }
}

void ElementwiseLoop::run(const void* const* operands, void* result, int64_t chunk,
                          RowFn row) const {
  const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, elements_);
  auto* base = static_cast<std::byte*>(result);
  if (!by_rows_) return run_segment(operands, base, begin, end, row);
  for (int64_t at = begin; at < end;) {
    const int64_t stop = std::min(end, (at / dims_.back() + 1) * dims_.back());
    run_segment(operands, base, at, stop, row);
    at = stop;
  }
}

namespace {

struct LoopState {
  ElementwiseLoop loop;
  RowFn row;
};

void run_loop(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const LoopState*>(state);
  s.loop.run(args.operands, args.results[0], chunk, s.row);
}

}  // namespace

PreparedKernel prepare_elementwise(const KernelCall& call, RowFn row, double ns_per_element,
                                   HalfMode halves) {
  ElementwiseLoop loop(call.operands, call.results[0], halves);
  double ns = 20 + double(loop.elements()) * ns_per_element;
  if (loop.elements() > 0) {
    for (size_t i = 0; i < call.operands.size(); ++i) {
      if (loop.is_gathered(i)) ns += double(loop.elements()) * kGatherNs;
    }
  }
  const int64_t chunks = loop.chunks();
  return PreparedKernel::single(LoopState{std::move(loop), row}, chunks, run_loop, ns);
}

double elementwise_stride_cost(const KernelCall& call, size_t operand) {
  const ElementwiseLoop loop(call.operands, call.results[0], HalfMode::kBits);
  if (loop.elements() == 0 || !loop.is_gathered(operand)) return 0;
  return double(loop.elements()) * kGatherNs;
}

}  // namespace rlx::cpu
