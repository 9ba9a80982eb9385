// QMatMul: bytes of x, made unsigned, times panels of w. What the offset and the zero points add to
// the sums is known from the sums of rows and columns; all arithmetic is modulo 2^32.
#include "rlx/ops/qmatmul.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/int8/int8_kernels.h"
#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kColumns = kInt8PanelColumns;
constexpr int64_t kPanelBytes = 4 * kColumns;  // of four steps
constexpr int64_t kPrepareBytes = 32 << 10;    // of x in a chunk of the first phase
constexpr int64_t kChunkRows = 64;

struct State {
  int64_t m = 0, n = 0, k = 0;
  int64_t steps = 0, panels = 0;  // of four k, of kColumns columns
  bool packed = false;            // w is packed before
  bool bias = false;
  uint32_t x_zero = 0;
  float out_zero = 0;
  std::vector<uint32_t> w_zeros;   // by column
  std::vector<float> multipliers;  // by column
  int64_t prepare_rows = 1, prepare_chunks = 0;
  int64_t row_parts = 1, chunk_panels = 1, panel_parts = 1;
  // Scratch: x as unsigned bytes, the sums of its rows, then w if it is not packed before.
  int64_t sums_at = 0, w_at = 0;
  const Int8Kernels* int8 = nullptr;
};

int64_t panel_bytes(int64_t steps) {
  return steps * kPanelBytes + kColumns * int64_t(sizeof(int32_t));
}

// A panel is [steps][kColumns][4], then the sums of its columns; zeros beyond k and n.
void pack_panel(const int8_t* w, int64_t n, int64_t k, int64_t panel, int64_t steps, char* out) {
  const int64_t first = panel * kColumns, columns = std::min(kColumns, n - first);
  std::memset(out, 0, size_t(panel_bytes(steps)));
  auto* bytes = reinterpret_cast<int8_t*>(out);
  auto* sums = reinterpret_cast<int32_t*>(out + steps * kPanelBytes);
  for (int64_t p = 0; p < k; ++p) {
    const int8_t* row = w + p * n + first;
    int8_t* to = bytes + p / 4 * kPanelBytes + p % 4;
    for (int64_t j = 0; j < columns; ++j) {
      to[j * 4] = row[j];
      sums[j] += row[j];
    }
  }
}

void prepare_rows(const State& s, const int8_t* x, int64_t begin, int64_t end, char* scratch) {
  auto* sums = reinterpret_cast<int32_t*>(scratch + s.sums_at);
  for (int64_t i = begin; i < end; ++i) {
    const int8_t* from = x + i * s.k;
    auto* to = reinterpret_cast<uint8_t*>(scratch) + i * s.steps * 4;
    int32_t sum = 0;
    for (int64_t p = 0; p < s.k; ++p) {
      to[p] = uint8_t(from[p] + 128);
      sum += from[p];
    }
    std::memset(to + s.k, 0, size_t(s.steps * 4 - s.k));
    sums[i] = sum;
  }
}

void run_prepare(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  auto* scratch = static_cast<char*>(args.scratch);
  if (chunk < s.prepare_chunks) {
    const int64_t begin = chunk * s.prepare_rows;
    return prepare_rows(s, args.in<int8_t>(0), begin, std::min(s.m, begin + s.prepare_rows),
                        scratch);
  }
  const int64_t panel = chunk - s.prepare_chunks;
  pack_panel(args.in<int8_t>(1), s.n, s.k, panel, s.steps,
             scratch + s.w_at + panel * panel_bytes(s.steps));
}

// Adding it leaves no bits behind the point: halves round to even, without a call of a function.
constexpr float kRounder = 0x3p22f;

// One row of a panel's sums becomes codes.
void requantize(const State& s, const int32_t* sums, const int32_t* column_sums, int32_t row_sum,
                const int32_t* bias, int64_t first, int64_t columns, int8_t* y) {
  const uint32_t k = uint32_t(s.k), offset = s.x_zero + 128;
  for (int64_t j = 0; j < columns; ++j) {
    const uint32_t w_zero = s.w_zeros[size_t(first + j)];
    uint32_t sum = uint32_t(sums[j]) - offset * uint32_t(column_sums[j]) -
                   w_zero * uint32_t(row_sum) + k * s.x_zero * w_zero;
    if (bias) sum += uint32_t(bias[first + j]);
    const float scaled = float(int32_t(sum)) * s.multipliers[size_t(first + j)];
    // Codes are far inside of this range, whatever the zero point; NaN cannot come about.
    const float inside = std::min(std::max(scaled, -1024.0f), 1024.0f);
    const float code = (inside + kRounder) - kRounder + s.out_zero;
    y[first + j] = int8_t(std::min(std::max(code, -128.0f), 127.0f));
  }
}

void run_tiles(const State& s, const StepArgs& args, const char* panel, int64_t index,
               int64_t begin, int64_t end) {
  alignas(64) int32_t sums[kInt8TileRows * kColumns];
  const auto* scratch = static_cast<const char*>(args.scratch);
  const auto* row_sums = reinterpret_cast<const int32_t*>(scratch + s.sums_at);
  const int64_t first = index * kColumns, columns = std::min(kColumns, s.n - first);
  Int8Product p;
  p.a_stride = s.steps * 4;
  p.b = reinterpret_cast<const int8_t*>(panel);
  p.steps = s.steps;
  p.sums = sums;
  for (int64_t i = begin; i < end; i += kInt8TileRows) {
    p.rows = std::min(kInt8TileRows, end - i);
    p.a = reinterpret_cast<const uint8_t*>(scratch) + i * p.a_stride;
    s.int8->product(p);
    for (int64_t r = 0; r < p.rows; ++r) {
      requantize(s, sums + r * kColumns,
                 reinterpret_cast<const int32_t*>(panel + s.steps * kPanelBytes), row_sums[i + r],
                 s.bias ? args.in<int32_t>(2) : nullptr, first, columns,
                 args.out<int8_t>(0) + (i + r) * s.n);
    }
  }
}

void run_product(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const int64_t begin = chunk % s.row_parts * kChunkRows;
  const int64_t end = std::min(s.m, begin + kChunkRows);
  const int64_t first = chunk / s.row_parts * s.chunk_panels;
  const char* w = s.packed ? args.in<char>(1) : static_cast<const char*>(args.scratch) + s.w_at;
  for (int64_t p = first; p < std::min(s.panels, first + s.chunk_panels); ++p) {
    run_tiles(s, args, w + p * panel_bytes(s.steps), p, begin, end);
  }
}

template <class T, class From>
std::vector<T> by_column(const std::vector<From>& list, int64_t n) {
  std::vector<T> values;
  for (int64_t j = 0; j < n; ++j) values.push_back(T(list[list.size() == 1 ? 0 : size_t(j)]));
  return values;
}

State state_of(const KernelCall& call) {
  const auto& a = call.as<QMatMulAttrs>();
  State s;
  s.k = call.operands[1].dims[0];
  s.n = call.operands[1].dims[1];
  s.m = call.results[0].num_elements() / s.n;
  s.steps = ceil_div(s.k, 4);
  s.panels = ceil_div(s.n, kColumns);
  s.packed = call.is_frozen(1);
  s.bias = call.operands.size() > 2;
  s.x_zero = uint32_t(a.x_zero_point);
  s.out_zero = float(a.out_zero_point);
  s.w_zeros = by_column<uint32_t>(a.w_zero_points, s.n);
  s.multipliers = by_column<float>(a.multipliers, s.n);
  s.prepare_rows = std::max<int64_t>(1, kPrepareBytes / std::max<int64_t>(s.k, 1));
  s.prepare_chunks = ceil_div(s.m, s.prepare_rows);
  s.row_parts = ceil_div(s.m, kChunkRows);
  const int64_t work = std::max<int64_t>(1, s.steps * std::min(s.m, kChunkRows));
  s.chunk_panels = std::clamp<int64_t>((64 << 10) / work, 1, s.panels);
  s.panel_parts = ceil_div(s.panels, s.chunk_panels);
  s.int8 = int8_kernels().front();
  return s;
}

PreparedKernel prepare(const KernelCall& call) {
  if (call.results[0].num_elements() == 0) return {};
  State s = state_of(call);
  PreparedKernel k;
  const int64_t w_bytes = checked_mul(s.panels, panel_bytes(s.steps));
  s.sums_at = round_up(checked_mul(s.m, s.steps * 4), 64);
  s.w_at = round_up(checked_add(s.sums_at, s.m * int64_t(sizeof(int32_t))), 64);
  k.scratch_bytes = s.packed ? s.w_at : checked_add(s.w_at, w_bytes);
  if (s.packed) {
    const auto pack = [n = s.n, depth = s.k, panels = s.panels, steps = s.steps](const void* source,
                                                                                 void* packed) {
      for (int64_t p = 0; p < panels; ++p) {
        pack_panel(static_cast<const int8_t*>(source), n, depth, p, steps,
                   static_cast<char*>(packed) + p * panel_bytes(steps));
      }
    };
    k.packings.push_back({1, fmt::format("int8:{}x{}", s.k, s.n), w_bytes, pack});
  }
  k.phases = {{s.prepare_chunks + (s.packed ? 0 : s.panels), run_prepare},
              {checked_mul(s.row_parts, s.panel_parts), run_product}};
  k.nanoseconds = 200 + double(s.m) * double(s.n) * double(s.k + 16) / 300 +
                  double(s.m * s.k) * 0.1 + (s.packed ? 0.0 : double(s.n * s.k));
  k.state = std::make_shared<const State>(std::move(s));
  return k;
}

constexpr KernelEntry kEntries[] = {{
    .name = "qmatmul:dot",
    .fits = [](const KernelCall&) -> std::string_view { return {}; },
    .prepare = prepare,
    .vector = true,
}};

}  // namespace

RLX_DEFINE_KERNELS(QMatMul, Cpu) = {kEntries};

}  // namespace rlx::cpu
