#include "rlx/base/file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "rlx/base/error.h"

namespace rlx {
namespace {

[[noreturn]] void io_error(std::string_view what, const std::string& path, int code) {
  fail(ErrorKind::kIo, "cannot {} '{}': {}", what, path, std::strerror(code));
}

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), count.fetch_add(1));
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path) {
  const File f(std::fopen(path.c_str(), "rb"));
  if (!f) io_error("open", path, errno);
  std::vector<std::byte> bytes;
  // In growing pieces, not by the size the system tells: pipes have none.
  size_t chunk = size_t(1) << 16;
  for (;;) {
    const size_t old = bytes.size();
    bytes.resize(old + chunk);
    errno = 0;
    const size_t got = std::fread(bytes.data() + old, 1, chunk, f.get());
    bytes.resize(old + got);
    if (got < chunk) {
      if (std::ferror(f.get())) io_error("read", path, errno);
      return bytes;
    }
    chunk = std::max(chunk, bytes.size());
  }
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = temporary_name(path);
  File f(std::fopen(temporary.c_str(), "wbx"));
  if (!f) io_error("create", temporary, errno);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), f.get()) == bytes.size() &&
                       std::fflush(f.get()) == 0 && ::fsync(::fileno(f.get())) == 0;
  int code = written ? 0 : errno;
  if (std::fclose(f.release()) != 0 && code == 0) code = errno;
  if (code == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) {
    std::remove(temporary.c_str());
    io_error("write", path, code);
  }
}

}  // namespace rlx
