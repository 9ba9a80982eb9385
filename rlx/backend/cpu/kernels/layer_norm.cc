#include "rlx/backend/cpu/kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/layer_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

void LayerNormChunk(const NormState& s, const StepArgs& args, int64_t chunk, NormStep step) {
  NormChunk<true>(s, args, chunk, step);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(LayerNormChunk);

namespace {

template <NormStep kStep>
void run_step(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(LayerNormChunk)
  (*static_cast<const NormState*>(state), args, chunk, kStep);
}

constexpr NormRuns kRuns = {run_step<NormStep::kForward>, run_step<NormStep::kBackward>,
                            run_step<NormStep::kAddPartials>};

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kForward[] = {
    {.name = "layer_norm:row",
     .fits = fits,
     .prepare = [](const KernelCall& c) { return prepare_norm(c, kRuns); },
     .in_place = 1,
     .vector = true}};
constexpr KernelEntry kBackward[] = {
    {.name = "layer_norm_backward:row",
     .fits = fits,
     .prepare = [](const KernelCall& c) { return prepare_norm_backward(c, kRuns); },
     .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(LayerNorm, Cpu) = {kForward};
RLX_DEFINE_KERNELS(LayerNormBackwardInput, Cpu) = {kBackward};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
