#include "rlx/compile/custom_kernel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "rlx/base/error.h"
#include "rlx/ops/custom.h"

namespace rlx {

struct CustomKernels::Registered {
  explicit Registered(CustomKernel k) : kernel(std::move(k)), entry_name("custom:" + kernel.name) {
    entry.name = entry_name;
    entry.in_place = kernel.in_place;
  }
  const CustomKernel kernel;
  const std::string entry_name;
  KernelEntry entry;
};

namespace {

// Splitting costs a few microseconds: without an estimate a kernel with chunks is worth it.
constexpr double kUnknownNanoseconds = 1e5;

// Calls a function of the user. Whatever it throws becomes an Error.
template <class F>
auto guarded(std::string_view kernel, std::string_view what, F&& f) {
  const auto name = [&] {
    return what.empty() ? fmt::format("'{}'", kernel) : fmt::format("'{}', {}", kernel, what);
  };
  try {
    return f();
  } catch (const Error& e) {
    throw e.with_context(name());
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::kDevice, "{}: out of memory", name());
  } catch (const std::exception& e) {
    user_error("{}: {}", name(), e.what());
  } catch (...) {
    user_error("{}: threw something that is not a std::exception", name());
  }
}

// What a bound call keeps: the kernel, and the call with memory of its own.
struct Bound {
  std::shared_ptr<const void> owner;  // of the kernel and its entry
  const CustomKernel* kernel = nullptr;
  std::string attributes;
  std::vector<TensorDesc> operands, results;
  CustomCall call;
  std::shared_ptr<const void> state;
};

void run_chunk(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& bound = *static_cast<const Bound*>(state);
  guarded(bound.kernel->name, "", [&] {
    bound.kernel->run(
        {bound.call, bound.state.get(), args.operands, args.results, args.thread_scratch}, chunk);
  });
}

std::string types_text(std::span<const TensorType> types) {
  std::string text;
  for (const TensorType& t : types) text += (text.empty() ? "" : ", ") + t.to_string();
  return text;
}

}  // namespace

std::shared_ptr<const CustomKernels> CustomKernels::with(CustomKernel kernel) const {
  if (kernel.name.empty()) user_error("a custom kernel has no name");
  if (!kernel.run) user_error("the custom kernel '{}' has no function to run", kernel.name);
  auto all = std::make_shared<CustomKernels>(*this);
  const std::pair key{kernel.device, kernel.name};
  const auto added =
      all->kernels_.try_emplace(key, std::make_shared<const Registered>(std::move(kernel)));
  if (!added.second) {
    user_error("a kernel of the operator '{}' is registered for the device '{}' already",
               key.second, key.first);
  }
  return all;
}

const std::shared_ptr<const CustomKernels::Registered>* CustomKernels::find(
    std::string_view device, std::string_view name) const {
  const auto it = kernels_.find({std::string(device), std::string(name)});
  return it == kernels_.end() ? nullptr : &it->second;
}

std::string CustomKernels::list(std::string_view device) const {
  std::vector<std::string_view> names;
  for (const auto& [key, kernel] : kernels_) {
    if (key.first == device) names.push_back(key.second);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

const KernelEntry* CustomKernels::select(std::string_view device, const Attrs& attrs,
                                         std::span<const TensorType> operands,
                                         std::span<const TensorType> results,
                                         std::string* reason) const {
  const auto& a = attrs.as<CustomAttrs>();
  const auto refuse = [&](std::string text) -> const KernelEntry* {
    if (reason) *reason = std::move(text);
    return nullptr;
  };
  const auto* found = find(device, a.name);
  if (!found) {
    return refuse(fmt::format(
        "the session has no kernel of this operator for the device '{}'; it has: {}; register it "
        "with Session::add_kernel before the graph is compiled",
        device, list(device)));
  }
  const CustomKernel& kernel = (*found)->kernel;
  if (kernel.infer) {
    const auto inferred =
        guarded(a.name, "inference", [&] { return kernel.infer(operands, a.attributes); });
    if (!std::ranges::equal(inferred, results)) {
      return refuse(fmt::format("its results are {} in the graph, the kernel makes {}",
                                types_text(results), types_text(inferred)));
    }
  }
  if (!kernel.fits) return &(*found)->entry;
  std::vector<TensorDesc> in, out;
  for (const TensorType& t : operands) in.push_back(TensorDesc::dense(t));
  for (const TensorType& t : results) out.push_back(TensorDesc::dense(t));
  const std::string why = guarded(a.name, "fits", [&] {
    return kernel.fits({a.name, a.attributes, in, out});
  });
  return why.empty() ? &(*found)->entry : refuse("its kernel refuses the call: " + why);
}

PreparedKernel CustomKernels::prepare(std::string_view device, const KernelCall& call) const {
  const auto& a = call.as<CustomAttrs>();
  const auto* found = find(device, a.name);
  if (!found) internal_error("no kernel of '{}' after legalization", a.name);
  const CustomKernel& kernel = (*found)->kernel;
  auto bound = std::make_shared<Bound>();
  bound->owner = *found;
  bound->kernel = &kernel;
  bound->attributes = a.attributes;
  bound->operands.assign(call.operands.begin(), call.operands.end());
  bound->results.assign(call.results.begin(), call.results.end());
  bound->call = {kernel.name, bound->attributes, bound->operands, bound->results};
  PreparedKernel prepared;
  guarded(a.name, "preparation", [&] {
    const CustomCall& c = bound->call;
    if (kernel.prepare) bound->state = kernel.prepare(c);
    const int64_t chunks = kernel.chunks ? kernel.chunks(c) : 1;
    const int64_t scratch = kernel.scratch_bytes ? kernel.scratch_bytes(c) : 0;
    if (chunks < 0) user_error("it has {} chunks", chunks);
    if (scratch < 0) user_error("it wants {} bytes of scratch", scratch);
    prepared.phases = {{chunks, run_chunk}};
    prepared.thread_scratch_bytes = scratch;
    prepared.nanoseconds = kernel.nanoseconds ? kernel.nanoseconds(c) : kUnknownNanoseconds;
  });
  prepared.state = std::move(bound);
  return prepared;
}

}  // namespace rlx
