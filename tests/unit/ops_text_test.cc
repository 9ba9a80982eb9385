// The text and binary forms with the real ops.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "rlx/base/error.h"
#include "rlx/base/file.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/build.h"
#include "rlx/ops/samples.h"
#include "rlx/ops/table.h"

namespace rlx {
namespace {

std::string documentation() {
  const auto bytes = read_file(std::filesystem::path(RLX_SOURCE_FOLDER) / "docs/text-format.md");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(OpsText, TheDocumentedExampleIsWhatPrintWrites) {
  const std::string page = documentation();
  const size_t begin = page.find("```rlx\n") + 7;
  ASSERT_LT(begin, page.size());
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  const Graph g = parse_graph(example);
  verify(g);
  // The page has one comment in front.
  EXPECT_EQ(print(g), example.substr(example.find('\n') + 1));
}

TEST(OpsText, TheDocumentedDTypesAreTheRealOnes) {
  const std::string page = documentation();
  for (int i = 0; i < kNumDTypes; ++i) {
    EXPECT_NE(page.find("\"" + std::string(to_string(DType(i))) + "\""), std::string::npos);
  }
}

TEST(OpsText, EverySampleRoundTrips) {
  int calls = 0;
  for (const OpRow& row : op_table()) {
    if (!row.def) continue;
    for (const Sample& s : samples_of(*row.def).samples()) {
      SCOPED_TRACE(std::string(row.name) + "/" + s.name);
      Graph g;
      Builder b(g);
      std::vector<Value> operands;
      for (const SampleOperand& o : s.operands) {
        operands.push_back(input(b, "x" + std::to_string(operands.size()), o.dtype,
                                 Shape(std::span<const int64_t>(o.shape))));
      }
      const auto results = b.call(*row.def, s.attrs, operands);
      for (size_t i = 0; i < results.size(); ++i) {
        g.add_output("y" + std::to_string(i), results[i]);
      }
      const std::string text = print(g);
      const Graph back = parse_graph(text);
      ASSERT_EQ(back, g) << text;
      ASSERT_EQ(print(back), text);
      ASSERT_EQ(deserialize(serialize(g), find_op), g) << text;
      ++calls;
    }
  }
  EXPECT_GT(calls, 100);
}

// Types and attributes of any number must give an Error at worst: parsers reach inference with
// whatever a file says.
TEST(OpsText, InferenceSurvivesAnyOperands) {
  const TensorType pool[] = {
      {DType::kF32, {}},
      {DType::kF32, {Dim(2), Dim(3)}},
      {DType::kI64, {Dim::symbol("n")}},
      {DType::kBool, {Dim(0), Dim(4), Dim(1)}},
      {DType::kC64, {Dim(2), Dim(3), Dim(4), Dim(5)}},
      {DType::kU64, Shape(std::vector<Dim>(16, Dim(1)))},
  };
  int refused = 0;
  for (const OpRow& row : op_table()) {
    if (!row.def) continue;
    std::vector<Attrs> attrs = {
        Attrs(row.def->fields, std::shared_ptr<const void>(row.def->fields->make(nullptr)))};
    const auto samples = samples_of(*row.def).samples();
    const size_t step = 1 + samples.size() / 16;
    for (size_t i = 0; i < samples.size(); i += step) attrs.push_back(samples[i].attrs);
    for (const Attrs& a : attrs) {
      for (size_t count = 0; count <= 5; ++count) {
        for (size_t first = 0; first < std::size(pool); ++first) {
          std::vector<TensorType> operands;
          for (size_t i = 0; i < count; ++i) {
            operands.push_back(pool[(first + i * (1 + first)) % std::size(pool)]);
          }
          try {
            infer_call(*row.def, a, operands);
          } catch (const Error& e) {
            EXPECT_NE(e.kind(), ErrorKind::kInternal) << row.name << ": " << e.message();
            ++refused;
          } catch (const std::exception& e) {
            ADD_FAILURE() << row.name << "(" << operands.size() << " operands){" << a.to_string()
                          << "}: " << e.what();
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(OpsText, PlannedOpsAreSaidToBeMissing) {
  for (const OpRow& row : op_table()) {
    if (row.cls != RowClass::kPlanned) continue;
    const std::string name(row.name);
    try {
      parse_graph("graph main { %0 = " + name + "() }");
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.message(), "line 1, column 19: the op '" + name + "' is unknown or not built");
    }
  }
}

}  // namespace
}  // namespace rlx
