// What every processor of the family has: one lane on x86-64, NEON on AArch64.
#define RLX_STAGE_TABLE kStagesScalar
#define RLX_STAGE_NAME "scalar"
#include "rlx/backend/cpu/region/stages-inl.h"
#if defined(__x86_64__)
static_assert(HWY_TARGET == HWY_SCALAR);
#endif
