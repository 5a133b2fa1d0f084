// Cases of the indexer: extents around tiles, ranges of keys, pages, NaN, columns that stay as they are.

#include "tests/support/ops/indexer_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

using kernels::Params;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Small multiples of 1/4: sums of 128 products have fewer than 14 bits, so every instruction of every target gives the
/// same.
HostTensor exact_codes(Dims shape, uint64_t seed) {
  Random random(seed);
  return tensor_by(DType::e4m3, shape,
                   [&](int64_t) { return static_cast<double>(random.below(17) - 8) / 4; });
}

OpCase normal(OpCase test, const char* keys) {
  test.label += " of normal values";
  fill_random(test.inputs["q"], Values::normal, 11);
  if (test.inputs.contains(keys)) fill_random(test.inputs[keys], Values::normal, 12);
  const bool is_bf16 = test.params.contains("logits_dtype");
  test.tolerance = Tolerance{.calc_diff = is_bf16 ? 3e-5 : 5e-6};
  return test;
}

OpCase with_ranges(OpCase test, const std::vector<double>& starts,
                   const std::vector<double>& ends) {
  const int64_t rows = test.inputs["q"].shape()[0];
  test.inputs["k_start"] = tensor_of(DType::i32, {rows}, starts);
  test.inputs["k_end"] = tensor_of(DType::i32, {rows}, ends);
  return test;
}

void fill_row(HostTensor& tensor, int64_t row, double value) {
  const int64_t width = tensor.shape()[tensor.shape().rank - 1];
  for (int64_t i = 0; i < width; ++i) tensor.set_value(row * width + i, value);
}

void put_scale(HostTensor& cache, int64_t at, float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  for (int64_t i = 0; i < 4; ++i) cache.set_bits(at + i, bits >> (8 * i) & 255);
}

}  // namespace

OpCase exact_logits(const std::string& label, const LogitsSize& s, const Params& params) {
  OpCase test;
  test.label = fmt::format("{} S={} h={} D={} T={}", label, s.rows, s.heads, s.width, s.keys);
  test.params = params;
  test.inputs["q"] = exact_codes({s.rows, s.heads, s.width}, 1);
  test.inputs["k"] = exact_codes({s.keys, s.width}, 2);
  test.inputs["k_sf"] = random_tensor(DType::f32, {s.keys}, Values::uniform, 3);
  test.inputs["weights"] = random_tensor(DType::f32, {s.rows, s.heads}, Values::normal, 4);
  test.inputs["k_start"] = tensor_of(DType::i32, {s.rows}, {0});
  test.inputs["k_end"] = tensor_by(DType::i32, {s.rows}, [&](int64_t i) {
    return std::max<int64_t>(s.keys - s.rows + i + 1, 0);
  });
  return test;
}

std::vector<OpCase> mqa_logits_cases() {
  const Params bf16 = {{"logits_dtype", std::string("bf16")}};
  const Params dirty = {{"clean", false}};
  const auto compressed = [](int64_t max_len, bool is_clean = true) {
    return Params{{"compressed", true}, {"max_len", max_len}, {"clean", is_clean}};
  };
  std::vector<OpCase> cases;
  cases.push_back(exact_logits("", {3, 8, 32, 40}));
  cases.push_back(exact_logits("", {2, 64, 128, 130}));
  cases.push_back(exact_logits("", {9, 32, 64, 33}));
  cases.push_back(exact_logits("", {1, 128, 128, 20}));
  cases.push_back(exact_logits("", {2, 24, 32, 300}));
  cases.push_back(exact_logits("", {20, 8, 32, 1}));
  cases.push_back(exact_logits("bf16", {4, 8, 64, 130}, bf16));
  cases.push_back(normal(exact_logits("", {4, 8, 128, 30}, dirty), "k"));
  cases.push_back(normal(exact_logits("bf16", {4, 8, 128, 30}, bf16), "k"));
  const LogitsSize small = {6, 8, 32, 70};
  const std::vector<double> starts = {0, 3, 64, 70, 10, 63}, ends = {70, 4, 65, 70, 10, 70};
  for (const Params& params : {Params{}, dirty, compressed(70), compressed(7),
                               compressed(65, false), compressed(0), compressed(100)}) {
    cases.push_back(with_ranges(exact_logits("ranges", small, params), starts, ends));
  }
  cases.push_back(with_ranges(exact_logits("values out of range", small),
                              {-1, -2147483648.0, 80, 5, 0, 2147483647},
                              {70, 71, 90, 2, 2147483647, -1}));
  OpCase test = exact_logits("NaN", small);
  test.inputs["q"].set_value(3 * 32 + 5, kNan);
  test.inputs["k"].set_value(7 * 32 + 31, kNan);
  test.inputs["k_sf"].set_value(9, kNan), test.inputs["k_sf"].set_value(10, kInfinity);
  test.inputs["k_sf"].set_value(11, -1), test.inputs["k_sf"].set_value(12, 0);
  test.inputs["weights"].set_value(9, kNan), test.inputs["weights"].set_value(17, kInfinity);
  cases.push_back(test);
  test = with_ranges(exact_logits("NaN that no row sees", small), {8, 8, 9}, {60, 20, 61});
  for (const int64_t row : {0, 7, 61, 69}) fill_row(test.inputs["k"], row, kNan);
  for (const int64_t row : {0, 7, 61, 69}) test.inputs["k_sf"].set_value(row, kNan);
  cases.push_back(test);
  cases.push_back(strided(exact_logits("", small), "k", {48, 1}));
  cases.push_back(strided(exact_logits("", small), "k", {35, 1}));  // byte by byte
  cases.push_back(strided(exact_logits("", small), "weights", {11, 1}));
  cases.push_back(exact_logits("no keys", {3, 8, 32, 0}));
  cases.push_back(exact_logits("no keys", {3, 8, 32, 0}, compressed(5)));
  cases.push_back(exact_logits("no rows", {0, 8, 32, 9}));
  return cases;
}

OpCase exact_paged_logits(const std::string& label, const PagedLogitsSize& s,
                          const Params& params) {
  const auto rows = static_cast<int64_t>(s.lengths.size()), requests = rows / s.tokens;
  const int64_t longest =
      rows == 0 ? 0 : std::max<int64_t>(*std::max_element(s.lengths.begin(), s.lengths.end()), 0);
  // One more than keys need, unless they fill their pages.
  const int64_t columns =
      std::max<int64_t>(longest / s.page_size + (longest % s.page_size > 0 ? 2 : 0), 1);
  const int64_t pages = requests * columns + 1, bytes = s.page_size * (s.width + 4);
  OpCase test;
  test.label = fmt::format("{} n={} h={} D={} pages of {}, lengths {}", label, s.tokens, s.heads,
                           s.width, s.page_size, fmt::join(s.lengths, ","));
  test.params = params;
  test.params.insert({"max_len", longest + 5});
  test.params.insert({"page_size", s.page_size});
  test.inputs["q"] = exact_codes({requests, s.tokens, s.heads, s.width}, 1);
  test.inputs["weights"] = random_tensor(DType::f32, {rows, s.heads}, Values::normal, 4);
  test.inputs["lengths"] = tensor_by(DType::i32, {requests, s.tokens},
                                     [&](int64_t i) { return s.lengths[static_cast<size_t>(i)]; });
  test.inputs["page_table"] =
      tensor_by(DType::i32, {requests, columns}, [&](int64_t i) { return pages - 1 - i; });
  HostTensor cache(DType::u8, {pages, bytes}, {(bytes + 15) / 16 * 16, 1});
  for (int64_t i = 0; i < cache.size(); ++i) cache.set_bits(i, 0x7F);  // NaN of e4m3
  const HostTensor codes = exact_codes({pages * s.page_size, s.width}, 2);
  const HostTensor scales = random_tensor(DType::f32, {pages * s.page_size}, Values::uniform, 3);
  for (int64_t b = 0; b < requests; ++b) {
    const auto first = s.lengths.begin() + b * s.tokens;
    const int64_t length =
        std::min(*std::max_element(first, first + s.tokens), columns * s.page_size);
    for (int64_t j = 0; j < length; ++j) {
      const int64_t page = pages - 1 - (b * columns + j / s.page_size), token = j % s.page_size;
      const int64_t of_key = page * s.page_size + token;
      for (int64_t d = 0; d < s.width; ++d) {
        cache.set_bits(page * bytes + token * s.width + d, codes.bits(of_key * s.width + d));
      }
      put_scale(cache, page * bytes + s.page_size * s.width + 4 * token,
                static_cast<float>(scales.value(of_key)));
    }
  }
  test.inputs["cache"] = std::move(cache);
  return test;
}

std::vector<OpCase> paged_mqa_logits_cases() {
  const Params bf16 = {{"logits_dtype", std::string("bf16")}};
  const Params dirty = {{"clean", false}};
  std::vector<OpCase> cases;
  cases.push_back(exact_paged_logits("", {1, 8, 32, 64, {70, 0, 64, 1}}));
  cases.push_back(exact_paged_logits("", {1, 64, 128, 64, {140}}));
  cases.push_back(exact_paged_logits("", {3, 32, 64, 64, {20, 21, 22, 129, 130, 131}}));
  cases.push_back(exact_paged_logits("", {5, 64, 32, 64, {60, 61, 62, 63, 64}}));
  cases.push_back(exact_paged_logits("bf16", {2, 8, 32, 64, {70, 71}}, bf16));
  cases.push_back(exact_paged_logits("", {1, 8, 64, 64, {70, 3, 200}}, dirty));
  for (const int64_t page_size : {1, 7, 16, 256}) {
    cases.push_back(exact_paged_logits("", {1, 8, 32, page_size, {130, 17}}));
  }
  cases.push_back(exact_paged_logits("full pages", {1, 8, 32, 16, {48, 17}}));
  OpCase test = exact_paged_logits("pages that do not exist", {2, 8, 32, 16, {70, 71, 33, 90}});
  for (const auto& [at, page] :
       {std::pair(1, -1.0), std::pair(4, 1e9), std::pair(9, -2147483648.0)}) {
    test.inputs["page_table"].set_value(at, page);
  }
  cases.push_back(test);
  test.params["clean"] = false;
  cases.push_back(test);
  test = exact_paged_logits("lengths out of range", {1, 8, 32, 16, {40, 20, 30}});
  test.inputs["lengths"] = tensor_of(DType::i32, {3, 1}, {-1, 2147483647, 20});
  test.params["max_len"] = int64_t{60};  // more than the table has
  cases.push_back(test);
  test = exact_paged_logits("fewer columns than keys", {1, 8, 32, 16, {40, 20}});
  test.params["max_len"] = int64_t{33};
  cases.push_back(test);
  cases.push_back(strided(exact_paged_logits("", {1, 8, 32, 16, {40}}), "cache", {640, 1}));
  cases.push_back(strided(exact_paged_logits("", {1, 8, 32, 16, {40, 50}}), "page_table", {9, 1}));
  cases.push_back(strided(exact_paged_logits("", {1, 8, 32, 16, {40, 50}}), "weights", {9, 1}));
  cases.push_back(exact_paged_logits("no request", {1, 8, 32, 16, {}}));
  test = exact_paged_logits("no page", {1, 8, 32, 16, {0, 0}});
  test.inputs["cache"] = HostTensor(DType::u8, {0, 16 * 36});
  cases.push_back(test);
  test = exact_paged_logits("no column of the table", {1, 8, 32, 16, {0, 0}});
  test.inputs["page_table"] = HostTensor(DType::i32, {2, 0});
  cases.push_back(test);
  return cases;
}

namespace {

OpCase with(OpCase test, const Params& params) {
  for (const auto& [name, value] : params) {
    test.params[name] = value;
    if (const auto* number = std::get_if<int64_t>(&value))
      test.label += fmt::format(" {}={}", name, *number);
  }
  return test;
}

/// Weights of 0 and below it: many scores are +0, -0 or equal.
OpCase with_ties(OpCase test) {
  test.label += ", ties";
  HostTensor& weights = test.inputs["weights"];
  for (int64_t i = 0; i < weights.size(); ++i) weights.set_value(i, i % 3 == 0 ? -0.5 : 0);
  return test;
}

OpCase with_pages(OpCase test, const std::string& name, int64_t rows, int64_t columns) {
  test.inputs[name] = tensor_by(DType::i32, {rows, columns},
                                [](int64_t i) { return i % 7 == 6 ? -1 : 1000 - 3 * i; });
  return test;
}

const Params kByValue = {{"order", std::string("value")}, {"save_values", true}};

std::vector<OpCase> topk_cases(const Params& more) {
  std::vector<OpCase> cases;
  const LogitsSize small = {5, 8, 32, 90};
  const std::vector<double> starts = {0, 3, 64, 90, 10}, ends = {90, 4, 65, 90, 85};
  for (const int64_t topk : {1, 16, 200}) {
    const Params params = {{"topk", topk}};
    cases.push_back(
        with(with(with_ranges(exact_logits("ranges", small), starts, ends), params), more));
  }
  cases.push_back(with(with(with_ties(exact_logits("", small)), {{"topk", int64_t{40}}}), more));
  OpCase test = with(
      with(exact_logits("by value", {3, 16, 64, 70}, kByValue), {{"topk", int64_t{33}}}), more);
  test.inputs["k_sf"].set_value(3, kNan), test.inputs["k_sf"].set_value(5, -kInfinity);
  cases.push_back(test);
  test =
      with_pages(with_ranges(exact_logits("pages", {4, 8, 32, 90}), {1, 2, 3, 50}, {80, 90, 4, 60}),
                 "page_table", 2, 5);
  cases.push_back(with(
      with(test, {{"topk", int64_t{20}}, {"page_size", int64_t{16}}, {"relative", true}}), more));
  cases.push_back(
      with(with(exact_logits("no keys", {3, 8, 32, 0}, kByValue), {{"topk", int64_t{5}}}), more));
  cases.push_back(with(with(exact_logits("no rows", {0, 8, 32, 9}), {{"topk", int64_t{5}}}), more));
  test = with(with(exact_logits("", {3, 8, 32, 40}), {{"topk", int64_t{10}}}), more);
  cases.push_back(strided(test, "k", {48, 1}));
  cases.push_back(strided(test, "weights", {9, 1}));
  cases.push_back(strided(with_pages(test, "page_table", 3, 2), "page_table", {3, 1}));
  return cases;
}

std::vector<OpCase> paged_topk_cases(const Params& more) {
  std::vector<OpCase> cases;
  const PagedLogitsSize small = {2, 8, 32, 16, {70, 71, 3, 4}};
  for (const int64_t topk : {1, 16, 100}) {
    cases.push_back(with(with(exact_paged_logits("", small), {{"topk", topk}}), more));
  }
  cases.push_back(
      with(with(with_ties(exact_paged_logits("", small)), {{"topk", int64_t{16}}}), more));
  cases.push_back(with(with(exact_paged_logits("by value", {1, 8, 32, 64, {70, 0}}, kByValue),
                            {{"topk", int64_t{12}}}),
                       more));
  OpCase test = with_pages(exact_paged_logits("slots", small), "out_page_table", 2, 10);
  cases.push_back(with(with(test, {{"topk", int64_t{20}}, {"out_page_size", int64_t{8}}}), more));
  test = exact_paged_logits("pages that do not exist", small);
  test.inputs["page_table"].set_value(1, -1);
  cases.push_back(with(with(test, {{"topk", int64_t{60}}}), more));
  test = exact_paged_logits("no page", {1, 8, 32, 16, {0, 0}});
  test.inputs["cache"] = HostTensor(DType::u8, {0, 16 * 36});
  cases.push_back(with(with(test, {{"topk", int64_t{3}}}), more));
  cases.push_back(with(
      with(exact_paged_logits("no request", {1, 8, 32, 16, {}}), {{"topk", int64_t{3}}}), more));
  const PagedLogitsSize full = {2, 8, 32, 16, {80, 79, 3, 4}};
  test = with(with(exact_paged_logits("full pages", full), {{"topk", int64_t{16}}}), more);
  cases.push_back(test);
  cases.push_back(strided(test, "cache", {640, 1}));
  cases.push_back(strided(test, "weights", {9, 1}));
  cases.push_back(strided(test, "page_table", {7, 1}));
  test = with(with_pages(test, "out_page_table", 2, 10),
              {{"topk", int64_t{70}}, {"out_page_size", int64_t{8}}});
  cases.push_back(test);
  cases.push_back(strided(test, "out_page_table", {11, 1}));
  return cases;
}

OpCase blocks_of(const std::string& label, HostTensor scores, const std::vector<double>& lengths,
                 int64_t num_blocks, int64_t block_size = 8) {
  OpCase test;
  test.label = fmt::format("{} L={} num_blocks={} block_size={}", label, scores.shape()[1],
                           num_blocks, block_size);
  test.inputs["lengths"] = tensor_of(DType::i32, {scores.shape()[0]}, lengths);
  test.inputs["scores"] = std::move(scores);
  test.params = {{"num_blocks", num_blocks}, {"block_size", block_size}};
  return test;
}

HostTensor ints(int64_t rows, int64_t columns, int64_t range, uint64_t seed) {
  Random random(seed);
  return tensor_by(DType::f32, {rows, columns},
                   [&](int64_t) { return random.below(range) - range / 2; });
}

/// Chosen blocks of the keys of another case.
OpCase with_blocks(OpCase test, int64_t count, const std::vector<double>& ids, int64_t block_size) {
  const int64_t rows = test.inputs["weights"].shape()[0];
  test.label += fmt::format(", blocks of {}", block_size);
  test.inputs["blocks"] = tensor_of(DType::i32, {rows, count}, ids);
  test.params["block_size"] = block_size;
  if (!test.inputs.contains("cache")) return test;
  // Queries one behind the other.
  const auto flat = [&](const char* name, Dims shape) {
    HostTensor& tensor = test.inputs[name];
    HostTensor made(tensor.dtype(), shape);
    for (int64_t i = 0; i < tensor.size(); ++i) made.set_bits(i, tensor.bits(i));
    tensor = std::move(made);
  };
  const Dims q = test.inputs["q"].shape();
  flat("q", {rows, q[2], q[3]}), flat("lengths", {rows});
  test.params.erase("max_len");
  return test;
}

std::vector<OpCase> chosen_cases(const Params& more) {
  std::vector<OpCase> cases;
  const auto add = [&](OpCase test) { cases.push_back(with(std::move(test), more)); };
  const LogitsSize small = {3, 8, 32, 90};
  const OpCase ranges = with_ranges(exact_logits("ranges", small), {0, 3, 70}, {90, 60, 89});
  add(with_blocks(ranges, 5, {0, 2, 5, 11, -1, 1, 3, 7, -1, -1, 8, 9, 10, 11, -1}, 8));
  add(with_blocks(ranges, 4, {11, 3, 7, 0}, 8));
  add(with_blocks(ranges, 3, {-1, 2147483647, 12}, 8));
  add(with_blocks(ranges, 5, {268435456, 5, -2147483648.0, 0, 1}, 8));
  add(with_blocks(ranges, 70, {1, 2, 3, 80, 81, 5, 7, 88}, 1));
  add(with_blocks(ranges, 1, {1}, 64));
  add(with_blocks(exact_logits("", {1, 32, 128, 300}), 20,
                  {0, 3, 4, 7, 9, 12, 13, 14, 15, 16, 20, 21, 22, 25, 30, 31, 33, 35, 36, 37}, 8));
  const OpCase paged = exact_paged_logits("", {2, 8, 32, 16, {70, 71, 33, 90}});
  add(with_blocks(paged, 5, {0, 2, 5, 8, -1, 1, 3, 4, 11, 7}, 8));
  add(with_blocks(paged, 3, {7, 1, 5}, 8));
  add(with_blocks(exact_paged_logits("", {1, 8, 64, 7, {130, 17}}), 4, {0, 5, 9, 2}, 8));
  OpCase test = paged;
  test.inputs["page_table"].set_value(1, -1), test.inputs["page_table"].set_value(7, 1e9);
  add(with_blocks(test, 6, {0, 1, 2, 3, 4, 5}, 8));
  test = exact_paged_logits("no page", {1, 8, 32, 16, {0, 0}});
  test.inputs["cache"] = HostTensor(DType::u8, {0, 16 * 36});
  add(with_blocks(test, 2, {0, 1}, 8));
  add(with_blocks(exact_logits("no keys", {3, 8, 32, 0}), 2, {0, 1}, 8));
  add(with_blocks(exact_logits("no blocks", small), 0, {0}, 8));
  add(with_blocks(exact_logits("no rows", {0, 8, 32, 9}), 2, {0}, 8));
  const OpCase full =
      with_blocks(exact_paged_logits("full pages", {2, 8, 32, 16, {80, 79, 33, 48}}), 5,
                  {0, 2, 5, 9, -1, 1, 3, 4, 8, 9}, 8);
  add(full);
  add(strided(full, "page_table", {7, 1}));
  add(strided(full, "cache", {640, 1}));
  const OpCase in_rows =
      with_blocks(ranges, 5, {0, 2, 5, 11, 8, 1, 3, 7, -1, -1, 8, 9, 10, 11, -1}, 8);
  for (const char* name : {"k", "weights", "blocks"}) {
    add(strided(in_rows, name, {std::string_view(name) == "k" ? 48 : 9, 1}));
  }
  return cases;
}

}  // namespace

std::vector<OpCase> mqa_topk_cases() {
  return topk_cases({});
}

std::vector<OpCase> paged_mqa_topk_cases() {
  return paged_topk_cases({});
}

std::vector<OpCase> mqa_topk_blocks_cases() {
  return topk_cases({{"num_blocks", int64_t{4}}});
}

std::vector<OpCase> paged_mqa_topk_blocks_cases() {
  return paged_topk_cases({{"num_blocks", int64_t{3}}, {"block_size", int64_t{4}}});
}

std::vector<OpCase> candidate_blocks_cases() {
  std::vector<OpCase> cases;
  const std::vector<double> lengths = {200, 0, 1, 7, 8, 9, 64, 193};
  for (const int64_t num_blocks : {1, 2, 12, 30}) {
    cases.push_back(
        blocks_of("", random_tensor(DType::f32, {8, 200}, Values::normal, 1), lengths, num_blocks));
  }
  cases.push_back(
      blocks_of("bf16", random_tensor(DType::bf16, {8, 203}, Values::normal, 2), lengths, 9));
  cases.push_back(blocks_of("ties", ints(8, 200, 5, 3), lengths, 7));
  cases.push_back(
      blocks_of("nasty", random_tensor(DType::f32, {8, 200}, Values::nasty, 4), lengths, 7));
  cases.push_back(
      blocks_of("close",
                tensor_by(DType::f32, {2, 200},
                          [](int64_t i) { return 1 + static_cast<double>(i % 53) * 0x1p-20; }),
                {200, 77}, 6));
  HostTensor scores = random_tensor(DType::f32, {5, 120}, Values::normal, 5);
  for (int64_t i = 0; i < 120; ++i) {
    if (i / 8 % 3 != 0) scores.set_value(i, -kInfinity);     // blocks of -inf
    if (i / 8 % 2 == 0) scores.set_value(120 + i, kNan);     // of NaN
    if (i >= 112) scores.set_value(240 + i, -1e30);          // the newest is the worst
    scores.set_value(360 + i, i % 8 == 3 ? kInfinity : -1);  // as good as can be
    scores.set_value(480 + i, i < 100 ? -kInfinity : kNan);  // none but the newest
  }
  for (const int64_t num_blocks : {3, 12}) {
    cases.push_back(blocks_of("infinities", scores, {120, 119, 120, 120, 120}, num_blocks));
  }
  cases.push_back(blocks_of("behind the length",
                            tensor_by(DType::f32, {2, 100}, [](int64_t i) { return i % 100; }),
                            {50, 43}, 3));
  for (const int64_t size : {1, 2, 64}) {
    cases.push_back(blocks_of("", ints(3, 300, 9, 6), {300, 150, 65}, 4, size));
  }
  cases.push_back(blocks_of("a cluster", random_tensor(DType::f32, {1, 140000}, Values::normal, 7),
                            {139999}, 40));
  cases.push_back(strided(blocks_of("", ints(3, 40, 9, 8), {40, 33, 2}, 4), "scores", {44, 1}));
  cases.push_back(strided(blocks_of("", ints(3, 40, 9, 8), {40, 33, 2}, 4), "scores", {41, 1}));
  cases.push_back(blocks_of("lengths out of range", ints(3, 40, 9, 8), {-1, 41, 2147483647}, 3));
  cases.push_back(blocks_of("no columns", HostTensor(DType::f32, {2, 0}), {0}, 3));
  cases.push_back(blocks_of("no rows", HostTensor(DType::f32, {0, 40}), {0}, 3));
  return cases;
}

std::vector<OpCase> sparse_mqa_logits_cases() {
  std::vector<OpCase> cases = chosen_cases({});
  for (OpCase& test : cases) test.params.erase("out_page_size");
  OpCase test = cases.front();
  test.label += " NaN";
  test.inputs["k_sf"].set_value(17, kNan), test.inputs["k"].set_value(40 * 32, kNan);
  cases.push_back(test);
  cases.push_back(strided(cases.front(), "blocks", {7, 1}));
  return cases;
}

std::vector<OpCase> sparse_mqa_topk_cases() {
  std::vector<OpCase> cases = chosen_cases({{"topk", int64_t{12}}});
  const LogitsSize small = {3, 8, 32, 90};
  const Params topk = {{"topk", int64_t{20}}};
  const OpCase ranges = with_ranges(exact_logits("ranges", small), {0, 3, 70}, {90, 60, 89});
  cases.push_back(with(with_blocks(ranges, 6, {3, 3, 0, 3, 11, 0, 5, 1, 9, 5, 5, 5}, 8), topk));
  cases.push_back(with(with_blocks(with_ties(ranges), 5, {10, 2, 5, 0, 7}, 8), topk));
  OpCase test = with(with_blocks(with_ties(ranges), 5, {10, 2, 5, 0, 7}, 8), topk);
  test.params["order"] = std::string("value");
  cases.push_back(test);
  test = with(with_blocks(ranges, 5, {0, 2, 5, 7, 11}, 8), topk);
  test.inputs["k_sf"].set_value(17, kNan), test.inputs["k_sf"].set_value(42, -kInfinity);
  cases.push_back(test);
  test.params["relative"] = true;
  cases.push_back(test);
  cases.push_back(with(test, {{"topk", int64_t{100}}}));
  test = with_blocks(exact_paged_logits("slots", {2, 8, 32, 16, {70, 71, 33, 90}}), 5,
                     {0, 2, 5, 8, -1}, 8);
  cases.push_back(with(with_pages(test, "out_page_table", 2, 12),
                       {{"topk", int64_t{20}}, {"out_page_size", int64_t{8}}}));
  test = with_blocks(exact_paged_logits("slots of full pages", {2, 8, 32, 16, {80, 79, 33, 48}}), 6,
                     {0, 2, 5, 8, 9, -1}, 8);
  test = with(with_pages(test, "out_page_table", 2, 10),
              {{"topk", int64_t{38}}, {"out_page_size", int64_t{8}}});
  cases.push_back(test);
  cases.push_back(strided(test, "out_page_table", {11, 1}));
  return cases;
}

}  // namespace tessera::test
