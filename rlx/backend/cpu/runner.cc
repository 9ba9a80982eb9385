// Runs a plan: every thread of the team walks the list of segments. Chunks are claimed from
// counters, one per phase, so whoever is free takes the next one.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/compile/memory.h"

namespace rlx::cpu {
namespace {

// Work below this time is not worth a second thread.
constexpr double kParallelNanoseconds = 5000;
constexpr uint8_t kCanary = 0xC5, kPoison = 0xFF;

// Null pointers of tensors without elements.
alignas(kAlignment) std::array<std::byte, kAlignment> empty_memory;

class CpuRunner final : public Runner {
 public:
  explicit CpuRunner(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {
    build_table();
    build_segments();
  }

  void bind(uint32_t storage, void* base) override {
    auto* first = static_cast<std::byte*>(base ? base : empty_memory.data());
    for (uint32_t i = first_slot_[storage]; i < first_slot_[storage + 1]; ++i) {
      table_[slots_[i].index] = first + slots_[i].offset;
    }
    if (storage == 0) arena_ = first;
  }

  void bind_thread_scratch(void* base, int threads) override {
    thread_scratch_ = static_cast<std::byte*>(base);
    scratch_threads_ = threads;
  }

  int run(Executor& executor, int threads, const std::atomic<bool>* cancel) override {
    wrote_params_.store(false, std::memory_order_relaxed);
    if (cancel && cancel->load(std::memory_order_acquire)) {
      throw Error(ErrorKind::kCancelled, "the run was cancelled before it started");
    }
    cancel_ = cancel;
    if (!plan_->guards.empty()) poison();
    threads = std::min({threads, useful_threads_, scratch_threads_});
    if (threads > 1) {
      for (uint32_t i = 0; i < num_counters_; ++i) counters_[i].store(0, std::memory_order_relaxed);
    }
    // Barriers do not look at the caller's flag: it must not stop a run that writes params.
    return executor.run(
        std::max(threads, 1), nullptr,
        [](void* self, Team& team, int thread) noexcept {
          static_cast<CpuRunner*>(self)->walk(team, thread);
        },
        this);
  }

  bool wrote_params() const override { return wrote_params_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    uint32_t index = 0;  // into the table
    int64_t offset = 0;  // bytes
  };
  struct Step {
    const void* state = nullptr;
    const Phase* phases = nullptr;
    uint32_t num_phases = 0;
    void* const* operands = nullptr;
    void* const* results = nullptr;
    void* const* scratch = nullptr;
  };
  struct Part {  // a segment
    uint32_t begin = 0, end = 0;
    uint32_t counter = 0;  // the first one; a serial segment has one, others one per phase
    bool serial = false;
    bool barrier_before = false;
  };
  // A thread on its way through the plan.
  struct Walker {
    Team& team;
    void* thread_scratch;
    uint64_t phase = 0;
    bool failed = false;  // skips work, but never a barrier
  };

  // --- Setup

  void build_table() {
    const Plan& plan = *plan_;
    size_t size = 0;
    for (const PlanStep& s : plan.steps) size += s.operands.size() + s.results.size() + 1;
    table_.assign(size, nullptr);
    std::vector<std::vector<Slot>> by_storage(plan.storages.size());
    uint32_t next = 0;
    const auto add = [&](uint32_t storage, int64_t offset) {
      if (storage != PlanView::kNone) by_storage[storage].push_back({next, offset});
      ++next;
    };
    for (const PlanStep& s : plan.steps) {
      Step step;
      step.state = s.kernel.state.get();
      step.phases = s.kernel.phases.data();
      step.num_phases = uint32_t(s.kernel.phases.size());
      step.operands = &table_[next];
      for (const PlanView& v : s.operands) add(v.storage, v.offset);
      step.results = &table_[next];
      for (const PlanView& v : s.results) add(v.storage, v.offset);
      step.scratch = &table_[next];
      add(s.kernel.scratch_bytes > 0 ? 0 : PlanView::kNone, s.scratch_offset);
      steps_.push_back(step);
    }
    first_slot_.push_back(0);
    for (const auto& list : by_storage) {
      slots_.insert(slots_.end(), list.begin(), list.end());
      first_slot_.push_back(uint32_t(slots_.size()));
    }
  }

  void build_segments() {
    const Plan& plan = *plan_;
    int64_t width = 0;  // threads that can work between two barriers
    double ns = 0, parallel_ns = 0;
    const auto close = [&] {
      if (width > 1) parallel_ns += ns;
      useful_threads_ = int(std::max<int64_t>(useful_threads_, std::min<int64_t>(width, 1 << 16)));
      width = 0;
      ns = 0;
    };
    commit_step_ = uint32_t(plan.steps.size());
    for (uint32_t i = 0; i < plan.segments.size(); ++i) {
      const Segment& s = plan.segments[i];
      if (i >= plan.commit_segment) commit_step_ = std::min(commit_step_, s.begin);
      parts_.push_back({s.begin, s.end, num_counters_, s.serial, s.barrier_before});
      if (s.barrier_before) close();
      int64_t chunks = 1;
      for (uint32_t step = s.begin; step < s.end; ++step) {
        ns += plan.steps[step].kernel.nanoseconds;
        if (s.serial) continue;
        for (const Phase& p : plan.steps[step].kernel.phases) chunks = std::max(chunks, p.chunks);
      }
      width += chunks;
      num_counters_ += s.serial ? 1 : steps_[s.begin].num_phases;
    }
    close();
    if (parallel_ns < kParallelNanoseconds) useful_threads_ = 1;
    counters_ = std::make_unique<std::atomic<int64_t>[]>(num_counters_);
  }

  // --- Run

  void walk(Team& team, int thread) noexcept {
    Walker w{team,
             thread_scratch_ ? thread_scratch_ + thread * plan_->thread_scratch_bytes : nullptr};
    if (team.width == 1) {
      work(w, 0, uint32_t(steps_.size()));
      return;
    }
    for (const Part& part : parts_) {
      if (part.barrier_before && team.barrier(w.phase).stop) return;
      if (part.serial) {
        if (counters_[part.counter].fetch_add(1, std::memory_order_relaxed) == 0) {
          work(w, part.begin, part.end);
        }
      } else if (!share(w, part)) {
        return;
      }
    }
  }

  // Steps [begin, end) by this thread alone.
  void work(Walker& w, uint32_t begin, uint32_t end) noexcept {
    if (w.failed) return;
    uint32_t s = begin;
    try {
      for (; s < end; ++s) {
        const Step& step = steps_[s];
        const StepArgs args = args_of(w, step);
        before(s);
        for (uint32_t p = 0; p < step.num_phases; ++p) {
          const Phase& phase = step.phases[p];
          for (int64_t c = 0; c < phase.chunks; ++c) {
            if (c > 0) before(s);
            phase.run(step.state, args, c);
          }
        }
        check_guards();
      }
    } catch (...) {
      fail(w, s);
    }
  }

  // The chunks of one step, with the others. False: leave the run.
  bool share(Walker& w, const Part& part) noexcept {
    const Step& step = steps_[part.begin];
    const StepArgs args = args_of(w, step);
    for (uint32_t p = 0; p < step.num_phases; ++p) {
      if (p > 0 && w.team.barrier(w.phase).stop) return false;
      if (w.failed) continue;
      const Phase& phase = step.phases[p];
      std::atomic<int64_t>& next = counters_[part.counter + p];
      try {
        for (;;) {
          const int64_t c = next.fetch_add(1, std::memory_order_relaxed);
          if (c >= phase.chunks || w.team.failed.load(std::memory_order_relaxed)) break;
          before(part.begin);
          phase.run(step.state, args, c);
        }
        check_guards();
      } catch (...) {
        fail(w, part.begin);
      }
    }
    return true;
  }

  StepArgs args_of(const Walker& w, const Step& step) const {
    return {step.operands, step.results, *step.scratch, w.thread_scratch};
  }

  // Samples the caller's flag; from the first write of a param on the run goes through.
  void before(uint32_t step) {
    if (step >= commit_step_) {
      if (!wrote_params_.load(std::memory_order_relaxed)) {
        wrote_params_.store(true, std::memory_order_relaxed);
      }
    } else if (cancel_ && cancel_->load(std::memory_order_relaxed)) {
      throw Error(ErrorKind::kCancelled, "the run was cancelled");
    }
  }

  void poison() {
    std::memset(arena_, kPoison, size_t(plan_->arena_bytes));
    for (int64_t guard : plan_->guards) std::memset(arena_ + guard, kCanary, kAlignment);
  }

  void check_guards() const {
    for (int64_t guard : plan_->guards) {
      for (int64_t i = 0; i < kAlignment; ++i) {
        if (uint8_t(arena_[guard + i]) != kCanary) {
          internal_error("wrote outside its memory, at byte {} of the arena", guard + i);
        }
      }
    }
  }

  // Called in a handler: records the failure, with the step's op and label in front.
  void fail(Walker& w, uint32_t s) const noexcept {
    w.failed = true;
    try {
      rethrow_as_error(plan_->steps[s]);
    } catch (...) {
      w.team.fail();
    }
  }

  [[noreturn]] static void rethrow_as_error(const PlanStep& step) {
    std::string context(step.op->name);
    if (!step.label.empty()) context += " at " + step.label;
    try {
      throw;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kCancelled) throw;
      throw e.with_context(context);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorKind::kDevice, context + ": out of memory");
    } catch (const std::exception& e) {
      throw Error(ErrorKind::kInternal, context + ": " + e.what());
    }
  }

  const std::shared_ptr<const Plan> plan_;
  std::vector<void*> table_;          // addresses of all operands, results and scratch, by step
  std::vector<Slot> slots_;           // grouped by storage
  std::vector<uint32_t> first_slot_;  // of each storage, and the end
  std::vector<Step> steps_;
  std::vector<Part> parts_;
  std::unique_ptr<std::atomic<int64_t>[]> counters_;
  uint32_t num_counters_ = 0;
  uint32_t commit_step_ = 0;
  int useful_threads_ = 1;
  std::byte* arena_ = nullptr;
  std::byte* thread_scratch_ = nullptr;
  int scratch_threads_ = 1;
  const std::atomic<bool>* cancel_ = nullptr;
  std::atomic<bool> wrote_params_{false};
};

}  // namespace

std::unique_ptr<Runner> make_runner(std::shared_ptr<const Plan> plan) {
  return std::make_unique<CpuRunner>(std::move(plan));
}

}  // namespace rlx::cpu
