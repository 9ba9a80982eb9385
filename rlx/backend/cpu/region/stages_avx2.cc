#if defined(__x86_64__)
#define RLX_STAGE_TABLE kStagesAvx2
#define RLX_STAGE_NAME "avx2"
#include "rlx/backend/cpu/region/stages-inl.h"
static_assert(HWY_TARGET == HWY_AVX2);
#endif
