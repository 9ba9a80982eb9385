#include "rlx/runtime/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "rlx/base/error.h"

namespace rlx {
namespace {

constexpr double kGiga = 1e9;

std::string name_of(const PlanStep& step) {
  return step.label.empty() ? std::string(step.op->name)
                            : fmt::format("{} {}", step.op->name, step.label);
}

// A JSON string. Bytes that are not ASCII pass as they are: labels are UTF-8 or nobody's.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string span_name(const Plan& plan, const ProfileSpan& s) {
  switch (s.kind) {
    case SpanKind::kBarrier:
      return "barrier";
    case SpanKind::kTrip:
      return plan.steps[s.step].control->kind == PlanControl::Kind::kIf
                 ? "branch"
                 : fmt::format("trip {}", s.index);
    case SpanKind::kChunk:
    case SpanKind::kStep:
    case SpanKind::kControl:
      break;
  }
  return name_of(plan.steps[s.step]);
}

std::string span_args(const Plan& plan, const ProfileSpan& s) {
  if (s.kind == SpanKind::kBarrier) return "{}";
  std::string args = fmt::format("{{\"step\":{}", s.step);
  if (s.kind == SpanKind::kChunk) {
    args += fmt::format(",\"phase\":{},\"chunk\":{}", s.phase, s.index);
  }
  if (s.kind != SpanKind::kTrip) {
    args += fmt::format(",\"kernel\":{}", quoted(plan.steps[s.step].entry->name));
  }
  return args + "}";
}

std::string rate(double amount, double nanoseconds) {
  if (amount <= 0 || nanoseconds <= 0) return "";
  return fmt::format("{:.4g}", amount / nanoseconds * 1e9 / kGiga);
}

}  // namespace

void ProfileRecorder::reserve(size_t spans, size_t steps) {
  spans_.resize(spans);
  totals_.resize(steps);
}

void ProfileRecorder::restart(Clock::time_point start) noexcept {
  start_ = start;
  std::fill(totals_.begin(), totals_.end(), Totals());
  count_ = 0;
  barrier_ns_ = dropped_ = 0;
}

void ProfileRecorder::add(ProfileSpan span) noexcept {
  span.end = now();
  if (span.kind == SpanKind::kBarrier) {
    barrier_ns_ += span.end - span.begin;
  } else {
    Totals& t = totals_[span.step];
    const bool first = span.phase == 0;
    const bool chunk = span.kind == SpanKind::kChunk;
    if (span.kind == SpanKind::kTrip) {
      t.trips += first;
    } else {
      const bool shared = chunk || (span.kind == SpanKind::kControl && span.index == 1);
      (shared ? t.shared : t.alone) += span.end - span.begin;
      t.runs += first && (!chunk || span.index == 0);
      t.chunks += chunk;
    }
  }
  if (count_ == spans_.size()) {
    ++dropped_;
  } else {
    spans_[count_++] = span;
  }
}

std::span<ProfileRecorder> Profile::start(std::shared_ptr<const Plan> plan, int threads) {
  const auto wanted = size_t(std::max(threads, 1));
  if (plan_ != plan || recorders_.size() < wanted) {
    recorders_.resize(std::max(recorders_.size(), wanted));
    for (ProfileRecorder& r : recorders_) r.reserve(capacity_, plan->steps.size());
    plan_ = std::move(plan);
  }
  threads_ = 0;
  nanoseconds_ = 0;
  start_ = ProfileRecorder::Clock::now();
  for (ProfileRecorder& r : recorders_) r.restart(start_);
  return recorders_;
}

void Profile::finish(int threads) noexcept {
  threads_ = std::min(threads, int(recorders_.size()));
  nanoseconds_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(ProfileRecorder::Clock::now() - start_)
          .count();
}

const Plan& Profile::plan() const {
  if (!plan_) user_error("the profile is empty: no run was given it");
  return *plan_;
}

int64_t Profile::dropped() const {
  int64_t sum = 0;
  for (const ProfileRecorder& r : recorders()) sum += r.dropped();
  return sum;
}

void Profile::add_rows(std::vector<Row>& rows, const std::vector<Segment>& segments,
                       int depth) const {
  for (const Segment& segment : segments) {
    for (uint32_t s = segment.begin; s < segment.end; ++s) {
      const PlanStep& step = plan_->steps[s];
      Row row{std::string(step.op->name), step.label, std::string(step.entry->name)};
      row.depth = depth;
      row.control = step.control != nullptr;
      int64_t alone = 0, longest = 0;
      for (const ProfileRecorder& r : recorders()) {
        const ProfileRecorder::Totals& t = r.totals(s);
        row.runs += t.runs;
        row.trips += t.trips;
        row.chunks += t.chunks;
        alone += t.alone;
        longest = std::max(longest, t.shared);
        row.busy += double(t.alone + t.shared);
      }
      row.nanoseconds = double(alone + longest);
      if (!row.control) {
        row.flops = step.flops * double(row.runs);
        row.bytes = step.bytes * double(row.runs);
      }
      rows.push_back(std::move(row));
      if (!step.control) continue;
      for (uint32_t body : step.control->bodies) {
        add_rows(rows, plan_->bodies[body].segments, depth + 1);
      }
    }
  }
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> rows;
  add_rows(rows, plan().segments, 0);
  return rows;
}

std::string Profile::to_string() const {
  const std::vector<Row> all = rows();
  double busy = 0, flops = 0, bytes = 0, waiting = 0;
  for (const Row& r : all) {
    if (!r.control) busy += r.busy;
    flops += r.flops;
    bytes += r.bytes;
  }
  for (const ProfileRecorder& r : recorders()) waiting += double(r.barrier_nanoseconds());
  std::string out =
      fmt::format("{:>10} {:>6} {:>8} {:>8} {:>9} {:>9}  {:24} {:28} {}\n", "us", "share", "runs",
                  "chunks", "GB/s", "GFLOP/s", "op", "kernel", "label");
  for (const Row& r : all) {
    const std::string op = std::string(2 * size_t(r.depth), ' ') + r.op;
    const std::string share =
        r.control ? "" : fmt::format("{:.1f}%", busy > 0 ? 100 * r.busy / busy : 0.0);
    const std::string entry = r.control ? fmt::format("{} trips", r.trips) : r.entry;
    out +=
        fmt::format("{:10.2f} {:>6} {:8} {:>8} {:>9} {:>9}  {:24} {:28} {}\n", r.nanoseconds / 1e3,
                    share, r.runs, r.chunks > 0 ? fmt::to_string(r.chunks) : "",
                    rate(r.bytes, r.nanoseconds), rate(r.flops, r.nanoseconds), op, entry, r.label);
  }
  out += fmt::format("{:.2f} us in all on {} threads: {:.2f} us of work, {:.2f} us at barriers",
                     double(nanoseconds_) / 1e3, threads_, busy / 1e3, waiting / 1e3);
  const double all_ns = double(nanoseconds_);
  if (bytes > 0 && all_ns > 0) out += fmt::format("; {} GB/s", rate(bytes, all_ns));
  if (flops > 0 && all_ns > 0) out += fmt::format(", {} GFLOP/s", rate(flops, all_ns));
  out += "\n";
  if (dropped() > 0) {
    out +=
        fmt::format("{} spans did not fit: the trace is not complete, the table is\n", dropped());
  }
  return out;
}

std::string Profile::to_trace_json() const {
  const Plan& p = plan();
  fmt::memory_buffer out;
  const auto put = std::back_inserter(out);
  fmt::format_to(put,
                 "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                 "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":"
                 "{{\"name\":{}}}}}",
                 quoted("rlx " + p.name));
  for (int t = 0; t < threads_; ++t) {
    fmt::format_to(put,
                   ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{0},\"args\":"
                   "{{\"name\":\"thread {0}\"}}}}",
                   t);
    const auto recorded = recorders()[size_t(t)].spans();
    // They are recorded where they end, inner ones first; a viewer wants outer ones first.
    std::vector<ProfileSpan> spans(recorded.rbegin(), recorded.rend());
    std::stable_sort(spans.begin(), spans.end(), [](const ProfileSpan& a, const ProfileSpan& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    for (const ProfileSpan& s : spans) {
      fmt::format_to(put,
                     ",\n{{\"name\":{},\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},\"dur\":"
                     "{:.3f},\"args\":{}}}",
                     quoted(span_name(p, s)), t, double(s.begin) / 1e3,
                     double(s.end - s.begin) / 1e3, span_args(p, s));
    }
  }
  fmt::format_to(put, "\n]}}\n");
  return fmt::to_string(out);
}

}  // namespace rlx
