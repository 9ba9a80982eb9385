#include "tools/rlx/arrays.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <set>

#include "rlx/base/error.h"
#include "rlx/base/philox.h"
#include "rlx/ir/text.h"
#include "rlx/ops/table.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {
namespace {

constexpr int64_t kShownElements = 8;
constexpr uint32_t kIntegers = 10;
constexpr size_t kLongestName = 200;  // file systems end at 255 bytes, extension included

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 1469598103934665603ull;
  for (char c : text) hash = (hash ^ uint64_t(uint8_t(c))) * 1099511628211ull;
  return hash;
}

// Word i of the draw (seed, key), and the uniform of its 53-bit pair i.
class Words {
 public:
  Words(uint64_t seed, uint64_t key) : seed_(seed), key_(key) {}
  uint32_t word(int64_t i) const { return philox_block(seed_, key_, uint64_t(i) / 4).word[i % 4]; }
  float f32(int64_t i) const { return 2 * uniform_f32(word(i)) - 1; }
  double f64(int64_t i) const {
    return 2 * uniform_f64(philox_block(seed_, key_, uint64_t(i) / 2), int(i % 2)) - 1;
  }

 private:
  uint64_t seed_, key_;
};

template <class T>
T draw_element(const Words& words, int64_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return words.word(i) >> 31 != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return T(words.word(i) % kIntegers);
  } else if constexpr (std::is_same_v<T, double>) {
    return words.f64(i);
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return {words.f32(2 * i), words.f32(2 * i + 1)};
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return {words.f64(2 * i), words.f64(2 * i + 1)};
  } else if constexpr (std::is_same_v<T, f16>) {
    return f16(2 * uniform_f16(words.word(i)) - 1);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return bf16(2 * uniform_bf16(words.word(i)) - 1);
  } else {
    return words.f32(i);
  }
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text.empty() ? "none" : text;
}

// A name may itself contain '=': the first split that gives a known one.
size_t split_at(const std::string& argument, const std::vector<std::string>& names) {
  for (size_t at = argument.find('='); at != std::string::npos; at = argument.find('=', at + 1)) {
    const std::string_view name = std::string_view(argument).substr(0, at);
    if (name == "*" || std::find(names.begin(), names.end(), name) != names.end()) return at;
  }
  return argument.find('=');
}

template <class From, class To>
Array converted(const Array& array) {
  Array result = Array::uninitialized(dtype_of<To>, array.shape());
  const auto from = array.data<From>();
  const auto to = result.mutable_data<To>();
  for (size_t i = 0; i < from.size(); ++i) to[i] = To(float(from[i]));
  return result;
}

}  // namespace

std::map<std::string, Source> assign_sources(const std::vector<std::string>& arguments,
                                             const std::vector<std::string>& names,
                                             std::string_view option, std::string_view what) {
  std::map<std::string, Source> sources;
  bool all_random = false;
  for (const std::string& argument : arguments) {
    const size_t at = split_at(argument, names);
    if (at == std::string::npos || at == 0 || at + 1 == argument.size()) {
      throw UsageError(
          fmt::format("{}: expected NAME=FILE.npy or NAME=random, got '{}'", option, argument));
    }
    const std::string name = argument.substr(0, at), value = argument.substr(at + 1);
    if (name == "*" && value != "random") {
      throw UsageError(fmt::format("{}: '*' takes random only, got '{}'", option, value));
    }
    if (name == "*") {
      all_random = true;
      continue;
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      user_error("the graph has no {} '{}'; it has: {}", what, name, list_of(names));
    }
    const Source source{value == "random", value == "random" ? "" : value};
    if (!sources.emplace(name, source).second) user_error("{} '{}' is given twice", what, name);
  }
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (all_random) {
      sources.emplace(name, Source{true, ""});
    } else if (!sources.contains(name)) {
      missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    user_error("{}s are not given: {} (use {} NAME=FILE.npy, {} NAME=random or {} '*=random')",
               what, list_of(missing), option, option, option);
  }
  return sources;
}

Array draw(DType dtype, Dims shape, uint64_t seed, std::string_view name) {
  Array array = Array::uninitialized(dtype, std::move(shape));
  const Words words(seed, fnv1a(name));
  visit_dtype(dtype, [&]<class T>() {
    const auto elements = array.mutable_data<T>();
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = draw_element<T>(words, int64_t(i));
    }
  });
  return array;
}

Array f32_of_bf16(const Array& array) { return converted<bf16, float>(array); }
Array bf16_of_f32(const Array& array) { return converted<float, bf16>(array); }

std::string summary(const Array& array) {
  static const Field& field = *find_op("Constant")->fields->find("value");
  std::string text = print_field(field, array, {.max_elements = kShownElements});
  if (array.num_elements() == 0 || is_complex(array.dtype())) return text;
  double low = INFINITY, high = -INFINITY, sum = 0;
  int64_t nans = 0;
  for (int64_t i = 0; i < array.num_elements(); ++i) {
    const double v = array.at(i);
    nans += std::isnan(v);
    low = std::fmin(low, v);
    high = std::fmax(high, v);
    sum += v;
  }
  if (nans == array.num_elements()) return text + "; only NaN";
  text += fmt::format("; min {:.6g}, max {:.6g}, mean {:.6g}", low, high,
                      sum / double(array.num_elements()));
  if (nans > 0) text += fmt::format(", {} NaN", nans);
  return text;
}

std::vector<std::string> file_names(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  std::set<std::string> taken;
  for (const std::string& name : names) {
    std::string file = name.substr(0, kLongestName);
    for (size_t i = 0; i < file.size(); ++i) {
      const char c = file[i];
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '-' || c == '_' || (c == '.' && i > 0);
      if (!plain) file[i] = '_';
    }
    if (file.empty()) file = "_";
    std::string unique = file;
    for (int n = 2; !taken.insert(unique).second; ++n) unique = fmt::format("{}_{}", file, n);
    files.push_back(std::move(unique));
  }
  return files;
}

}  // namespace rlx::cli
