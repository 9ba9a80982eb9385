// Runs a plan: every thread of the team walks the list of segments. Chunks are claimed from
// counters, one per phase, so whoever is free takes the next one. Before each trip of a control
// step the last thread at a barrier decides whether there is one, and binds its slices.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/compile/memory.h"
#include "rlx/runtime/finite.h"

namespace rlx::cpu {
namespace {

// Work below this time is not worth a second thread.
constexpr double kParallelNanoseconds = 5000;
constexpr uint8_t kCanary = 0xC5, kPoison = 0xFF;

// Null pointers of tensors without elements.
alignas(kAlignment) std::array<std::byte, kAlignment> empty_memory;

class CpuRunner final : public Runner {
 public:
  explicit CpuRunner(std::shared_ptr<const Plan> plan)
      : plan_(std::move(plan)), extents_(plan_->symbols.size()), sizes_(plan_->extents.size()) {
    build_table();
    build_bodies();
    for (uint32_t s = 0; s < plan_->storages.size(); ++s) {
      const Storage& storage = plan_->storages[s];
      if (storage.kind == StorageKind::kExtent) bind(s, &sizes_[storage.index]);
    }
    std::vector<int64_t> bounds;
    for (const PlanSymbol& symbol : plan_->symbols) bounds.push_back(symbol.bound);
    set_extents(bounds);
  }

  void set_extents(std::span<const int64_t> extents) override {
    for (uint32_t s = 0; s < extents.size(); ++s) set_extent(s, extents[s]);
  }

  std::span<const int64_t> extents() const override { return extents_; }

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

  int run(Executor& executor, int threads, const RunRequest& request) override {
    wrote_params_.store(false, std::memory_order_relaxed);
    if (request.cancel && request.cancel->load(std::memory_order_acquire)) {
      throw Error(ErrorKind::kCancelled, "the run was cancelled before it started");
    }
    cancel_ = request.cancel;
    recorders_ = request.recorders;
    finite_.reset();
    if (request.check_finite) {
      finite_.emplace(*plan_, extents_);
      threads = 1;
    }
    if (!plan_->guards.empty()) poison();
    threads = std::min({threads, useful_threads_, scratch_threads_});
    if (threads > 1) reset_counters(main_);
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
    uint32_t control = kNone;  // into controls_
    uint32_t first_variant = 0, num_variants = 0;
    const PlanStep* plan = nullptr;
  };
  struct Part {  // a segment
    uint32_t begin = 0, end = 0;
    uint32_t counter = 0;  // the first one; a serial segment has one, others one per phase
    bool serial = false;
    bool barrier_before = false;
    bool control = false;  // a control step that the threads walk together
  };
  // The whole plan, or the body of a control step.
  struct Body {
    std::vector<Part> parts;
    uint32_t first_counter = 0, end_counter = 0;
  };
  struct Control {
    const PlanControl* plan = nullptr;
    std::vector<int64_t> carry_bytes;
    void* const* word = nullptr;  // address of the predicate or index
    // Of the loop that is running; written by one thread between two barriers.
    int64_t trips = 0;  // begun so far, or (kWhile) whose condition held
    int64_t trip = 0;   // the one that is running, or whose condition is
    const Body* body = nullptr;
  };
  // A thread on its way through the plan.
  struct Walker {
    Team& team;
    void* thread_scratch;
    ProfileRecorder* recorder;  // null: nothing is recorded
    uint32_t thread;
    uint64_t phase = 0;
    bool failed = false;   // skips work, but never a barrier
    bool commits = false;  // this part of the plan writes params
  };
  static constexpr uint32_t kNone = ~uint32_t(0);

  // --- Setup

  void build_table() {
    const Plan& plan = *plan_;
    size_t size = 0;
    for (const PlanStep& s : plan.steps) {
      size += (s.operands.size() + s.results.size()) * (1 + s.variants.size()) + 2;
    }
    table_.assign(size, nullptr);
    std::vector<std::vector<Slot>> by_storage(plan.storages.size());
    uint32_t next = 0;
    const auto add = [&](uint32_t storage, int64_t offset) {
      if (storage != PlanView::kNone) by_storage[storage].push_back({next, offset});
      ++next;
    };
    const auto make_step = [&](const PreparedKernel& kernel, const std::vector<PlanView>& operands,
                               const std::vector<PlanView>& results) {
      Step step;
      step.state = kernel.state.get();
      step.phases = kernel.phases.data();
      step.num_phases = uint32_t(kernel.phases.size());
      step.operands = &table_[next];
      for (const PlanView& v : operands) add(v.storage, v.offset);
      step.results = &table_[next];
      for (const PlanView& v : results) add(v.storage, v.offset);
      return step;
    };
    for (const PlanStep& s : plan.steps) {
      Step step = make_step(s.kernel, s.operands, s.results);
      step.plan = &s;
      step.first_variant = uint32_t(variants_.size());
      step.num_variants = uint32_t(s.variants.size());
      for (const PlanVariant& v : s.variants) {
        variants_.push_back(make_step(v.kernel, v.operands, v.results));
      }
      step.scratch = &table_[next];
      for (uint32_t v = step.first_variant; v < variants_.size(); ++v) {
        variants_[v].scratch = step.scratch;
      }
      add(s.kernel.scratch_bytes > 0 ? 0 : PlanView::kNone, s.scratch_offset);
      if (s.control) {
        step.control = uint32_t(controls_.size());
        controls_.push_back(control_of(s, &table_[next]));
        const PlanView& word =
            s.control->kind == PlanControl::Kind::kScan ? s.control->index : s.control->predicate;
        add(word.storage, word.offset);
      }
      steps_.push_back(step);
    }
    first_slot_.push_back(0);
    for (const auto& list : by_storage) {
      slots_.insert(slots_.end(), list.begin(), list.end());
      first_slot_.push_back(uint32_t(slots_.size()));
    }
  }

  static Control control_of(const PlanStep& step, void* const* word) {
    Control control;
    control.plan = step.control.get();
    control.word = word;
    for (uint32_t i = 0; i < control.plan->carries; ++i) {
      control.carry_bytes.push_back(
          byte_size(step.results[i].desc.dtype, step.results[i].desc.dims));
    }
    return control;
  }

  void build_bodies() {
    const Plan& plan = *plan_;
    bodies_.resize(plan.bodies.size());
    Use use;
    for (uint32_t i = 0; i < plan.bodies.size(); ++i) {
      bodies_[i] = make_body(plan.bodies[i].segments, use);
    }
    main_ = make_body(plan.segments, use);
    useful_threads_ = int(std::min<int64_t>(use.width, 1 << 16));
    if (use.parallel_ns < kParallelNanoseconds) useful_threads_ = 1;
    counters_ = std::make_unique<std::atomic<int64_t>[]>(num_counters_);
  }

  // At most, over all variants.
  uint32_t phases_of(const Step& step) const {
    uint32_t most = step.num_phases;
    for (uint32_t v = 0; v < step.num_variants; ++v) {
      most = std::max(most, variants_[step.first_variant + v].num_phases);
    }
    return most;
  }

  void set_extent(uint32_t symbol, int64_t value) {
    extents_[symbol] = value;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const PlanExtent& extent = plan_->extents[i];
      if (extent.symbol == symbol) sizes_[i] = extent.line.at(value);
    }
  }

  // The step, or the smallest variant of it that covers this run's extents.
  const Step& sized(const Step& step) const {
    for (uint32_t v = 0; v < step.num_variants; ++v) {
      const std::vector<int64_t>& up_to = step.plan->variants[v].up_to;
      bool covers = true;
      for (size_t i = 0; i < up_to.size(); ++i) {
        covers &= extents_[step.plan->symbols[i]] <= up_to[i];
      }
      if (covers) return variants_[step.first_variant + v];
    }
    return step;
  }

  // How much of the plan threads can share.
  struct Use {
    int64_t width = 1;  // threads that can work between two barriers
    double parallel_ns = 0;
  };

  Body make_body(const std::vector<Segment>& segments, Use& use) {
    Body body;
    body.first_counter = num_counters_;
    int64_t width = 0;
    double ns = 0;
    const auto close = [&] {
      if (width > 1) use.parallel_ns += ns;
      use.width = std::max(use.width, width);
      width = 0;
      ns = 0;
    };
    for (const Segment& s : segments) {
      const bool control = !s.serial && steps_[s.begin].control != kNone;
      body.parts.push_back({s.begin, s.end, num_counters_, s.serial, s.barrier_before, control});
      if (s.barrier_before) close();
      int64_t chunks = 1;
      for (uint32_t step = s.begin; step < s.end; ++step) {
        const PreparedKernel& kernel = plan_->steps[step].kernel;
        ns += kernel.nanoseconds;
        if (s.serial) continue;
        for (const Phase& p : kernel.phases) chunks = std::max(chunks, p.chunks);
      }
      // The estimate of a loop is that of all trips; what can be shared in one is known by now.
      if (control) use.parallel_ns += plan_->steps[s.begin].kernel.nanoseconds;
      width += chunks;
      num_counters_ += s.serial ? 1 : phases_of(steps_[s.begin]);
    }
    close();
    body.end_counter = num_counters_;
    return body;
  }

  // --- Run

  void walk(Team& team, int thread) noexcept {
    Walker w{team,
             thread_scratch_ ? thread_scratch_ + thread * plan_->thread_scratch_bytes : nullptr,
             recorders_.empty() ? nullptr : &recorders_[size_t(thread)], uint32_t(thread)};
    const uint32_t commit = plan_->commit_segment;
    for (uint32_t i = 0; i < main_.parts.size(); ++i) {
      w.commits = i >= commit;
      if (!take_part(w, main_.parts[i])) return;
    }
  }

  // All threads of the team together. False: leave the run.
  bool walk(Walker& w, const Body& body) noexcept {
    return std::ranges::all_of(body.parts, [&](const Part& part) { return take_part(w, part); });
  }

  bool take_part(Walker& w, const Part& part) noexcept {
    if (w.team.width == 1) {
      work(w, part);
      return !w.failed;
    }
    if (part.barrier_before && stopped(w)) return false;
    if (part.control) return share_control(w, part.begin);
    if (!part.serial) return share(w, part);
    if (counters_[part.counter].fetch_add(1, std::memory_order_relaxed) == 0) work(w, part);
    return true;
  }

  // Waits for the others; whether all leave the run.
  static bool stopped(Walker& w) noexcept {
    const ProfileScope scope(w.recorder, SpanKind::kBarrier);
    return w.team.barrier(w.phase).stop;
  }

  // By this thread alone.
  void work(Walker& w, const Part& part) noexcept {
    if (w.failed) return;
    try {
      for (uint32_t s = part.begin; s < part.end; ++s) execute(w, s);
    } catch (...) {
      w.failed = true;
      w.team.fail();
    }
  }

  // One step by this thread alone; throws with the step's op and label in front.
  void execute(Walker& w, uint32_t s) {
    const Step& step = steps_[s];
    const bool control = step.control != kNone;
    const ProfileScope scope(w.recorder, control ? SpanKind::kControl : SpanKind::kStep, s);
    try {
      if (control) {
        run_control(w, s);
      } else if (finite_) {
        finite_->before(plan_->steps[s], step.operands);
        run_phases(w, sized(step));
        finite_->after(plan_->steps[s], step.results);
      } else {
        run_phases(w, sized(step));
      }
      if (step.plan->sets != PlanView::kNone) {
        set_extent(step.plan->sets, *static_cast<const int64_t*>(step.operands[0]));
        check_sizes(*plan_, extents_);
      }
      check_guards();
    } catch (...) {
      rethrow_as_error(s);
    }
  }

  void execute(Walker& w, const Body& body) {
    for (const Part& part : body.parts) {
      for (uint32_t s = part.begin; s < part.end; ++s) execute(w, s);
    }
  }

  void run_phases(Walker& w, const Step& step) {
    const StepArgs args = args_of(w, step);
    before(w);
    for (uint32_t p = 0; p < step.num_phases; ++p) {
      const Phase& phase = step.phases[p];
      for (int64_t c = 0; c < phase.chunks; ++c) {
        if (c > 0) before(w);
        phase.run(step.state, args, c);
      }
    }
  }

  // The chunks of one step, with the others. False: leave the run.
  bool share(Walker& w, const Part& part) noexcept {
    const Step& step = sized(steps_[part.begin]);
    const StepArgs args = args_of(w, step);
    for (uint32_t p = 0; p < step.num_phases; ++p) {
      if (p > 0 && stopped(w)) return false;
      if (w.failed) continue;
      const Phase& phase = step.phases[p];
      std::atomic<int64_t>& next = counters_[part.counter + p];
      try {
        for (;;) {
          const int64_t c = next.fetch_add(1, std::memory_order_relaxed);
          if (c >= phase.chunks || w.team.failed.load(std::memory_order_relaxed)) break;
          const ProfileScope scope(w.recorder, SpanKind::kChunk, part.begin, c, p);
          before(w);
          phase.run(step.state, args, c);
        }
        check_guards();
      } catch (...) {
        fail(w, part.begin);
      }
    }
    return true;
  }

  // --- Control steps

  void run_control(Walker& w, uint32_t s) {
    int64_t trip = 0;
    for (const Body* body = first_body(w, s); body; body = next_body(w, s)) {
      const ProfileScope scope(w.recorder, SpanKind::kTrip, s, trip++);
      execute(w, *body);
    }
  }

  // All threads together: whoever arrives last decides what comes next, then all walk it.
  bool share_control(Walker& w, uint32_t s) noexcept {
    const Control& control = controls_[steps_[s].control];
    const ProfileScope scope(w.recorder, SpanKind::kControl, s, 1, w.thread);
    int64_t trip = 0;
    for (Turn turn{*this, w, s, true};; turn.first = false) {
      const BarrierResult result = await_turn(turn);
      if (result.stop) return false;
      if (!result.flag) return true;
      const ProfileScope of_trip(w.recorder, SpanKind::kTrip, s, trip++, w.thread);
      if (!walk(w, *control.body)) return false;
      if (control.plan->kind == PlanControl::Kind::kIf) return true;
    }
  }

  struct Turn {
    CpuRunner& runner;
    Walker& w;
    uint32_t step;
    bool first;

    void take() noexcept {
      const Body* body = nullptr;
      if (!w.team.failed.load(std::memory_order_relaxed)) {
        try {
          body = first ? runner.first_body(w, step) : runner.next_body(w, step);
        } catch (...) {
          runner.fail(w, step);
        }
      }
      if (body) runner.reset_counters(*body);
      runner.controls_[runner.steps_[step].control].body = body;
      w.team.flag = body != nullptr;
    }
  };

  static BarrierResult await_turn(Turn& turn) noexcept {
    const ProfileScope scope(turn.w.recorder, SpanKind::kBarrier);
    const auto take = [](void* t) noexcept { static_cast<Turn*>(t)->take(); };
    return turn.w.team.barrier(turn.w.phase, take, &turn);
  }

  void reset_counters(const Body& body) noexcept {
    for (uint32_t i = body.first_counter; i < body.end_counter; ++i) {
      counters_[i].store(0, std::memory_order_relaxed);
    }
  }

  // The branch that is taken, or the first trip of a loop; null: none.
  const Body* first_body(Walker& w, uint32_t s) {
    const Step& step = steps_[s];
    Control& control = controls_[step.control];
    if (control.plan->kind == PlanControl::Kind::kIf) {
      before(w);
      return &bodies_[control.plan->bodies[*static_cast<const bool*>(*control.word) ? 0 : 1]];
    }
    for (size_t i = 0; i < control.carry_bytes.size(); ++i) {
      if (step.results[i] != step.operands[i] && control.carry_bytes[i] > 0) {
        std::memcpy(step.results[i], step.operands[i], size_t(control.carry_bytes[i]));
      }
    }
    control.trips = 0;
    return next_body(w, s);
  }

  const Body* next_body(Walker& w, uint32_t s) {
    Control& control = controls_[steps_[s].control];
    const PlanControl& plan = *control.plan;
    const int64_t max_trips = plan.length == PlanView::kNone ? plan.max_trips : sizes_[plan.length];
    if (plan.kind == PlanControl::Kind::kIf || control.trips == max_trips) return nullptr;
    control.trip = control.trips;
    // Nothing else would end a loop without a bound, not even one that writes params.
    if (plan.kind == PlanControl::Kind::kWhile && max_trips == INT64_MAX) check_cancel();
    before(w);
    if (plan.kind == PlanControl::Kind::kWhile) {
      execute(w, bodies_[plan.bodies[0]]);
      if (!*static_cast<const bool*>(*control.word)) return nullptr;
      ++control.trips;
      return &bodies_[plan.bodies[1]];
    }
    const int64_t index = plan.reverse ? max_trips - 1 - control.trips : control.trips;
    *static_cast<int64_t*>(*control.word) = index;
    for (const PlanControl::Slice& slice : plan.slices) {
      void* const first =
          (slice.of_result ? steps_[s].results : steps_[s].operands)[slice.position];
      bind(slice.storage, static_cast<std::byte*>(first) + index * slice.bytes);
    }
    ++control.trips;
    return &bodies_[plan.bodies[0]];
  }

  StepArgs args_of(const Walker& w, const Step& step) const {
    return {step.operands, step.results, *step.scratch, w.thread_scratch};
  }

  // Samples the caller's flag; from the first write of a param on the run goes through.
  void before(const Walker& w) {
    if (w.commits) {
      if (!wrote_params_.load(std::memory_order_relaxed)) {
        wrote_params_.store(true, std::memory_order_relaxed);
      }
    } else {
      check_cancel();
    }
  }

  void check_cancel() const {
    if (cancel_ && cancel_->load(std::memory_order_relaxed)) {
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
      rethrow_as_error(s);
    } catch (...) {
      w.team.fail();
    }
  }

  [[noreturn]] void rethrow_as_error(uint32_t s) const {
    const PlanStep& step = plan_->steps[s];
    std::string context(step.op->name);
    if (!step.label.empty()) context += " at " + step.label;
    if (step.control && step.control->kind != PlanControl::Kind::kIf) {
      context += fmt::format(", trip {}", controls_[steps_[s].control].trip);
    }
    try {
      throw;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kCancelled) throw;
      throw e.with_context(context);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorKind::kDevice, context + ": out of memory");
    } catch (const std::exception& e) {
      throw Error(ErrorKind::kInternal, context + ": " + e.what());
    } catch (...) {
      throw Error(ErrorKind::kInternal, context + ": threw something that is not a std::exception");
    }
  }

  const std::shared_ptr<const Plan> plan_;
  std::vector<void*> table_;          // addresses of all operands, results and scratch, by step
  std::vector<Slot> slots_;           // grouped by storage
  std::vector<uint32_t> first_slot_;  // of each storage, and the end
  std::vector<Step> steps_, variants_;
  std::vector<int64_t> extents_;  // of Plan::symbols
  std::vector<int64_t> sizes_;    // Plan::extents in this run
  std::vector<Control> controls_;
  std::vector<Body> bodies_;  // as Plan::bodies
  Body main_;
  std::unique_ptr<std::atomic<int64_t>[]> counters_;
  uint32_t num_counters_ = 0;
  int useful_threads_ = 1;
  std::byte* arena_ = nullptr;
  std::byte* thread_scratch_ = nullptr;
  int scratch_threads_ = 1;
  const std::atomic<bool>* cancel_ = nullptr;
  std::span<ProfileRecorder> recorders_;
  std::optional<FiniteCheck> finite_;
  std::atomic<bool> wrote_params_{false};
};

}  // namespace

std::unique_ptr<Runner> make_runner(std::shared_ptr<const Plan> plan) {
  return std::make_unique<CpuRunner>(std::move(plan));
}

}  // namespace rlx::cpu
