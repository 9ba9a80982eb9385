#include "rlx/backend/reference/reference.h"

#include <cstring>

#include "rlx/base/error.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/leaf.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/table.h"

namespace rlx::reference {

#define RLX_OP(K, F, D) extern const Kernel k##K##Reference;
#define RLX_STRUCTURAL(K, F, D) extern const Kernel k##K##Reference;
#define RLX_PRIMITIVE(K, D) extern const Kernel k##K##Reference;
#include "rlx/ops/ops.def"

namespace {

struct Row {
  std::string_view name;
  const Kernel* kernel;
};
const Row kRows[] = {
#define RLX_OP(K, F, D) {#K, &k##K##Reference},
#define RLX_STRUCTURAL(K, F, D) {#K, &k##K##Reference},
#define RLX_PRIMITIVE(K, D) {#K, &k##K##Reference},
#include "rlx/ops/ops.def"
};

Kernel find(const OpDef& op) {
  for (const Row& r : kRows) {
    if (r.name == op.name) return *r.kernel;
  }
  internal_error("the reference has no kernel for {}", op.name);
}

int64_t wrap(int64_t v, DType t) {
  if (is_packed(t)) return v;  // bytes
  return visit_dtype(t, [&]<class T>() -> int64_t {
    if constexpr (std::is_same_v<T, bool>) {
      return v != 0;
    } else if constexpr (std::is_integral_v<T>) {
      return int64_t(T(uint64_t(v)));
    } else {
      return v;
    }
  });
}

template <class T>
constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

}  // namespace

Tensor::Tensor(DType t, Dims s) : dtype(t), shape(std::move(s)) {
  const auto n = size_t(num_elements(stored_shape(*this)));
  if (rlx::is_float(t)) {
    f.assign(n, 0.0);
  } else if (rlx::is_complex(t)) {
    c.assign(n, 0.0);
  } else {
    i.assign(n, 0);
  }
}

Dims stored_shape(const Tensor& t) {
  Dims dims = t.shape;
  if (is_packed(t.dtype)) dims.back() = bytes_of(t.dtype, dims.back());
  return dims;
}

Tensor widen(const Array& source) {
  const Array a = source.dense();
  Tensor t(a.dtype(), a.shape());
  if (is_packed(t.dtype)) {
    const auto* bytes = static_cast<const uint8_t*>(a.raw());
    t.i.assign(bytes, bytes + a.byte_size());
    return t;
  }
  visit_dtype(a.dtype(), [&]<class T>() {
    const std::span<const T> from = a.data<T>();
    for (size_t k = 0; k < from.size(); ++k) {
      if constexpr (std::is_integral_v<T>) {
        t.i[k] = int64_t(from[k]);
      } else if constexpr (kIsComplex<T>) {
        t.c[k] = from[k];
      } else {
        t.f[k] = double(from[k]);
      }
    }
  });
  return t;
}

Array narrow(const Tensor& t) {
  Array a = Array::uninitialized(t.dtype, t.shape);
  if (is_packed(t.dtype)) {
    auto* bytes = static_cast<uint8_t*>(a.mutable_raw());
    for (size_t k = 0; k < t.i.size(); ++k) bytes[k] = uint8_t(t.i[k]);
    return a;
  }
  visit_dtype(t.dtype, [&]<class T>() {
    const std::span<T> to = a.mutable_data<T>();
    for (size_t k = 0; k < to.size(); ++k) {
      if constexpr (std::is_same_v<T, bool>) {
        to[k] = t.i[k] != 0;
      } else if constexpr (std::is_integral_v<T>) {
        to[k] = T(uint64_t(t.i[k]));
      } else if constexpr (std::is_same_v<T, std::complex<float>>) {
        to[k] = {float(t.c[k].real()), float(t.c[k].imag())};
      } else if constexpr (kIsComplex<T>) {
        to[k] = t.c[k];
      } else {
        to[k] = T(t.f[k]);
      }
    }
  });
  return a;
}

Dims broadcast_strides(const Tensor& t, std::span<const int64_t> shape) {
  const Dims stored = stored_shape(t), own = dense_strides(stored);
  Dims strides(shape.size(), 0);
  const size_t shift = shape.size() - stored.size();
  for (size_t a = 0; a < stored.size(); ++a) {
    strides[a + shift] = stored[a] == 1 ? 0 : own[a];
  }
  return strides;
}

std::vector<Tensor> evaluate(const OpDef& op, const Attrs& attrs,
                             std::span<const Tensor> operands) {
  std::vector<TensorType> types;
  for (const Tensor& t : operands) {
    types.push_back({t.dtype, Shape(std::span<const int64_t>(t.shape))});
  }
  if (row_of(op).cls == RowClass::kAlias) {
    std::map<std::string, Tensor> inputs;
    for (size_t k = 0; k < operands.size(); ++k) inputs[fmt::format("arg{}", k)] = operands[k];
    return evaluate(expand_to_graph(op, attrs, types), inputs);
  }
  const InferredCall inferred = infer_call(op, attrs, types);
  std::vector<Tensor> results;
  for (const TensorType& t : inferred.results) results.emplace_back(t.dtype, t.shape.static_dims());
  find(op)({op, inferred.attrs, operands, results});
  for (Tensor& t : results) {
    for (int64_t& v : t.i) v = wrap(v, t.dtype);
  }
  return results;
}

std::vector<Tensor> evaluate(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                             const std::map<std::string, Tensor>& params) {
  std::vector<std::vector<Tensor>> values(graph.size());
  SymbolBindings sizes;  // that the graph has set so far
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (is_signature_leaf(n)) {
      const auto& bound = n.op->name == "Param" ? params : inputs;
      const auto it = bound.find(graph.name_of({id, 0}));
      if (it == bound.end()) user_error("'{}' is not bound", graph.name_of({id, 0}));
      const TensorType given{it->second.dtype, Shape(std::span<const int64_t>(it->second.shape))};
      if (given != n.results[0]) {
        user_error("'{}' is {}, expected {}", it->first, given.to_string(),
                   n.results[0].to_string());
      }
      values[id] = {it->second};
      continue;
    }
    std::vector<Tensor> operands;
    for (Value v : n.operands) operands.push_back(values[v.node][v.index]);
    const Attrs attrs = sizes.empty() ? n.attrs : substitute_symbols(n.attrs, sizes);
    values[id] = evaluate(*n.op, attrs, operands);
    if (binds_size(n)) sizes[attrs.as<BindSizeAttrs>().symbol] = values[id][0].i[0];
  }
  std::vector<Tensor> outputs;
  for (const Output& o : graph.outputs()) outputs.push_back(values[o.value.node][o.value.index]);
  return outputs;
}

}  // namespace rlx::reference
