// Cases of attention_decode: pages of every size, lengths around blocks and parts, groups of heads, several
// tokens, windows, sinks, scales, values out of range.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
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

std::string text(const PagedSize& s, DType dtype) {
  return fmt::format("lengths {} n={} h={} g={} dk={} dv={} ps={} {}", fmt::join(s.lengths, ","),
                     s.tokens, s.heads, s.groups, s.width, s.value_width, s.page_size, name(dtype));
}

/// Pages in a random order. Rows that belong to no request are NaN, entries behind a request have no page.
void add_cache(OpCase& test, const PagedSize& s, DType dtype,
               const std::function<double(bool is_key)>& value) {
  const auto pages_of = [&](int64_t length) { return (length + s.page_size - 1) / s.page_size; };
  int64_t columns = 1, pages = 3;
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
  for (const bool is_key : {true, false}) {
    HostTensor cache =
        tensor_by(dtype, {pages, s.page_size, s.groups, is_key ? s.width : s.value_width},
                  [](int64_t) { return kNan; });
    const int64_t row = cache.shape()[2] * cache.shape()[3];
    size_t next = 0;
    for (int64_t b = 0; b < requests; ++b) {
      const int64_t length = s.lengths[static_cast<size_t>(b)];
      for (int64_t page = 0; page < pages_of(length); ++page) {
        const int64_t place = order[next++];
        table.set_value(b * columns + page, static_cast<double>(place));
        const int64_t rows = std::min(s.page_size, length - page * s.page_size);
        for (int64_t i = 0; i < rows * row; ++i) {
          cache.set_value(place * s.page_size * row + i, value(is_key));
        }
      }
    }
    test.inputs[is_key ? "k_cache" : "v_cache"] = std::move(cache);
  }
  test.inputs["page_table"] = std::move(table);
  HostTensor lengths(DType::i32, {requests});
  for (int64_t b = 0; b < requests; ++b) {
    lengths.set_value(b, static_cast<double>(s.lengths[static_cast<size_t>(b)]));
  }
  test.inputs["lengths"] = std::move(lengths);
}

Dims q_shape(const PagedSize& s) {
  return {static_cast<int64_t>(s.lengths.size()), s.tokens, s.heads, s.width};
}

void add_scales(OpCase& test, const PagedSize& s, const std::vector<double>& k_sf,
                const std::vector<double>& v_sf) {
  test.inputs["k_sf"] = tensor_of(DType::f32, {s.groups}, k_sf);
  test.inputs["v_sf"] = tensor_of(DType::f32, {s.groups}, v_sf);
}

/// Without the last column of the table, which no request needs.
OpCase full_table(OpCase test) {
  const HostTensor& table = test.inputs["page_table"];
  const int64_t columns = table.shape()[1];
  HostTensor full = tensor_by(DType::i32, {table.shape()[0], columns - 1}, [&](int64_t i) {
    return table.value(i / (columns - 1) * columns + i % (columns - 1));
  });
  test.label += " a full table";
  test.inputs["page_table"] = std::move(full);
  return test;
}

/// Whole scores with c = 1 and values of which every sum is exact, as the exact cases of attention_fwd.
OpCase exact(const std::string& label, const PagedSize& s, const kernels::Params& params = {},
             DType dtype = DType::bf16) {
  OpCase test;
  const bool is_e4m3 = dtype == DType::e4m3;
  test.label = fmt::format("{} {}", label, text(s, dtype));
  test.params = params;
  test.params["scale"] = kLn2;
  Random random(static_cast<uint64_t>(s.tokens * 1000 + s.lengths.front()));
  const auto few = [&](int64_t) { return random.below(s.width) < 4 ? random.below(3) - 1 : 0; };
  test.inputs["q"] = tensor_by(is_e4m3 ? DType::bf16 : dtype, q_shape(s), few);
  add_cache(test, s, dtype, [&](bool is_key) {
    return is_key ? static_cast<double>(random.below(3) - 1)
                  : static_cast<double>(random.below(17) - 8) / 4;
  });
  if (is_e4m3) add_scales(test, s, {1, 2}, {0.5, -4});
  test.tolerances["lse"] = Tolerance{1e-6, 2e-6};  // of log2
  return test;
}

}  // namespace

OpCase normal_paged(const std::string& label, const PagedSize& s, const kernels::Params& params,
                    DType dtype) {
  OpCase test;
  const bool is_e4m3 = dtype == DType::e4m3;
  test.label = fmt::format("{} {} normal values", label, text(s, dtype));
  test.params = params;
  test.inputs["q"] = random_tensor(is_e4m3 ? DType::bf16 : dtype, q_shape(s), Values::normal, 1);
  Random random(2);
  add_cache(test, s, dtype, [&](bool) { return random.normal(); });
  if (is_e4m3) add_scales(test, s, {0.37, 1.2}, {1.9, 0.6});
  const double u = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  test.tolerance = Tolerance{2 * u, is_e4m3 ? u / 2 : u / 4};
  test.tolerances["lse"] = Tolerance{1e-6, 4e-6};
  return test;
}

std::vector<OpCase> attention_decode_cases() {
  std::vector<OpCase> cases;
  const kernels::Params parts = {{"split_len", int64_t{128}}};
  const std::pair<int64_t, int64_t> widths[] = {
      {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (const auto& [width, value_width] : widths) {
    cases.push_back(exact("", {1, 2, 1, width, value_width, 16, {130, 1}}, parts));
    cases.push_back(exact("", {2, 3, 1, width, value_width, 16, {40}}, {}, DType::f16));
    cases.push_back(normal_paged("", {1, 2, 1, width, value_width, 64, {200}}, parts));
  }
  cases.push_back(
      exact("lengths around a part", {1, 4, 2, 64, 64, 16, {0, 1, 127, 128, 129, 257, 5}}, parts));
  cases.push_back(exact("a part of many blocks", {1, 2, 2, 64, 64, 256, {1025, 1024}}));
  cases.push_back(exact("pages of one row", {1, 2, 1, 64, 64, 1, {70, 3}}));
  cases.push_back(exact("pages of seven rows", {2, 2, 1, 64, 64, 7, {150, 20}}, parts));
  cases.push_back(exact("16 heads of a key", {1, 16, 1, 64, 64, 16, {60}}));
  cases.push_back(exact("17 rows", {1, 17, 1, 64, 64, 16, {140}}, parts));
  cases.push_back(exact("33 rows", {3, 22, 2, 64, 64, 16, {140}}, parts));
  cases.push_back(exact("more rows than a tile", {9, 8, 1, 64, 64, 16, {200, 4}}, parts));
  cases.push_back(exact("more tokens than keys", {5, 2, 1, 64, 64, 16, {3, 0, 5}}));
  cases.push_back(exact("all keys", {3, 2, 1, 64, 64, 16, {140}},
                        {{"causal", false}, {"split_len", int64_t{128}}}));
  PagedSize many{1, 1, 1, 64, 64, 16, {}};
  for (int64_t b = 0; b < 131; ++b) many.lengths.push_back(b % 5 == 0 ? 20 : b % 3);
  cases.push_back(exact("more requests than a block looks at together", many));
  for (const int64_t left : {0, 17, 128, 1000}) {
    cases.push_back(exact(fmt::format("window {}", left), {3, 2, 1, 64, 64, 16, {300, 20}},
                          {{"window_left", left}, {"split_len", int64_t{128}}}));
  }
  cases.push_back(
      normal_paged("window", {2, 2, 1, 64, 64, 16, {300}}, {{"window_left", int64_t{100}}}));
  cases.push_back(normal_paged("three parts", {1, 8, 2, 128, 128, 16, {300}}, parts));
  cases.push_back(normal_paged("cap", {1, 2, 1, 64, 64, 16, {140}},
                               {{"softcap", 8.0}, {"split_len", int64_t{128}}}));
  for (const int64_t width : {64, 128, 256}) {
    cases.push_back(exact("e4m3", {1, 4, 2, width, width, 16, {140, 2}}, parts, DType::e4m3));
  }
  cases.push_back(normal_paged("e4m3", {1, 4, 2, 64, 64, 16, {140}}, parts, DType::e4m3));
  cases.push_back(
      normal_paged("e4m3 and cap", {1, 4, 2, 64, 64, 16, {140}}, {{"softcap", 8.0}}, DType::e4m3));
  cases.push_back(exact("17 rows", {1, 17, 1, 128, 128, 16, {140}}, parts, DType::e4m3));
  cases.push_back(exact("33 rows", {3, 22, 2, 64, 64, 64, {140}}, parts, DType::e4m3));
  cases.push_back(
      exact("pages of seven rows", {2, 4, 2, 128, 128, 7, {150, 20}}, parts, DType::e4m3));
  cases.push_back(exact("pages longer than a block", {1, 4, 2, 64, 64, 256, {300}}, parts));
  OpCase test = exact("e4m3 with sinks", {1, 4, 2, 64, 64, 16, {140, 9}}, parts, DType::e4m3);
  test.inputs["sink"] = tensor_of(DType::f32, {4}, {0, -kInfinity, 3, 1});
  test.tolerance = Tolerance{0x1p-7, 0x1p-10};
  cases.push_back(test);
  test = exact("sinks", {1, 6, 3, 64, 64, 16, {140, 9}}, parts);
  test.inputs["sink"] =
      tensor_of(DType::f32, {6}, {-kInfinity, kInfinity, kNan, 1e4, -kInfinity, -1e4});
  cases.push_back(test);
  test = normal_paged("sinks", {1, 4, 2, 64, 64, 16, {140, 9}}, parts);
  test.inputs["sink"] = tensor_of(DType::f32, {4}, {0.5, -3, 2, 4});
  cases.push_back(test);
  for (const double scale : {0.0, -1.0, kNan, kInfinity}) {
    test = exact(fmt::format("a scale of {}", scale), {1, 2, 2, 64, 64, 16, {140, 0}}, parts,
                 DType::e4m3);
    test.inputs["k_sf"] = tensor_of(DType::f32, {2}, {1, scale});
    cases.push_back(test);
  }
  test = exact("pages that do not exist", {2, 2, 1, 64, 64, 16, {200, 40}}, parts);
  for (const auto& [column, page] :
       {std::pair(3, -1.0), std::pair(7, 1000.0), std::pair(8, kNoPage)}) {
    test.inputs["page_table"].set_value(column, page);
  }
  cases.push_back(test);
  test = exact("lengths out of range", {1, 2, 1, 64, 64, 16, {40, 40, 40}});
  test.inputs["lengths"] = tensor_of(DType::i32, {3}, {-1, 40, -2147483648.0});
  cases.push_back(test);
  test = exact("a key of NaN", {2, 2, 1, 64, 64, 64, {200}}, parts);
  const auto page = static_cast<int64_t>(test.inputs["page_table"].value(3));
  for (int64_t i = 0; i < 64; ++i) test.inputs["k_cache"].set_value((page * 64 + 7) * 64 + i, kNan);
  cases.push_back(test);
  test = exact("a code of NaN", {2, 4, 2, 64, 64, 64, {200}}, parts, DType::e4m3);
  const auto of_code = static_cast<int64_t>(test.inputs["page_table"].value(3));
  for (const char* name : {"k_cache", "v_cache"}) {
    test.inputs[name].set_value((of_code * 64 + 7) * 128 + (name[0] == 'k' ? 5 : 64 + 9), kNan);
  }
  cases.push_back(test);
  test = exact("heads before rows", {1, 4, 2, 64, 64, 16, {140}}, parts);
  for (const char* name : {"k_cache", "v_cache"}) {
    const HostTensor& cache = test.inputs[name];
    const int64_t pages = cache.shape()[0];
    HostTensor part(DType::bf16, {pages, 16, 2, 64}, {2 * 16 * 64, 64, 16 * 64, 1});
    for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, cache.bits(i));
    test.inputs[name] = part;
  }
  cases.push_back(test);
  test = exact("tokens behind heads", {3, 4, 2, 64, 64, 16, {140}}, parts);
  cases.push_back(strided(std::move(test), "q", {3 * 4 * 64, 64, 3 * 64, 1}));
  cases.push_back(strided(full_table(exact("", {1, 2, 1, 64, 64, 16, {140, 130}}, parts)),
                          "page_table", {12, 1}));
  cases.push_back(scores_of_minus_infinity(exact("", {1, 2, 1, 64, 64, 16, {70}}), "k_cache"));
  PagedSize none{1, 2, 1, 64, 64, 16, {}};
  none.lengths = {0, 0};
  cases.push_back(exact("nothing", none));
  return cases;
}

}  // namespace tessera::test
