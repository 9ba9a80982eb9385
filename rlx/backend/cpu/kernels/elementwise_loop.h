// How elementwise kernels walk their tensors. A kernel supplies a row function: plain code over
// contiguous elements. The loop supplies everything else: broadcasting, strides, tails, 16-bit
// floats and chunks. It knows nothing of instruction sets.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "rlx/compile/kernel.h"

namespace rlx::cpu {

inline constexpr int kMaxRowOperands = 8;
// Row functions work on whole groups of so many elements: no vector of a 4-byte or larger type is
// longer, and no tail is left to them.
inline constexpr int64_t kRowGroup = 16;

// One call of a row function. Operand i has its element k at in[i] + k * step[i]. A step is 1, or 0
// for an operand that repeats: then in[i] holds kRowGroup copies of the value, so that a load of
// one group (or vector) is right wherever it stands. `out` may be one of `in`: read a group before
// writing it.
struct Row {
  std::array<const void*, kMaxRowOperands> in;
  std::array<int64_t, kMaxRowOperands> step;
  void* out;
  int64_t count;  // a positive multiple of kRowGroup

  template <class T>
  const T* at(size_t i, int64_t k) const {
    return static_cast<const T*>(in[i]) + k * step[i];
  }
  template <class T>
  T* result(int64_t k) const {
    return static_cast<T*>(out) + k;
  }
};
// An element's result must depend on that element only, not on its place in the row.
using RowFn = void (*)(const Row&);

// What the row function makes of f16 and bf16.
enum class HalfMode : uint8_t {
  kBits,   // it moves or converts them itself
  kWiden,  // it sees f32: converted on the way in, and rounded once on the way out
};

class ElementwiseLoop {
 public:
  // Elements of one chunk.
  static constexpr int64_t kChunk = 16384;

  // Operands broadcast to the result's dims (NumPy); strides are any, but not negative.
  ElementwiseLoop(std::span<const TensorDesc> operands, const TensorDesc& result, HalfMode halves);

  int64_t elements() const { return elements_; }
  // Fixed by the number of elements; 0 if there are none.
  int64_t chunks() const { return (elements_ + kChunk - 1) / kChunk; }
  // Operand i is copied into a buffer before the row function sees it.
  bool is_gathered(size_t i) const { return tensors_[i].form == Form::kGathered; }

  void run(const void* const* operands, void* result, int64_t chunk, RowFn row) const;

 private:
  enum class Form : uint8_t { kDirect, kRepeated, kGathered };
  enum class Half : uint8_t { kNone, kF16, kBF16 };

  struct Tensor {
    int64_t size = 0;      // bytes of an element in memory
    int64_t row_size = 0;  // bytes of an element as the row function sees it
    Dims strides;          // bytes, by axis of dims_
    Form form = Form::kDirect;
    Half half = Half::kNone;
  };

  struct Buffers;

  Tensor describe(const TensorDesc& desc, HalfMode halves) const;
  void collapse();
  void classify();
  int64_t offset_of(const Tensor& t, int64_t flat) const;
  template <class Copy>
  void walk(const Tensor& t, int64_t flat, int64_t count, Copy copy) const;
  void gather(const Tensor& t, const std::byte* base, int64_t flat, int64_t count,
              std::byte* to) const;
  void scatter(const Tensor& t, const std::byte* from, int64_t flat, int64_t count,
               std::byte* base) const;
  void repeat(const Tensor& t, const std::byte* from, std::byte* to) const;
  void run_segment(const void* const* operands, std::byte* result, int64_t begin, int64_t end,
                   RowFn row) const;
  void run_block(const void* const* operands, std::byte* result, int64_t begin, int64_t count,
                 RowFn row, Buffers& buffers) const;

  Dims dims_;                    // collapsed: as few axes as all tensors together allow
  std::vector<Tensor> tensors_;  // the operands, then the result
  int64_t elements_ = 0;
  int64_t block_ = 0;    // elements that fit a buffer, a multiple of kRowGroup
  bool by_rows_ = true;  // segments end at the last axis; else they run through it
};

// The step of an elementwise kernel: result 0 of the call from all its operands.
// `ns_per_element` is the cost of the row function on one thread with operands in the cache.
PreparedKernel prepare_elementwise(const KernelCall& call, RowFn row, double ns_per_element,
                                   HalfMode halves = HalfMode::kWiden);

// For KernelEntry: any strides, at the price of gathering. Operands that repeat cost nothing.
double elementwise_stride_cost(const KernelCall& call, size_t operand);
inline constexpr StrideForm kAnyStrides[] = {StrideForm::kAny};

}  // namespace rlx::cpu
