#include "rlx/base/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "rlx/base/cpu_info.h"
#include "rlx/base/error.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace rlx {
namespace {

// What a worker is told, and what it tells. One word, so that a futex can wait on it.
enum Signal : uint32_t {
  kIdle,     // nothing to do, and the worker looks at the word
  kParked,   // nothing to do, and the worker sleeps or is about to
  kReady,    // a job is written
  kAwaited,  // as kReady, and the caller sleeps until it is done
  kExit,     // the pool is going away
};

thread_local bool inside_run = false;

// Gives the thread the default floating-point modes, and the old ones back. Only the vector unit's:
// the library computes nothing with x87.
class DefaultFloatModes {
 public:
  DefaultFloatModes() noexcept : saved_(get()) {
    if (saved_ != kDefault) set(kDefault);
  }
  ~DefaultFloatModes() {
    if (saved_ != kDefault) set(saved_);
  }
  DefaultFloatModes(const DefaultFloatModes&) = delete;
  DefaultFloatModes& operator=(const DefaultFloatModes&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kDefault = 0x1F80;  // all exceptions masked
  static constexpr uint64_t kSticky = 0x3F;     // exceptions seen so far: no mode
  static uint64_t get() noexcept { return _mm_getcsr() & ~kSticky; }
  static void set(uint64_t modes) noexcept { _mm_setcsr(static_cast<unsigned>(modes)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;
  static uint64_t get() noexcept {
    uint64_t modes;
    asm volatile("mrs %0, fpcr" : "=r"(modes));
    return modes;
  }
  static void set(uint64_t modes) noexcept { asm volatile("msr fpcr, %0" ::"r"(modes)); }
#else
  static constexpr uint64_t kDefault = 0;
  static uint64_t get() noexcept { return kDefault; }
  static void set(uint64_t) noexcept {}
#endif

  uint64_t saved_;
};

}  // namespace

// The first line belongs to callers, the second travels between a caller and the worker: a start
// moves one line to the worker, the end moves it back.
struct ThreadPool::Worker {
  alignas(detail::kCacheLine) std::atomic<bool> claimed{false};
  bool exists = false;  // the rest of this line is written by the claimer only
  pthread_t thread{};
  ThreadPool* pool = nullptr;
  Worker* next = nullptr;  // in the claimer's gang

  alignas(detail::kCacheLine) std::atomic<uint32_t> signal{kIdle};
  int index = 0;
  Team* team = nullptr;
  TeamBody body = nullptr;
  void* arg = nullptr;

  bool claim() noexcept {
    return !claimed.load(std::memory_order_relaxed) &&
           !claimed.exchange(true, std::memory_order_acquire);
  }
  void release() noexcept { claimed.store(false, std::memory_order_release); }

  void begin(Team& job_team, TeamBody job_body, void* job_arg, int thread_index) noexcept {
    team = &job_team;
    body = job_body;
    arg = job_arg;
    index = thread_index;
    if (signal.exchange(kReady, std::memory_order_acq_rel) == kParked) detail::wake_all(signal);
  }

  // True if the caller lost its processor meanwhile.
  bool await_end() noexcept {
    detail::SpinWait spin(detail::kWaitNs);
    uint32_t seen;
    while ((seen = signal.load(std::memory_order_acquire)) == kReady || seen == kAwaited) {
      if (spin.again()) continue;
      if (seen == kAwaited || signal.compare_exchange_strong(seen, kAwaited)) {
        detail::sleep_while(signal, kAwaited);
      }
    }
    return spin.preempted();
  }

  // Returns kReady (or kAwaited) or kExit.
  uint32_t await_job() noexcept {
    detail::SpinWait spin(pool->linger_ns_.load(std::memory_order_relaxed));
    for (;;) {
      uint32_t seen = signal.load(std::memory_order_acquire);
      if (seen == kIdle) {
        if (!spin.again()) signal.compare_exchange_strong(seen, kParked);
      } else if (seen == kParked) {
        detail::sleep_while(signal, kParked);
      } else {
        return seen;
      }
    }
  }
};

// All pools, so that a forked child can make each forget the workers that only its parent has.
// The list's lock is held across the fork, and nothing else of a pool needs one.
struct ThreadPool::Fork {
  static inline std::mutex mutex;
  static inline ThreadPool* first = nullptr;

  static void add(ThreadPool* pool) {
    static const int registered = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                                                 [] {
                                                   for (auto* p = first; p; p = p->next_) {
                                                     p->forget_workers();
                                                   }
                                                   mutex.unlock();
                                                 });
    if (registered != 0) throw Error(ErrorKind::kDevice, "thread pool: out of memory");
    const std::lock_guard lock(mutex);
    pool->next_ = first;
    if (first != nullptr) first->prev_ = pool;
    first = pool;
  }

  static void remove(ThreadPool* pool) noexcept {
    const std::lock_guard lock(mutex);
    (pool->prev_ != nullptr ? pool->prev_->next_ : first) = pool->next_;
    if (pool->next_ != nullptr) pool->next_->prev_ = pool->prev_;
  }
};

ThreadPool& ThreadPool::shared() {
  static ThreadPool* const pool = [] {
    auto* made = new ThreadPool(default_width() - 1);
    made->set_avoid_crowds(true);
    return made;
  }();
  return *pool;
}

ThreadPool::ThreadPool(int workers) : workers_(workers), linger_ns_(detail::kLingerNs) {
  if (workers < 0) {
    throw Error(ErrorKind::kUser, "thread pool: the number of workers is " +
                                      std::to_string(workers) + "; it must not be negative");
  }
  slots_ = std::make_unique<Worker[]>(static_cast<size_t>(workers));
  for (int i = 0; i < workers; ++i) slots_[i].pool = this;
  Fork::add(this);
}

ThreadPool::~ThreadPool() {
  Fork::remove(this);
  for (int i = 0; i < workers_; ++i) {
    Worker& worker = slots_[i];
    if (!worker.exists) continue;
    if (worker.signal.exchange(kExit, std::memory_order_acq_rel) == kParked) {
      detail::wake_all(worker.signal);
    }
    pthread_join(worker.thread, nullptr);
  }
}

void ThreadPool::set_park_immediately(bool on) noexcept {
  linger_ns_.store(on ? 0 : detail::kLingerNs, std::memory_order_relaxed);
}

void ThreadPool::set_avoid_crowds(bool on) noexcept {
  avoid_crowds_.store(on, std::memory_order_relaxed);
  alone_until_.store(0, std::memory_order_relaxed);
  alone_ns_.store(0, std::memory_order_relaxed);
}

int ThreadPool::run(int max_width, const std::atomic<bool>* cancel, TeamBody body, void* arg) {
  if (max_width < 1) {
    throw Error(ErrorKind::kUser, "thread pool: the maximal width of a run is " +
                                      std::to_string(max_width) + "; it must be at least 1");
  }
  if (cancel != nullptr && cancel->load(std::memory_order_acquire)) {
    throw Error(ErrorKind::kCancelled, "the run was cancelled before it started");
  }
  Team team;
  team.cancel = cancel;
  if (inside_run) {
    body(arg, team, 0);
    team.finish();
    return 1;
  }

  const uint32_t forks = forks_;
  Worker* const gang = gather(team, admit(crowded() ? 1 : max_width));
  int thread = 0;
  for (Worker* w = gang; w != nullptr; w = w->next) w->begin(team, body, arg, ++thread);
  {
    const DefaultFloatModes modes;
    inside_run = true;
    body(arg, team, 0);
    inside_run = false;
  }
  if (forks != forks_) {  // this is a child of the process that began the run: nobody to wait for
    if (gang != nullptr) {
      throw Error(ErrorKind::kUser,
                  "the process forked inside a parallel run; only its parent can finish that run");
    }
    team.finish();
    return 1;
  }
  for (Worker* w = gang; w != nullptr;) {
    Worker* const next = w->next;  // whoever claims the worker next writes its link
    if (w->await_end()) team.preempted.store(true, std::memory_order_relaxed);
    w->release();
    w = next;
  }
  if (team.preempted.load(std::memory_order_relaxed)) note_crowd();
  active_.fetch_sub(team.width, std::memory_order_release);
  team.finish();
  return team.width;
}

bool ThreadPool::crowded() const noexcept {
  const int64_t until = alone_until_.load(std::memory_order_relaxed);
  return until != 0 && detail::now_ns() < until;
}

// Every wide run that is held up costs some ten milliseconds, so the time until the next try
// doubles if the last try came to the same.
void ThreadPool::note_crowd() noexcept {
  if (!avoid_crowds_.load(std::memory_order_relaxed)) return;
  constexpr int64_t kFirstNs = 10'000'000, kLongestNs = 640'000'000;
  const int64_t now = detail::now_ns();
  const int64_t last = alone_ns_.load(std::memory_order_relaxed);
  const bool recurs = now - alone_until_.load(std::memory_order_relaxed) < last;
  const int64_t next = recurs ? std::min(2 * last, kLongestNs) : kFirstNs;
  alone_ns_.store(next, std::memory_order_relaxed);
  alone_until_.store(now + next, std::memory_order_relaxed);
}

// Counts the caller in, and as many workers as the pool has to spare; returns the latter.
int ThreadPool::admit(int max_width) noexcept {
  int active = active_.load(std::memory_order_relaxed);
  for (;;) {
    const int extra = std::clamp(workers_ - active, 0, max_width - 1);
    if (active_.compare_exchange_weak(active, active + 1 + extra, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return extra;
    }
  }
}

// Claims up to `wanted` workers, sets the team's width and returns the workers as a list.
ThreadPool::Worker* ThreadPool::gather(Team& team, int wanted) noexcept {
  Worker* gang = nullptr;
  int width = 1;
  for (int i = 0; i < workers_ && width <= wanted; ++i) {
    Worker& worker = slots_[i];
    if (!worker.claim()) continue;
    if (!worker.exists && !start(worker)) {
      worker.release();
      break;
    }
    worker.next = gang;
    gang = &worker;
    ++width;
  }
  if (width <= wanted) active_.fetch_sub(wanted + 1 - width, std::memory_order_release);
  team.width = width;
  return gang;
}

bool ThreadPool::start(Worker& worker) noexcept {
  // The application's signals are handled on its own threads; faults and profiling on any.
  sigset_t blocked, old;
  sigfillset(&blocked);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    sigdelset(&blocked, signal);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &old);
  const bool ok = pthread_create(&worker.thread, nullptr, &ThreadPool::work, &worker) == 0;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  worker.exists = ok;
  if (ok) started_.fetch_add(1, std::memory_order_relaxed);
  return ok;
}

void* ThreadPool::work(void* worker) noexcept {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), "rlx-worker");
#endif
  Worker& me = *static_cast<Worker*>(worker);
  const DefaultFloatModes modes;
  inside_run = true;
  while (me.await_job() != kExit) {
    me.body(me.arg, *me.team, me.index);
    // From here on the team may be gone.
    if (me.signal.exchange(kIdle, std::memory_order_acq_rel) == kAwaited) {
      detail::wake_all(me.signal);
    }
  }
  return nullptr;
}

// In a forked child, before any of its code runs: the workers are not there, nor are the other
// callers whose claims and counts were copied.
void ThreadPool::forget_workers() noexcept {
  for (int i = 0; i < workers_; ++i) {
    Worker& worker = slots_[i];
    worker.exists = false;
    worker.signal.store(kIdle, std::memory_order_relaxed);
    worker.claimed.store(false, std::memory_order_relaxed);
  }
  started_.store(0, std::memory_order_relaxed);
  active_.store(0, std::memory_order_relaxed);
  ++forks_;
}

}  // namespace rlx
