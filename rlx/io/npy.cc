#include "rlx/io/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/base/file.h"

namespace rlx {
namespace {

static_assert(std::endian::native == std::endian::little, "data is copied as it is");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = size_t(1) << 16;  // ours has at most 16 axes: a few hundred bytes
constexpr size_t kAlignment = 64;

[[noreturn]] void bad(std::string_view what) {
  fail(ErrorKind::kIo, "not a valid .npy file: {}", what);
}

struct Header {
  std::string descr;
  bool fortran_order = false;
  Dims shape;
};

// The header is a Python dict with exactly the keys descr, fortran_order and shape.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Header parse() {
    Header h;
    int seen = 0;
    expect('{');
    while (!eat('}')) {
      const std::string key = string();
      expect(':');
      const int bit = key == "descr" ? 1 : key == "fortran_order" ? 2 : key == "shape" ? 4 : 0;
      if (bit == 0 || (seen & bit)) bad("its header has an unknown key, or one twice");
      seen |= bit;
      if (bit == 1) h.descr = descr();
      if (bit == 2) h.fortran_order = boolean();
      if (bit == 4) h.shape = shape();
      if (!eat(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (pos_ != text_.size()) bad("text stands behind its header");
    if (seen != 7) bad("its header lacks one of descr, fortran_order and shape");
    return h;
  }

 private:
  void skip() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n')) ++pos_;
  }
  bool eat(char c) {
    skip();
    if (pos_ == text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!eat(c)) bad(fmt::format("its header has no '{}' at byte {}", c, pos_));
  }
  std::string string() {
    const char quote = eat('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const size_t end = text_.find(quote, pos_);
    if (end == std::string_view::npos) bad("a string of its header has no end");
    std::string s(text_.substr(pos_, end - pos_));
    pos_ = end + 1;
    return s;
  }
  std::string descr() {
    skip();
    if (pos_ < text_.size() && (text_[pos_] == '[' || text_[pos_] == '(')) {
      fail(ErrorKind::kUnsupported, "the .npy file holds records: save each field on its own");
    }
    return string();
  }
  bool boolean() {
    skip();
    for (const auto& [name, value] : {std::pair("True", true), std::pair("False", false)}) {
      const std::string_view word = name;
      if (text_.substr(pos_, word.size()) == word) {
        pos_ += word.size();
        return value;
      }
    }
    bad("fortran_order is neither True nor False");
  }
  Dims shape() {
    Dims dims;
    expect('(');
    while (!eat(')')) {
      skip();
      int64_t d = 0;
      const auto [end, code] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), d);
      if (code != std::errc() || d < 0) bad("its shape is not a tuple of sizes");
      pos_ = size_t(end - text_.data());
      eat('L');  // as Python 2 wrote long integers
      dims.push_back(d);
      if (int64_t(dims.size()) > kMaxRank) {
        fail(ErrorKind::kUnsupported, "the .npy file has more than {} axes", kMaxRank);
      }
      if (!eat(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

// NumPy's letter and size of a dtype: "f4" is f32. None for bf16 and packed dtypes.
std::optional<std::string> numpy_name(DType t) {
  if (t == DType::kBF16 || is_packed(t)) return std::nullopt;
  const char* letters = "biufc";
  return letters[size_t(class_of(t))] + std::to_string(size_of(t));
}

struct FileType {
  DType dtype;
  bool swapped;  // big-endian
};

FileType file_type(const std::string& descr) {
  const char order = descr.empty() ? '\0' : descr[0];
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto name = numpy_name(DType(i));
    if (!name || descr.size() != name->size() + 1 || descr.compare(1, descr.npos, *name) != 0) {
      continue;
    }
    const bool one_byte = size_of(DType(i)) == 1;
    if (order == '<' || order == '>' || order == '=' || (order == '|' && one_byte)) {
      return {DType(i), order == '>' && !one_byte};
    }
  }
  if (order == '|' && descr == "|O") {
    fail(ErrorKind::kUnsupported, "the .npy file holds Python objects, which are not read");
  }
  std::string shown;
  for (char c : descr.substr(0, 20)) shown += c >= ' ' && c < 127 ? c : '?';
  fail(ErrorKind::kUnsupported, "the .npy file holds the dtype '{}', which is none of RLX", shown);
}

template <class T>
T little_endian(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

// Reverses the bytes of each number (complex: of each part).
void swap_bytes(Array& a) {
  const int64_t part = size_of(real_of(a.dtype()));
  auto* p = static_cast<std::byte*>(a.mutable_raw());
  for (int64_t i = 0; i < a.byte_size(); i += part) std::reverse(p + i, p + i + part);
}

// Any byte but zero means true to NumPy; ours must be 1.
void normalize_bools(Array& a) {
  auto* p = static_cast<uint8_t*>(a.mutable_raw());
  for (int64_t i = 0; i < a.num_elements(); ++i) p[i] = p[i] != 0;
}

// Checked arithmetic reports the caller's mistakes; here they are the file's.
int64_t checked_size(DType t, std::span<const int64_t> dims) {
  try {
    return byte_size(t, dims);
  } catch (const Error& e) {
    bad(e.message());
  }
}

Array to_row_major(const Array& a, const Dims& shape) {
  // `a` has the reversed shape: its axes in reverse order are the array.
  Dims strides(a.strides().rbegin(), a.strides().rend());
  return Array::borrow(a.dtype(), const_cast<void*>(a.raw()), shape, std::move(strides), nullptr,
                       false)
      .copy();
}

}  // namespace

Array read_npy(std::span<const std::byte> bytes) {
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    bad("it does not begin with NumPy's mark");
  }
  const int major = int(bytes[6]), minor = int(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    bad(fmt::format("its version {}.{} is none of 1.0, 2.0 and 3.0", major, minor));
  }
  const size_t start = major == 1 ? 10 : 12;
  if (bytes.size() < start) bad("it ends within its header");
  const size_t length = major == 1 ? little_endian<uint16_t>(bytes.data() + 8)
                                   : little_endian<uint32_t>(bytes.data() + 8);
  if (length > kMaxHeader) bad(fmt::format("its header claims {} bytes", length));
  if (length > bytes.size() - start) bad("it ends within its header");
  const Header h =
      HeaderParser({reinterpret_cast<const char*>(bytes.data()) + start, length}).parse();
  const FileType type = file_type(h.descr);
  const int64_t size = checked_size(type.dtype, h.shape);
  const size_t left = bytes.size() - start - length;
  if (uint64_t(size) != left) {
    bad(fmt::format("the shape {} of {} needs {} bytes, there are {}", dims_to_string(h.shape),
                    to_string(type.dtype), size, left));
  }
  Dims stored = h.shape;
  if (h.fortran_order) std::reverse(stored.begin(), stored.end());
  Array a = Array::uninitialized(type.dtype, stored);
  if (size > 0) std::memcpy(a.mutable_raw(), bytes.data() + start + length, size_t(size));
  if (type.swapped) swap_bytes(a);
  if (type.dtype == DType::kBool) normalize_bools(a);
  return h.fortran_order && h.shape.size() > 1 ? to_row_major(a, h.shape) : a;
}

std::vector<std::byte> write_npy(const Array& array) {
  if (!array.defined()) user_error("there is no array to write");
  const auto name = numpy_name(array.dtype());
  if (!name) {
    fail(ErrorKind::kUnsupported, "NumPy has no {}: {} to f32 before writing a .npy file",
         to_string(array.dtype()), is_packed(array.dtype()) ? "dequantize" : "cast");
  }
  std::string shape = "(";
  for (size_t i = 0; i < array.shape().size(); ++i) {
    shape += (i ? ", " : "") + std::to_string(array.shape()[i]);
  }
  shape += array.rank() == 1 ? ",)" : ")";
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': {}, }}",
                                   size_of(array.dtype()) == 1 ? '|' : '<', *name, shape);
  // NumPy leaves room for the first axis to grow to 21 digits, then pads by 1 to 64 bytes.
  if (array.rank() > 0) header.append(21 - std::to_string(array.shape()[0]).size(), ' ');
  const size_t total = ((10 + header.size() + 1) / kAlignment + 1) * kAlignment;
  header.append(total - 10 - header.size() - 1, ' ');
  header += '\n';

  const Array a = array.dense();
  std::vector<std::byte> out(total + size_t(a.byte_size()));
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  out[6] = std::byte(1);
  const auto length = uint16_t(header.size());
  std::memcpy(out.data() + 8, &length, 2);
  std::memcpy(out.data() + 10, header.data(), header.size());
  if (a.byte_size() > 0) std::memcpy(out.data() + total, a.raw(), size_t(a.byte_size()));
  return out;
}

Array load_npy(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  try {
    return read_npy(bytes);
  } catch (const Error& e) {
    throw e.with_context("'" + path + "'");
  }
}

void save_npy(const std::string& path, const Array& array) { write_file(path, write_npy(array)); }

}  // namespace rlx
