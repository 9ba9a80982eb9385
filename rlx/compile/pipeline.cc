#include "rlx/compile/pipeline.h"

#include "rlx/base/error.h"
#include "rlx/compile/bind.h"
#include "rlx/compile/control.h"
#include "rlx/compile/group.h"
#include "rlx/compile/layout.h"
#include "rlx/compile/memory.h"
#include "rlx/compile/out_of_memory.h"
#include "rlx/compile/prepare.h"
#include "rlx/compile/schedule.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/verify.h"

namespace rlx {
namespace {

class Passes {
 public:
  Passes(const Graph& graph, const KernelTable& kernels, const CompileOptions& options)
      : graph_(graph), kernels_(kernels), options_(options) {
    if (options.verify) verify(graph_, "the builder");
  }

  void simplify() {
    apply("canonicalize", canonicalize(graph_));
    apply("fold", fold_constants(graph_, options_.fold));
    apply("merge_common", merge_common(graph_));
    apply("simplify_control", simplify_control(graph_));
    apply("drop_dead", drop_dead(graph_));
  }

  Graph run(std::vector<LegalizeNote>& notes) {
    if (!options_.bounds.empty()) apply("mask_bounded", mask_bounded(graph_, options_.bounds));
    if (options_.optimize) simplify();
    LegalizeOptions options = options_.legalize;
    options.bounds = options_.bounds;
    apply("legalize", legalize(graph_, kernels_, options, &notes));
    if (options_.optimize) simplify();
    if (options_.optimize && options_.fuse && !options_.legalize.force_decompose) {
      apply("form_groups",
            form_groups(graph_, kernels_, {options_.strict_rounding, options_.fuse_always}, options,
                        &notes));
    }
    apply("drop_dead", drop_dead(graph_));
    return std::move(graph_);
  }

 private:
  void apply(std::string_view pass, Graph graph) {
    graph_ = std::move(graph);
    if (options_.verify) verify(graph_, pass);
    if (options_.dump) options_.dump(pass, graph_);
  }

  Graph graph_;
  const KernelTable& kernels_;
  const CompileOptions& options_;
};

std::shared_ptr<const Plan> compile(const Graph& static_graph, const KernelTable& kernels,
                                    const CompileOptions& options) {
  std::vector<SizeCheck> size_checks = sizes_to_check(static_graph, options.bounds);
  std::vector<LegalizeNote> notes;
  const Graph graph = Passes(static_graph, kernels, options).run(notes);

  Plan plan = plan_legal_graph(graph, kernels, options);
  plan.notes = std::move(notes);
  plan.size_checks = std::move(size_checks);
  const MemoryEstimate estimate = plan.estimate(options.threads);
  if (options.memory_limit >= 0 && estimate.total() > options.memory_limit) {
    fail(ErrorKind::kDevice, "the plan of '{}' needs more than the limit of {} bytes: {}",
         plan.name, options.memory_limit, estimate.to_string());
  }
  return std::make_shared<const Plan>(std::move(plan));
}

}  // namespace

Plan plan_legal_graph(const Graph& graph, const KernelTable& kernels,
                      const CompileOptions& options) {
  Draft draft = lay_out(graph, kernels, options);
  bind_outputs(draft, kernels, !options.guard_zones);
  fill_concat_slots(draft, kernels);
  bind_updates(draft, kernels, !options.guard_zones);
  const uint32_t commit_step = order_steps(draft);
  share_in_place(draft);
  prepare_steps(draft, kernels, options);
  place_buffers(draft, options.guard_zones);
  make_segments(draft.plan, uint32_t(draft.steps.size()), commit_step);
  return std::move(draft.plan);
}

std::shared_ptr<const Plan> compile_plan(const Graph& static_graph, const KernelTable& kernels,
                                         const CompileOptions& options) {
  return convert_memory_errors(static_graph.name(), [&] {
    if (!binds_sizes(static_graph)) return compile(static_graph, kernels, options);
    CompileOptions all = options;
    all.bounds = all_bounds(static_graph, options.bounds);
    return compile(static_graph, kernels, all);
  });
}

}  // namespace rlx
