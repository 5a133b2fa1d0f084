// Groups and counts of rows that are none.

#include "tests/support/ops/promise_cases.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

PromiseCase grouped(const std::string& label, const std::vector<double>& of_rows,
                    const std::string& refusal) {
  const auto rows = static_cast<int64_t>(of_rows.size());
  return {label,
          "gemm_fp8_grouped",
          {{"a", tensor_of(DType::e4m3, {rows, 32}, {1, 2})},
           {"a_sf", tensor_of(DType::f32, {rows, 1}, {1})},
           {"b", tensor_of(DType::e4m3, {2, 8, 32}, {1, -1, 0.5})},
           {"b_sf", tensor_of(DType::f32, {2, 1, 1}, {1, 2})},
           {"m_indices", tensor_of(DType::i32, {rows}, of_rows)},
           {"out", tensor_of(DType::bf16, {rows, 8}, {3})}},
          {},
          refusal};
}

PromiseCase by_ends(const std::string& label, const std::vector<double>& psum,
                    const std::string& refusal) {
  PromiseCase test = grouped(label, {0, 0, 0}, refusal);
  test.inputs.erase("m_indices");
  test.inputs["psum"] = tensor_of(DType::i32, {2}, psum);
  test.params["alignment"] = int64_t{2};
  return test;
}

PromiseCase masked(const std::string& label, double count, const std::string& refusal) {
  return {label,
          "gemm_fp8_masked",
          {{"a", tensor_of(DType::e4m3, {2, 3, 32}, {1, 2})},
           {"a_sf", tensor_of(DType::f32, {2, 3, 1}, {1})},
           {"b", tensor_of(DType::e4m3, {2, 8, 32}, {1, -1, 0.5})},
           {"b_sf", tensor_of(DType::f32, {2, 1, 1}, {1, 2})},
           {"masked_m", tensor_of(DType::i32, {2}, {3, count})},
           {"out", tensor_of(DType::bf16, {2, 3, 8}, {3})}},
          {},
          refusal};
}

PromiseCase k_grouped(const std::string& label, const std::vector<double>& offsets,
                      const std::string& refusal) {
  const auto groups = static_cast<int64_t>(offsets.size()) - 1;
  return {label,
          "gemm_fp8_k_grouped",
          {{"a", tensor_of(DType::e4m3, {3, 256}, {1, 2})},
           {"a_sf", tensor_of(DType::f32, {2, 3}, {1})},
           {"b", tensor_of(DType::e4m3, {5, 256}, {1, -1, 0.5})},
           {"b_sf", tensor_of(DType::f32, {2, 5}, {1, 2})},
           {"k_offsets", tensor_of(DType::i32, {groups + 1}, offsets)},
           {"out", tensor_of(DType::f32, {groups, 3, 5}, {3})}},
          {},
          refusal};
}

/// A product of tokens by MXFP4 codes, the shifts of which are 8.
PromiseCase by_codes(const std::string& label, const std::string& op, const std::string& ids,
                     const std::vector<double>& values, const std::string& refusal) {
  const bool is_masked = ids == "masked_m";
  const Dims rows = is_masked ? Dims{2, 3} : Dims{6};
  const auto with_columns = [&](int64_t columns) {
    Dims shape = rows;
    shape.push_back(columns);
    return shape;
  };
  PromiseCase made{label,
                   op,
                   {{"a", tensor_of(DType::e4m3, with_columns(32), {1, 2})},
                    {"a_sf", tensor_of(DType::f32, with_columns(1), {1})},
                    {"b", tensor_of(DType::u8, {2, 1, 1, 4096}, {0x21, 0x43, 0x65})},
                    {"b_shift", tensor_of(DType::u8, {2, 1, 1, 64, 4}, {8})},
                    {"b_sf", tensor_of(DType::f32, {2, 8}, {1, 2})},
                    {ids, tensor_of(DType::i32, {static_cast<int64_t>(values.size())}, values)},
                    {"out", tensor_of(DType::bf16, with_columns(8), {3})}},
                   {},
                   refusal};
  if (!is_masked) made.params["alignment"] = int64_t{2};
  return made;
}

}  // namespace

std::vector<PromiseCase> gemm_promise_cases() {
  return {
      grouped("groups in range", {1, 1, 1}, ""),
      grouped("no group", {-1, -1}, ""),
      grouped("a group beyond b", {2, 2},
              "tessera: gemm_fp8_grouped: argument 'm_indices' has a value out of range\n"
              "  expected  -1 .. 1\n"
              "  got       2 at [0]"),
      grouped("a group below -1", {-2},
              "tessera: gemm_fp8_grouped: argument 'm_indices' has a value out of range\n"
              "  expected  -1 .. 1\n"
              "  got       -2 at [0]"),
      grouped("two groups in 128 rows", {1, 0},
              "tessera: gemm_fp8_grouped: argument 'm_indices' has several groups in 128 rows\n"
              "  expected  1 as at [0], or -1\n"
              "  got       0 at [1]"),
      grouped("two groups after rows without one", {-1, 1, -1, 0},
              "tessera: gemm_fp8_grouped: argument 'm_indices' has several groups in 128 rows\n"
              "  expected  1 as at [1], or -1\n"
              "  got       0 at [3]"),
      grouped("rows without a group before, between and after", {-1, 1, -1, 1, -1}, ""),
      by_ends("ascending ends", {1, 3}, ""),
      by_ends("an end beyond the rows", {1, 4},
              "tessera: gemm_fp8_grouped: argument 'psum' has a value out of range\n"
              "  expected  1 .. 3\n"
              "  got       4 at [1]"),
      by_ends("an end before the one before", {2, 1},
              "tessera: gemm_fp8_grouped: argument 'psum' has a value out of range\n"
              "  expected  2 .. 3\n"
              "  got       1 at [1]"),
      by_ends("an end below 0", {-1, 1},
              "tessera: gemm_fp8_grouped: argument 'psum' has a value out of range\n"
              "  expected  0 .. 3\n"
              "  got       -1 at [0]"),
      masked("all rows", 3, ""),
      masked("no row", 0, ""),
      masked("more rows than there are", 4,
             "tessera: gemm_fp8_masked: argument 'masked_m' has a value out of range\n"
             "  expected  0 .. 3\n"
             "  got       4 at [1]"),
      masked("fewer rows than none", -1,
             "tessera: gemm_fp8_masked: argument 'masked_m' has a value out of range\n"
             "  expected  0 .. 3\n"
             "  got       -1 at [1]"),
      k_grouped("ascending offsets", {0, 0, 128, 256}, ""),
      k_grouped("an offset beyond k", {0, 128, 384},
                "tessera: gemm_fp8_k_grouped: argument 'k_offsets' has a value out of range\n"
                "  expected  0 .. 256\n"
                "  got       384 at [2]"),
      k_grouped("an offset below 0", {-128, 128},
                "tessera: gemm_fp8_k_grouped: argument 'k_offsets' has a value out of range\n"
                "  expected  0 .. 256\n"
                "  got       -128 at [0]"),
      by_codes("codes, all rows", "gemm_mxfp4_masked", "masked_m", {3, 1}, ""),
      by_codes("codes, more rows than there are", "gemm_mxfp4_masked", "masked_m", {3, 4},
               "tessera: gemm_mxfp4_masked: argument 'masked_m' has a value out of range\n"
               "  expected  0 .. 3\n"
               "  got       4 at [1]"),
      by_codes("ascending ends", "gemm_mxfp4_grouped", "psum", {1, 6}, ""),
      by_codes("an end before the last", "gemm_mxfp4_grouped", "psum", {4, 2},
               "tessera: gemm_mxfp4_grouped: argument 'psum' has a value out of range\n"
               "  expected  4 .. 6\n"
               "  got       2 at [1]"),
      by_codes("an end beyond the rows", "gemm_mxfp4_grouped", "psum", {4, 7},
               "tessera: gemm_mxfp4_grouped: argument 'psum' has a value out of range\n"
               "  expected  4 .. 6\n"
               "  got       7 at [1]"),
      by_codes("groups of two rows", "gemm_mxfp4_grouped", "m_indices", {1, -1, 0, 0, -1, 1}, ""),
      by_codes("a group beyond the codes", "gemm_mxfp4_grouped", "m_indices", {0, 0, 2, 2, 1, 1},
               "tessera: gemm_mxfp4_grouped: argument 'm_indices' has a value out of range\n"
               "  expected  -1 .. 1\n"
               "  got       2 at [2]"),
      by_codes("two groups in a run", "gemm_mxfp4_grouped", "m_indices", {0, 0, 0, 1, 1, 1},
               "tessera: gemm_mxfp4_grouped: argument 'm_indices' has several groups in "
               "'alignment' rows\n"
               "  expected  0 as at [2], or -1\n"
               "  got       1 at [3]"),
  };
}

}  // namespace tessera::test
