// Reduce over any axes without moving the operand. The order of a sum is a function of its length
// alone: element r of n goes to partial sum r mod 64 of its segment of 16384 elements; the 64 are
// added by halves, then the segments in the same way. So rows, columns, strides, threads and
// instruction sets give the same bits.
#include "rlx/ops/reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "rlx/backend/cpu/kernels/reduce_ops.h"
#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kLanes = kReduceLanes;
constexpr int64_t kSegment = 16384;
constexpr int64_t kColumnBytes = 256;  // of partial sums side by side
constexpr int64_t kChunkElements = 32 << 10;
constexpr int64_t kLeastColumns = 4;
constexpr int64_t kShortRow = 32;        // shorter sums go side by side even if they lie in memory
constexpr int64_t kFinishOutputs = 256;  // of a chunk of the second phase

struct Axis {
  int64_t size = 1, x = 0, y = 0;  // strides in elements
};

// Appends an axis, joined with the one before where they are one in memory.
void append(std::vector<Axis>& axes, Axis next) {
  if (next.size == 1) return;
  if (!axes.empty() && axes.back().x == next.size * next.x && axes.back().y == next.size * next.y) {
    next.size = checked_mul(next.size, axes.back().size);
    axes.back() = next;
  } else {
    axes.push_back(next);
  }
}

class Reduction {
 public:
  Reduction(const TensorDesc& x, const TensorDesc& y, const ReduceAttrs& attrs);

  PreparedKernel prepare() &&;

 private:
  void choose_column();
  void run(const StepArgs& args, int64_t chunk) const;
  void run_task(const StepArgs& args, int64_t task) const;
  void finish(const StepArgs& args, int64_t chunk) const;
  void sum_row(const char* x, int64_t begin, int64_t end, char* lanes) const;
  void sum_columns(const char* x, int64_t count, int64_t begin, int64_t end, char* lanes) const;
  void feed(char* lanes, const char* x, int64_t n, int64_t phase) const;
  void feed_strided(char* lanes, const char* x, int64_t n, int64_t phase) const;
  void add_lanes(char* lanes, int64_t used, int64_t stride, int64_t count) const;
  void fill_identity(char* lanes, int64_t n) const;
  void store(const char* acc, int64_t outer, int64_t first, int64_t count, void* y) const;
  int64_t outer_offset(int64_t i, int64_t Axis::*stride) const;
  template <class F>
  void for_each_run(int64_t begin, int64_t end, F&& f) const;

  static constexpr int64_t kIdentityBytes = 1024;

  ReduceOps ops_;
  alignas(64) char identity_[kIdentityBytes];  // repeated
  bool mean_;
  // Reduced axes in row-major order, joined; at least one.
  std::vector<Axis> reduced_;
  std::vector<Axis> outer_;  // the kept axes but for `column_`
  Axis column_;              // outputs summed side by side; size 1 if each is summed along memory
  int64_t length_ = 1, segments_ = 1;
  int64_t columns_ = 1, column_blocks_ = 1;  // columns of a block
  int64_t outer_count_ = 1, outputs_ = 1;
  int64_t tasks_ = 0, tasks_per_chunk_ = 1;
};

Reduction::Reduction(const TensorDesc& x, const TensorDesc& y, const ReduceAttrs& attrs)
    : ops_(reduce_ops(attrs.kind, x.dtype)), mean_(attrs.kind == ReduceKind::kMean) {
  for (int64_t i = 0; i < kIdentityBytes; i += ops_.acc_bytes) {
    std::memcpy(identity_ + i, ops_.identity, size_t(ops_.acc_bytes));
  }
  size_t y_axis = 0;
  for (size_t a = 0; a < x.dims.size(); ++a) {
    if (std::binary_search(attrs.axes.begin(), attrs.axes.end(), int64_t(a))) {
      append(reduced_, {x.dims[a], x.strides[a], 0});
      length_ = checked_mul(length_, x.dims[a]);
      y_axis += attrs.keep_dims;
    } else {
      append(outer_, {x.dims[a], x.strides[a], y.strides[y_axis]});
      outputs_ = checked_mul(outputs_, x.dims[a]);
      ++y_axis;
    }
  }
  // An empty sum has no elements to walk, whatever its other axes are.
  if (reduced_.empty() || length_ == 0) reduced_ = {{length_, 0, 0}};
  segments_ = std::max<int64_t>(1, ceil_div(length_, kSegment));
  choose_column();
  outer_count_ = column_.size == 0 ? 0 : outputs_ / column_.size;
  columns_ = std::min(column_.size, kColumnBytes / ops_.acc_bytes);
  column_blocks_ = columns_ == 0 ? 0 : ceil_div(column_.size, columns_);
  tasks_ = checked_mul(checked_mul(outer_count_, column_blocks_), segments_);
  const int64_t elements = columns_ * std::clamp<int64_t>(length_, 1, kSegment);
  tasks_per_chunk_ = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, elements));
}

void Reduction::choose_column() {
  if (outer_.empty()) return;
  auto best = std::find_if(outer_.begin(), outer_.end(), [](const Axis& a) { return a.x == 1; });
  if (best == outer_.end()) {
    if (reduced_.back().x == 1 && length_ > kShortRow) return;
    best = std::max_element(outer_.begin(), outer_.end(),
                            [](const Axis& a, const Axis& b) { return a.size < b.size; });
  }
  if (best->size < kLeastColumns) return;
  column_ = *best;
  outer_.erase(best);
}

int64_t Reduction::outer_offset(int64_t i, int64_t Axis::*stride) const {
  int64_t offset = 0;
  for (size_t a = outer_.size(); a-- > 0;) {
    offset += i % outer_[a].size * (outer_[a].*stride);
    i /= outer_[a].size;
  }
  return offset;
}

// Calls f(offset in x, count) for runs along the innermost reduced axis that make up the elements
// [begin, end) of a sum.
template <class F>
void Reduction::for_each_run(int64_t begin, int64_t end, F&& f) const {
  const Axis& inner = reduced_.back();
  if (reduced_.size() == 1) {
    if (begin < end) f(begin * inner.x, end - begin);
    return;
  }
  int64_t line = begin / inner.size, at = begin % inner.size;
  for (int64_t r = begin; r < end; ++line, at = 0) {
    int64_t offset = at * inner.x, rest = line;
    for (size_t a = reduced_.size() - 1; a-- > 0;) {
      offset += rest % reduced_[a].size * reduced_[a].x;
      rest /= reduced_[a].size;
    }
    const int64_t count = std::min(inner.size - at, end - r);
    f(offset, count);
    r += count;
  }
}

// Lanes that n elements fill, up to a power of two: the others would hold the identity, which
// changes nothing.
int64_t lanes_of(int64_t n) {
  return n >= kLanes ? kLanes : int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(n, 1))));
}

void Reduction::fill_identity(char* lanes, int64_t n) const {
  const int64_t bytes = n * ops_.acc_bytes;
  for (int64_t i = 0; i < bytes; i += kIdentityBytes) {
    std::memcpy(lanes + i, identity_, size_t(std::min(kIdentityBytes, bytes - i)));
  }
}

// `count` sums of partial sums [used][stride]; they end in the first row.
void Reduction::add_lanes(char* lanes, int64_t used, int64_t stride, int64_t count) const {
  const int64_t row = stride * ops_.acc_bytes;
  for (int64_t half = used / 2; half > 0; half /= 2) {
    if (count == stride) {
      ops_.combine(lanes, lanes + half * row, half * stride);
      continue;
    }
    for (int64_t l = 0; l < half; ++l) {
      ops_.combine(lanes + l * row, lanes + (l + half) * row, count);
    }
  }
}

// Contiguous partial sums that are the elements phase, phase + 1, ... of a segment.
void Reduction::feed(char* lanes, const char* x, int64_t n, int64_t phase) const {
  const int64_t lane = phase % kLanes, bytes = ops_.acc_bytes;
  if (lane != 0) {
    const int64_t head = std::min(n, kLanes - lane);
    ops_.combine(lanes + lane * bytes, x, head);
    x += head * bytes;
    n -= head;
  }
  const int64_t whole = n / kLanes;
  if (whole > 0) ops_.blocks(lanes, x, whole);
  if (n % kLanes != 0) ops_.combine(lanes, x + whole * kLanes * bytes, n % kLanes);
}

void Reduction::feed_strided(char* lanes, const char* x, int64_t n, int64_t phase) const {
  const int64_t stride = reduced_.back().x;
  if (ops_.same_type && stride == 1) return feed(lanes, x, n, phase);
  alignas(64) char staged[kReduceStage * 16];
  for (int64_t i = 0; i < n; i += kReduceStage) {
    const int64_t count = std::min(kReduceStage, n - i);
    ops_.load(x + i * stride * ops_.element_bytes, stride, count, staged);
    feed(lanes, staged, count, phase + i);
  }
}

void Reduction::sum_row(const char* x, int64_t begin, int64_t end, char* lanes) const {
  const int64_t used = lanes_of(end - begin);
  fill_identity(lanes, used);
  int64_t phase = 0;
  for_each_run(begin, end, [&](int64_t offset, int64_t n) {
    feed_strided(lanes, x + offset * ops_.element_bytes, n, phase);
    phase += n;
  });
  add_lanes(lanes, used, 1, 1);
}

void Reduction::sum_columns(const char* x, int64_t count, int64_t begin, int64_t end,
                            char* lanes) const {
  const int64_t used = lanes_of(end - begin), width = kColumnBytes / ops_.acc_bytes;
  const int64_t row = reduced_.back().x * ops_.element_bytes;
  const bool direct = ops_.same_type && column_.x == 1;
  fill_identity(lanes, used * width);
  int64_t phase = 0;
  for_each_run(begin, end, [&](int64_t offset, int64_t n) {
    const char* from = x + offset * ops_.element_bytes;
    for (int64_t r = 0; r < n; ++r, ++phase, from += row) {
      char* lane = lanes + phase % kLanes * kColumnBytes;
      if (direct) {
        __builtin_prefetch(from + 8 * row);
        ops_.combine(lane, from, count);
      } else {
        alignas(64) char staged[kColumnBytes];
        ops_.load(from, column_.x, count, staged);
        ops_.combine(lane, staged, count);
      }
    }
  });
  add_lanes(lanes, used, width, count);
}

void Reduction::store(const char* acc, int64_t outer, int64_t first, int64_t count, void* y) const {
  const int64_t offset = outer_offset(outer, &Axis::y) + first * column_.y;
  ops_.store(acc, count, mean_, length_, static_cast<char*>(y) + offset * ops_.element_bytes,
             column_.y);
}

// A task is one segment of a block of outputs.
void Reduction::run_task(const StepArgs& args, int64_t task) const {
  const int64_t segment = task % segments_;
  task /= segments_;
  const int64_t first = task % column_blocks_ * columns_, outer = task / column_blocks_;
  const int64_t begin = segment * kSegment, end = std::min(length_, begin + kSegment);
  const int64_t count = std::min(columns_, column_.size - first);
  const char* x =
      args.in<char>(0) + (outer_offset(outer, &Axis::x) + first * column_.x) * ops_.element_bytes;
  alignas(64) char lanes[kLanes * kColumnBytes];
  if (column_.size == 1) {
    sum_row(x, begin, end, lanes);
  } else {
    sum_columns(x, count, begin, end, lanes);
  }
  if (segments_ == 1) return store(lanes, outer, first, count, args.results[0]);
  const int64_t output = outer * column_.size + first;
  for (int64_t j = 0; j < count; ++j) {
    std::memcpy(
        static_cast<char*>(args.scratch) + ((output + j) * segments_ + segment) * ops_.acc_bytes,
        lanes + j * ops_.acc_bytes, size_t(ops_.acc_bytes));
  }
}

void Reduction::run(const StepArgs& args, int64_t chunk) const {
  const int64_t end = std::min(tasks_, (chunk + 1) * tasks_per_chunk_);
  for (int64_t task = chunk * tasks_per_chunk_; task < end; ++task) run_task(args, task);
}

// The sums of the segments.
void Reduction::finish(const StepArgs& args, int64_t chunk) const {
  const int64_t end = std::min(outputs_, (chunk + 1) * kFinishOutputs);
  for (int64_t o = chunk * kFinishOutputs; o < end; ++o) {
    alignas(64) char lanes[kLanes * 16];
    const int64_t used = lanes_of(segments_);
    fill_identity(lanes, used);
    feed(lanes, static_cast<const char*>(args.scratch) + o * segments_ * ops_.acc_bytes, segments_,
         0);
    add_lanes(lanes, used, 1, 1);
    store(lanes, o / column_.size, o % column_.size, 1, args.results[0]);
  }
}

PreparedKernel Reduction::prepare() && {
  PreparedKernel k;
  k.phases = {{ceil_div(tasks_, tasks_per_chunk_),
               [](const void* state, const StepArgs& args, int64_t chunk) {
                 static_cast<const Reduction*>(state)->run(args, chunk);
               }}};
  if (segments_ > 1) {
    k.phases.push_back({ceil_div(outputs_, kFinishOutputs),
                        [](const void* state, const StepArgs& args, int64_t chunk) {
                          static_cast<const Reduction*>(state)->finish(args, chunk);
                        }});
    k.scratch_bytes = checked_mul(checked_mul(outputs_, segments_), ops_.acc_bytes);
  }
  const double bytes = double(outputs_) * double(length_) * double(ops_.element_bytes);
  k.nanoseconds = bytes * 0.06 + double(tasks_) * 40;
  k.state = std::make_shared<Reduction>(std::move(*this));
  return k;
}

PreparedKernel prepare_reduce(const KernelCall& call) {
  return Reduction(call.operands[0], call.results[0], call.as<ReduceAttrs>()).prepare();
}

constexpr StrideForm kForms[] = {StrideForm::kAny};
constexpr KernelEntry kEntries[] = {
    {
        .name = "reduce:float",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_float(call.operands[0].dtype) ? "" : "only floats";
        },
        .prepare = prepare_reduce,
        .operand_forms = kForms,
        .result_form = StrideForm::kAny,
        .vector = true,
    },
    {
        .name = "reduce:other",
        .fits = [](const KernelCall& call) -> std::string_view {
          return is_float(call.operands[0].dtype) ? "only integers, bools and complex numbers" : "";
        },
        .prepare = prepare_reduce,
        .operand_forms = kForms,
        .result_form = StrideForm::kAny,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Reduce, Cpu) = {kEntries};

}  // namespace rlx::cpu
