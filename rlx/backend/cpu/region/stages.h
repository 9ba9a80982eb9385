// The stage machine: a program is a list of stages, each a small function that holds eight vectors
// (a group) in registers, changes them, and calls the next stage as its last act. The live value
// never leaves registers. Compiled once per instruction set, by flags: stages_<target>.cc.
// Nothing here may include more than plain declarations: see stages-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rlx::cpu::region {

// How a stage reads an operand: a group from memory, or one number for all.
enum class Form : uint8_t { kMemory, kScalar };

// What a stage does besides: it loads acc from c first; it stores acc at d last, and goes on with
// the next group.
enum class Ends : uint8_t { kNone, kLoad, kStore };

// acc is the group in registers; a and b are operands. Masks are groups of all-ones or zero lanes.
enum class StageOp : uint8_t {
  kLoad,    // acc = a
  kStore,   // a = acc, and so on: the same bits
  kStream,  // past the cache
  kLoadF16,
  kLoadBF16,  // f32 groups only, from 16-bit memory
  kStoreF16,
  kStoreBF16,
  kLoadBool,   // a mask from bytes
  kStoreBool,  // bytes 0 and 1
  kWidenF16,   // b = a, leaving acc alone
  kWidenBF16,
  kWidenBool,
  kRoundF16,  // to the nearest f16, as f32
  kRoundBF16,
  kAdd,
  kSub,   // acc - a
  kRSub,  // a - acc
  kMul,
  kDiv,
  kRDiv,
  kMax,
  kMin,
  kMulAdd,   // acc * a + b, two roundings
  kMulSub,   // acc * a - b
  kMulRSub,  // b - acc * a
  kAddMul,   // acc + a * b
  kSubMul,   // acc - a * b
  kRSubMul,  // a * b - acc
  kFma,      // acc * a + b, one rounding
  kFmaTo,    // a * b + acc, one rounding
  kEq,       // acc = mask of acc == a
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kSelect,     // acc ? a : b
  kSelectYes,  // a ? acc : b
  kSelectNo,   // a ? b : acc
  kAnd,        // of bits
  kOr,
  kXor,
  kNeg,
  kAbs,
  kSqrt,
  kRsqrt,
  kRecip,
  kRelu,
  kFloor,
  kCeil,
  kRound,
  kSign,
  kReluGradOn,  // acc <= 0 ? 0 : a
  kReluGradOf,  // a <= 0 ? 0 : acc
  kMaskOne,     // 1 where the mask is set, else 0
  kNonZero,     // the mask of acc != 0, NaN included
  kSquare,
  kPrefetch,  // the group after next of a
  kExp,
  kSigmoid,
  kTanh,
  kSilu,
  kGelu,
  kGeluApprox,
  kCall,    // a function on memory; acc is lost
  kCallTo,  // acc = b after
  kNext,    // the next group from the first stage on, or the end
  kStoreNext,
  kCount,
};

// A step of a program that is one loop (see stage_loops-inl.h): load, steps, store.
struct StepKey {
  StageOp op = StageOp::kCount;
  Form a = Form::kMemory, b = Form::kMemory;
};

struct Stage {
  void (*run)() = nullptr;
  uint32_t a = 0, b = 0, c = 0, d = 0;  // slots, in bytes from the first; c also: the call
};

// base + (bytes & mask): the mask is all ones for memory that moves along with the groups, 0 for
// what belongs to the machine.
struct Slot {
  std::byte* base = nullptr;
  size_t mask = 0;
};

struct Context {
  const Slot* slots = nullptr;
  const Stage* first = nullptr;
  size_t end = 0;                                                    // bytes of lanes: whole groups
  void (*call)(const Context&, uint32_t call, size_t at) = nullptr;  // at: elements
  const void* calls = nullptr;
  size_t group = 0;        // elements of a group
  bool streaming = false;  // a kStream is among the stages
};

// The stages of one instruction set. The finders return null for what it does not have.
struct StageTable {
  const char* name = nullptr;
  int64_t group_f32 = 0, group_f64 = 0;  // elements of a group
  void (*(*find_f32)(StageOp op, Form a, Form b, Ends ends))() = nullptr;
  void (*(*find_f64)(StageOp op, Form a, Form b, Ends ends))() = nullptr;
  // The whole program as its first stage; c and d of that are where acc comes from and goes to.
  void (*(*find_loop_f32)(const StepKey* steps, size_t count))() = nullptr;
  void (*(*find_loop_f64)(const StepKey* steps, size_t count))() = nullptr;
  void (*enter_f32)(const Context* context) = nullptr;
  void (*enter_f64)(const Context* context) = nullptr;
};

extern const StageTable kStagesScalar;
#if defined(__x86_64__)
extern const StageTable kStagesAvx2;
extern const StageTable kStagesAvx3;
#endif

}  // namespace rlx::cpu::region
