// What a backend gives the runtime: a kernel table to compile against and a way to run plans.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "rlx/base/thread_pool.h"
#include "rlx/compile/plan.h"
#include "rlx/runtime/profile.h"

namespace rlx {

// What the caller wants of one run.
struct RunRequest {
  const std::atomic<bool>* cancel = nullptr;  // null: the run cannot be cancelled
  std::span<ProfileRecorder> recorders{};     // one for each thread; empty: nothing is recorded
  // On one thread, and the first step that makes a NaN or an infinity is an error.
  bool check_finite = false;
};

// A plan bound to memory. One per clone and plan; used by one thread at a time.
class Runner {
 public:
  virtual ~Runner() = default;

  // The address of a storage of the plan. Every storage is bound before the first run; binding
  // again replaces the address. Memory is aligned to its elements, the arena to 64 bytes.
  virtual void bind(uint32_t storage, void* base) = 0;
  // Plan::thread_scratch_bytes for each of `threads` threads, aligned to 64 bytes.
  virtual void bind_thread_scratch(void* base, int threads) = 0;

  // The extents of Plan::symbols for the next run, each from 0 to its bound. Steps that set one
  // (PlanStep::sets) replace it.
  virtual void set_extents(std::span<const int64_t> extents) = 0;
  // As given, or as set by the last run.
  virtual std::span<const int64_t> extents() const = 0;

  // Runs on at most `threads` threads of the executor, and returns how many took part. Throws the
  // first error of a step, with the step's op and label in front, or Error(kCancelled). Allocates
  // nothing unless it throws or checks.
  virtual int run(Executor& executor, int threads, const RunRequest& request) = 0;

  // Whether the last run, if it threw, had begun to overwrite params.
  virtual bool wrote_params() const = 0;
};

// Stateless and immutable: one per process and backend.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual const KernelTable& kernels() const = 0;
  virtual std::unique_ptr<Runner> make_runner(std::shared_ptr<const Plan> plan) const = 0;
};

}  // namespace rlx
