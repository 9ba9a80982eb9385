#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// The flags say which optional operands there are; they follow the others in the order of the
// flags.
struct LstmAttrs {
  int64_t hidden_size = 0;  // H, above 0
  int64_t num_layers = 1;
  bool bidirectional = false;  // a second direction, from the last step to the first
  bool reverse = false;        // the only direction goes from the last step to the first
  bool carry = false;          // h0 and c0 [layers * directions, B, H]
  bool has_lengths = false;    // i64 [B]: sequence b ends after so many steps
};

// Optional operands; an invalid value is absent, and h0 and c0 come together.
struct LstmExtras {
  Value h0{}, c0{}, lengths{};
};

struct LstmResults {
  Value y, h, c;
};

// The flags of attrs follow from the extras.
LstmResults lstm(Builder& b, Value x, Value w_ih, Value w_hh, Value bias, LstmAttrs attrs,
                 const LstmExtras& extras);

// Positions of the optional operands, -1 if absent.
struct LstmOperands {
  int h0 = -1, c0 = -1, lengths = -1, count = 4;  // after x, w_ih, w_hh and bias
  explicit LstmOperands(const LstmAttrs& a) {
    if (a.carry) {
      h0 = count++;
      c0 = count++;
    }
    if (a.has_lengths) lengths = count++;
  }
};

// The sizes of a call. A block is the weights of one layer and direction; blocks follow one another
// layer by layer, in a layer by direction.
template <class Size>
struct LstmSizes {
  Size batch{}, steps{}, input{};
  int64_t hidden = 0, layers = 1, directions = 1;

  // From the shape of x, indexed by axis.
  template <class S>
  LstmSizes(const LstmAttrs& a, const S& x)
      : batch(x[0]),
        steps(x[1]),
        input(x[2]),
        hidden(a.hidden_size),
        layers(a.num_layers),
        directions(a.bidirectional ? 2 : 1) {}

  int64_t blocks() const { return layers * directions; }
  int64_t gates() const { return 4 * hidden; }
  int64_t output() const { return directions * hidden; }
  // The width of what a layer reads.
  Size layer_input(int64_t layer) const { return layer == 0 ? input : Size(output()); }
  // Where the input weights of a block begin, in elements; of block blocks(): their number.
  Size input_offset(int64_t block) const {
    if (block <= directions) return input * Size(block * gates());
    return input * Size(directions * gates()) + Size((block - directions) * gates() * output());
  }
};

}  // namespace rlx
