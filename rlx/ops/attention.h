#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// The order of the axes of q, k, v and the result: batch, sequence, heads, width of a head.
enum class AttentionLayout : uint8_t { kBshd, kBhsd };

// Which keys a query sees, beside kv_len and a mask operand.
enum class AttentionMask : uint8_t { kNone, kCausal, kSlidingWindow, kCustom };

enum class AttentionInput : uint8_t { kQuery, kKey, kValue, kBias };

// Of Attention and AttentionBackwardAll. The flags say which optional operands there are; they
// follow the others in the order of the flags.
struct AttentionAttrs {
  AttentionLayout layout = AttentionLayout::kBshd;
  AttentionMask mask = AttentionMask::kNone;
  int64_t window = 0;               // SlidingWindow: a query sees itself and so many keys before it
  std::optional<double> scale{};    // of the scores; 1 / sqrt(head width) if absent
  std::optional<double> softcap{};  // scores become softcap * tanh(score / softcap); <= 0: none
  bool has_mask = false;            // bool [B, Sk]: true keeps the key
  bool has_bias = false;            // [1 | B | a divisor of B, 1 | H, 1 | Sq, 1 | Sk]
  bool has_kv_len = false;          // i64 [] or [B]: keys from it on do not exist
  bool has_q_len = false;           // i64 [] or [B]: rows from it on are 0
};

struct AttentionBackwardAttrs {
  AttentionInput wrt = AttentionInput::kQuery;
  AttentionLayout layout = AttentionLayout::kBshd;
  AttentionMask mask = AttentionMask::kNone;
  int64_t window = 0;
  std::optional<double> scale{};
  std::optional<double> softcap{};
  bool has_mask = false;
  bool has_bias = false;
  bool has_kv_len = false;
  bool has_q_len = false;
};

// Optional operands; an invalid value is absent.
struct AttentionExtras {
  Value mask{}, bias{}, kv_len{}, q_len{};
};

// The flags of attrs follow from the extras.
Value attention(Builder& b, Value q, Value k, Value v, AttentionAttrs attrs,
                const AttentionExtras& extras);
// q [B, Sq, H * D], k and v [B, Sk, Hkv * D], or without the batch axis; the result has the form
// of q. attrs.layout must be kBshd.
Value attention_packed(Builder& b, Value q, Value k, Value v, int64_t num_heads,
                       int64_t num_kv_heads, AttentionAttrs attrs = {},
                       const AttentionExtras& extras = {});

// The sizes of a call, whatever the layout.
template <class Size>
struct AttentionSizes {
  Size batch{}, heads{}, kv_heads{}, queries{}, keys{}, width{}, v_width{};
};

// Where the sequence axis and the axis of heads stand.
constexpr int64_t sequence_axis(AttentionLayout l) { return l == AttentionLayout::kBshd ? 1 : 2; }
constexpr int64_t heads_axis(AttentionLayout l) { return l == AttentionLayout::kBshd ? 2 : 1; }

// From the shapes of q, k and v, indexed by axis.
template <class Size, class S>
AttentionSizes<Size> attention_sizes(AttentionLayout l, const S& q, const S& k, const S& v) {
  using Axis = std::conditional_t<std::is_same_v<Size, int64_t>, size_t, int64_t>;
  const auto sequence = Axis(sequence_axis(l)), heads = Axis(heads_axis(l));
  return {q[0], q[heads], k[heads], q[sequence], k[sequence], q[3], v[3]};
}

// Pairs of a query and a key at full lengths, about those that the kind of mask leaves: for costs.
double attention_pairs(const AttentionAttrs& a, const AttentionSizes<int64_t>& n);

// Positions of the optional operands, -1 if absent, in a call with so many operands before them.
struct AttentionOperands {
  int mask = -1, bias = -1, kv_len = -1, q_len = -1, count = 0;
  AttentionOperands(const AttentionAttrs& a, int first) {
    const auto take = [&](bool has) { return has ? first++ : -1; };
    mask = take(a.has_mask);
    bias = take(a.has_bias);
    kv_len = take(a.has_kv_len);
    q_len = take(a.has_q_len);
    count = first;
  }
};
inline constexpr int kAttentionInputs = 3;          // q, k, v
inline constexpr int kAttentionBackwardInputs = 4;  // q, k, v, dy

// Helpers of the definitions, in attention_expand.cc.
std::vector<Value> expand_attention(Builder& b, const Attrs& attrs,
                                    std::span<const Value> operands);
std::vector<Value> expand_attention_backward(Builder& b, const Attrs& attrs,
                                             std::span<const Value> operands);

}  // namespace rlx

RLX_ENUM(rlx::AttentionLayout, "BSHD", "BHSD");
RLX_ENUM(rlx::AttentionMask, "None", "Causal", "SlidingWindow", "Custom");
RLX_ENUM(rlx::AttentionInput, "Query", "Key", "Value", "Bias");
