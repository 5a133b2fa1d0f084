// Cases of mla_decode and mla_combine.

#include "tests/support/ops/mla_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/support/ops/attention_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;
constexpr double kNoPage = 2147483647;
constexpr int64_t kWidth = 576, kValueWidth = 512;

std::string text(const LatentSize& s) {
  return fmt::format("lengths {} n={} h={} ps={}", fmt::join(s.lengths, ","), s.tokens, s.heads,
                     s.page_size);
}

Dims q_shape(const LatentSize& s) {
  return {static_cast<int64_t>(s.lengths.size()), s.tokens, s.heads, kWidth};
}

/// Pages in a random order. Rows that belong to no request are NaN, entries behind a request have no page.
void add_cache(OpCase& test, const LatentSize& s,
               const std::function<double(int64_t channel)>& value) {
  const auto pages_of = [&](int64_t length) { return (length + s.page_size - 1) / s.page_size; };
  int64_t columns = 1, pages = 2;
  for (const int64_t length : s.lengths) {
    columns = std::max(columns, pages_of(length) + 1), pages += pages_of(length);
  }
  std::vector<int64_t> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  Random random(static_cast<uint64_t>(pages));
  for (int64_t i = pages - 1; i > 0; --i) {
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
  }
  const auto requests = static_cast<int64_t>(s.lengths.size());
  HostTensor table = tensor_by(DType::i32, {requests, columns},
                               [](int64_t i) { return i % 2 == 0 ? kNoPage : -1; });
  HostTensor cache =
      tensor_by(DType::bf16, {pages, s.page_size, kWidth}, [](int64_t) { return kNan; });
  HostTensor lengths(DType::i32, {requests});
  size_t next = 0;
  for (int64_t b = 0; b < requests; ++b) {
    const int64_t length = s.lengths[static_cast<size_t>(b)];
    lengths.set_value(b, static_cast<double>(length));
    for (int64_t page = 0; page < pages_of(length); ++page) {
      const int64_t place = order[next++];
      table.set_value(b * columns + page, static_cast<double>(place));
      const int64_t rows = std::min(s.page_size, length - page * s.page_size);
      for (int64_t i = 0; i < rows * kWidth; ++i) {
        cache.set_value(place * s.page_size * kWidth + i, value(i % kWidth));
      }
    }
  }
  test.inputs["cache"] = std::move(cache);
  test.inputs["page_table"] = std::move(table);
  test.inputs["lengths"] = std::move(lengths);
}

kernels::Params parts_of(int64_t split_len, bool is_causal = false) {
  return {{"split_len", split_len}, {"causal", is_causal}};
}

/// Whole scores with c = 1: every exponential is a power of two. Queries look at every eighth channel, which is -1, 0 or 1 in
/// keys; the others are small multiples of 1/4. So every sum is exact, whatever the tensor cores keep.
OpCase exact(const std::string& label, const LatentSize& s, const kernels::Params& params = {}) {
  OpCase test;
  test.label = fmt::format("{} {}", label, text(s));
  test.params = params;
  test.params["sm_scale"] = kLn2;
  Random random(static_cast<uint64_t>(s.tokens * 1000 + s.heads));
  constexpr int64_t kScored = 8;
  test.inputs["q"] = tensor_by(DType::bf16, q_shape(s), [&](int64_t i) {
    const bool is_looked_at = i % kScored == 0 && random.below(kWidth / kScored) < 5;
    return is_looked_at ? random.below(3) - 1 : 0;
  });
  add_cache(test, s, [&](int64_t channel) {
    if (channel % kScored == 0) return static_cast<double>(random.below(3) - 1);
    return static_cast<double>(random.below(17) - 8) / 4;
  });
  test.tolerances["lse"] = Tolerance{1e-6, 2e-6};  // of log2
  return test;
}

/// The case with another view of the cache: `gap` elements between its rows, a page of them between pages.
OpCase with_gaps(OpCase test, int64_t gap) {
  const Dims shape = test.inputs["cache"].shape();
  const int64_t row = kWidth + gap;
  return strided(std::move(test), "cache", {(shape[1] + 1) * row, row, 1});
}

/// The same without the column that no request needs.
OpCase full_table(OpCase test) {
  const HostTensor& table = test.inputs["page_table"];
  const int64_t columns = table.shape()[1] - 1;
  HostTensor full = tensor_by(DType::i32, {table.shape()[0], columns}, [&](int64_t i) {
    return table.value(i / columns * (columns + 1) + i % columns);
  });
  test.inputs["page_table"] = std::move(full);
  return test;
}

}  // namespace

OpCase normal_latent(const std::string& label, const LatentSize& s, const kernels::Params& params) {
  OpCase test;
  test.label = fmt::format("{} {} normal values", label, text(s));
  test.params = params;
  test.params.try_emplace("sm_scale", 1.0 / 24);
  test.inputs["q"] = random_tensor(DType::bf16, q_shape(s), Values::normal, 1);
  Random random(2);
  add_cache(test, s, [&](int64_t) { return random.normal(); });
  constexpr double kUnit = 0x1p-8;
  test.tolerance = Tolerance{2 * kUnit, kUnit / 4};
  test.tolerances["lse"] = Tolerance{1e-6, 4e-6};
  return test;
}

std::vector<OpCase> mla_decode_cases() {
  std::vector<OpCase> cases;
  cases.push_back(
      exact("lengths around a block", {1, 8, 64, {0, 1, 63, 64, 65, 129, 5}}, parts_of(64)));
  cases.push_back(exact("parts", {1, 16, 16, {130, 1, 200}}, parts_of(128)));
  cases.push_back(exact("tokens", {2, 8, 16, {40, 1, 0, 66}}, parts_of(4096, true)));
  cases.push_back(exact("more tokens than keys", {5, 8, 16, {3, 0, 5}}, parts_of(4096, true)));
  cases.push_back(
      exact("rows that see no key of a part", {4, 8, 64, {67, 130}}, parts_of(64, true)));
  cases.push_back(exact("all keys for all tokens", {3, 8, 16, {70}}));
  cases.push_back(exact("pages of one row", {1, 8, 1, {70, 3}}));
  cases.push_back(exact("pages of seven rows", {1, 24, 7, {150, 20}}, parts_of(128)));
  cases.push_back(exact("pages of 256 rows", {1, 8, 256, {130}}, parts_of(64)));
  cases.push_back(exact("more rows than a tile", {3, 24, 64, {70}}, parts_of(64, true)));
  cases.push_back(exact("128 heads", {1, 128, 64, {65}}));
  cases.push_back(exact("blocks of two groups", {1, 40, 64, {0, 1, 63, 64, 65, 129, 200}}));
  cases.push_back(exact("parts of two groups", {2, 40, 16, {130, 1, 300}}, parts_of(192, true)));
  cases.push_back(exact("two groups, pages of seven rows", {1, 64, 7, {150, 20}}, parts_of(128)));
  cases.push_back(exact("two groups, pages of 128 rows", {1, 48, 128, {200}}, parts_of(64)));
  cases.push_back(normal_latent("", {1, 64, 64, {200}}));
  LatentSize many{1, 8, 16, {}};
  for (int64_t b = 0; b < 131; ++b) many.lengths.push_back(b % 26 == 0 ? 1 + b % 4 : 0);
  cases.push_back(exact("more requests than a block looks at together", many));
  OpCase test;
  for (const int64_t heads : {8, 64}) {
    test = exact("f32", {1, heads, 16, {70}}, parts_of(64));
    test.params["out_dtype"] = std::string("f32");
    cases.push_back(test);
  }
  cases.push_back(normal_latent("", {1, 8, 16, {200}}, parts_of(64)));
  cases.push_back(normal_latent("", {1, 32, 64, {130}}));
  for (const int64_t heads : {8, 24}) {
    test = exact("pages that do not exist", {2, heads, 16, {100, 40}}, parts_of(heads * 8));
    for (const auto& [column, page] :
         {std::pair(3, -1.0), std::pair(4, 1000.0), std::pair(8, kNoPage), std::pair(9, -1.0),
          std::pair(10, -5.0)}) {
      test.inputs["page_table"].set_value(column, page);
    }
    cases.push_back(test);
  }
  test = exact("lengths out of range", {1, 8, 16, {40, 40, 40}});
  test.inputs["lengths"] = tensor_of(DType::i32, {3}, {-1, 40, -2147483648.0});
  cases.push_back(test);
  for (const int64_t heads : {8, 24}) {
    test = exact("a key of NaN", {2, heads, 64, {100}}, parts_of(heads * 8, true));
    const auto page = static_cast<int64_t>(test.inputs["page_table"].value(1));
    for (int64_t i = kValueWidth; i < kWidth; ++i) {
      test.inputs["cache"].set_value((page * 64 + 35) * kWidth + i, kNan);  // the last key
    }
    cases.push_back(test);
  }
  cases.push_back(scores_of_minus_infinity(exact("", {1, 8, 16, {70}}), "cache"));
  test = exact("heads before tokens", {3, 8, 16, {70}});
  cases.push_back(strided(std::move(test), "q", {3 * 8 * kWidth, kWidth, 3 * kWidth, 1}));
  cases.push_back(
      strided(full_table(exact("a full table", {1, 8, 16, {70, 66}})), "page_table", {12, 1}));
  cases.push_back(with_gaps(exact("gaps of 8", {1, 8, 64, {70}}), 8));
  cases.push_back(with_gaps(exact("gaps of 2", {1, 8, 16, {70}}), 2));
  cases.push_back(with_gaps(exact("gaps of 1", {1, 8, 16, {70}}), 1));
  cases.push_back(exact("nothing", {1, 8, 16, {0, 0}}));
  return cases;
}

namespace {

struct PartsSize {
  int64_t parts, rows, heads;
};

/// Whole maxima, so that factors are powers of two, or any.
OpCase combined(const std::string& label, const PartsSize& s, bool is_whole) {
  OpCase test;
  test.label = fmt::format("{} Z={} R={} num_heads={}{}", label, s.parts, s.rows, s.heads,
                           is_whole ? "" : " any maxima");
  test.params = {{"num_heads", s.heads}};
  Random random(static_cast<uint64_t>(s.parts * 100 + s.rows));
  test.inputs["partial"] =
      random_tensor(DType::f32, {s.parts, s.rows, kValueWidth}, Values::normal, 3);
  test.inputs["partial_max"] = tensor_by(DType::f32, {s.parts, s.rows}, [&](int64_t) {
    return is_whole ? static_cast<double>(random.below(9) - 4) : 2 * random.normal();
  });
  test.inputs["partial_sum"] =
      tensor_by(DType::f32, {s.parts, s.rows}, [&](int64_t) { return 1 + 50 * random.uniform(); });
  if (!is_whole) test.tolerance = Tolerance{0x1p-7, 1e-6};
  test.tolerances["lse"] = Tolerance{1e-6, 2e-6};
  return test;
}

/// Part z of a row, or one that is not there.
void set_part(OpCase& test, int64_t z, int64_t row, double maximum, double sum, double o) {
  const int64_t at = z * test.inputs["partial"].shape()[1] + row;
  test.inputs["partial_max"].set_value(at, maximum);
  test.inputs["partial_sum"].set_value(at, sum);
  for (int64_t d = 0; d < kValueWidth; ++d) {
    test.inputs["partial"].set_value(at * kValueWidth + d, o);
  }
}

}  // namespace

std::vector<OpCase> mla_combine_cases() {
  std::vector<OpCase> cases;
  for (const int64_t parts : {1, 2, 7, 8, 32}) {
    cases.push_back(combined("", {parts, 8, 8}, true));
  }
  cases.push_back(combined("", {3, 16, 8}, false));
  OpCase test = combined("f32", {5, 8, 8}, true);
  test.params["out_dtype"] = std::string("f32");
  cases.push_back(test);
  test = combined("parts that are not there", {3, 4, 4}, true);
  set_part(test, 0, 0, -kInfinity, 0, 0), set_part(test, 2, 1, -kInfinity, 0, 0);
  for (int64_t z = 0; z < 3; ++z) set_part(test, z, 2, -kInfinity, 0, 0);
  cases.push_back(test);
  test = combined("NaN and infinity", {2, 5, 5}, true);
  set_part(test, 0, 0, kNan, kNan, kNan), set_part(test, 1, 1, kInfinity, 1, 1);
  set_part(test, 0, 2, 0, 1, kNan);
  cases.push_back(test);
  test = combined("outputs of -0", {2, 2, 2}, true);
  for (int64_t z = 0; z < 2; ++z) set_part(test, z, 1, 1, 2, -0.0);
  cases.push_back(test);
  test = combined("outputs that are lost", {1, 2, 2}, true);
  set_part(test, 0, 1, 1, 2, -1e-45);
  cases.push_back(test);
  test = combined("sinks", {3, 12, 6}, true);
  test.inputs["attn_sink"] =
      tensor_of(DType::f32, {6}, {-kInfinity, kInfinity, kNan, 1e4, -kInfinity, -1e4});
  cases.push_back(test);
  test = combined("sinks", {2, 8, 4}, false);
  test.inputs["attn_sink"] = tensor_of(DType::f32, {4}, {0.5, -3, 2, 4});
  cases.push_back(test);
  for (const PartsSize& s : {PartsSize{0, 4, 4}, PartsSize{2, 0, 4}}) {
    cases.push_back(combined("nothing", s, true));
  }
  return cases;
}

namespace {

/// As the exact cases of mla_decode.
OpCase chosen(const std::string& label, const ChosenSize& s) {
  OpCase test;
  test.label = fmt::format("{} S={} h={} d={} T={} k={}", label, s.tokens, s.heads, s.width, s.keys,
                           s.count);
  test.params["sm_scale"] = kLn2;
  Random random(static_cast<uint64_t>(s.tokens * 1000 + s.count));
  constexpr int64_t kScored = 8;
  test.inputs["q"] = tensor_by(DType::bf16, {s.tokens, s.heads, s.width}, [&](int64_t i) {
    const bool is_looked_at = i % kScored == 0 && random.below(s.width / kScored) < 5;
    return is_looked_at ? random.below(3) - 1 : 0;
  });
  test.inputs["kv"] = tensor_by(DType::bf16, {s.keys, s.width}, [&](int64_t i) {
    if (i % kScored == 0) return static_cast<double>(random.below(3) - 1);
    return static_cast<double>(random.below(17) - 8) / 4;
  });
  test.inputs["indices"] = tensor_by(DType::i32, {s.tokens, s.count}, [&](int64_t) {
    return s.keys > 0 ? random.below(s.keys) : 0;
  });
  test.tolerances["lse"] = Tolerance{1e-6, 2e-6};  // of log2
  return test;
}

OpCase normal_chosen(const std::string& label, const ChosenSize& s) {
  OpCase test = chosen(label + " normal values", s);
  test.params["sm_scale"] = 1.0 / 24;
  test.inputs["q"] = random_tensor(DType::bf16, test.inputs["q"].shape(), Values::normal, 1);
  test.inputs["kv"] = random_tensor(DType::bf16, test.inputs["kv"].shape(), Values::normal, 2);
  test.tolerance = Tolerance{0x1p-7, 0x1p-10};
  test.tolerances["lse"] = test.tolerances["max_logits"] = Tolerance{1e-6, 4e-6};
  return test;
}

}  // namespace

std::vector<OpCase> sparse_mla_fwd_cases() {
  std::vector<OpCase> cases;
  OpCase test = chosen("lengths", {5, 8, 512, 40, 130});
  test.inputs["topk_length"] = tensor_of(DType::i32, {5}, {130, 64, 0, 1, 65});
  cases.push_back(test);
  test = chosen("indices that are none", {3, 16, 576, 30, 70});
  for (const auto& [at, index] :
       {std::pair(0, -1.0), std::pair(3, 30.0), std::pair(69, kNoPage), std::pair(5, -2147483648.0),
        std::pair(66, -123456.0), std::pair(80, -1.0)}) {
    test.inputs["indices"].set_value(at, index);
  }
  for (int64_t i = 140; i < 210; ++i) test.inputs["indices"].set_value(i, i % 2 == 0 ? -1 : 30);
  cases.push_back(test);
  cases.push_back(chosen("48 heads", {2, 48, 512, 9, 20}));
  for (const int64_t width : {512, 576}) {
    test = chosen("two groups", {4, 64, width, 50, 200});
    test.inputs["topk_length"] = tensor_of(DType::i32, {4}, {200, 0, 65, 128});
    test.inputs["attn_sink"] = tensor_by(DType::f32, {64}, [](int64_t head) {
      constexpr double kSinks[] = {-1, kInfinity, kNan, -kInfinity, 2};
      return kSinks[head % 5];
    });
    test.inputs["q_scale"] = tensor_by(DType::f32, {4, 64}, [](int64_t i) {
      constexpr double kScales[] = {1, 2, 4, 1, 0, 2, kNan};
      return kScales[i % 7];
    });
    for (int64_t i = 0; i < 800; i += 7) test.inputs["indices"].set_value(i, i % 2 == 0 ? -1 : 50);
    cases.push_back(test);
  }
  cases.push_back(chosen("128 heads", {1, 128, 576, 9, 5}));
  test = chosen("f32", {2, 8, 512, 50, 70});
  test.params["out_dtype"] = std::string("f32");
  cases.push_back(test);
  cases.push_back(normal_chosen("", {2, 8, 576, 100, 130}));
  test = chosen("sinks", {2, 8, 512, 20, 10});
  test.inputs["attn_sink"] = tensor_of(
      DType::f32, {8}, {-kInfinity, kInfinity, kNan, 1e4, -kInfinity, -1e4, kInfinity, -1e4});
  test.inputs["topk_length"] = tensor_of(DType::i32, {2}, {10, 0});
  cases.push_back(test);
  test = normal_chosen("sinks", {2, 8, 512, 40, 20});
  test.inputs["attn_sink"] = tensor_of(DType::f32, {8}, {0.5, -3, 2, 4});
  cases.push_back(test);
  test = chosen("scales", {2, 8, 512, 40, 70});
  test.inputs["q_scale"] = tensor_of(DType::f32, {2, 8}, {1, 2, 0.5, 1, 4});
  test.tolerance = Tolerance{0x1p-7, 0x1p-10};  // halves of scores are no powers of two
  cases.push_back(test);
  test = chosen("scales out of range", {2, 8, 512, 40, 10});
  test.inputs["q_scale"] =
      tensor_of(DType::f32, {2, 8}, {1, 0, 2, -1, kNan, kInfinity, 1, -kInfinity});
  test.inputs["topk_length"] = tensor_of(DType::i32, {2}, {10, 0});
  cases.push_back(test);
  test = chosen("lengths out of range", {3, 8, 512, 20, 10});
  test.inputs["topk_length"] = tensor_of(DType::i32, {3}, {-1, 10, -2147483648.0});
  cases.push_back(test);
  test = chosen("keys of NaN and infinity", {3, 8, 512, 20, 10});
  for (int64_t i = 0; i < 10; ++i) {
    test.inputs["indices"].set_value(i, static_cast<double>(i));
    test.inputs["indices"].set_value(10 + i, static_cast<double>(i + 1));
    test.inputs["indices"].set_value(20 + i, static_cast<double>(i + 10));
  }
  for (int64_t d = 0; d < 512; ++d) test.inputs["kv"].set_value(d, kNan);
  for (int64_t i = 0; i < test.inputs["q"].size(); i += 512) test.inputs["q"].set_value(i, 1);
  test.inputs["kv"].set_value(12 * 512, kInfinity);
  cases.push_back(test);
  test = chosen("heads before tokens", {3, 8, 512, 20, 10});
  cases.push_back(strided(std::move(test), "q", {512, 3 * 512, 1}));
  cases.push_back(strided(chosen("gaps", {2, 8, 512, 20, 10}), "kv", {520, 1}));
  cases.push_back(strided(chosen("gaps of 1", {2, 8, 512, 20, 10}), "kv", {513, 1}));
  cases.push_back(strided(chosen("", {3, 8, 512, 20, 10}), "indices", {12, 1}));
  for (const ChosenSize& s : {ChosenSize{0, 8, 512, 20, 10}, ChosenSize{2, 8, 512, 0, 10},
                              ChosenSize{2, 8, 512, 20, 0}}) {
    cases.push_back(chosen("nothing", s));
  }
  return cases;
}

}  // namespace tessera::test
