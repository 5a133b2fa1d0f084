// Cases of sparse_mla_decode. Bytes that no entry has are 0xFF: NaN as a code, as a scale and as bf16.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/reference/cache_entry.h"
#include "tests/support/ops/mla_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;
constexpr double kLargestIndex = 2147483647;
constexpr int64_t kScored = 8;  // of so many channels one counts in exact scores

struct Store {
  std::string prefix, format;
  int64_t count, page_size;
};

/// A cache with `keys` entries, and indices of them.
void add_list(OpCase& test, const ListedSize& s, const Store& store,
              const std::function<double(int64_t channel)>& value) {
  reference::EntryOptions options;
  options.format = store.format, options.page_size = store.page_size;
  options.in_rows = s.in_rows;
  const int64_t width = reference::channels_of_format(store.format);
  const int64_t blocks = 2 * s.keys / store.page_size + 1, slots = blocks * store.page_size;
  std::vector<int64_t> order(static_cast<size_t>(slots));
  std::iota(order.begin(), order.end(), 0);
  Random random(static_cast<uint64_t>(slots + store.count));
  for (int64_t i = slots - 1; i > 0; --i) {
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
  }
  HostTensor cache =
      tensor_by(DType::u8, {blocks, reference::bytes_of_block(store.format, store.page_size)},
                [](int64_t) { return 0xFF; });
  for (int64_t key = 0; key < s.keys; ++key) {
    std::vector<float> values;
    for (int64_t d = 0; d < width; ++d) values.push_back(static_cast<float>(value(d)));
    reference::store_entry(values, cache, order[static_cast<size_t>(key)], options);
  }
  test.inputs[store.prefix + "cache"] = std::move(cache);
  test.inputs[store.prefix + "indices"] =
      tensor_by(DType::i32, {s.requests, s.tokens, store.count},
                [&](int64_t) { return order[static_cast<size_t>(random.below(s.keys))]; });
  test.params[store.prefix + "page_size"] = store.page_size;
}

OpCase listed(const std::string& label, const ListedSize& s, bool is_exact) {
  OpCase test;
  test.label = fmt::format("{} {}{}{}{} B={} n={} h={} k={},{} pages {},{}", label, s.format,
                           s.extra_format.empty() ? "" : " ", s.extra_format,
                           s.in_rows ? " rows" : "", s.requests, s.tokens, s.heads, s.count,
                           s.extra_count, s.page_size, s.extra_page_size);
  const int64_t width = reference::channels_of_format(s.format);
  const Dims shape = {s.requests, s.tokens, s.heads, width};
  Random random(static_cast<uint64_t>(s.count * 100 + s.heads));
  test.params = {{"format", s.format}, {"sm_scale", is_exact ? kLn2 : 1.0 / 24}};
  if (s.format.starts_with("v41")) {
    test.params["cache_order"] = std::string(s.in_rows ? "rows" : "planes");
  }
  if (is_exact) {
    test.inputs["q"] = tensor_by(DType::bf16, shape, [&](int64_t i) {
      const bool is_looked_at = i % kScored == 0 && random.below(width / kScored) < 5;
      return is_looked_at ? random.below(3) - 1 : 0;
    });
  } else {
    test.inputs["q"] = random_tensor(DType::bf16, shape, Values::normal, 1);
  }
  // Exact: every group of 16 has the largest value 3/2, so every format keeps all of them.
  const auto value = [&](int64_t channel) {
    if (!is_exact) return random.normal();
    if (channel % kScored == 0) return static_cast<double>(random.below(3) - 1);
    return channel % 16 == 15 ? 1.5 : static_cast<double>(random.below(7) - 3) / 2;
  };
  add_list(test, s, {"", s.format, s.count, s.page_size}, value);
  if (!s.extra_format.empty()) {
    add_list(test, s, {"extra_", s.extra_format, s.extra_count, s.extra_page_size}, value);
    if (s.extra_format != s.format) test.params["extra_format"] = s.extra_format;
  }
  if (!is_exact) test.tolerance = Tolerance{0x1p-7, 0x1p-10};
  test.tolerances["lse"] = is_exact ? Tolerance{1e-6, 2e-6} : Tolerance{1e-6, 4e-6};
  return test;
}

OpCase with(OpCase test, const std::string& param, const kernels::ParamValue& value) {
  test.params[param] = value;
  return test;
}

}  // namespace

OpCase normal_listed(const std::string& label, const ListedSize& size) {
  return listed(label + " normal values", size, false);
}

std::vector<OpCase> sparse_mla_decode_cases() {
  const auto exact = [](const std::string& label, const ListedSize& s) {
    return listed(label, s, true);
  };
  std::vector<OpCase> cases;
  OpCase test = exact("lengths", {"v32_fp8", 4, 1, 16, 130, 5});
  test.inputs["topk_length"] = tensor_of(DType::i32, {4}, {130, 64, 0, 65});
  cases.push_back(test);
  test = exact("indices that are none", {"v4_fp8", 2, 2, 8, 70, 53});
  const auto slots = static_cast<double>(test.inputs["cache"].shape()[0] * 53);
  for (const auto& [at, index] :
       {std::pair(0, -1.0), std::pair(3, slots), std::pair(69, kLargestIndex),
        std::pair(5, -2147483648.0), std::pair(66, -123456.0), std::pair(80, -1.0)}) {
    test.inputs["indices"].set_value(at, index);
  }
  for (int64_t i = 140; i < 210; ++i) test.inputs["indices"].set_value(i, i % 2 == 0 ? -1 : slots);
  cases.push_back(test);
  test = exact("two lists", {"v4_fp8", 3, 2, 8, 70, 5, "v4_fp8", 130, 2});
  test.inputs["topk_length"] = tensor_of(DType::i32, {3}, {70, 3, 0});
  test.inputs["extra_length"] = tensor_of(DType::i32, {3}, {64, 0, 129});
  cases.push_back(test);
  cases.push_back(with(test, "num_splits", int64_t{3}));
  test = exact("two formats", {"v41_fp8", 3, 1, 16, 20, 61, "v41_fp4", 70, 5});
  test.inputs["extra_length"] = tensor_of(DType::i32, {3}, {70, 0, 65});
  cases.push_back(test);
  cases.push_back(exact("", {"v41_fp8", 1, 2, 8, 66, 3, "v41_fp4", 70, 64, true}));
  cases.push_back(exact("", {"v41_fp8", 1, 1, 24, 130, 64, "v41_fp8", 10, 7}));
  cases.push_back(exact("", {"v41_fp8", 2, 1, 8, 30, 1, "", 0, 64, true}));
  // More tokens than multiprocessors for tiles of 16 heads: two groups. Most have no entries, which takes no time.
  constexpr int64_t kMany = 17;
  const auto some = [](std::vector<double> first) {
    first.resize(kMany, 0);
    return tensor_of(DType::i32, {kMany}, first);
  };
  test = exact("two groups", {"v32_fp8", kMany, 1, 128, 130, 64});
  test.inputs["topk_length"] = some({130, 1});
  cases.push_back(test);
  test = exact("two groups", {"v4_fp8", kMany, 1, 128, 70, 5, "v4_fp8", 130, 2});
  test.inputs["topk_length"] = some({70, 0, 3}), test.inputs["extra_length"] = some({64, 0, 129});
  cases.push_back(std::move(test));
  cases.push_back(exact("", {"v32_fp8", 1, 1, 128, 40, 64}));
  for (const int64_t splits : {2, 7, 32}) {
    cases.push_back(with(exact("", {"v32_fp8", 2, 1, 16, 300, 64}), "num_splits", splits));
  }
  test = exact("f32", {"v4_fp8", 2, 1, 8, 40, 64});
  cases.push_back(with(test, "out_dtype", std::string("f32")));
  for (const ListedSize& s : {ListedSize{"v32_fp8", 1, 1, 16, 130, 64},
                              {"v4_fp8", 1, 1, 8, 70, 2, "v4_fp8", 100, 64},
                              {"v41_fp8", 1, 1, 32, 70, 69, "v41_fp4", 70, 5}}) {
    cases.push_back(normal_listed("", s));
  }
  test = exact("sinks", {"v4_fp8", 2, 1, 8, 20, 64, "v4_fp8", 10, 64});
  test.inputs["attn_sink"] = tensor_of(
      DType::f32, {8}, {-kInfinity, kInfinity, kNan, 1e4, -kInfinity, -1e4, kInfinity, -1e4});
  test.inputs["topk_length"] = tensor_of(DType::i32, {2}, {10, 0});
  test.inputs["extra_length"] = tensor_of(DType::i32, {2}, {10, 0});
  cases.push_back(test);
  cases.push_back(with(test, "num_splits", int64_t{2}));
  test = normal_listed("sinks", {"v41_fp8", 2, 1, 8, 70, 64});
  test.inputs["attn_sink"] = tensor_of(DType::f32, {8}, {0.5, -3, 2, 4});
  cases.push_back(with(test, "num_splits", int64_t{2}));
  test = exact("scales", {"v32_fp8", 2, 2, 8, 70, 64});
  test.inputs["q_scale"] = tensor_of(DType::f32, {2, 2, 8}, {1, 2, 0.5, 1, 4});
  test.tolerance = Tolerance{0x1p-7, 0x1p-10};  // halves of scores are no powers of two
  cases.push_back(test);
  test = exact("scales out of range", {"v4_fp8", 2, 1, 8, 80, 64});
  test.inputs["q_scale"] =
      tensor_of(DType::f32, {2, 1, 8}, {1, 0, 2, -1, kNan, kInfinity, 1, -kInfinity});
  test.inputs["topk_length"] = tensor_of(DType::i32, {2}, {80, 0});
  cases.push_back(test);
  cases.push_back(with(test, "num_splits", int64_t{2}));
  test = exact("lengths out of range", {"v4_fp8", 3, 1, 8, 10, 64, "v4_fp8", 10, 64});
  test.inputs["topk_length"] = tensor_of(DType::i32, {3}, {-1, 10, -2147483648.0});
  test.inputs["extra_length"] = tensor_of(DType::i32, {3}, {-7, 10, 3});
  cases.push_back(test);
  test = exact("a scale of NaN, chosen and not", {"v41_fp8", 2, 1, 8, 4, 64, "v41_fp4", 6, 1});
  const auto slot = static_cast<int64_t>(test.inputs["extra_indices"].value(2));
  test.inputs["extra_cache"].set_bits(slot * 288 + 256 + 3, 0x7F);
  for (int64_t i = 6; i < 12; ++i) {
    const auto other = static_cast<int64_t>(test.inputs["extra_indices"].value(i));
    if (other == slot) test.inputs["extra_indices"].set_value(i, -1);
  }
  for (int64_t i = 0; i < test.inputs["q"].size(); i += 512) test.inputs["q"].set_value(i + 48, 1);
  cases.push_back(test);
  test = exact("heads before tokens", {"v32_fp8", 1, 3, 8, 20, 64});
  cases.push_back(strided(std::move(test), "q", {3 * 8 * 576, 576, 3 * 576, 1}));
  test = exact("gaps", {"v32_fp8", 2, 1, 8, 20, 5});
  cases.push_back(strided(test, "cache", {656 * 5 + 8, 1}));
  cases.push_back(strided(test, "indices", {24, 24, 1}));
  test = exact("gaps", {"v4_fp8", 2, 2, 8, 20, 5, "v4_fp8", 30, 2});
  cases.push_back(strided(test, "extra_cache", {1728 + 32, 1}));
  cases.push_back(strided(test, "extra_indices", {80, 40, 1}));
  cases.push_back(exact("no entries", {"v4_fp8", 2, 1, 8, 0, 64}));
  cases.push_back(
      exact("no entries in the first list", {"v4_fp8", 2, 1, 8, 0, 64, "v4_fp8", 30, 2}));
  cases.push_back(
      exact("no entries in the second list", {"v4_fp8", 2, 1, 8, 30, 64, "v4_fp8", 0, 2}));
  cases.push_back(exact("no requests", {"v4_fp8", 0, 1, 8, 30, 64}));
  cases.push_back(exact("no tokens", {"v4_fp8", 2, 0, 8, 30, 64}));
  return cases;
}

}  // namespace tessera::test
