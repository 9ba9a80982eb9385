// All of RLX: build a graph, transform it, compile it in a session, run it.
#pragma once

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/array.h"
#include "rlx/base/error.h"
#include "rlx/compile/pipeline.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/text.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"
