#include "rlx/ir/tensor_text.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "rlx/base/checked.h"

namespace rlx {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored as they are");

constexpr int64_t kMaxListed = 64;  // longer tensors are written as base64

template <class T>
constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <class T>
constexpr bool kIsHalf = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T>
constexpr BitsOf<T> kQuietNan = std::is_same_v<T, double>  ? BitsOf<T>(0x7FF8000000000000)
                                : std::is_same_v<T, float> ? BitsOf<T>(0x7FC00000)
                                : std::is_same_v<T, f16>   ? BitsOf<T>(0x7E00)
                                                           : BitsOf<T>(0x7FC0);

template <class... Format>
std::string to_text(double v, Format... format) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), v, format...).ptr;
  return {buffer, end};
}

template <class T>
std::string shortest(T v) {
  if constexpr (kIsHalf<T>) {
    // At most five digits tell 16-bit floats apart.
    for (int digits = 1;; ++digits) {
      const std::string s = to_text(double(v), std::chars_format::general, digits);
      double back = 0;
      std::from_chars(s.data(), s.data() + s.size(), back);
      if (T(back) == v) return to_text(back);
    }
  } else {
    char buffer[64];
    return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), v).ptr};
  }
}

template <class T>
std::string print_float(T v) {
  const auto bits = std::bit_cast<BitsOf<T>>(v);
  const double wide = double(v);
  if (std::isinf(wide)) return wide < 0 ? "-inf" : "inf";
  if (!std::isnan(wide)) return shortest(v);
  return bits == kQuietNan<T> ? "nan" : fmt::format("nan({:#x})", bits);
}

template <class T>
std::string print_element(T v) {
  if constexpr (std::is_same_v<T, bool>) {
    return v ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(v);
  } else if constexpr (kIsComplex<T>) {
    return fmt::format("({}, {})", print_float(v.real()), print_float(v.imag()));
  } else {
    return print_float(v);
  }
}

// The number and nothing behind it.
template <class N>
N read_all(std::string_view text, DType t) {
  N v{};
  const char* last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), last, v);
  if (code == std::errc::result_out_of_range) {
    user_error("{} is outside of the range of {}", excerpt(text), to_string(t));
  }
  if (code != std::errc() || end != last) {
    user_error("'{}' is not a number of the dtype {}", excerpt(text), to_string(t));
  }
  return v;
}

template <class T>
T parse_nan(std::string_view text) {
  using Bits = BitsOf<T>;
  const std::string_view digits = text.substr(0, 6) == "nan(0x" && text.back() == ')'
                                      ? text.substr(6, text.size() - 7)
                                      : std::string_view();
  Bits bits = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, code] = std::from_chars(digits.data(), last, bits, 16);
  const T v = std::bit_cast<T>(bits);
  if (digits.empty() || code != std::errc() || end != last || !std::isnan(double(v))) {
    user_error("'{}' is not a NaN of {}: write nan or nan(0x<bits>)", excerpt(text),
               to_string(dtype_of<T>));
  }
  return v;
}

template <class T>
T parse_float(std::string_view text) {
  if (text == "nan") return std::bit_cast<T>(kQuietNan<T>);
  if (text.substr(0, 4) == "nan(") return parse_nan<T>(text);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (text == "inf") return T(kInf);
  if (text == "-inf") return T(-kInf);
  // from_chars takes other spellings of these too; one is enough.
  if (text.find_first_of("nN") != std::string_view::npos) {
    user_error("'{}' is not a number of the dtype {}", excerpt(text), to_string(dtype_of<T>));
  }
  if constexpr (kIsHalf<T>) {
    const T v(read_all<double>(text, dtype_of<T>));
    if (std::isinf(double(v))) {
      user_error("{} is outside of the range of {}", excerpt(text), to_string(dtype_of<T>));
    }
    return v;
  } else {
    return read_all<T>(text, dtype_of<T>);
  }
}

template <class T>
T parse_element(Lexer& in) {
  const size_t start = in.skip();
  if constexpr (std::is_same_v<T, bool>) {
    if (in.eat_word("true")) return true;
    if (in.eat_word("false")) return false;
    in.fail(start, "expected true or false");
  } else if constexpr (kIsComplex<T>) {
    using R = typename T::value_type;
    in.expect('(');
    const R re = parse_element<R>(in);
    in.expect(',');
    const R im = parse_element<R>(in);
    in.expect(')');
    return {re, im};
  } else {
    const std::string_view token = in.number();
    return in.at(start, [&] {
      if constexpr (std::is_integral_v<T>) {
        return read_all<T>(token, dtype_of<T>);
      } else {
        return parse_float<T>(token);
      }
    });
  }
}

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::span<const uint8_t> bytes) {
  std::string s;
  s.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) s += k <= count ? kBase64[group >> (18 - 6 * k) & 63] : '=';
  }
  return s;
}

// Exactly `bytes.size()` bytes; false if the text is not their base64.
bool from_base64(std::string_view text, std::span<uint8_t> bytes) {
  static const auto kValues = [] {
    std::array<int8_t, 256> values;
    values.fill(-1);
    for (size_t i = 0; i < kBase64.size(); ++i) values[uint8_t(kBase64[i])] = int8_t(i);
    return values;
  }();
  if (text.size() != (bytes.size() + 2) / 3 * 4) return false;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const char c = text[i / 3 * 4 + k];
      const int value = k <= count ? kValues[uint8_t(c)] : c == '=' ? 0 : -1;
      if (value < 0) return false;
      group = group << 6 | uint32_t(value);
    }
    for (size_t k = 0; k < count; ++k) bytes[i + k] = uint8_t(group >> (16 - 8 * k));
    if (count < 3 && (group & ((1u << (24 - 8 * count)) - 1)) != 0) return false;
  }
  return true;
}

void check_count(Lexer& in, size_t pos, int64_t count, DType dtype, int64_t& budget) {
  const int64_t bytes = in.at(pos, [&] { return bytes_of(dtype, count); });
  if (bytes > budget) in.fail(pos, "the tensors of one text hold at most 2 GiB");
  budget -= bytes;
}

void parse_listed(Lexer& in, Array& a) {
  visit_dtype(a.dtype(), [&]<class T>() {
    T* to = static_cast<T*>(a.mutable_raw());
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      if (in.peek() == '}') {
        in.fail(in.pos(),
                fmt::format("elements are missing: {} of {} are there", i, a.num_elements()));
      }
      if (i > 0) in.expect(',');
      to[i] = parse_element<T>(in);
    }
  });
  if (in.peek() == ',') {
    in.fail(in.pos(), fmt::format("there are more elements than {}", a.num_elements()));
  }
  in.expect('}');
}

}  // namespace

std::string print_double(double v) { return print_float(v); }
double parse_double(std::string_view text) { return parse_float<double>(text); }

bool valid_bytes(const Array& array) {
  if (array.dtype() != DType::kBool) return true;
  const auto* p = static_cast<const uint8_t*>(array.raw());
  for (int64_t i = 0; i < array.num_elements(); ++i) {
    if (p[i] > 1) return false;
  }
  return true;
}

std::string print_tensor(const Array& array, int64_t max_elements) {
  if (!array.defined()) return "undefined";
  const Array a = array.dense();
  const int64_t n = a.num_elements();
  const bool elide = max_elements >= 0 && n > max_elements;
  std::string s = a.type().to_string();
  if ((n > kMaxListed || is_packed(a.dtype())) && !elide) {
    return s + " base64 \"" +
           to_base64({static_cast<const uint8_t*>(a.raw()), size_t(a.byte_size())}) + "\"";
  }
  s += " {";
  if (is_packed(a.dtype())) return s + "...}";
  visit_dtype(a.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(a.raw());
    for (int64_t i = 0; i < (elide ? max_elements : n); ++i) {
      s += (i ? ", " : "") + print_element<T>(p[i]);
    }
  });
  if (elide) s += max_elements > 0 ? ", ..." : "...";
  return s + "}";
}

Array parse_tensor(Lexer& in, int64_t& budget) {
  const size_t pos = in.skip();
  const std::string_view name = in.word("a dtype");
  if (name == "undefined") return {};
  const auto dtype = parse_dtype(name);
  if (!dtype) in.fail(pos, fmt::format("'{}' is not a dtype", excerpt(name)));
  const size_t shape_pos = in.skip();
  in.expect('[');
  Dims dims;
  while (!in.eat(']')) {
    if (!dims.empty()) in.expect(',');
    if (int64_t(dims.size()) == kMaxRank) in.fail(shape_pos, "a tensor has at most 16 axes");
    const size_t p = in.skip();
    dims.push_back(in.integer());
    if (dims.back() < 0) in.fail(p, "a size is negative");
  }
  const int64_t n = in.at(shape_pos, [&] { return num_elements(dims); });
  check_count(in, shape_pos, n, *dtype, budget);
  const auto make = [&] { return Array::uninitialized(*dtype, dims); };
  if (in.eat_word("base64")) {
    const size_t body_pos = in.skip();
    const std::string_view body = in.quoted();
    // Before memory is taken, so that a short text cannot ask for much.
    const int64_t bytes = bytes_of(*dtype, n);
    if (body.size() != size_t(bytes + 2) / 3 * 4) {
      in.fail(body_pos, fmt::format("{} bytes need {} base64 characters, there are {}", bytes,
                                    size_t(bytes + 2) / 3 * 4, body.size()));
    }
    Array a = in.at(shape_pos, make);
    if (!from_base64(body, {static_cast<uint8_t*>(a.mutable_raw()), size_t(bytes)})) {
      in.fail(body_pos, "this is not base64");
    }
    if (!valid_bytes(a)) in.fail(body_pos, "a bool is neither 0 nor 1");
    return a;
  }
  in.expect('{');
  if (in.stands_before("...", '}')) {
    in.fail(pos, "this tensor was elided when it was printed, it cannot be read back");
  }
  if (is_packed(*dtype)) {
    in.fail(pos,
            fmt::format("{} has no single elements: write its blocks as base64 \"...\"", name));
  }
  // An element takes a character and a comma.
  if (size_t(n) > in.remaining() / 2 + 1) {
    in.fail(shape_pos, fmt::format("the shape wants {} elements, the text ends earlier", n));
  }
  Array a = in.at(shape_pos, make);
  parse_listed(in, a);
  return a;
}

}  // namespace rlx
