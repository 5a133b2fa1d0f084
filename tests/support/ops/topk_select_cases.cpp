// Cases of topk_select: lengths around every limit of a kernel, rows of hostile scores, all options.

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

OpCase select_case(const std::string& label, HostTensor scores, int64_t topk,
                   kernels::Params params = {}) {
  OpCase test;
  test.label =
      fmt::format("{} {} {} top {}", label, name(scores.dtype()), to_string(scores.shape()), topk);
  test.inputs["scores"] = std::move(scores);
  test.params = std::move(params);
  test.params["topk"] = topk;
  return test;
}

HostTensor normal(Dims shape, DType dtype = DType::f32, uint64_t seed = 1) {
  return random_tensor(dtype, shape, Values::normal, seed);
}

HostTensor integers(const std::vector<int64_t>& values) {
  return tensor_by(DType::i32, {std::ssize(values)},
                   [&](int64_t i) { return values[static_cast<size_t>(i)]; });
}

const kernels::Params kByValue = {{"order", std::string("value")}, {"save_values", true}};
const kernels::Params kAll = {{"save_raw", true}, {"save_values", true}, {"relative", true}};

/// Rows that a coarse key, a count of few bits or an unordered choice gets wrong.
struct Hostile {
  const char* name;
  std::function<double(Random&, int64_t i)> score;
};

std::vector<Hostile> hostile_rows() {
  const auto pick = [](Random& r, std::vector<double> of) {
    return of[static_cast<size_t>(r.below(std::ssize(of)))];
  };
  return {
      {"all equal", [](Random&, int64_t) { return 1.5; }},
      {"all -inf", [](Random&, int64_t) { return -kInfinity; }},
      {"all NaN", [](Random&, int64_t) { return kNan; }},
      {"zeros of both signs",
       [=](Random& r, int64_t) {
         return pick(r, {0.0, -0.0});
       }},
      {"few values", [](Random& r, int64_t) { return static_cast<double>(r.below(6) - 3); }},
      {"mostly -inf, some NaN",
       [=](Random& r, int64_t) {
         return pick(r, {-kInfinity, -kInfinity, -kInfinity, kNan, r.normal()});
       }},
      {"infinities",
       [=](Random& r, int64_t) {
         return pick(r, {kInfinity, -kInfinity, 1.0});
       }},
      {"one ulp apart",
       [](Random& r, int64_t) { return 1.0 + static_cast<double>(r.below(3)) * 0x1p-23; }},
      {"any scale",
       [](Random& r, int64_t) {
         return r.normal() * std::pow(10.0, static_cast<double>(r.below(83) - 45));
       }},
      {"subnormals",
       [](Random& r, int64_t) { return static_cast<double>(r.below(40) - 20) * 0x1p-149; }},
      {"ReLU", [](Random& r, int64_t) { return std::max(r.normal(), 0.0); }},
      {"descending", [](Random&, int64_t i) { return static_cast<double>(-i); }},
      {"ascending", [](Random&, int64_t i) { return static_cast<double>(i); }},
  };
}

void add_hostile(std::vector<OpCase>& cases) {
  uint64_t seed = 30;
  for (const Hostile& hostile : hostile_rows()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Random random(++seed);
      HostTensor scores =
          tensor_by(dtype, {2, 700}, [&](int64_t i) { return hostile.score(random, i); });
      cases.push_back(select_case(hostile.name, scores, 64));
      cases.push_back(select_case(hostile.name, std::move(scores), 300, kByValue));
    }
  }
}

/// The same rows in many chunks: of one block, of several, of blocks that find too many candidates.
void add_long_hostile(std::vector<OpCase>& cases) {
  uint64_t seed = 60;
  for (const Hostile& hostile : hostile_rows()) {
    Random random(++seed);
    const auto score = [&](int64_t i) { return hostile.score(random, i); };
    const std::string name = std::string(hostile.name) + ", long";
    cases.push_back(select_case(name, tensor_by(DType::f32, {1, 50001}, score), 512));
    cases.push_back(select_case(name, tensor_by(DType::bf16, {1, 40000}, score), 100, kByValue));
    cases.push_back(select_case(name, tensor_by(DType::f32, {1, 20000}, score), 1500, kByValue));
  }
  Random random(29);
  cases.push_back(select_case(
      "ascending, more chunks than blocks",
      tensor_by(DType::f32, {1, 290000}, [](int64_t i) { return static_cast<double>(i / 3); }),
      512));
  cases.push_back(select_case("one good chunk, then better ones",
                              tensor_by(DType::f32, {1, 66000},
                                        [&](int64_t i) {
                                          const bool is_good = i < 9000 || i > 61000;
                                          return is_good ? 3 + random.normal() : random.normal();
                                        }),
                              4096, kByValue));
  // The blocks of a cluster bound the last chosen score by the worst of them: of little use here.
  const auto all_but = [&](int64_t from, int64_t to) {
    return [&random, from, to](int64_t i) {
      return random.normal() + (i >= from && i < to ? -10 : 10);
    };
  };
  cases.push_back(select_case(
      "one bad block", tensor_by(DType::f32, {1, 66000}, all_but(65536, 66000)), 512, kByValue));
  cases.push_back(select_case("one bad chunk",
                              tensor_by(DType::f32, {1, 290000}, all_but(65536, 98304)), 2048));
}

/// Pages of `size`, some of them absent.
HostTensor pages_of(Dims shape, uint64_t seed) {
  Random random(seed);
  return tensor_by(DType::i32, shape, [&](int64_t) { return random.below(1000) - 100; });
}

void add_options(std::vector<OpCase>& cases) {
  OpCase ragged = select_case("ragged", normal({9, 1000}), 100);
  ragged.inputs["lengths"] = integers({0, 1, 99, 100, 101, 500, 998, 999, 1000});
  cases.push_back(ragged);
  ragged.params.merge(kernels::Params(kByValue));
  cases.push_back(ragged);
  ragged.inputs["starts"] = integers({0, 1, 98, 3, 0, 401, 7, 899, 2});
  ragged.params.merge(kernels::Params(kAll));
  cases.push_back(ragged);
  ragged.params.erase("order");
  cases.push_back(ragged);
  ragged.inputs["page_table"] = pages_of({9, 16}, 3);
  cases.push_back(ragged);
  ragged.params["relative"] = false;
  ragged.inputs.erase("lengths");
  cases.push_back(ragged);
  ragged.params["page_size"] = int64_t{1};
  ragged.inputs["page_table"] = pages_of({9, 1000}, 4);
  cases.push_back(ragged);
  ragged.params["page_size"] = int64_t{1024};
  ragged.inputs["page_table"] = random_tensor(DType::i32, {9, 1}, {3, 1}, Values::uniform, 5);
  for (int64_t i = 0; i < 9; ++i)
    ragged.inputs["page_table"].set_value(i, static_cast<double>(i * 3 - 2));
  cases.push_back(ragged);
  OpCase shared = ragged;
  shared.inputs["page_table"] = pages_of({3, 1}, 11);
  shared.inputs["table_row"] = integers({2, 0, 0, 1, 2, 2, 1, 0, 1});
  cases.push_back(shared);
  shared.inputs["table_row"] = integers({2, 0, -1, 1, 3, 2, 2147483647, 0, 1});
  shared.label += ", table rows out of range";
  cases.push_back(std::move(shared));
  ragged.inputs["plan"] = tensor_by(DType::i32, {10, 2}, [](int64_t i) {
    return i == 0 ? 32768 : i == 1 ? 0 : -1;
  });
  cases.push_back(std::move(ragged));

  OpCase beyond =
      select_case("ranges and pages out of range", normal({6, 300}), 40, {{"save_raw", true}});
  beyond.inputs["lengths"] = integers({-5, 301, 2147483647, 10, 300, 300});
  beyond.inputs["starts"] = integers({0, -3, 100, 20, 301, -2147483647});
  beyond.inputs["page_table"] = pages_of({6, 3}, 6);  // of the first 192 columns
  cases.push_back(std::move(beyond));

  for (const DType dtype : {DType::f32, DType::bf16}) {
    cases.push_back(select_case("pitch 1024",
                                random_tensor(dtype, {3, 1000}, {1024, 1}, Values::normal, 7), 64));
    cases.push_back(select_case(
        "pitch 1003", random_tensor(dtype, {3, 1000}, {1003, 1}, Values::nasty, 8), 64, kByValue));
    OpCase odd = select_case("odd starts", normal({4, 2000}, dtype, 9), 1000, kAll);
    odd.inputs["starts"] = integers({1, 2, 3, 13});
    odd.inputs["lengths"] = integers({2000, 1999, 1998, 1014});
    cases.push_back(std::move(odd));
  }
}

}  // namespace

std::vector<OpCase> topk_select_cases() {
  std::vector<OpCase> cases;
  for (const int64_t topk : {1, 2, 7, 31, 63, 64, 65, 66}) {
    cases.push_back(select_case("", normal({3, 65}), topk));
    cases.push_back(select_case("", normal({2, 65}, DType::bf16), topk, kByValue));
  }
  cases.push_back(select_case("", normal({0, 65}), 4));
  cases.push_back(select_case("", normal({3, 1}), 1));
  add_hostile(cases);
  add_long_hostile(cases);
  add_options(cases);
  // The ends of the tiers: one chunk, two, more blocks.
  for (const int64_t length : {8191, 8192, 8193, 16383, 16384, 16385, 32768, 32769, 65537}) {
    cases.push_back(select_case("", normal({1, length}), 512));
  }
  for (const int64_t length : {16384, 32776}) {
    cases.push_back(select_case("", normal({1, length}, DType::bf16), 2048, kByValue));
  }
  cases.push_back(select_case("", normal({1, 20000}), 4096, kByValue));
  cases.push_back(select_case("", normal({1, 131076}), 33));
  cases.push_back(select_case("", normal({1, 262148}, DType::bf16), 600));
  OpCase many = select_case("many short rows of long ones", normal({130, 33000}, DType::bf16), 10);
  many.inputs["lengths"] =
      tensor_by(DType::i32, {130}, [](int64_t b) { return b == 7 ? 33000 : b * 3; });
  cases.push_back(std::move(many));
  OpCase rows = select_case("short rows in clusters", normal({3, 40000}), 50, kAll);
  rows.inputs["lengths"] = integers({33, 40000, 5001});
  rows.inputs["starts"] = integers({3, 39000, 1});
  cases.push_back(std::move(rows));
  return cases;
}

std::vector<OpCase> topk_plan_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t rows, int64_t topk, int64_t max_length, uint64_t seed) {
    OpCase test;
    test.label = fmt::format("B={} topk={} max_length={}", rows, topk, max_length);
    Random random(seed);
    test.inputs["lengths"] =
        tensor_by(DType::i32, {rows}, [&](int64_t) { return random.below(max_length + 1); });
    test.params = {{"topk", topk}, {"max_length", max_length}};
    cases.push_back(std::move(test));
  };
  for (const int64_t rows : {1, 31, 32, 33, 1023, 1024, 1025, 5000}) add(rows, 512, 70000, 1);
  add(200, 512, 32769, 2);
  add(200, 512, 32768, 3);
  add(200, 40000, 60000, 4);
  add(200, 100, 0, 5);
  OpCase limits = cases.front();
  limits.label = "lengths at and beyond the limits";
  limits.inputs["lengths"] =
      integers({32767, 32768, 32769, 70000, 70001, 2147483647, -1, -2147483647, 0});
  cases.push_back(std::move(limits));
  return cases;
}

}  // namespace tessera::test
