// Cases of slots of paged caches: pages that are not there, padding, the ends of windows, sizes that are
// no powers of two, slots at the end of 32 bits.

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

HostTensor random_ids(const Dims& shape, int64_t lowest, int64_t bound, uint64_t seed) {
  Random random(seed);
  return tensor_by(DType::i32, shape, [&](int64_t) { return lowest + random.below(bound); });
}

OpCase gather_case(int64_t rows, int64_t per_row, int64_t columns, int64_t page_size) {
  OpCase test;
  test.label = fmt::format("R={} k={} Q={} page_size={}", rows, per_row, columns, page_size);
  // A little outside on both sides.
  test.inputs["indices"] = random_ids({rows, per_row}, -3, columns * page_size + 6, 71);
  test.inputs["page_table"] = random_ids({rows, columns}, -2, 1000, 72);
  test.params["page_size"] = page_size;
  return test;
}

OpCase plan_case(int64_t batch, const std::vector<int64_t>& sizes, int64_t longest) {
  OpCase test;
  test.label = fmt::format("B={} pools={} longest={}", batch, sizes.size(), longest);
  test.inputs["positions"] = random_ids({batch}, -1, longest + 1, 73);
  for (int64_t b = 0; b < batch; b += 3) {  // the ends of windows
    test.inputs["positions"].set_value(b, static_cast<double>(b % 2 == 0 ? 127 : 3));
  }
  const char* names[] = {"window", "c4", "c128"};
  const int64_t ratios[] = {1, 4, 128};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t columns = std::max<int64_t>(longest / ratios[i] / sizes[i], 1);
    test.inputs[std::string(names[i]) + "_pages"] = random_ids({batch, columns}, -2, 500, 74 + i);
    test.params[std::string(names[i]) + "_page_size"] = sizes[i];
  }
  return test;
}

}  // namespace

std::vector<OpCase> gather_pages_cases() {
  std::vector<OpCase> cases;
  for (const int64_t page_size : {1, 7, 64, 256, 1000}) {
    cases.push_back(gather_case(9, 40, 5, page_size));
    cases.push_back(gather_case(1, 513, 3, page_size));
  }
  cases.push_back(gather_case(300, 3, 2, 64));
  cases.push_back(gather_case(0, 3, 2, 64));
  cases.push_back(gather_case(3, 0, 2, 64));
  cases.push_back(
      strided(strided(gather_case(7, 5, 3, 16), "indices", {9, 1}), "page_table", {4, 1}));
  OpCase ends = gather_case(1, 6, 4, 1 << 20);
  ends.label += " the end of 32 bits";
  ends.inputs["indices"] =
      tensor_of(DType::i32, {1, 6}, {0, 1048575, 1048576, 2147483647, -2147483647, 3 << 20});
  ends.inputs["page_table"] = tensor_of(DType::i32, {1, 4}, {2047, 2048, -1, 2147483647});
  cases.push_back(std::move(ends));
  OpCase odd = gather_case(1, 4, 2, 3);
  odd.label += " the end of 32 bits";
  odd.inputs["indices"] = tensor_of(DType::i32, {1, 4}, {0, 2, 3, 5});
  odd.inputs["page_table"] = tensor_of(DType::i32, {1, 2}, {715827881, 715827882});
  cases.push_back(std::move(odd));
  return cases;
}

std::vector<OpCase> paged_lengths_cases() {
  std::vector<OpCase> cases;
  for (const int64_t ratio : {1, 4, 128}) {
    for (const int64_t page_size : {1, 7, 64}) {
      for (const int64_t batch : {0, 1, 127, 300}) {
        OpCase test;
        test.label = fmt::format("B={} ratio={} page_size={}", batch, ratio, page_size);
        test.inputs["lengths"] = random_ids({batch}, 0, 3000, 75);
        test.params = {{"ratio", ratio}, {"page_size", page_size}};
        cases.push_back(std::move(test));
      }
    }
  }
  OpCase ends = cases.back();
  ends.label += " ends";
  ends.inputs["lengths"] =
      tensor_of(DType::i32, {9}, {0, 1, 127, 128, -1, -2147483647, 2147483647, 8191, 8192});
  cases.push_back(ends);
  ends.params = {{"ratio", int64_t{1}}, {"page_size", int64_t{2147483647}}};
  ends.label += " one page";
  cases.push_back(std::move(ends));
  return cases;
}

std::vector<OpCase> slot_plan_cases() {
  std::vector<OpCase> cases;
  for (const int64_t batch : {0, 1, 130}) {
    cases.push_back(plan_case(batch, {64}, 512));
    cases.push_back(plan_case(batch, {37, 5}, 1000));
    cases.push_back(plan_case(batch, {128, 32, 4}, 2048));
  }
  OpCase old = plan_case(9, {64, 64, 64}, 1024);  // without the pool of ratio 4
  old.inputs.erase("c4_pages");
  old.label += " no c4";
  cases.push_back(std::move(old));
  OpCase ends = plan_case(9, {64, 16, 2}, 1024);
  ends.inputs["positions"] =
      tensor_of(DType::i32, {9}, {-1, 0, 3, 127, 128, 1023, 1024, 2147483647, -5});
  ends.label += " ends";
  cases.push_back(std::move(ends));
  for (const char* pool : {"window_pages", "c4_pages", "c128_pages"}) {
    cases.push_back(strided(plan_case(9, {64, 16, 2}, 1024), pool, {40, 1}));
  }
  return cases;
}

std::vector<OpCase> serving_plan_cases() {
  const auto step = [](const std::vector<double>& row_start, int64_t rows) {
    OpCase test;
    const auto batch = std::ssize(row_start) - 1;
    test.label = fmt::format("B={} num_rows={}", batch, rows);
    test.inputs["row_start"] = tensor_of(DType::i32, {batch + 1}, row_start);
    test.params["num_rows"] = rows;
    return test;
  };
  const auto with_pages = [](OpCase test, int64_t columns, int64_t page_size) {
    const int64_t batch = test.inputs["row_start"].size() - 1;
    test.inputs["start"] = random_ids({batch}, 0, columns * page_size / 2, 81);
    test.inputs["page_table"] = random_ids({batch, columns}, -2, 900, 82);
    test.params["page_size"] = page_size;
    test.label += fmt::format(" pages of {}", page_size);
    return test;
  };
  std::vector<OpCase> cases = {step({0}, 200), step({0, 0}, 0), step({0, 1}, 1),
                               step({0, 0, 7, 7, 7, 130, 131, 131}, 150), step({3, 5}, 9)};
  for (const int64_t page_size : {1, 7, 64}) {
    cases.push_back(with_pages(step({0, 0, 7, 7, 7, 60, 61, 61}, 64), 200, page_size));
  }
  cases.push_back(with_pages(step({0}, 5), 3, 64));
  OpCase test = with_pages(step({0, 4, 9, 12}, 12), 40, 16);
  cases.push_back(strided(test, "page_table", {48, 1}));
  test.params["ratio"] = int64_t{1}, test.params["second_ratio"] = int64_t{3};
  test.label += " other ratios";
  cases.push_back(test);
  std::vector<double> of_many;
  for (int64_t b = 0; b <= 300; ++b) of_many.push_back(static_cast<double>(b * 2 - b % 3 % 2));
  cases.push_back(step(of_many, 640));
  test = with_pages(step({0, 4, 9, 12}, 12), 40, 16);
  test.inputs["start"] = tensor_of(DType::i32, {3}, {632, 627, 637});
  test.label += " up to the last page";
  cases.push_back(test);
  test = with_pages(step({0, 4, 9, 12}, 12), 40, 16);
  test.inputs["start"] = tensor_of(DType::i32, {3}, {2147483643, -1, 2147483647});
  test.label += " starts out of range, positions without a page";
  cases.push_back(test);
  test.inputs["start"] = tensor_of(DType::i32, {3}, {0, 3, 639});
  test.inputs["row_start"] = tensor_of(DType::i32, {4}, {-2, 2, 9, 14});
  test.label += ", rows out of range";
  cases.push_back(std::move(test));
  return cases;
}

}  // namespace tessera::test
