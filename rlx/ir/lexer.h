// Internal to rlx/ir: reads the tokens of the text form. All errors are Error(kUser) that begin
// with line and column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rlx/base/error.h"

namespace rlx {

class Lexer {
 public:
  static constexpr size_t kMaxString = size_t(1) << 24;  // bytes of one string literal

  explicit Lexer(std::string_view text) : text_(text) {}

  size_t pos() const { return pos_; }
  size_t remaining() const { return text_.size() - pos_; }
  // The next token begins at pos() after this: spaces and // comments are behind.
  size_t skip();
  bool done() { return skip() == text_.size(); }
  // The next character, or NUL at the end.
  char peek();
  bool eat(char c);
  void expect(char c);
  // The next word if it is exactly this one.
  bool eat_word(std::string_view word);
  std::string_view peek_word();                  // may be empty
  std::string_view word(std::string_view what);  // [A-Za-z_][A-Za-z0-9_]*
  std::string_view handle();                     // the word after '%', which may begin with a digit
  std::string string(std::string_view what);     // a literal, unescaped
  std::string_view number();                     // sign, digits, exponent, inf, nan, nan(0x...)
  int64_t integer();
  // Raw text up to one of the stop characters outside of parentheses, without spaces at the ends.
  std::string_view until(std::string_view stops);
  // Whether `text` stands before the next `stop`.
  bool stands_before(std::string_view text, char stop) const;
  // The characters between two quotes, as they are.
  std::string_view quoted();

  [[noreturn]] void fail(size_t pos, std::string_view message) const;
  // Runs f; an Error of it is reported at `pos`. f must not use the lexer.
  template <class F>
  decltype(auto) at(size_t pos, F&& f) const {
    try {
      return f();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kDevice) throw;  // out of memory is not the text's fault
      fail(pos, e.message());
    }
  }

 private:
  char escape();

  std::string_view text_;
  size_t pos_ = 0;
};

// What can appear in an error text: cut and escaped.
std::string excerpt(std::string_view text);
// With quotes, escapes for quotes, backslashes and control bytes. Lexer::string reads it.
std::string quote(std::string_view text);
bool is_word(std::string_view text);

}  // namespace rlx
