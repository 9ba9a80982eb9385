#include "rlx/runtime/executable.h"

#include <algorithm>
#include <atomic>

#include "rlx/base/error.h"
#include "rlx/compile/memory.h"
#include "rlx/runtime/program.h"

namespace rlx {
namespace {

// Memory that grows to the largest plan and counts against the session's limit.
struct Block {
  std::shared_ptr<void> memory;
  int64_t bytes = -1;
  Reservation reservation;

  void grow(const std::shared_ptr<MemoryBudget>& budget, int64_t wanted, std::string_view what) {
    if (wanted <= bytes) return;
    memory.reset();
    reservation = Reservation();
    bytes = -1;
    reservation = Reservation(budget, wanted, what);
    memory = allocate_aligned(wanted);
    bytes = wanted;
  }
};

// A dense array in place of one that the plan cannot use where it lies.
struct Staging {
  Array array;
  Reservation reservation;

  Array& get(const std::shared_ptr<MemoryBudget>& budget, const PlanTensor& tensor) {
    if (!array.defined() || array.dtype() != tensor.dtype || array.shape() != tensor.dims) {
      array = Array();
      reservation = Reservation();
      reservation = Reservation(budget, byte_size(tensor.dtype, tensor.dims),
                                fmt::format("staging '{}'", tensor.name));
      array = Array::uninitialized(tensor.dtype, tensor.dims);
    }
    return array;
  }
};

struct ByteRange {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const ByteRange& o) const { return begin < o.end && o.begin < end; }
};

ByteRange range_of(const Array& a) {
  if (a.num_elements() == 0) return {};
  int64_t low = 0, high = 1;
  for (size_t i = 0; i < a.shape().size(); ++i) {
    const int64_t step = (a.shape()[i] - 1) * a.strides()[i];
    (step < 0 ? low : high) += step;
  }
  const auto first = reinterpret_cast<uintptr_t>(a.raw());
  return {first + uintptr_t(bytes_of(a.dtype(), low)),
          first + uintptr_t(bytes_of(a.dtype(), high))};
}

// A set of bytes, for many questions.
class ByteRanges {
 public:
  void reserve(size_t ranges) { ranges_.reserve(ranges); }
  void clear() { ranges_.clear(); }
  void add(const void* base, int64_t bytes) {
    const auto first = reinterpret_cast<uintptr_t>(base);
    if (bytes > 0) ranges_.push_back({first, first + uintptr_t(bytes)});
  }
  // After the last add: sorts and joins.
  void finish() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (const ByteRange& r : ranges_) {
      if (kept > 0 && r.begin <= ranges_[kept - 1].end) {
        ranges_[kept - 1].end = std::max(ranges_[kept - 1].end, r.end);
      } else {
        ranges_[kept++] = r;
      }
    }
    ranges_.resize(kept);
  }
  bool overlaps(const ByteRange& range) const {
    const auto it =
        std::upper_bound(ranges_.begin(), ranges_.end(), range.begin,
                         [](uintptr_t begin, const ByteRange& r) { return begin < r.end; });
    return it != ranges_.end() && it->overlaps(range);
  }

 private:
  std::vector<ByteRange> ranges_;  // disjoint and sorted
};

// Whether kernels can use the array's memory as it is.
bool usable(const Array& a) { return a.is_dense() && is_aligned(a); }

// The first elements along every axis.
Array live_part(Array& whole, const Dims& dims) {
  return Array::borrow(whole.dtype(), whole.mutable_raw(), dims, whole.strides());
}

// A plan bound to an executable's memory.
struct Instance {
  std::shared_ptr<CachedPlan> cached;
  std::unique_ptr<Runner> runner;
  WeightBinding weights;
  std::vector<uint32_t> inputs, outputs, params, packed;  // storages
  ByteRanges param_bytes, updated_bytes;
  std::vector<int64_t> extents;  // of the plan's bounded sizes in this run
  void* arena = nullptr;         // as bound
  void* scratch = nullptr;

  Instance(SessionCore& core, std::shared_ptr<CachedPlan> cached_plan)
      : cached(std::move(cached_plan)),
        runner(core.device.make_runner(cached->plan)),
        weights(core.weights, cached->plan),
        extents(cached->plan->symbols.size()) {
    const Plan& p = plan();
    inputs.assign(p.inputs.size(), PlanView::kNone);
    outputs.assign(p.outputs.size(), PlanView::kNone);
    params.assign(p.params.size(), PlanView::kNone);
    packed.assign(p.packed.size(), PlanView::kNone);
    // So that nothing can throw while the weights are bound.
    param_bytes.reserve(p.params.size());
    updated_bytes.reserve(p.params.size());
    for (uint32_t s = 0; s < p.storages.size(); ++s) {
      const uint32_t index = p.storages[s].index;
      switch (p.storages[s].kind) {
        case StorageKind::kArena:
        case StorageKind::kSlice:
        case StorageKind::kExtent:
          break;
        case StorageKind::kInput:
          inputs[index] = s;
          break;
        case StorageKind::kOutput:
          outputs[index] = s;
          break;
        case StorageKind::kParam:
          params[index] = s;
          break;
        case StorageKind::kPacked:
          packed[index] = s;
          break;
        case StorageKind::kConstant:
          bind(s, const_cast<void*>(p.constants[index].raw()));  // kernels only read it
          break;
      }
    }
  }

  const Plan& plan() const { return *cached->plan; }

  void bind(uint32_t storage, void* base) const {
    if (storage != PlanView::kNone) runner->bind(storage, base);
  }

  // Whether a size is known only when the run has set it.
  bool has_late_size(const PlanTensor& t) const {
    return std::ranges::any_of(t.live, [&](const LiveAxis& a) { return is_late(a); });
  }
  bool is_late(const LiveAxis& a) const { return plan().symbols[a.extent.symbol].set_by_step; }

  // The sizes of this run; valid until the next call. What a run sets itself is at the bound until
  // then.
  const Dims& live_dims(const PlanTensor& t) {
    if (t.live.empty()) return t.dims;
    dims_ = t.dims;
    for (const LiveAxis& a : t.live) dims_[a.axis] = a.extent.line.at(extents[a.extent.symbol]);
    return dims_;
  }

  void bind_weights() {
    param_bytes.clear();
    updated_bytes.clear();
    for (size_t i = 0; i < params.size(); ++i) {
      void* const base = weights.param(i);
      bind(params[i], base);
      const PlanParam& p = plan().params[i];
      const int64_t bytes = byte_size(p.dtype, p.dims);
      param_bytes.add(base, bytes);
      if (p.updated) updated_bytes.add(base, bytes);
    }
    param_bytes.finish();
    updated_bytes.finish();
    for (size_t i = 0; i < packed.size(); ++i) bind(packed[i], weights.packed(i));
  }

  bool takes(std::span<const Array> arrays) { return solve_extents(plan(), arrays, extents); }

 private:
  Dims dims_;
};

// The weight store's lock for the time of a run.
class WeightLock {
 public:
  explicit WeightLock(Instance& instance) : weights_(instance.weights) {
    if (weights_.lock()) instance.bind_weights();
  }
  ~WeightLock() { weights_.unlock(); }
  WeightLock(const WeightLock&) = delete;
  WeightLock& operator=(const WeightLock&) = delete;

 private:
  WeightBinding& weights_;
};

class Running {
 public:
  Running(std::atomic<bool>& flag, std::string_view name) : flag_(flag) {
    if (flag_.exchange(true, std::memory_order_acquire)) {
      user_error(
          "'{}' is running already: an executable runs one call at a time, clone() it for each "
          "thread",
          name);
    }
  }
  ~Running() { flag_.store(false, std::memory_order_release); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

struct Executable::State {
  explicit State(std::shared_ptr<Program> p)
      : program(std::move(p)),
        staged_in(program->input_names().size()),
        staged_out(program->output_names().size()),
        used_staging(program->output_names().size(), 0) {
    if (program->static_plan()) current = instance_of(program->static_plan());
  }

  // Finds or makes the instance of a plan, and lets go of plans that the cache has dropped.
  Instance* instance_of(const std::shared_ptr<CachedPlan>& cached) {
    current = nullptr;
    std::erase_if(instances, [&](const std::unique_ptr<Instance>& i) {
      return i->cached != cached && i->cached->dropped.load(std::memory_order_acquire);
    });
    for (const auto& i : instances) {
      if (i->cached == cached) return i.get();
    }
    instances.push_back(std::make_unique<Instance>(program->core(), cached));
    return instances.back().get();
  }

  Instance& select(std::span<const Array> inputs) {
    check_input_count(program->name(), program->input_names(), inputs.size());
    if (current && current->takes(inputs)) return *current;
    if (current && program->static_plan()) check_inputs(current->plan(), inputs);
    current = instance_of(program->plan_for(inputs));
    if (!current->takes(inputs)) check_inputs(current->plan(), inputs);
    return *current;
  }

  // One arena serves all plans of the executable: they never run at the same time.
  void bind_memory(Instance& instance) {
    SessionCore& core = program->core();
    const MemoryEstimate need = instance.plan().estimate(core.threads);
    arena.grow(core.budget, need.arena, "the arena of an executable");
    scratch.grow(core.budget, need.thread_scratch, "the scratch of an executable's threads");
    if (instance.arena != arena.memory.get()) {
      instance.arena = arena.memory.get();
      instance.runner->bind(0, instance.arena);
    }
    if (instance.scratch != scratch.memory.get()) {
      instance.scratch = scratch.memory.get();
      instance.runner->bind_thread_scratch(instance.scratch, core.threads);
    }
  }

  void bind_inputs(Instance& instance, std::span<const Array> inputs) {
    instance.runner->set_extents(instance.extents);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const void* data = inputs[i].raw();
      if (const PlanTensor& t = instance.plan().inputs[i]; !t.live.empty()) {
        // Its rows lie further apart in the plan's memory, which is laid out for the bound.
        Array& staged = staged_in[i].get(program->core().budget, t);
        live_part(staged, inputs[i].shape()).copy_from(inputs[i]);
        instance.bind(instance.inputs[i], staged.mutable_raw());
        ++staged_inputs;
        continue;
      }
      // An input that lies in a param which the run updates keeps its old value.
      if (!usable(inputs[i]) || instance.updated_bytes.overlaps(range_of(inputs[i]))) {
        Array& staged = staged_in[i].get(program->core().budget, instance.plan().inputs[i]);
        staged.copy_from(inputs[i]);
        data = staged.raw();
        ++staged_inputs;
      }
      instance.bind(instance.inputs[i], const_cast<void*>(data));  // kernels only read it
    }
  }

  void bind_outputs(Instance& instance, std::span<const Array> inputs, std::span<Array> outputs) {
    const Plan& plan = instance.plan();
    if (outputs.size() != plan.outputs.size()) {
      user_error("'{}' has {} outputs, {} arrays were given for them", plan.name,
                 plan.outputs.size(), outputs.size());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const PlanTensor& t = plan.outputs[i];
      const bool late = instance.has_late_size(t);
      if (late && !outputs[i].defined()) {
        bind_staging(instance, i);
        continue;
      }
      if (late) {
        check_late_output(instance, t, outputs[i]);
      } else {
        take_output(instance, t, outputs[i]);
      }
      outputs[i].mutable_raw();  // throws now, not after the run, if it is read-only
      const ByteRange range = range_of(outputs[i]);
      if (instance.param_bytes.overlaps(range)) {
        user_error("output '{}' of '{}' is given the memory of a param", t.name, plan.name);
      }
      for (size_t j = 0; j < i; ++j) {
        if (range.overlaps(range_of(outputs[j]))) {
          user_error("outputs '{}' and '{}' of '{}' are given the same memory",
                     plan.outputs[j].name, t.name, plan.name);
        }
      }
      bool stage = !usable(outputs[i]) || !t.live.empty();
      for (const Array& input : inputs) stage |= range.overlaps(range_of(input));
      if (stage) {
        bind_staging(instance, i);
      } else {
        used_staging[i] = 0;
        instance.bind(instance.outputs[i], outputs[i].mutable_raw());
      }
    }
  }

  void bind_staging(Instance& instance, size_t i) {
    Array& staged = staged_out[i].get(program->core().budget, instance.plan().outputs[i]);
    used_staging[i] = 1;
    ++staged_outputs;
    instance.bind(instance.outputs[i], staged.mutable_raw());
  }

  // Makes the array if there is none.
  static void take_output(Instance& instance, const PlanTensor& t, Array& output) {
    const Dims& dims = instance.live_dims(t);
    if (!output.defined()) output = Array::uninitialized(t.dtype, dims);
    if (output.dtype() != t.dtype || output.shape() != dims) {
      wrong_output(instance, t, fmt::format("{}{}", to_string(t.dtype), dims_to_string(dims)),
                   output);
    }
  }

  // Before the run: whether there is a size that it can set for which the array is right.
  static void check_late_output(Instance& instance, const PlanTensor& t, const Array& output) {
    const Plan& plan = instance.plan();
    Dims fitting = instance.live_dims(t);
    TensorType type{t.dtype, Shape(std::span<const int64_t>(fitting))};
    const bool same_rank = output.shape().size() == fitting.size();
    for (const LiveAxis& a : t.live) {
      if (!instance.is_late(a)) continue;
      type.shape[a.axis] = size_of(plan, a.extent);
      if (!same_rank) continue;
      const int64_t size = output.shape()[a.axis];
      const auto value = a.extent.line.solve(size);
      if (value && *value <= plan.symbols[a.extent.symbol].bound) fitting[a.axis] = size;
    }
    if (output.dtype() != t.dtype || output.shape() != fitting) {
      wrong_output(instance, t, type.to_string(), output);
    }
  }

  [[noreturn]] static void wrong_output(const Instance& instance, const PlanTensor& t,
                                        const std::string& wanted, const Array& output) {
    user_error("output '{}' of '{}': expected an array of type {}, got {}", t.name,
               instance.plan().name, wanted, output.type().to_string());
  }

  void run(std::span<const Array> inputs, std::span<Array> outputs, const RunOptions& options) {
    const Running guard(running, program->name());
    Instance& instance = select(inputs);
    check_sizes(instance.plan(), instance.extents);
    bind_memory(instance);
    {
      const WeightLock lock(instance);
      bind_inputs(instance, inputs);
      bind_outputs(instance, inputs, outputs);
      run_locked(instance, options);
    }
    std::ranges::copy(instance.runner->extents(), instance.extents.begin());
    try {
      finish_outputs(instance, outputs);
    } catch (const Error& e) {
      if (!instance.runner->wrote_params()) throw;
      throw Error(e.kind(), e.message() + " (the run has written params: they hold new values)");
    }
  }

  void finish_outputs(Instance& instance, std::span<Array> outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const PlanTensor& t = instance.plan().outputs[i];
      if (instance.has_late_size(t)) take_output(instance, t, outputs[i]);
      if (used_staging[i]) outputs[i].copy_from(live_part(staged_out[i].array, outputs[i].shape()));
    }
  }

  int run_plan(Instance& instance, const RunOptions& options) {
    SessionCore& core = program->core();
    RunRequest request;
    if (options.cancel) request.cancel = options.cancel->flag();
    request.check_finite = options.check_finite;
    if (!options.profile) return instance.runner->run(core.executor, core.threads, request);
    request.recorders = options.profile->start(instance.cached->plan, core.threads);
    try {
      const int threads = instance.runner->run(core.executor, core.threads, request);
      options.profile->finish(threads);
      return threads;
    } catch (...) {
      options.profile->finish(core.threads);
      throw;
    }
  }

  void run_locked(Instance& instance, const RunOptions& options) {
    try {
      run_plan(instance, options);
    } catch (const Error& e) {
      if (!instance.runner->wrote_params()) throw;
      instance.weights.wrote();
      throw Error(e.kind(),
                  e.message() + " (the run had begun to write params: they may hold new values)");
    } catch (...) {
      if (instance.runner->wrote_params()) instance.weights.wrote();
      throw;
    }
    instance.weights.wrote();
  }

  const std::shared_ptr<Program> program;
  std::atomic<bool> running{false};
  Block arena, scratch;
  std::vector<std::unique_ptr<Instance>> instances;
  Instance* current = nullptr;
  std::vector<Staging> staged_in, staged_out;
  std::vector<uint8_t> used_staging;  // of the outputs, in this run
  int64_t staged_inputs = 0, staged_outputs = 0;
};

Executable::Executable(std::shared_ptr<Program> program)
    : state_(std::make_unique<State>(std::move(program))) {}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

std::vector<Array> Executable::run(std::span<const Array> inputs, const RunOptions& options) {
  std::vector<Array> outputs(state_->program->output_names().size());
  state_->run(inputs, outputs, options);
  return outputs;
}

std::vector<Array> Executable::run(std::initializer_list<NamedArray> inputs,
                                   const RunOptions& options) {
  std::map<std::string, Array> map;
  for (const NamedArray& n : inputs) {
    if (!map.emplace(n.name, n.array).second) {
      user_error("input '{}' of '{}' is given twice", n.name, state_->program->name());
    }
  }
  return run(map, options);
}

std::vector<Array> Executable::run(const std::map<std::string, Array>& inputs,
                                   const RunOptions& options) {
  const std::vector<std::string>& names = input_names();
  std::vector<Array> arrays;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  for (const std::string& name : names) {
    const auto it = inputs.find(name);
    if (it == inputs.end()) {
      user_error("input '{}' of '{}' is missing; the inputs are: {}", name, state_->program->name(),
                 list);
    }
    arrays.push_back(it->second);
  }
  for (const auto& [name, array] : inputs) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      user_error("'{}' has no input '{}'; the inputs are: {}", state_->program->name(), name,
                 list.empty() ? "none" : list);
    }
  }
  return run(arrays, options);
}

void Executable::run_into(std::span<const Array> inputs, std::span<Array> outputs,
                          const RunOptions& options) {
  state_->run(inputs, outputs, options);
}

Executable Executable::clone() const { return Executable(state_->program); }

const std::vector<std::string>& Executable::input_names() const {
  return state_->program->input_names();
}
const std::vector<std::string>& Executable::output_names() const {
  return state_->program->output_names();
}
int Executable::threads() const { return state_->program->core().threads; }

const Plan& Executable::plan() const {
  if (!state_->current) {
    user_error("'{}' has symbolic sizes: it has no plan before its first run",
               state_->program->name());
  }
  return state_->current->plan();
}

MemoryEstimate Executable::estimate() const { return plan().estimate(threads()); }

Report Executable::report() const {
  Report report = report_of(plan(), threads());
  report.staged_inputs = state_->staged_inputs;
  report.staged_outputs = state_->staged_outputs;
  return report;
}

int64_t Executable::compiles() const { return state_->program->compiles(); }
int64_t Executable::cache_hits() const { return state_->program->hits(); }

}  // namespace rlx
