#include "rlx/io/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <random>

#include "rlx/base/error.h"
#include "rlx/base/file.h"

namespace rlx {
namespace {

using Bytes = std::vector<std::byte>;

// Files that NumPy 2 wrote; tests/data/npy/README.md says how.
std::string data_file(const std::string& name) {
  return std::filesystem::path(RLX_SOURCE_FOLDER) / "tests" / "data" / "npy" / (name + ".npy");
}

std::string message(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.kind()), to_string(kind)) << e.message();
    return e.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

Bytes npy(const std::string& header, size_t data_bytes, int major = 1) {
  std::string s = "\x93NUMPY";
  s += char(major);
  s += '\0';
  const auto length = uint32_t(header.size());
  s.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  s += header + std::string(data_bytes, '\0');
  Bytes bytes(s.size());
  std::memcpy(bytes.data(), s.data(), s.size());
  return bytes;
}
std::string npy_error(const std::string& header, size_t data_bytes = 0,
                      ErrorKind kind = ErrorKind::kIo) {
  return message([&] { read_npy(npy(header, data_bytes)); }, kind);
}

TEST(Npy, ReadsAndWritesEveryDTypeAsNumpyDoes) {
  const std::pair<const char*, DType> files[] = {
      {"bool", DType::kBool},     {"int8", DType::kI8},         {"int16", DType::kI16},
      {"int32", DType::kI32},     {"int64", DType::kI64},       {"uint8", DType::kU8},
      {"uint16", DType::kU16},    {"uint32", DType::kU32},      {"uint64", DType::kU64},
      {"float16", DType::kF16},   {"float32", DType::kF32},     {"float64", DType::kF64},
      {"complex64", DType::kC64}, {"complex128", DType::kC128},
  };
  for (const auto& [name, dtype] : files) {
    const Array a = load_npy(data_file(name));
    EXPECT_EQ(a.type(), (TensorType{dtype, {Dim(2), Dim(3)}})) << name;
    for (int i = 0; i < 6; ++i) EXPECT_EQ(a.at(i), dtype == DType::kBool ? i != 0 : i) << name;
    EXPECT_EQ(write_npy(a), read_file(data_file(name))) << name;
  }
  EXPECT_EQ(load_npy(data_file("complex64")).data<std::complex<float>>()[2],
            std::complex<float>(2, 4));
}

TEST(Npy, ReadsShapesOrdersAndVersions) {
  const Array f = load_npy(data_file("fortran"));
  EXPECT_EQ(f.shape(), (Dims{2, 3, 4}));
  EXPECT_TRUE(f.is_dense());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(f.at(i), i);
  const Array plain = load_npy(data_file("float32"));
  for (const char* name : {"big_endian", "version2", "version3"}) {
    EXPECT_TRUE(load_npy(data_file(name)).same_bits(plain)) << name;
  }
  EXPECT_TRUE(
      load_npy(data_file("big_endian_complex")).same_bits(load_npy(data_file("complex64"))));
  EXPECT_TRUE(load_npy(data_file("scalar")).same_bits(Array::scalar(2.5f)));
  for (const char* name : {"scalar", "vector", "empty"}) {
    EXPECT_EQ(write_npy(load_npy(data_file(name))), read_file(data_file(name))) << name;
  }
  EXPECT_EQ(load_npy(data_file("empty")).shape(), (Dims{0, 4}));
}

TEST(Npy, RefusesForeignDTypes) {
  EXPECT_NE(message([] { load_npy(data_file("object")); }, ErrorKind::kUnsupported)
                .find("object.npy': the .npy file holds Python objects"),
            std::string::npos);
  message([] { load_npy(data_file("record")); }, ErrorKind::kUnsupported);
  for (const char* name : {"string", "date", "float128"}) {
    EXPECT_NE(message([&] { load_npy(data_file(name)); }, ErrorKind::kUnsupported)
                  .find("which is none of RLX"),
              std::string::npos);
  }
  EXPECT_EQ(message([] { write_npy(Array::zeros(DType::kBF16, {1})); }, ErrorKind::kUnsupported),
            "NumPy has no bf16: cast to f32 before writing a .npy file");
  message([] { write_npy(Array()); }, ErrorKind::kUser);
}

TEST(Npy, StridedArraysAndFiles) {
  int32_t data[] = {1, 2, 3, 4, 5, 6};
  const Array t = Array::borrow(DType::kI32, data, {3, 2}, {1, 3});
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("rlx-npy-{}.npy", ::getpid());
  save_npy(path, t);
  EXPECT_TRUE(load_npy(path).same_bits(t));
  std::filesystem::remove(path);
  EXPECT_NE(message([&] { load_npy(path); }, ErrorKind::kIo).find(path), std::string::npos);
  Dims sixteen(16, 1);
  EXPECT_EQ(read_npy(write_npy(Array::zeros(DType::kU8, sixteen))).shape(), sixteen);
}

TEST(Npy, HeadersAreReadAsPython) {
  const Array a = read_npy(npy(R"({"shape":(2L,3,),'descr':'=i2','fortran_order':False})", 12, 2));
  EXPECT_EQ(a.type().to_string(), "i16[2, 3]");
  Bytes bools = npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", 2);
  bools.back() = std::byte(7);
  EXPECT_TRUE(read_npy(bools).same_bits(Array::from<bool>({false, true}, {2})));
}

TEST(Npy, RefusesMalformedFiles) {
  message([] { read_npy({}); }, ErrorKind::kIo);
  const auto header = [](const std::string& shape, const std::string& descr = "<f4") {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  };
  read_npy(npy(header("(2,)"), 8));
  EXPECT_EQ(npy_error(header("(2,)"), 7),
            "not a valid .npy file: the shape [2] of f32 needs 8 bytes, there are 7");
  npy_error(header("(2,)"), 9);
  EXPECT_NE(npy_error(header("(4294967296, 4294967296)")).find("exceeds 64 bits"),
            std::string::npos);
  npy_error(header("(2305843009213693952,)"));
  npy_error(header("(99999999999999999999,)"));
  npy_error(header("(-1,)"));
  npy_error(header("(2"));
  npy_error(header("2"));
  npy_error(header("(2.0,)"));
  npy_error(header("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), 4, ErrorKind::kUnsupported);
  npy_error(header("()", "|f4"), 4, ErrorKind::kUnsupported);
  npy_error(header("()", ""), 4, ErrorKind::kUnsupported);
  npy_error(header("()", "<f44"), 4, ErrorKind::kUnsupported);
  npy_error("{'descr': '<f4', 'fortran_order': False}", 4);
  npy_error("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4);
  npy_error("{'descr': '<f4', 'other': '<f4', 'fortran_order': False, 'shape': ()}", 4);
  npy_error("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", 4);
  npy_error("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4);
  npy_error("{'descr': '<f4", 4);
  npy_error("", 4);
  EXPECT_NE(message([&] { read_npy(npy(header("()"), 4, 4)); }, ErrorKind::kIo).find("4.0"),
            std::string::npos);
  Bytes huge = npy(header("()"), 4, 2);
  huge[11] = std::byte(0x7F);
  EXPECT_NE(message([&] { read_npy(huge); }, ErrorKind::kIo).find("claims"), std::string::npos);
}

TEST(Npy, DamageIsRefusedOrRead) {
  for (const char* name : {"float32", "fortran", "bool", "big_endian_complex", "version3"}) {
    const Bytes bytes = read_file(data_file(name));
    const auto attempt = [](const Bytes& damaged) {
      try {
        const Array a = read_npy(damaged);
        EXPECT_TRUE(read_npy(write_npy(a)).same_bits(a));
      } catch (const Error& e) {
        EXPECT_TRUE(e.kind() == ErrorKind::kIo || e.kind() == ErrorKind::kUnsupported);
      }
    };
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_THROW(read_npy(std::span(bytes).first(n)), Error) << n;
    }
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      Bytes damaged = bytes;
      damaged[bit / 8] ^= std::byte(1u << (bit % 8));
      attempt(damaged);
    }
    std::mt19937 random(5);
    for (int round = 0; round < 500; ++round) {
      Bytes damaged = bytes;
      for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = std::byte(random());
      attempt(damaged);
    }
  }
}

}  // namespace
}  // namespace rlx
