#include "rlx/base/error.h"

namespace rlx {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUser:
      return "user";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kInternal:
      return "internal";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Error Error::with_context(std::string_view context) const {
  return Error(kind_, fmt::format("{}: {}", context, message_));
}

void throw_error(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

}  // namespace rlx
