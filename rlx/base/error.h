// rlx::Error: the one exception type of the library, and helpers to throw it.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace rlx {

enum class ErrorKind {
  kUser,         // the caller's graph, shapes or arguments are wrong
  kUnsupported,  // meaningful, but no kernel or rule exists for it
  kInternal,     // a broken invariant of RLX itself: please report
  kDevice,       // the device failed (out of memory, driver)
  kIo,           // a file is missing, truncated or malformed
  kCancelled,    // the run's cancel token was set
};

std::string_view to_string(ErrorKind kind);

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  ErrorKind kind() const noexcept { return kind_; }
  const std::string& message() const noexcept { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

  // The same error with `context` (which op, which value) put in front.
  Error with_context(std::string_view context) const;

 private:
  ErrorKind kind_;
  std::string message_;
};

[[noreturn]] void throw_error(ErrorKind kind, std::string message);

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw_error(kind, fmt::vformat(text, fmt::make_format_args(args...)));
}
template <class... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> text, Args&&... args) {
  throw_error(ErrorKind::kUser, fmt::vformat(text, fmt::make_format_args(args...)));
}
template <class... Args>
[[noreturn]] void internal_error(fmt::format_string<Args...> text, Args&&... args) {
  throw_error(ErrorKind::kInternal, fmt::vformat(text, fmt::make_format_args(args...)));
}

}  // namespace rlx
