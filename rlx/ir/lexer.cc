#include "rlx/ir/lexer.h"

#include <algorithm>
#include <charconv>

namespace rlx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word_char(char c) { return is_letter(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool is_word(std::string_view text) {
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), is_word_char);
}

std::string quote(std::string_view text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      s += '\\';
      s += c;
    } else if (c == '\n') {
      s += "\\n";
    } else if (c == '\t') {
      s += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      s += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      s += c;
    }
  }
  return s + '"';
}

std::string excerpt(std::string_view text) {
  constexpr size_t kLength = 40;
  std::string s = quote(text.substr(0, kLength));
  s = s.substr(1, s.size() - 2);
  return text.size() > kLength ? s + "..." : s;
}

void Lexer::fail(size_t pos, std::string_view message) const {
  const std::string_view before = text_.substr(0, pos);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = 1 + pos - (newline == std::string_view::npos ? 0 : newline + 1);
  user_error("line {}, column {}: {}", line, column, message);
}

size_t Lexer::skip() {
  for (;;) {
    while (pos_ < text_.size() && is_space(text_[pos_])) ++pos_;
    if (text_.substr(pos_, 2) != "//") return pos_;
    pos_ = std::min(text_.find('\n', pos_), text_.size());
  }
}

char Lexer::peek() { return done() ? '\0' : text_[pos_]; }

bool Lexer::eat(char c) {
  if (done() || text_[pos_] != c) return false;
  ++pos_;
  return true;
}

void Lexer::expect(char c) {
  if (eat(c)) return;
  if (done()) fail(pos_, fmt::format("expected '{}', the text ends here", c));
  fail(pos_, fmt::format("expected '{}', found '{}'", c, excerpt(text_.substr(pos_, 1))));
}

std::string_view Lexer::peek_word() {
  size_t end = skip();
  if (end < text_.size() && is_digit(text_[end])) return {};
  while (end < text_.size() && is_word_char(text_[end])) ++end;
  return text_.substr(pos_, end - pos_);
}

bool Lexer::eat_word(std::string_view word) {
  if (peek_word() != word) return false;
  pos_ += word.size();
  return true;
}

std::string_view Lexer::word(std::string_view what) {
  const std::string_view w = peek_word();
  if (w.empty()) fail(pos_, fmt::format("expected {}", what));
  pos_ += w.size();
  return w;
}

std::string_view Lexer::handle() {
  expect('%');
  const size_t start = pos_;
  while (pos_ < text_.size() && is_word_char(text_[pos_])) ++pos_;
  if (pos_ == start) fail(start, "expected the name of a value after '%'");
  return text_.substr(start, pos_ - start);
}

char Lexer::escape() {
  const size_t start = pos_ - 1;
  const char c = pos_ < text_.size() ? text_[pos_++] : '\0';
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  if (c == 'r') return '\r';
  if (c == '"' || c == '\\') return c;
  if (c == 'x' && remaining() >= 2) {
    const int high = hex_digit(text_[pos_]), low = hex_digit(text_[pos_ + 1]);
    if (high >= 0 && low >= 0) {
      pos_ += 2;
      return static_cast<char>(high * 16 + low);
    }
  }
  fail(start, "unknown escape: there are \\\" \\\\ \\n \\t \\r \\x00 to \\xff");
}

std::string Lexer::string(std::string_view what) {
  const size_t start = skip();
  if (!eat('"')) fail(start, fmt::format("expected {} in quotes", what));
  std::string s;
  for (;;) {
    if (pos_ == text_.size()) fail(start, "this string has no end");
    if (s.size() >= kMaxString) fail(start, fmt::format("a string is over {} bytes", kMaxString));
    const char c = text_[pos_++];
    if (c == '"') return s;
    s += c == '\\' ? escape() : c;
  }
}

std::string_view Lexer::number() {
  const size_t start = skip();
  if (pos_ < text_.size() && text_[pos_] == '-') ++pos_;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    const bool exponent_sign = (c == '-' || c == '+') && pos_ > start &&
                               (text_[pos_ - 1] == 'e' || text_[pos_ - 1] == 'E');
    if (!is_word_char(c) && c != '.' && !exponent_sign) break;
    ++pos_;
  }
  if (text_.substr(start, pos_ - start) == "nan" && pos_ < text_.size() && text_[pos_] == '(') {
    const size_t close = text_.substr(pos_, 24).find(')');
    if (close == std::string_view::npos) fail(start, "expected nan(0x...)");
    pos_ += close + 1;
  }
  if (pos_ == start) fail(start, "expected a number");
  return text_.substr(start, pos_ - start);
}

int64_t Lexer::integer() {
  const size_t start = skip();
  const std::string_view token = number();
  int64_t v = 0;
  const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), v);
  if (code == std::errc::result_out_of_range) {
    fail(start, fmt::format("{} does not fit in 64 bits", excerpt(token)));
  }
  if (code != std::errc() || end != token.data() + token.size()) {
    fail(start, fmt::format("'{}' is not an integer", excerpt(token)));
  }
  return v;
}

std::string_view Lexer::until(std::string_view stops) {
  const size_t start = skip();
  int depth = 0;
  for (; pos_ < text_.size(); ++pos_) {
    const char c = text_[pos_];
    if (depth == 0 && stops.find(c) != std::string_view::npos) break;
    depth += (c == '(') - (c == ')');
  }
  std::string_view token = text_.substr(start, pos_ - start);
  while (!token.empty() && is_space(token.back())) token.remove_suffix(1);
  return token;
}

bool Lexer::stands_before(std::string_view text, char stop) const {
  const std::string_view ahead = text_.substr(pos_);
  return ahead.substr(0, ahead.find(stop)).find(text) != std::string_view::npos;
}

std::string_view Lexer::quoted() {
  const size_t start = skip();
  if (!eat('"')) fail(start, "expected a quoted block");
  const size_t end = text_.find('"', pos_);
  if (end == std::string_view::npos) fail(start, "this block has no end");
  const std::string_view body = text_.substr(pos_, end - pos_);
  pos_ = end + 1;
  return body;
}

}  // namespace rlx
