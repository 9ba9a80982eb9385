#include "rlx/ir/serialize.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "rlx/base/file.h"
#include "rlx/ir/verify.h"
#include "tests/unit/toy_ops.h"

namespace rlx {
namespace {

using Bytes = std::vector<std::byte>;

Graph read(std::span<const std::byte> bytes) { return deserialize(bytes, toy::lookup); }
std::string read_error(const Bytes& bytes) {
  return error_of([&] { read(bytes); }, ErrorKind::kIo);
}

Graph small_graph() {
  Graph g("small");
  Builder b(g);
  const Value x = toy::input(b, "x", DType::kF32, {Dim::symbol("n")});
  toy::constant(b, Array::from<float>({1.0f, 2.0f}, {2}));
  g.add_output("y", b.op(toy::kAdd, NoAttrs{}, {x, x}));
  return g;
}

// Replaces the one place where `from` stands by `to`, of the same length.
Bytes patched(Bytes bytes, std::string_view from, std::string_view to) {
  std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = view.find(from);
  EXPECT_NE(at, std::string_view::npos);
  EXPECT_EQ(from.size(), to.size());
  EXPECT_EQ(view.find(from, at + 1), std::string_view::npos);
  std::memcpy(bytes.data() + at, to.data(), to.size());
  return bytes;
}

TEST(Serialize, RichGraphRoundTrips) {
  const Graph g = toy::rich_graph();
  const Bytes bytes = serialize(g);
  const Graph back = read(bytes);
  verify(back);
  EXPECT_EQ(back, g);
  EXPECT_EQ(back.name(), g.name());
  EXPECT_EQ(print(back), print(g));
  EXPECT_EQ(serialize(back), bytes);
  for (uint32_t i = 0; i < g.size(); ++i) EXPECT_EQ(back.node(i).label, g.node(i).label);
}

TEST(Serialize, TensorsAreAligned) {
  Graph g;
  Builder b(g);
  const auto data = toy::counting(DType::kU8, {100});
  toy::constant(b, data);
  const Bytes bytes = serialize(g);
  bool found = false;
  for (size_t at = 0; at + 100 <= bytes.size(); at += 64) {
    found |= std::memcmp(bytes.data() + at, data.raw(), 100) == 0;
  }
  EXPECT_TRUE(found);
}

TEST(Serialize, EveryTruncationIsRefused) {
  const Bytes bytes = serialize(toy::rich_graph());
  for (size_t n = 0; n < bytes.size(); ++n) {
    Bytes cut(bytes.begin(), bytes.begin() + std::ptrdiff_t(n));
    ASSERT_THROW(read(cut), Error) << n;
    // Also with a header that claims the shorter size.
    if (n < 24) continue;
    const uint64_t size = n;
    std::memcpy(cut.data() + 16, &size, 8);
    ASSERT_THROW(read(cut), Error) << n;
  }
}

TEST(Serialize, DamageIsRefusedOrRead) {
  const Bytes bytes = serialize(toy::rich_graph());
  const auto attempt = [](const Bytes& damaged) {
    try {
      const Graph g = read(damaged);
      verify(g);
      EXPECT_EQ(read(serialize(g)), g);
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo) << e.message();
      return false;
    }
  };
  int refused = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; bit += bit < 4000 ? 1 : 31) {
    Bytes damaged = bytes;
    damaged[bit / 8] ^= std::byte(1u << (bit % 8));
    refused += !attempt(damaged);
  }
  EXPECT_GT(refused, 500);
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    Bytes damaged = bytes;
    for (int k = 1 + int(random() % 4); k > 0; --k) {
      const size_t at = random() % (damaged.size() - 8);
      const uint64_t extreme[] = {0, ~uint64_t(0), uint64_t(1) << 63, random(), 1, 255};
      std::memcpy(damaged.data() + at, &extreme[random() % 6], 1 + random() % 8);
    }
    attempt(damaged);
  }
}

TEST(Serialize, ErrorsSayWhat) {
  const Bytes good = serialize(small_graph());
  EXPECT_EQ(read_error({}), "this is not a graph file: it does not begin with RLXGRAPH");
  Bytes bad = good;
  bad[8] = std::byte(2);
  EXPECT_EQ(read_error(bad),
            "not a valid graph file, byte 8: the format version is 2, this library reads 1");
  bad = good;
  bad[50] = std::byte(1);
  EXPECT_EQ(read_error(bad), "not a valid graph file, byte 50: reserved bits are set");
  bad = good;
  bad.push_back(std::byte(0));
  EXPECT_EQ(read_error(bad), fmt::format("not a valid graph file, byte 16: the file should have {} "
                                         "bytes, it has {}",
                                         good.size(), bad.size()));
  EXPECT_NE(read_error(patched(good, "Add", "Sub")).find("the op 'Sub' is unknown or not built"),
            std::string::npos);
  EXPECT_NE(read_error(patched(good, "shape", "shade"))
                .find("has no attribute 'shade': it may come from a newer version"),
            std::string::npos);
  EXPECT_NE(read_error(patched(good, "f32", "f33")).find("'f33' is not a dtype"),
            std::string::npos);
  EXPECT_NE(read_error(patched(good, "f32", "f64")).find("the file says"), std::string::npos);
}

TEST(Serialize, ErrorsOfOpsAreErrorsOfTheFile) {
  Graph g;
  Builder b(g);
  const Value x = toy::input(b, "x", DType::kF32, {Dim::symbol("n"), Dim(2)});
  b.op(toy::kAdd, NoAttrs{}, {x, x});
  // A symbol that is not one.
  EXPECT_NE(
      read_error(patched(serialize(g), std::string("\1\0\0\0n", 5), std::string("\1\0\0\0*", 5)))
          .find("'*' is not a size expression"),
      std::string::npos);
}

TEST(Serialize, DepthIsLimited) {
  const auto nested = [](int depth) {
    Graph g;
    for (int i = 1; i < depth; ++i) {
      Graph outer;
      Builder(outer).call(
          toy::kBody,
          Attrs::of(toy::kBody.fields, toy::BodyAttrs{std::make_shared<const Graph>(std::move(g))}),
          std::initializer_list<Value>{});
      g = std::move(outer);
    }
    return g;
  };
  EXPECT_EQ(read(serialize(nested(32))), nested(32));
  EXPECT_NE(read_error(serialize(nested(33))).find("nest deeper than 32"), std::string::npos);
}

TEST(Serialize, Files) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("rlx-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder / "graph.rlx";
  const Graph g = toy::rich_graph();
  save_graph(small_graph(), path);
  save_graph(g, path);  // replaces
  EXPECT_EQ(load_graph(path, toy::lookup), g);
  // Nothing but the file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);

  const std::string missing = folder / "missing" / "graph.rlx";
  for (const auto& f : {std::function<void()>([&] { save_graph(g, missing); }),
                        std::function<void()>([&] { load_graph(missing, toy::lookup); })}) {
    const std::string message = error_of(f, ErrorKind::kIo);
    EXPECT_NE(message.find(missing), std::string::npos) << message;
    EXPECT_NE(message.find("No such file"), std::string::npos) << message;
  }
  // A folder in the place of the file: the temporary file goes too.
  std::filesystem::create_directories(folder / "taken" / "x");
  error_of([&] { save_graph(g, folder / "taken"); }, ErrorKind::kIo);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  write_file(path, Bytes(3));
  EXPECT_NE(error_of([&] { load_graph(path, toy::lookup); }, ErrorKind::kIo).find(path),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rlx
