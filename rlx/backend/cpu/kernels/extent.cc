#include "rlx/ops/extent.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {
namespace {

constexpr KernelEntry kExtentEntries[] = {
    {
        .name = "extent:constant",
        .fits = [](const KernelCall& c) -> std::string_view {
          return c.as<ExtentAttrs>().size.is_static() ? "" : "the size is not bound";
        },
        .prepare =
            [](const KernelCall& c) {
              const auto run = [](const void* size, const StepArgs& args, int64_t) {
                *args.out<int64_t>(0) = *static_cast<const int64_t*>(size);
              };
              return PreparedKernel::single(c.as<ExtentAttrs>().size.value(), 1, run, 5);
            },
    },
};

// Elements are moved by their size alone.
struct Fill {
  int64_t rows, size, row_bytes;  // rows of `size` positions, each of row_bytes
  int64_t positions;              // of one chunk
  size_t element_bytes;
  std::array<std::byte, 16> element;
};

constexpr int64_t kChunkBytes = 1 << 18;
constexpr int64_t kRepeatBytes = 4096;  // that are copied at once: they stay in the cache

void repeat(const Fill& f, std::byte* to, int64_t bytes) {
  if (f.element_bytes == 1) {
    std::memset(to, int(f.element[0]), size_t(bytes));
    return;
  }
  if (bytes == 0) return;
  std::memcpy(to, f.element.data(), f.element_bytes);
  for (auto done = int64_t(f.element_bytes); done < bytes;) {  // what is there, once more
    const int64_t more = std::min({done, bytes - done, kRepeatBytes});
    std::memcpy(to + done, to, size_t(more));
    done += more;
  }
}

// Positions [chunk * positions, ...) of all rows, counted through.
void run_fill(const void* state, const StepArgs& args, int64_t chunk) {
  const Fill& f = *static_cast<const Fill*>(state);
  const auto* x = args.in<std::byte>(0);
  auto* y = args.out<std::byte>(0);
  const int64_t n = std::clamp<int64_t>(*args.in<int64_t>(1), 0, f.size);
  const int64_t end = std::min(f.rows * f.size, (chunk + 1) * f.positions);
  for (int64_t at = chunk * f.positions; at < end;) {
    const int64_t row = at / f.size, first = at % f.size;
    const int64_t stop = std::min(f.size, first + end - at);
    const int64_t live = std::clamp(n, first, stop);
    const int64_t base = row * f.size * f.row_bytes;
    if (x != y && live > first) {
      std::memcpy(y + base + first * f.row_bytes, x + base + first * f.row_bytes,
                  size_t((live - first) * f.row_bytes));
    }
    repeat(f, y + base + live * f.row_bytes, (stop - live) * f.row_bytes);
    at += stop - first;
  }
}

PreparedKernel prepare_fill(const KernelCall& call) {
  const auto& a = call.as<FillTailAttrs>();
  const TensorDesc& y = call.results[0];
  const std::span<const int64_t> dims = y.dims;
  Fill f{};
  f.rows = num_elements(dims.first(size_t(a.axis)));
  f.size = dims[size_t(a.axis)];
  f.row_bytes = byte_size(y.dtype, dims.subspan(size_t(a.axis) + 1));
  f.positions = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, f.row_bytes));
  const Array element = fill_element(y.dtype, a.fill);
  f.element_bytes = size_t(element.byte_size());
  std::memcpy(f.element.data(), element.raw(), f.element_bytes);
  const int64_t bytes = y.num_elements() * size_of(y.dtype);
  const int64_t chunks = bytes == 0 ? 0 : ceil_div(f.rows * f.size, f.positions);
  return PreparedKernel::single(f, chunks, run_fill, 20 + 0.1 * double(bytes));
}

constexpr KernelEntry kFillEntries[] = {
    {
        .name = "fill_tail:rows",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare = prepare_fill,
        .in_place = 1,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Extent, Cpu) = {kExtentEntries};
RLX_DEFINE_KERNELS(FillTail, Cpu) = {kFillEntries};

}  // namespace rlx::cpu
