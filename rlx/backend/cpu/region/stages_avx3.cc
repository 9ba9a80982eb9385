#if defined(__x86_64__)
#define RLX_STAGE_TABLE kStagesAvx3
#define RLX_STAGE_NAME "avx3"
#include "rlx/backend/cpu/region/stages-inl.h"
static_assert(HWY_TARGET == HWY_AVX3);
#endif
