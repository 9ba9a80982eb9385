#include "rlx/backend/cpu/kernels/product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rlx/backend/cpu/gemm/gemm.h"
#include "rlx/backend/cpu/kernels/widen_view.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

bool joins(const ProductAxis& outer, const ProductAxis& inner) {
  return outer.a == inner.size * inner.a && outer.b == inner.size * inner.b &&
         outer.c == inner.size * inner.c;
}

// Without axes of size 1, neighbours joined where they are one in all three tensors.
std::vector<ProductAxis> joined(const std::vector<ProductAxis>& axes) {
  std::vector<ProductAxis> result;
  for (const ProductAxis& x : axes) {
    if (x.size == 1) continue;
    if (!result.empty() && joins(result.back(), x)) {
      const int64_t size = checked_mul(result.back().size, x.size);
      result.back() = x;
      result.back().size = size;
    } else {
      result.push_back(x);
    }
  }
  return result;
}

// Takes the axis at `i` as the matrix axis and gives the others to the batch.
ProductAxis take(std::vector<ProductAxis>& axes, size_t i, std::vector<ProductAxis>& batch) {
  if (axes.empty()) return {};
  const ProductAxis chosen = axes[i];
  for (size_t k = 0; k < axes.size(); ++k) {
    if (k != i) batch.push_back(axes[k]);
  }
  return chosen;
}

size_t largest(const std::vector<ProductAxis>& axes) {
  size_t best = 0;
  for (size_t i = 1; i < axes.size(); ++i) {
    if (axes[i].size > axes[best].size) best = i;
  }
  return best;
}

// Batch axes that one operand does not have become rows or columns, where the memory allows: one
// tall product instead of many short ones.
void absorb(std::vector<ProductAxis>& batch, ProductAxis& row, ProductAxis& column) {
  for (size_t i = batch.size(); i-- > 0;) {
    const ProductAxis x = batch[i];
    if (x.b == 0 && row.size == 1 && (column.size == 1 || x.c >= column.size)) {
      row = x;
    } else if (x.b == 0 && joins(x, row)) {
      row.size = checked_mul(row.size, x.size);
    } else if (x.a == 0 && x.c == 1 && column.size == 1) {
      column = x;
    } else {
      continue;
    }
    batch.erase(batch.begin() + int64_t(i));
  }
}

void add_offsets(const ProductAxis& axis, Product& p) {
  Product next;
  for (size_t i = 0; i < p.c_offset.size(); ++i) {
    for (int64_t k = 0; k < axis.size; ++k) {
      next.a_offset.push_back(p.a_offset[i] + k * axis.a);
      next.b_offset.push_back(p.b_offset[i] + k * axis.b);
      next.c_offset.push_back(p.c_offset[i] + k * axis.c);
    }
  }
  p.a_offset = std::move(next.a_offset);
  p.b_offset = std::move(next.b_offset);
  p.c_offset = std::move(next.c_offset);
}

bool any_empty(const std::vector<ProductAxis>& axes) {
  return std::any_of(axes.begin(), axes.end(), [](const ProductAxis& x) { return x.size == 0; });
}

}  // namespace

bool inner_joins(const ProductAxes& axes) {
  return any_empty(axes.inner) || joined(axes.inner).size() <= 1;
}

Product make_product(const ProductAxes& axes) {
  Product p;
  if (any_empty(axes.batch) || any_empty(axes.rows) || any_empty(axes.columns)) return p;
  std::vector<ProductAxis> batch = joined(axes.batch);
  std::vector<ProductAxis> rows = joined(axes.rows), columns = joined(axes.columns);
  const std::vector<ProductAxis> inner = joined(axes.inner);
  p.inner = any_empty(axes.inner) ? ProductAxis{.size = 0}
            : inner.empty()       ? ProductAxis{}
                                  : inner[0];
  const size_t row_at = largest(rows);
  p.row = take(rows, row_at, batch);
  p.column = take(columns, columns.empty() ? 0 : columns.size() - 1, batch);
  absorb(batch, p.row, p.column);
  p.a_offset = p.b_offset = p.c_offset = {0};
  for (const ProductAxis& x : batch) add_offsets(x, p);
  return p;
}

namespace {

GemmShape gemm_shape(const Product& p) {
  GemmShape s;
  s.m = p.row.size;
  s.n = p.column.size;
  s.k = p.inner.size;
  s.a_offset = p.a_offset;
  s.b_offset = p.b_offset;
  s.c_offset = p.c_offset;
  s.a_row_stride = p.row.a;
  s.a_col_stride = p.inner.a;
  s.b_row_stride = p.inner.b;
  s.b_col_stride = p.column.b;
  s.c_row_stride = p.row.c;
  return s;
}

// A step's function does not learn its phase, so each phase has a function of its own.
constexpr int kMostPhases = 16;

// A plan of at most kMostPhases: a product of gigabytes takes more scratch instead of more turns.
GemmPlan make_plan(GemmElement element, const GemmShape& shape, bool b_prepacked) {
  for (int64_t target = GemmPlan::kScratchTarget;; target = checked_mul(target, 2)) {
    GemmPlan plan(element, shape, b_prepacked, false, target);
    if (plan.phases() <= kMostPhases) return plan;
  }
}

using PhaseFn = void (*)(const void*, const StepArgs&, int64_t);

// Appends the plan's phases; run[p] is the function of phase p.
void add_phases(const GemmPlan& plan, std::span<const PhaseFn> run, PreparedKernel& k) {
  for (int p = 0; p < plan.phases(); ++p) k.phases.push_back({plan.chunks(p), run[size_t(p)]});
}

double gemm_nanoseconds(const Product& p, DType t) {
  const double work = double(p.row.size) * double(p.column.size) * double(p.inner.size + 1);
  const double reads = double(p.inner.size) * double(p.column.size);
  return double(p.items()) * (50 + work / (t == DType::kF64 ? 15 : 30) + reads / 4);
}

template <int P>
void run_direct(const void* state, const StepArgs& args, int64_t chunk) {
  GemmArgs a;
  a.a = args.operands[0];
  a.b = args.operands[1];
  a.c = args.results[0];
  a.scratch = args.scratch;
  a.thread_scratch = args.thread_scratch;
  static_cast<const GemmPlan*>(state)->run(P, chunk, a);
}

template <int... P>
constexpr std::array<PhaseFn, sizeof...(P)> direct_phases(std::integer_sequence<int, P...>) {
  return {run_direct<P>...};
}
constexpr auto kDirectPhases = direct_phases(std::make_integer_sequence<int, kMostPhases>());

constexpr int64_t kLeastPacked = 4096;  // elements; smaller matrices are read as they are

// Packs every matrix of the frozen right operand once, however many items share it.
Packing pack_right(const Product& p, GemmElement element, int64_t element_bytes,
                   std::vector<int64_t>& b_offset) {
  std::vector<int64_t> matrices = p.b_offset;
  std::sort(matrices.begin(), matrices.end());
  matrices.erase(std::unique(matrices.begin(), matrices.end()), matrices.end());
  const int64_t n = p.column.size, k = p.inner.size;
  const auto bytes = int64_t(GemmPlan::packed_b_bytes(element, n, k));
  for (int64_t& o : b_offset) {
    const auto at = std::lower_bound(matrices.begin(), matrices.end(), o) - matrices.begin();
    o = at * (bytes / element_bytes);
  }
  Packing packing;
  packing.operand = 1;
  packing.key =
      fmt::format("gemm:{}x{}:{}:{}:{}", k, n, p.inner.b, p.column.b, dims_to_string(matrices));
  packing.bytes = checked_mul(bytes, int64_t(matrices.size()));
  packing.pack = [matrices, element, element_bytes, bytes, n, k, row = p.inner.b,
                  column = p.column.b](const void* source, void* packed) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      GemmPlan::pack_b(element, static_cast<const char*>(source) + matrices[i] * element_bytes, row,
                       column, n, k, static_cast<char*>(packed) + int64_t(i) * bytes);
    }
  };
  return packing;
}

}  // namespace

namespace {

// A product whose pieces are handed over.
struct FinishedGemm {
  GemmPlan plan;
  Product product;
  Finish finish;
  int64_t finish_at;  // in the thread's scratch
};

// What the epilogue needs of the run.
struct FinishRun {
  const Product* product;
  const Finish* finish;
  const StepArgs* args;
  void* scratch;
};

void finish_rows(const void* state, void* c, int64_t row_stride, int64_t batch, int64_t i,
                 int64_t rows, int64_t j, int64_t n) {
  const auto& run = *static_cast<const FinishRun*>(state);
  const Product& p = *run.product;
  const Finish& f = *run.finish;
  const int64_t flat = p.c_offset[size_t(batch)] + i * p.row.c + j;
  f.run(f.state.get(), *run.args, {c, row_stride, flat, p.row.c, rows, n}, run.scratch);
}

void* thread_scratch_at(const StepArgs& args, int64_t bytes) {
  return static_cast<char*>(args.thread_scratch) + bytes;
}

template <int P>
void run_finished(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const FinishedGemm*>(state);
  const FinishRun run{&s.product, &s.finish, &args, thread_scratch_at(args, s.finish_at)};
  GemmArgs a;
  a.a = args.operands[0];
  a.b = args.operands[1];
  a.c = args.results[0];
  a.scratch = args.scratch;
  a.thread_scratch = args.thread_scratch;
  a.epilogue.state = &run;
  a.epilogue.apply_rows = finish_rows;
  a.epilogue.by_tiles = s.finish.by_tiles;
  s.plan.run(P, chunk, a);
}

template <int... P>
constexpr std::array<PhaseFn, sizeof...(P)> finished_phases(std::integer_sequence<int, P...>) {
  return {run_finished<P>...};
}
constexpr auto kFinishedPhases = finished_phases(std::make_integer_sequence<int, kMostPhases>());

double finish_nanoseconds(const Finish& f, const KernelCall& call) {
  return f ? f.nanoseconds_per_element * double(call.results[0].num_elements()) : 0;
}

}  // namespace

PreparedKernel prepare_product_gemm(const KernelCall& call, Product p, Finish finish) {
  PreparedKernel k;
  if (p.empty()) return k;
  const DType t = call.results[0].dtype;
  const GemmElement element = t == DType::kF32 ? GemmElement::kF32 : GemmElement::kF64;
  GemmShape shape = gemm_shape(p);
  const bool pack = call.is_frozen(1) && checked_mul(p.inner.size, p.column.size) >= kLeastPacked;
  if (pack) k.packings.push_back(pack_right(p, element, size_of(t), shape.b_offset));
  k.nanoseconds = gemm_nanoseconds(p, t) + finish_nanoseconds(finish, call);
  GemmPlan made = make_plan(element, shape, pack);
  k.scratch_bytes = int64_t(made.scratch_bytes());
  k.thread_scratch_bytes = int64_t(made.thread_scratch_bytes());
  if (!finish) {
    add_phases(made, kDirectPhases, k);
    k.state = std::make_shared<GemmPlan>(std::move(made));
    return k;
  }
  add_phases(made, kFinishedPhases, k);
  const int64_t at = round_up(k.thread_scratch_bytes, 64);
  k.thread_scratch_bytes = checked_add(at, finish.thread_scratch_bytes);
  k.state = std::make_shared<FinishedGemm>(
      FinishedGemm{std::move(made), std::move(p), std::move(finish), at});
  return k;
}

namespace {

// Scratch: A and B in f32, then C in f32, then that of the plan.
struct HalfState {
  WidenView a, b;
  bool is_bf16;
  Product product;
  int64_t b_at, c_at, gemm_at;  // bytes
  GemmPlan gemm;
  Finish finish;
  int64_t finish_at;
};

float* scratch_at(const StepArgs& args, int64_t bytes) {
  return reinterpret_cast<float*>(static_cast<char*>(args.scratch) + bytes);
}

void run_widen(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const HalfState*>(state);
  if (chunk < s.a.chunks()) {
    s.a.run(chunk, args.in<uint16_t>(0), scratch_at(args, 0));
  } else {
    s.b.run(chunk - s.a.chunks(), args.in<uint16_t>(1), scratch_at(args, s.b_at));
  }
}

struct Narrowing {
  const HalfState* state;
  uint16_t* result;
};

void narrow_piece(const void* state, void* row, int64_t batch, int64_t i, int64_t j, int64_t n) {
  const auto& to = *static_cast<const Narrowing*>(state);
  const HalfState& s = *to.state;
  uint16_t* out = to.result + s.product.c_offset[size_t(batch)] + i * s.product.row.c + j;
  (s.is_bf16 ? f32_to_bf16 : f32_to_f16)(static_cast<const float*>(row), out, n);
}

template <int P>
void run_half(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const HalfState*>(state);
  const Narrowing narrowing{&s, args.out<uint16_t>(0)};
  GemmArgs a;
  a.a = scratch_at(args, 0);
  a.b = scratch_at(args, s.b_at);
  a.c = scratch_at(args, s.c_at);
  a.scratch = scratch_at(args, s.gemm_at);
  a.thread_scratch = args.thread_scratch;
  const FinishRun run{&s.product, &s.finish, &args, thread_scratch_at(args, s.finish_at)};
  if (s.finish) {
    a.epilogue.state = &run;
    a.epilogue.apply_rows = finish_rows;
  } else {
    a.epilogue.state = &narrowing;
    a.epilogue.apply = narrow_piece;
  }
  s.gemm.run(P, chunk, a);
}

template <int... P>
constexpr std::array<PhaseFn, sizeof...(P)> half_phases(std::integer_sequence<int, P...>) {
  return {run_half<P>...};
}
constexpr auto kHalfPhases = half_phases(std::make_integer_sequence<int, kMostPhases>());

}  // namespace

PreparedKernel prepare_product_half(const KernelCall& call, ProductAxesFn axes_of, Finish finish) {
  Product direct =
      make_product(axes_of(call.attrs, call.operands[0], call.operands[1], call.results[0]));
  // Packing pays if there are rows enough, or columns too few for a vector.
  if (direct.row.size <= kFewHalfRows && direct.column.size > 1) {
    return prepare_product_half_rows(call, std::move(direct), std::move(finish));
  }
  PreparedKernel k;
  WidenView a(call.operands[0]), b(call.operands[1]);
  Product p = make_product(axes_of(call.attrs, a.result(), b.result(), call.results[0]));
  if (p.empty()) return k;
  const auto after = [](int64_t at, int64_t elements) {
    return checked_add(at, round_up(checked_mul(elements, int64_t(sizeof(float))), 64));
  };
  const int64_t b_at = after(0, a.elements());
  const int64_t c_at = after(b_at, b.elements());
  const int64_t gemm_at = after(c_at, call.results[0].num_elements());
  GemmPlan plan = make_plan(GemmElement::kF32, gemm_shape(p), false);
  k.nanoseconds = gemm_nanoseconds(p, DType::kF32) + a.nanoseconds() + b.nanoseconds() +
                  finish_nanoseconds(finish, call);
  k.scratch_bytes = checked_add(gemm_at, int64_t(plan.scratch_bytes()));
  const int64_t finish_at = round_up(int64_t(plan.thread_scratch_bytes()), 64);
  k.thread_scratch_bytes = checked_add(finish_at, finish.thread_scratch_bytes);
  k.phases.push_back({a.chunks() + b.chunks(), run_widen});
  add_phases(plan, kHalfPhases, k);
  const bool is_bf16 = call.results[0].dtype == DType::kBF16;
  k.state = std::make_shared<HalfState>(HalfState{std::move(a), std::move(b), is_bf16, std::move(p),
                                                  b_at, c_at, gemm_at, std::move(plan),
                                                  std::move(finish), finish_at});
  return k;
}

}  // namespace rlx::cpu
