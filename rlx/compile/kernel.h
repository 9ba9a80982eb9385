// What a backend offers for one op: an ordered list of kernel entries, most special first, the
// general one last. compile/ asks `fits`, assigns layouts, and calls `prepare`; the runtime runs
// the phases.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/base/dtype.h"
#include "rlx/ir/op.h"

namespace rlx {

// An operand or result as the kernel sees it: static sizes, strides in elements (0 where
// broadcast, never negative).
struct TensorDesc {
  DType dtype = DType::kF32;
  Dims dims;
  Dims strides;
  static TensorDesc dense(DType dtype, Dims dims);
  static TensorDesc dense(const TensorType& type);
  bool is_dense() const;
  int64_t num_elements() const { return rlx::num_elements(dims); }
};

// Which strides an entry accepts for an operand or result. The planner inserts a Copy otherwise.
enum class StrideForm : uint8_t {
  kDense,  // row-major without gaps
  kRows,   // the last axis has stride 1 (or size 1); the others any
  kAny,
};

struct KernelCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const TensorDesc> operands;
  std::span<const TensorDesc> results;
  std::span<const uint8_t> result_used;  // results that nobody reads have no memory: null pointers
  // Constants and params that may be packed, which stay the same for many runs; else null. A param
  // may be replaced: kernels take its data through Packing only.
  std::span<const Array* const> frozen;
  template <class S>
  const S& as() const {
    return attrs.as<S>();
  }
  bool used(size_t result) const { return result_used.empty() || result_used[result]; }
  bool is_frozen(size_t operand) const { return operand < frozen.size() && frozen[operand]; }
};

// A step's pointers, aligned to the element; what the plan allocates (arena, packed) to 64 bytes.
struct StepArgs {
  void* const* operands;  // first element of each operand (of the packed form where packed)
  void* const* results;   // first element of each result; null if not used
  void* scratch;          // shared by the threads of the step
  void* thread_scratch;   // this thread's own
  template <class T>
  const T* in(size_t i) const {
    return static_cast<const T*>(operands[i]);
  }
  template <class T>
  T* out(size_t i) const {
    return static_cast<T*>(results[i]);
  }
};

// One phase: chunks 0 ... chunks-1, claimed dynamically by the threads of the run, in any order and
// concurrently. The number of chunks depends on the problem only, never on the threads, so results
// don't either. A barrier separates phases. `run` may throw Error: all threads then leave the run.
struct Phase {
  int64_t chunks = 1;
  void (*run)(const void* state, const StepArgs& args, int64_t chunk) = nullptr;
};

// A frozen operand in another form, made once and kept in the weight store under `key`.
struct Packing {
  size_t operand = 0;
  std::string key;  // equal keys mean equal packings of the same weight
  int64_t bytes = 0;
  std::function<void(const void* source, void* packed)> pack;  // source has the desc of the call
};

struct PreparedKernel {
  std::shared_ptr<const void> state;
  std::vector<Phase> phases;
  int64_t scratch_bytes = 0;         // 64-byte aligned
  int64_t thread_scratch_bytes = 0;  // per thread, 64-byte aligned
  double nanoseconds = 0;            // estimate on one thread; small steps are not split
  std::vector<Packing> packings;

  template <class S>
  static PreparedKernel single(S state, int64_t chunks,
                               void (*run)(const void*, const StepArgs&, int64_t),
                               double nanoseconds) {
    PreparedKernel k;
    k.state = std::make_shared<const S>(std::move(state));
    k.phases = {{chunks, run}};
    k.nanoseconds = nanoseconds;
    return k;
  }
};

struct KernelEntry {
  std::string_view name;  // "softmax:row"; unique in the backend
  // Why the entry refuses the call (dtypes, sizes, attributes; strides are dense when asked here),
  // or an empty text.
  std::string_view (*fits)(const KernelCall&) = nullptr;
  PreparedKernel (*prepare)(const KernelCall&) = nullptr;
  // Accepted strides by operand; the last form repeats; empty means dense.
  std::span<const StrideForm> operand_forms{};
  StrideForm result_form = StrideForm::kDense;
  // Estimated extra nanoseconds for reading operand i with the strides of the call instead of dense
  // (the layout pass weighs it against a Copy). None: no extra cost.
  double (*stride_cost)(const KernelCall&, size_t operand) = nullptr;
  // Bit i: result 0 may take over the memory of operand i (same dtype, sizes and strides): the
  // kernel reads each element of it before writing that element, within one chunk.
  uint32_t in_place = 0;
  bool vector = false;  // hand-vectorized (true) or generic code: shown by coverage
};

struct KernelList {
  std::span<const KernelEntry> entries;
};

// A backend's kernels, by op. Lists exist for every built op that is neither structural nor alias.
class KernelTable {
 public:
  virtual ~KernelTable() = default;
  virtual std::string_view name() const = 0;  // "cpu"
  virtual const KernelList* find(const OpDef& op) const = 0;
};

// Declares, then defines k<Kind><Backend>Kernels.
#define RLX_DEFINE_KERNELS(K, B)                   \
  extern const ::rlx::KernelList k##K##B##Kernels; \
  constinit const ::rlx::KernelList k##K##B##Kernels

}  // namespace rlx
