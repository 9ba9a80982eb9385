// Kernels of Custom: what a program registers with a Session, and how plans find it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/compile/kernel.h"

namespace rlx {

// A call as its kernel sees it before any run: operands and results are dense, with static sizes.
struct CustomCall {
  std::string_view name, attributes;
  std::span<const TensorDesc> operands, results;
};

// One chunk of a call. Every operand and result has memory; what the kernel writes beyond the
// results and its scratch is undefined behavior.
struct CustomRun {
  const CustomCall& call;
  const void* state;  // what `prepare` returned
  void* const* operands;
  void* const* results;
  void* scratch;  // this thread's own, aligned to 64 bytes; its content does not survive the chunk
  template <class T>
  const T* in(size_t i) const {
    return static_cast<const T*>(operands[i]);
  }
  template <class T>
  T* out(size_t i) const {
    return static_cast<T*>(results[i]);
  }
};

// The functions are called by several threads at once, `run` in runs and the others in compiles;
// all may throw. Only `name` and `run` must be given.
struct CustomKernel {
  std::string name;            // the operator's
  std::string device = "cpu";  // whose memory and threads it works on: Device::name()
  // Checked again when a graph is compiled: the result types that the graph states must be these.
  std::function<std::vector<TensorType>(std::span<const TensorType> operands,
                                        std::string_view attributes)>
      infer;
  // Why the kernel refuses the call, or an empty text.
  std::function<std::string(const CustomCall&)> fits;
  // Into how many chunks the call is split, for the threads to share; they run in any order and at
  // the same time. Must not depend on the number of threads. None: serial, one chunk.
  std::function<int64_t(const CustomCall&)> chunks;
  std::function<void(const CustomRun&, int64_t chunk)> run;
  // Whatever does not depend on data, done once for each call of a plan.
  std::function<std::shared_ptr<const void>(const CustomCall&)> prepare;
  std::function<int64_t(const CustomCall&)> scratch_bytes;  // for each thread
  // Estimated nanoseconds on one thread: small steps are not split. None: it is worth it.
  std::function<double(const CustomCall&)> nanoseconds;
  // Bit i: result 0 may lie in the memory of operand i (if their types are equal): the kernel reads
  // each element of it before writing that element, within one chunk.
  uint32_t in_place = 0;
};

// The kernels of a session at one time. Immutable: plans keep it.
class CustomKernels {
 public:
  // With one more; throws Error(kUser) if it is not complete or its name is taken on its device.
  std::shared_ptr<const CustomKernels> with(CustomKernel kernel) const;

  // The entry of the call's operator on the device; null, with the reason, if there is none or it
  // refuses. The entry lives as long as the kernels prepared from it.
  const KernelEntry* select(std::string_view device, const Attrs& attrs,
                            std::span<const TensorType> operands,
                            std::span<const TensorType> results, std::string* reason) const;
  PreparedKernel prepare(std::string_view device, const KernelCall& call) const;

 private:
  struct Registered;
  const std::shared_ptr<const Registered>* find(std::string_view device,
                                                std::string_view name) const;
  std::string list(std::string_view device) const;

  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Registered>> kernels_;
};

}  // namespace rlx
