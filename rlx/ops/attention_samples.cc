#include <cmath>
#include <limits>

#include "rlx/ops/attention.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Attention);
RLX_USE_OP(AttentionBackwardAll);
RLX_USE_OP(AttentionBackward);

namespace {

using Mask = AttentionMask;
constexpr auto kBhsd = AttentionLayout::kBhsd;
constexpr DType kF32 = DType::kF32, kF64 = DType::kF64;

struct Case {
  std::string name;
  DType dtype = kF32;
  AttentionSizes<int64_t> n{2, 2, 2, 5, 7, 4, 4};
  AttentionAttrs attrs{};
  Dims bias{};                            // shape, none if empty
  std::vector<double> kv_len{}, q_len{};  // none, one or one per batch entry
  bool one_length = false;                // lengths are scalars
  GradCheck grad = GradCheck::kYes;
  Draw draw{};
  Draw bias_draw{};
};

AttentionAttrs with_mask(Mask mask, int64_t window = 0) {
  AttentionAttrs a;
  a.mask = mask;
  a.window = window;
  return a;
}

// Every mask with every dtype, and both layouts.
void add_dtypes(std::vector<Case>& all) {
  for (const DType t : {DType::kF16, DType::kBF16, kF32, kF64}) {
    const std::string name(to_string(t));
    all.push_back({name, t, {2, 3, 3, 5, 7, 6, 6}});
    Case causal{name + "_causal_bhsd", t, {1, 4, 2, 11, 11, 8, 8}, with_mask(Mask::kCausal)};
    causal.attrs.layout = kBhsd;
    all.push_back(causal);
    all.push_back(
        {name + "_window", t, {2, 2, 1, 13, 17, 5, 3}, with_mask(Mask::kSlidingWindow, 3)});
    Case masked{name + "_mask", t, {3, 2, 2, 5, 19, 4, 4}};
    masked.attrs.has_mask = true;
    masked.attrs.softcap = 2;
    all.push_back(masked);
    Case everything{name + "_all", t, {2, 4, 2, 7, 9, 8, 5}, with_mask(Mask::kCausal)};
    everything.attrs.has_mask = true;
    everything.attrs.softcap = 1.5;
    everything.attrs.scale = 0.75;
    everything.bias = {2, 4, 7, 9};
    everything.kv_len = {9, 6};
    everything.q_len = {5, 7};
    all.push_back(everything);
  }
}

void add_lengths(std::vector<Case>& all) {
  const auto lengths = [&](std::string name, AttentionSizes<int64_t> n, Mask mask,
                           std::vector<double> kv, std::vector<double> q, bool one = false) {
    Case c{std::move(name), kF64, n, with_mask(mask)};
    c.kv_len = std::move(kv);
    c.q_len = std::move(q);
    c.one_length = one;
    all.push_back(c);
  };
  lengths("kv_len", {3, 2, 1, 4, 9, 3, 3}, Mask::kNone, {9, 4, 0}, {});
  lengths("kv_len_one", {2, 2, 2, 3, 8, 4, 4}, Mask::kNone, {5}, {}, true);
  lengths("q_len", {3, 2, 2, 5, 4, 3, 3}, Mask::kNone, {}, {0, 3, 5});
  lengths("lengths_causal", {3, 2, 2, 6, 11, 3, 3}, Mask::kCausal, {11, 7, 2}, {6, 2, 5});
  lengths("lengths_one_causal", {2, 2, 1, 6, 11, 3, 3}, Mask::kCausal, {8}, {4}, true);
  lengths("decode", {2, 4, 2, 1, 37, 8, 8}, Mask::kCausal, {37, 12}, {});
}

void add_biases(std::vector<Case>& all) {
  const auto bias = [&](std::string name, AttentionSizes<int64_t> n, Dims shape,
                        AttentionAttrs a = {}, DType t = kF64) {
    Case c{std::move(name), t, n, a, std::move(shape)};
    // Its gradient is 0, and differences are noise.
    if (c.bias[3] == 1) c.grad = GradCheck::kNo;
    all.push_back(std::move(c));
  };
  bias("bias", {2, 3, 3, 4, 5, 2, 2}, {2, 3, 4, 5});
  bias("bias_shared", {2, 2, 1, 4, 5, 2, 2}, {1, 1, 4, 5});
  bias("bias_of_heads", {2, 3, 3, 4, 5, 2, 2}, {1, 3, 1, 1});
  bias("bias_of_keys", {2, 2, 2, 4, 5, 2, 2}, {2, 1, 1, 5});
  bias("bias_of_rows", {2, 2, 2, 4, 5, 2, 2}, {2, 2, 4, 1});
  bias("bias_of_pairs", {4, 2, 2, 3, 5, 2, 2}, {2, 2, 3, 5}, with_mask(Mask::kCausal));
  bias("bias_one", {3, 2, 2, 3, 5, 2, 2}, {1, 1, 1, 1});
  bias("bias_blocks", {2, 2, 2, 131, 257, 3, 3}, {2, 1, 131, 257},
       with_mask(Mask::kSlidingWindow, 150), kF32);
  bias("bias_blocks_summed", {1, 2, 2, 131, 257, 3, 3}, {1, 2, 1, 257}, {}, kF32);
  AttentionAttrs capped;
  capped.softcap = 3;
  bias("bias_capped", {1, 2, 2, 5, 6, 2, 2}, {1, 2, 5, 6}, capped);
}

// Where tiles, blocks and segments begin and end.
void add_edges(std::vector<Case>& all) {
  for (const int64_t n : {1, 2, 11, 12, 13, 25, 64, 65}) {
    all.push_back({"rows" + std::to_string(n), kF32, {1, 1, 1, n, 33, 16, 16}});
  }
  for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 257}) {
    all.push_back(
        {"keys" + std::to_string(n), kF32, {1, 2, 2, 3, n, 8, 8}, with_mask(Mask::kCausal)});
  }
  for (const int64_t n : {1, 3, 16, 31, 33, 64, 80}) {
    all.push_back({"width" + std::to_string(n), kF32, {1, 2, 1, 5, 21, n, n}});
  }
  all.push_back({"width600", kF32, {1, 1, 1, 3, 5, 600, 40}});
  all.push_back({"widths", kF64, {1, 2, 2, 4, 6, 3, 9}});
  all.push_back({"more_queries", kF64, {1, 2, 2, 9, 4, 3, 3}, with_mask(Mask::kCausal)});
  all.push_back({"window0", kF64, {1, 2, 2, 6, 6, 3, 3}, with_mask(Mask::kSlidingWindow)});
  all.push_back({"segments", kF32, {1, 2, 1, 3, 2111, 8, 8}, with_mask(Mask::kCausal)});
  all.push_back(
      {"segments_window", kF32, {1, 1, 1, 40, 1100, 8, 8}, with_mask(Mask::kSlidingWindow, 900)});
  all.push_back({"segments_half", DType::kBF16, {1, 2, 2, 2, 1301, 8, 8}});
  all.push_back({"segments_rows", kF32, {1, 1, 1, 1100, 130, 4, 4}});
  all.push_back({"segments_double", kF64, {1, 1, 1, 2, 1029, 3, 3}});
  Case masked{"mask_blocks", kF32, {2, 2, 1, 70, 200, 16, 16}};
  masked.attrs.has_mask = true;
  masked.kv_len = {190, 129};
  all.push_back(masked);
  all.push_back({"large", kF32, {1, 8, 2, 130, 300, 64, 64}, with_mask(Mask::kCausal)});
  all.push_back({"batch0", kF32, {0, 2, 2, 3, 4, 2, 2}});
  all.push_back({"rows0", kF32, {2, 2, 2, 0, 4, 2, 2}});
  all.push_back({"keys0", kF32, {2, 2, 2, 3, 0, 2, 2}});
  all.push_back({"keys0_bias", kF32, {1, 1, 1, 3, 0, 2, 2}, {}, {1, 1, 3, 1}});
  all.push_back({"width0", kF32, {1, 2, 2, 3, 4, 0, 2}});
  all.push_back({"heads0", kF32, {1, 0, 0, 3, 4, 2, 2}});
}

std::vector<Case> cases() {
  std::vector<Case> all;
  add_dtypes(all);
  add_lengths(all);
  add_biases(all);
  add_edges(all);
  Case wide{"wide_scores", kF32, {1, 2, 2, 5, 40, 4, 4}};
  wide.draw = {.low = -6, .high = 6};
  wide.grad = GradCheck::kNo;
  all.push_back(wide);
  Case hidden{"bias_hides", kF32, {1, 1, 1, 2, 3, 2, 2}, {}, {1, 1, 2, 3}};
  constexpr double kLow = -std::numeric_limits<double>::infinity();
  hidden.bias_draw = {.kind = Draw::kGiven, .values = {kLow, kLow, kLow, kLow, 0, 1}};
  hidden.grad = GradCheck::kNo;
  all.push_back(hidden);
  return all;
}

Dims head_shape(const Case& c, int64_t rows, int64_t heads, int64_t width) {
  if (c.attrs.layout == kBhsd) return {c.n.batch, heads, rows, width};
  return {c.n.batch, rows, heads, width};
}

// Shared by the three ops; `backward` has dy.
Sample sample_of(const OpDef& op, const Case& c, bool backward) {
  const auto& n = c.n;
  AttentionAttrs a = c.attrs;
  // Exact in every dtype, since derivatives are checked in float64.
  const bool exact = n.width == 1 || n.width == 4 || n.width == 16 || n.width == 64;
  if (c.dtype != kF64 && !exact && !a.scale) a.scale = 0.25;
  Sample s{.name = c.name, .attrs = {}, .operands = {}, .grad = c.grad};
  s.operands = {{c.dtype, head_shape(c, n.queries, n.heads, n.width), c.draw},
                {c.dtype, head_shape(c, n.keys, n.kv_heads, n.width), c.draw},
                {c.dtype, head_shape(c, n.keys, n.kv_heads, n.v_width), {}}};
  if (backward) s.operands.push_back({c.dtype, head_shape(c, n.queries, n.heads, n.v_width), {}});
  if (a.has_mask) {
    s.operands.push_back(
        {DType::kBool, {n.batch, n.keys}, {.kind = Draw::kInteger, .low = 0, .high = 1}});
  }
  if (!c.bias.empty()) s.operands.push_back({c.dtype, c.bias, c.bias_draw});
  for (const auto* lengths : {&c.kv_len, &c.q_len}) {
    if (lengths->empty()) continue;
    const Dims shape = c.one_length ? Dims{} : Dims{n.batch};
    s.operands.push_back({DType::kI64, shape, {.kind = Draw::kGiven, .values = *lengths}});
  }
  a.has_bias = !c.bias.empty();
  a.has_kv_len = !c.kv_len.empty();
  a.has_q_len = !c.q_len.empty();
  s.attrs = Attrs::of(op.fields, a);
  const int64_t sums =
      backward ? std::max(n.keys, n.queries * std::max<int64_t>(n.heads, 1)) : n.keys;
  s.reduction = std::max<int64_t>({sums, n.width, n.v_width, 1});
  s.extra_ulps = 16;
  return s;
}

// A bias that repeats adds up the gradients of all pairs; elsewhere a gradient is a sum of
// terms as large as the products of the operands.
double gradient_scale(const Case& c) {
  const double width = std::sqrt(double(std::max(c.n.width, c.n.v_width)) + 1);
  double scale = 4 * width;
  if (!c.bias.empty()) {
    const double pairs = double(c.n.batch * c.n.heads * c.n.queries);
    scale *= std::sqrt(std::max(
        1.0, pairs * double(c.n.keys) / double(std::max<int64_t>(1, num_elements(c.bias)))));
  }
  return scale;
}

std::vector<Sample> samples_forward() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    all.push_back(sample_of(kAttentionOp, c, false));
    all.back().scale = 4;
    // An error of a score is an error of the exponent.
    if (c.name == "wide_scores") all.back().scale = 64;
  }
  return all;
}

std::vector<Sample> samples_backward() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    all.push_back(sample_of(kAttentionBackwardAllOp, c, true));
    all.back().scale = gradient_scale(c);
    if (c.name == "wide_scores") all.back().scale *= 16;
  }
  return all;
}

std::vector<Sample> samples_part() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    // An alias has no kernel: what only splits the work of kernels says nothing new, except once.
    if (c.n.queries * c.n.keys > 250 && c.name != "large") continue;
    Sample s = sample_of(kAttentionBackwardAllOp, c, true);
    const auto a = s.attrs.as<AttentionAttrs>();
    for (size_t w = 0; w < kEnumCount<AttentionInput>; ++w) {
      const auto wrt = AttentionInput(w);
      if (wrt == AttentionInput::kBias && !a.has_bias) continue;
      s.name = c.name + "_" + std::string(enum_name(wrt));
      s.attrs =
          Attrs::of(kAttentionBackwardOp.fields,
                    AttentionBackwardAttrs{wrt, a.layout, a.mask, a.window, a.scale, a.softcap,
                                           a.has_mask, a.has_bias, a.has_kv_len, a.has_q_len});
      s.scale = gradient_scale(c) * (c.name == "wide_scores" ? 16 : 1);
      all.push_back(s);
    }
  }
  return all;
}

struct WrongAttention {
  std::string name;
  AttentionAttrs attrs;
  std::vector<TensorType> operands;
  std::string error;
};

std::vector<WrongAttention> wrong_attention() {
  const TensorType q{kF32, {2, 5, 4, 8}}, k{kF32, {2, 7, 2, 8}}, v{kF32, {2, 7, 2, 3}};
  const auto with = [](auto change) {
    AttentionAttrs a;
    change(a);
    return a;
  };
  const auto masked = with([](auto& a) { a.has_mask = true; });
  const auto biased = with([](auto& a) { a.has_bias = true; });
  const auto limited = with([](auto& a) { a.has_kv_len = true; });
  const auto rows = with([](auto& a) { a.has_q_len = true; });
  return {
      {"operands", {}, {q, k}, "operands, got"},
      {"flags", masked, {q, k, v}, "operands, got"},
      {"integers", {}, {{DType::kI32, {2, 5, 4, 8}}, k, v}, "q is i32"},
      {"dtypes", {}, {q, {kF64, {2, 7, 2, 8}}, v}, "operands 0 and 1 have the dtypes f32 and f64"},
      {"rank", {}, {q, {kF32, {7, 2, 8}}, v}, "k"},
      {"batch", {}, {q, {kF32, {3, 7, 2, 8}}, v}, "the batch sizes of q and k differ: 2 and 3"},
      {"batch_of_v",
       {},
       {q, k, {kF32, {1, 7, 2, 3}}},
       "the batch sizes of k and v differ: 2 and 1"},
      {"width", {}, {q, {kF32, {2, 7, 2, 9}}, v}, "the widths of q and k differ: 8 and 9"},
      {"keys", {}, {q, k, {kF32, {2, 6, 2, 3}}}, "the lengths of k and v differ: 7 and 6"},
      {"heads", {}, {q, k, {kF32, {2, 7, 4, 3}}}, "the heads of k and v differ: 2 and 4"},
      {"groups",
       {},
       {q, {kF32, {2, 7, 3, 8}}, {kF32, {2, 7, 3, 3}}},
       "4 heads of q are no multiple of 3 heads of k and v in layout BSHD"},
      {"no_mask", with_mask(Mask::kCustom), {q, k, v}, "mask = Custom needs a mask operand"},
      {"window", with_mask(Mask::kSlidingWindow, -1), {q, k, v}, "window is -1"},
      {"window_alone", with_mask(Mask::kCausal, 3), {q, k, v}, "only SlidingWindow has a window"},
      {"scale", with([](auto& a) { a.scale = std::nan(""); }), {q, k, v}, "scale is nan"},
      {"softcap",
       with([](auto& a) { a.softcap = std::nan(""); }),
       {q, k, v},
       "softcap is nan, expected a finite number (0 and below: none)"},
      {"mask_type", masked, {q, k, v, {kF32, {2, 7}}}, "the mask must be bool[2, 7]"},
      {"bias",
       biased,
       {q, k, v, {kF32, {2, 3, 5, 7}}},
       "bias is [2, 3, 5, 7], expected [2 (or a divisor), 4, 5, 7]"},
      {"bias_batch", biased, {q, k, v, {kF32, {3, 4, 5, 7}}}, "bias is [3, 4, 5, 7]"},
      {"kv_len",
       limited,
       {q, k, v, {DType::kI32, {}}},
       "kv_len must be i64[] or i64[2], it is i32[]"},
      {"q_len", rows, {q, k, v, {DType::kI64, {3}}}, "q_len must be i64[] or i64[2], it is i64[3]"},
  };
}

std::vector<WrongCall> wrong_forward() {
  std::vector<WrongCall> all;
  for (const WrongAttention& w : wrong_attention()) {
    all.push_back({w.name, Attrs::of(kAttentionOp.fields, w.attrs), w.operands, w.error});
  }
  return all;
}

std::vector<WrongCall> wrong_backward() {
  std::vector<WrongCall> all;
  const TensorType dy{kF32, {2, 5, 4, 3}};
  for (const WrongAttention& w : wrong_attention()) {
    std::vector<TensorType> operands = w.operands;
    if (operands.size() >= 3) operands.insert(operands.begin() + 3, dy);
    all.push_back({w.name, Attrs::of(kAttentionBackwardAllOp.fields, w.attrs), operands, w.error});
  }
  const TensorType q{kF32, {2, 5, 4, 8}}, k{kF32, {2, 7, 2, 8}}, v{kF32, {2, 7, 2, 3}};
  all.push_back({"dy",
                 Attrs::of(kAttentionBackwardAllOp.fields, AttentionAttrs{}),
                 {q, k, v, q},
                 "dy must be f32[2, 5, 4, 3], it is f32[2, 5, 4, 8]"});
  return all;
}

std::vector<WrongCall> wrong_part() {
  const TensorType q{kF32, {2, 5, 4, 8}}, k{kF32, {2, 7, 2, 8}}, v{kF32, {2, 7, 2, 3}};
  const TensorType dy{kF32, {2, 5, 4, 3}};
  const auto part = [](AttentionInput wrt) {
    return Attrs::of(kAttentionBackwardOp.fields, AttentionBackwardAttrs{wrt});
  };
  return {
      {"operands", part(AttentionInput::kKey), {q, k, v}, "operands, got 3"},
      {"bias", part(AttentionInput::kBias), {q, k, v, dy}, "wrt = Bias needs a bias operand"},
      {"dy", part(AttentionInput::kValue), {q, k, v, q}, "dy must be f32[2, 5, 4, 3]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Attention) = {samples_forward, wrong_forward};
RLX_DEFINE_SAMPLES(AttentionBackwardAll) = {samples_backward, wrong_backward};
RLX_DEFINE_SAMPLES(AttentionBackward) = {samples_part, wrong_part};

}  // namespace rlx
