#include "rlx/ops/binary.h"
#include "rlx/ops/control_samples.h"

namespace rlx {

RLX_USE_OP(If);
RLX_USE_OP(Scan);

namespace {

Sample scan_sample(std::string name, const ScanParts& p, const BodyFn& fn) {
  Sample s{std::move(name), scan_attrs(kScanOp, p, fn), {}};
  for (const auto* list : {&p.carries, &p.captures, &p.xs}) {
    s.operands.insert(s.operands.end(), list->begin(), list->end());
  }
  allow_steps(s, 4 * std::max<int64_t>(1, p.length), 16);
  return s;
}

void add_dtypes(std::vector<Sample>& list) {
  for (DType t : members(dtypes::kAny)) {
    ScanParts p = simple_scan(t, 5, {3});
    list.push_back(scan_sample(std::string(to_string(t)), p, kScanStep));
    p.reverse = true;
    list.push_back(scan_sample(fmt::format("{}_reverse", to_string(t)), p, kScanStep));
  }
}

void add_lengths(std::vector<Sample>& list) {
  for (const int64_t length : {0, 1, 2, 7}) {
    ScanParts p = simple_scan(DType::kF64, length, {2});
    list.push_back(scan_sample(fmt::format("length_{}", length), p, kScanStep));
  }
  list.push_back(scan_sample("empty_elements", simple_scan(DType::kF32, 3, {0, 2}), kScanStep));
  list.push_back(scan_sample("scalars", simple_scan(DType::kF32, 4, {}), kScanStep));
  list.push_back(scan_sample("large", simple_scan(DType::kF32, 3, {1033}), kScanStep));
  list.push_back(scan_sample("long", simple_scan(DType::kI64, 1031, {}), kScanStep));
}

void add_checkpoints(std::vector<Sample>& list) {
  for (const bool reverse : {false, true}) {
    for (const int64_t k : {1, 3, 7, 9}) {  // 3 leaves a tail of one step; 9 are more than steps
      ScanParts p = simple_scan(DType::kF64, 7, {2});
      p.checkpoints = k;
      p.reverse = reverse;
      list.push_back(
          scan_sample(fmt::format("checkpoints_{}{}", k, reverse ? "_reverse" : ""), p, kScanStep));
    }
  }
  ScanParts none = simple_scan(DType::kF64, 0, {2});
  none.checkpoints = 2;
  list.push_back(scan_sample("checkpoints_of_nothing", none, kScanStep));
}

// Each part left out; results that are inputs; the index as a value.
void add_parts(std::vector<Sample>& list) {
  const SampleOperand x{DType::kF64, {5, 3}, {}}, c{DType::kF64, {3}, {}};
  list.push_back(scan_sample("map", {{}, {}, {x}, 5},
                             [](Builder& b, const auto& v) { return std::vector{exp(b, v[1])}; }));
  list.push_back(scan_sample("no_xs", {{c}, {c}, {}, 4}, [](Builder& b, const auto& v) {
    return std::vector{mix(b, v[1], v[2])};
  }));
  list.push_back(scan_sample("no_captures", {{c}, {}, {x}, 5}, [](Builder& b, const auto& v) {
    return std::vector{mix(b, v[1], v[2]), v[1]};
  }));
  list.push_back(scan_sample("no_operands", {{}, {}, {}, 4}, [](Builder& b, const auto& v) {
    return std::vector{mul(b, v[0], v[0])};
  }));
  list.push_back(scan_sample("pass", {{c}, {c}, {x}, 5}, [](Builder&, const auto& v) {
    return std::vector{v[1], v[1], v[2], v[3], v[3], v[0]};
  }));
  list.push_back(scan_sample("exchange", {{c, c}, {}, {x}, 5, true}, [](Builder&, const auto& v) {
    return std::vector{v[2], v[3], v[1]};
  }));
  list.push_back(scan_sample("index", {{c}, {}, {x}, 5, true}, [](Builder& b, const auto& v) {
    const Value t = cast(b, v[0], DType::kF64);
    return std::vector{add(b, v[1], mul(b, v[2], t))};
  }));
}

// A recurrent cell: products with captured weights, two carries of different dtypes.
void add_cells(std::vector<Sample>& list) {
  ScanParts p;
  p.carries = {{DType::kF64, {2, 3}}, {DType::kI32, {}, integers(0, 9)}};
  p.captures = {{DType::kF64, {3, 3}}, {DType::kF64, {4, 3}}, {DType::kF64, {3}}};
  p.xs = {{DType::kF64, {5, 2, 4}}, {DType::kI32, {5}, integers(0, 9)}};
  p.length = 5;
  const BodyFn cell = [](Builder& b, const std::vector<Value>& v) {
    const Value h = add(b, matmul(b, v[1], v[3]), matmul(b, v[6], v[4]));
    const Value next = tanh(b, add(b, h, v[5]));
    const Value count = add(b, v[2], v[7]);
    return std::vector{next, count, sum(b, next, {1}), count};
  };
  list.push_back(scan_sample("recurrent", p, cell));
  p.checkpoints = 2;
  p.reverse = true;
  list.push_back(scan_sample("recurrent_checkpoints", p, cell));
}

// A Scan over rows in a Scan over blocks, with an If inside that skips odd steps.
void add_nested(std::vector<Sample>& list) {
  const DType f = DType::kF64;
  ScanParts inner{{{f, {2}}}, {{f, {2}}}, {{f, {3, 2}}}, 3};
  const Attrs inner_attrs = scan_attrs(kScanOp, inner, [](Builder& b, const std::vector<Value>& v) {
    const TensorType t{DType::kF64, {2}};
    const Value half = mul(b, binary(b, BinaryKind::kBitAnd, v[0], scalar(b, DType::kI64, 1)), 1);
    const Value even = equal(b, half, scalar(b, DType::kI64, 0));
    IfAttrs branches;
    branches.then_branch = make_body("then", {t, t, t}, [](Builder& c, const auto& w) {
      return std::vector{mix(c, mix(c, w[0], w[1]), w[2])};
    });
    branches.else_branch =
        make_body("else", {t, t, t}, [](Builder&, const auto& w) { return std::vector{w[0]}; });
    const Value next = b.call1(kIfOp, Attrs::of(kIfOp.fields, branches), {even, v[1], v[2], v[3]});
    return std::vector{next, next};
  });
  ScanParts outer{{{f, {2}}}, {{f, {2}}}, {{f, {2, 3, 2}}}, 2};
  list.push_back(scan_sample("nested", outer, [&](Builder& b, const std::vector<Value>& v) {
    return b.call(kScanOp, inner_attrs, {v[1], v[2], v[3]});
  }));
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  add_dtypes(list);
  add_lengths(list);
  add_checkpoints(list);
  add_parts(list);
  add_cells(list);
  add_nested(list);
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType c{DType::kF32, {3}}, x{DType::kF32, {5, 3}};
  const std::vector<TensorType> operands{c, c, x};
  const auto changed = [&](const auto& change) {
    ScanAttrs a = scan_attrs(kScanOp, simple_scan(DType::kF32, 5, {3}), kScanStep).as<ScanAttrs>();
    change(a);
    return Attrs::of(kScanOp.fields, std::move(a));
  };
  const std::vector<TensorType> inputs{kIndexType, c, c, c};
  const auto with_body = [&](const BodyFn& fn) {
    return changed([&](ScanAttrs& a) { a.body = make_body("body", inputs, fn); });
  };
  return {
      {"carries", changed([](auto& a) { a.num_carries = 4; }), operands,
       "num_carries 4 and num_captures 1 do not fit 3 operands"},
      {"captures", changed([](auto& a) { a.num_captures = 3; }), operands,
       "num_carries 1 and num_captures 3 do not fit 3 operands"},
      {"negative_carries", changed([](auto& a) { a.num_carries = -1; }), operands,
       "num_carries -1"},
      {"length", changed([](auto& a) { a.length = -1; }), operands,
       "the length is -1, it cannot be negative"},
      {"checkpoints", changed([](auto& a) { a.checkpoints = -1; }), operands,
       "checkpoints is -1, it cannot be negative"},
      {"other_length", changed([](auto& a) { a.length = 4; }), operands,
       "x 0 must have a leading axis of the length 4, it is f32[5, 3]"},
      {"scalar_x",
       changed([](auto&) {}),
       {c, c, {DType::kF32, {}}},
       "x 0 must have a leading axis of the length 5, it is f32[]"},
      {"no_body", changed([](auto& a) { a.body = nullptr; }), operands, "the body is missing"},
      {"inputs",
       changed([](auto&) {}),
       {c, c, x, x},
       "the body takes 4 inputs, the operands make 5"},
      {"no_outputs", with_body([](Builder&, const auto&) { return std::vector<Value>(); }),
       operands, "the body has no outputs"},
      {"carry", with_body([](Builder&, const auto& v) { return std::vector{v[0]}; }), operands,
       "carry 0 is f32[3], the body makes it i64[]"},
      {"rank", changed([&](ScanAttrs& a) {
         a.body = make_body("body", inputs, [](Builder& b, const auto& v) {
           return std::vector{v[1], splat(b, DType::kF32, Shape(std::vector<Dim>(16, Dim(1))), 1)};
         });
       }),
       operands, "cannot be stacked: a tensor has at most 16 axes"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Scan) = {samples, wrong_calls};

}  // namespace rlx
