// Cases of MXFP4 weights: extents around tiles, blocks and groups, bytes at the ends of every window, both folds and
// operands; products of them with every form of scales, groups and padding.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/reference/mxfp4.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

OpCase with_strides(OpCase test, const std::string& tensor, const Dims& strides) {
  const HostTensor& from = test.inputs.at(tensor);
  HostTensor apart(from.dtype(), from.shape(), strides);
  for (int64_t i = 0; i < from.size(); ++i) apart.set_bits(i, from.bits(i));
  test.label += fmt::format(" {} apart", tensor);
  test.inputs[tensor] = std::move(apart);
  return test;
}

struct Weights {
  HostTensor w, w_sf;
};

/// Any codes; byte(row, group of k) scales them.
Weights weights(int64_t g, int64_t n, int64_t k,
                const std::function<int64_t(int64_t, int64_t)>& byte, uint64_t seed = 3) {
  const int64_t scales = ceil_div(k, 32);
  Weights made{random_tensor(DType::i8, {g, n, k / 2}, Values::bits, seed),
               HostTensor(DType::u8, {g, n, scales})};
  for (int64_t i = 0; i < made.w_sf.size(); ++i) {
    made.w_sf.set_bits(i, static_cast<uint64_t>(byte(i / scales, i % scales)));
  }
  return made;
}

/// Bytes within `spread` below `most`.
std::function<int64_t(int64_t, int64_t)> near(int64_t most, int64_t spread) {
  return [=](int64_t row, int64_t q) { return most - (row * 7 + q * 5) % (spread + 1); };
}

OpCase prepack(const std::string& label, Weights in, const char* operand, const char* fold,
               bool counts = false) {
  OpCase test;
  test.label = fmt::format("{} {} {} of {}", operand, fold, label, to_string(in.w.view()));
  test.inputs["w"] = std::move(in.w);
  test.inputs["w_sf"] = std::move(in.w_sf);
  test.params["operand"] = std::string(operand);
  test.params["fold"] = std::string(fold);
  test.params["save_inexact"] = counts;
  return test;
}

/// Rows of a group of bytes each, and of groups of zeros.
Weights adversarial() {
  Weights made = weights(2, 70, 352, near(120, 3));
  const auto row = [&](int64_t n, const std::vector<int64_t>& bytes) {
    for (int64_t q = 0; q < 11; ++q) {
      made.w_sf.set_bits(n * 11 + q,
                         static_cast<uint64_t>(bytes[static_cast<size_t>(q) % bytes.size()]));
    }
  };
  const auto zero = [&](int64_t n, int64_t q, int64_t code) {
    for (int64_t i = q * 16; i < (q + 1) * 16; ++i) {
      made.w.set_bits(n * 176 + i, static_cast<uint64_t>(code));
    }
  };
  row(0, {254, 100, 101, 99}), zero(0, 0, 0x88), zero(0, 4, 0x80),
      zero(0, 8, 0);  // no code: does not count
  row(1, {255, 90}), row(2, {0}), row(3, {255}), row(4, {254, 240});
  row(5, {114, 100}), row(6, {115, 100}), row(7, {118, 100}), row(8, {119, 100, 99});
  row(9, {100, 86, 85, 84, 82, 81, 80, 0}), row(10, {254, 127, 128, 129, 126, 0});
  row(11, {4, 0, 1}), row(12, {7, 6, 5}), row(13, {133, 6, 127});
  for (int64_t q = 0; q < 11; ++q) zero(14, q, q % 2 == 0 ? 0 : 0x88);
  row(15, {255}), zero(15, 2, 0);
  row(80, {140, 126, 125, 0});
  return made;
}

}  // namespace

std::vector<OpCase> mxfp4_prepack_cases() {
  std::vector<OpCase> cases;
  for (const auto& form : {std::pair{"e4m3", "block"},
                           {"e4m3", "row"},
                           {"e4m3", "none"},
                           {"bf16", "row"},
                           {"bf16", "none"}}) {
    const char *operand = form.first, *fold = form.second;
    const auto add = [&](int64_t g, int64_t n, int64_t k) {
      cases.push_back(prepack("near bytes", weights(g, n, k, near(130, 9)), operand, fold, g == 3));
    };
    add(1, 64, 128), add(3, 65, 130), add(1, 1, 2), add(1, 200, 2880), add(3, 128, 352);
    add(0, 64, 128), add(2, 0, 128), add(2, 3, 0);
    cases.push_back(prepack("hostile bytes", adversarial(), operand, fold, true));
    OpCase apart = prepack("scales apart", weights(3, 66, 264, near(90, 5)), operand, fold);
    cases.push_back(with_strides(apart, "w_sf", {66 * 11 + 13, 11, 1}));
  }
  return cases;
}

namespace {

OpCase decode_case(const std::string& label, const Weights& in, bool is_bf16, bool by_block) {
  HostTensors packed = reference::mxfp4_prepack(in.w, in.w_sf, is_bf16, by_block);
  OpCase test;
  test.label = fmt::format("{} {} of {}", is_bf16 ? "bf16" : "e4m3", label, to_string(in.w.view()));
  test.inputs["b"] = packed.at("out");
  test.inputs["b_shift"] = packed.at("out_shift");
  test.inputs["b_sf"] = packed.at("out_sf");
  test.params["num_columns"] = 2 * in.w.shape()[2];
  return test;
}

}  // namespace

std::vector<OpCase> mxfp4_decode_cases() {
  std::vector<OpCase> cases;
  for (const auto& [is_bf16, by_block] : {std::pair{false, true}, {false, false}, {true, false}}) {
    const auto add = [&, of = is_bf16, block = by_block](int64_t g, int64_t n, int64_t k) {
      cases.push_back(decode_case("near bytes", weights(g, n, k, near(130, 9)), of, block));
    };
    add(1, 64, 128), add(3, 65, 130), add(1, 1, 2), add(1, 200, 2880), add(3, 128, 352);
    add(0, 64, 128), add(2, 0, 128), add(2, 3, 0);
    cases.push_back(decode_case("hostile bytes", adversarial(), is_bf16, by_block));
    // Every shift by every code; shifts beyond those of the tables.
    OpCase every =
        decode_case("every shift", weights(1, 256, 128, near(100, 0)), is_bf16, by_block);
    HostTensor& shifts = every.inputs["b_shift"];
    for (int64_t i = 0; i < shifts.size(); ++i)
      shifts.set_bits(i, static_cast<uint64_t>(i * 5 % 256));
    cases.push_back(every);
  }
  // One column less than there is.
  OpCase odd = decode_case("odd columns", weights(2, 67, 130, near(130, 9)), false, true);
  odd.params["num_columns"] = int64_t{129};
  cases.push_back(odd);
  return cases;
}

// ---- products

namespace {

/// Small multiples of 1/4: sums of 128 products have fewer than 14 bits, so every instruction of every target gives the
/// same, and only f32 operations with one result follow.
HostTensor exact_tokens(DType dtype, Dims shape, Dims strides, uint64_t seed) {
  HostTensor tensor(dtype, shape, strides);
  Random random(seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, static_cast<double>(random.below(9) - 4) / 4);
  }
  return tensor;
}

struct Form {
  bool by_block = true;
  int64_t scaled = 128;
  const char* layout = "row_major";
  bool has_bias = false;
};

struct Size {
  int64_t g, m, n, k;
};

/// Tokens [.., K], their scales, weights, without what says which rows count.
OpCase product(const Size& s, const Form& form, const Dims& rows, DType dtype = DType::e4m3) {
  OpCase test;
  test.label = fmt::format("G={} M={} N={} K={} fold {} 1x{} {}{}", s.g, s.m, s.n, s.k,
                           form.by_block ? "block" : "row", form.scaled, form.layout,
                           form.has_bias ? " bias" : "");
  if (dtype == DType::bf16) test.label += " bf16";
  Dims of_a = rows;
  of_a.push_back(s.k);
  test.inputs["a"] = exact_tokens(dtype, of_a, row_major_strides(of_a), 1);
  if (dtype == DType::e4m3) {
    const bool is_packed = std::string(form.layout) == "packed_ue8m0";
    const int64_t scales = ceil_div(s.k, form.scaled);
    Dims of_sf = rows;
    of_sf.push_back(is_packed ? ceil_div(scales, 4) : scales);
    HostTensor a_sf(is_packed ? DType::i32 : DType::f32, of_sf);
    Random random(5);
    for (int64_t i = 0; i < a_sf.size(); ++i) {
      uint64_t word = 0;
      for (int byte = 0; byte < 4; ++byte) {
        word |= static_cast<uint64_t>(120 + random.below(12)) << (8 * byte);
      }
      if (is_packed) {
        a_sf.set_bits(i, word);
      } else {
        a_sf.set_value(i, 0.01 + random.uniform());
      }
    }
    test.inputs["a_sf"] = std::move(a_sf);
    test.params["num_per_channels"] = form.scaled;
    test.params["a_sf_layout"] = std::string(form.layout);
  }
  const Weights in = weights(s.g, s.n, s.k, near(130, 2));
  HostTensors packed = reference::mxfp4_prepack(in.w, in.w_sf, dtype == DType::bf16, form.by_block);
  test.inputs["b"] = packed.at("out");
  test.inputs["b_shift"] = packed.at("out_shift");
  test.inputs["b_sf"] = packed.at("out_sf");
  if (form.has_bias) {
    test.inputs["bias"] = random_tensor(DType::f32, {s.g, s.n}, Values::normal, 9);
  }
  return test;
}

OpCase masked(const Size& s, const std::vector<double>& counts, const Form& form,
              DType dtype = DType::e4m3) {
  OpCase test = product(s, form, {s.g, s.m}, dtype);
  for (const double count : counts) test.label += fmt::format(" {}", count);
  test.inputs["masked_m"] = tensor_of(DType::i32, {s.g}, counts);
  test.inputs["out"] = random_tensor(DType::bf16, {s.g, s.m, s.n}, Values::normal, 7);
  return test;
}

/// NaN and infinity in rows of padding, in shifts behind K and behind N: never seen.
OpCase poisoned(OpCase test) {
  test.label += " poisoned padding";
  const int64_t n = test.inputs["b_sf"].shape()[1];
  const Dims of_a = test.inputs["a"].shape();
  const int64_t k = of_a[of_a.rank - 1];
  const bool is_bf16 = test.inputs["a"].dtype() == DType::bf16;
  HostTensor& shifts = test.inputs["b_shift"];
  const int64_t blocks = shifts.shape()[2], tiles = shifts.shape()[1];
  for (int64_t i = 0; i < shifts.size(); ++i) {
    const int64_t row = i / 4 % 64 + i / (4 * 64 * blocks) % tiles * 64;
    const int64_t column = i / (4 * 64) % blocks * 128 + i % 4 * 32;
    if (row >= n || column >= k) shifts.set_bits(i, is_bf16 ? 255 : 15);
  }
  HostTensor& a = test.inputs["a"];
  HostTensor none(DType::f32, {0, 0, 0});
  HostTensor& a_sf = is_bf16 ? none : test.inputs["a_sf"];
  const int64_t rows = of_a[1], scales = a_sf.shape()[2];
  for (int64_t row = 0; row < of_a[0] * rows; ++row) {
    if (static_cast<double>(row % rows) < test.inputs["masked_m"].value(row / rows)) continue;
    for (int64_t i = 0; i < k; ++i) a.set_bits(row * k + i, is_bf16 ? 0x7FFF : 0x7F);
    for (int64_t i = 0; i < scales; ++i) a_sf.set_bits(row * scales + i, 0x7FFFFFFF);
  }
  return test;
}

/// Scales of tokens that are no numbers, a NaN in a token, and a NaN byte of a weight.
OpCase special(OpCase test) {
  test.label += " NaN";
  const int64_t k = test.inputs["a"].shape()[2], scales = test.inputs["a_sf"].shape()[2];
  HostTensor& a_sf = test.inputs["a_sf"];
  a_sf.set_value(0, std::numeric_limits<double>::infinity());
  a_sf.set_value(scales, std::numeric_limits<double>::quiet_NaN());
  a_sf.set_value(2 * scales, 0);
  a_sf.set_value(3 * scales, -1.5);
  test.inputs["a"].set_bits(4 * k + 1, 0x7F);
  for (int64_t i = 0; i < k; ++i) test.inputs["a"].set_bits(5 * k + i, 0);  // NaN * 0
  test.inputs["b_shift"].set_bits(4 * 3, 15);                               // row 3
  return test;
}

/// Tensors of a group of their own, without its dimension.
HostTensor of_one_group(const HostTensor& x) {
  Dims shape;
  for (int i = 1; i < x.shape().rank; ++i) shape.push_back(x.shape()[i]);
  HostTensor one(x.dtype(), shape);
  for (int64_t i = 0; i < one.size(); ++i) one.set_bits(i, x.bits(i));
  return one;
}

OpCase dense(const Size& s, const Form& form, const char* out_dtype = "bf16",
             DType dtype = DType::e4m3) {
  OpCase test = product({1, s.m, s.n, s.k}, form, {s.m}, dtype);
  test.label += fmt::format(" {}", out_dtype);
  for (const char* name : {"b", "b_shift", "b_sf", "bias"}) {
    const auto found = test.inputs.find(name);
    if (found != test.inputs.end()) found->second = of_one_group(found->second);
  }
  test.params["out_dtype"] = std::string(out_dtype);
  return test;
}

/// The case with scales as their layout stores them: columns apart by a multiple of 16 bytes.
OpCase with_scales_by_column(OpCase test) {
  const HostTensor& by_row = test.inputs["a_sf"];
  const int64_t rows = by_row.shape()[0], columns = by_row.shape()[1], stored = (rows + 3) / 4 * 4;
  HostTensor by_column(by_row.dtype(), {rows, columns}, {1, stored}, columns * stored);
  by_column.fill_bytes(std::byte{0});
  for (int64_t i = 0; i < by_row.size(); ++i) by_column.set_bits(i, by_row.bits(i));
  test.inputs["a_sf"] = std::move(by_column);
  return test;
}

OpCase grouped(const Size& s, const Form& form, const char* by, const std::vector<double>& values,
               int64_t alignment, DType dtype = DType::e4m3) {
  OpCase test = product(s, form, {s.m}, dtype);
  test.label += fmt::format(" {} by {} of {}", by, alignment, values.size());
  test.inputs[by] = tensor_of(DType::i32, {std::string(by) == "psum" ? s.g : s.m}, values);
  test.inputs["out"] = random_tensor(DType::bf16, {s.m, s.n}, Values::normal, 7);
  test.params["alignment"] = alignment;
  return test;
}

}  // namespace

std::vector<OpCase> gemm_mxfp4_cases() {
  std::vector<OpCase> cases;
  for (const bool by_block : {true, false}) {
    for (const int64_t scaled : {128, 32}) {
      const Form form{by_block, scaled};
      cases.push_back(dense({1, 1, 64, 32}, form));
      cases.push_back(dense({1, 7, 100, 416}, form));
      cases.push_back(dense({1, 64, 1, 128}, form, "f32"));
      cases.push_back(dense({1, 129, 64, 96}, form));
      cases.push_back(dense({1, 30, 136, 272}, {by_block, scaled, "row_major", true}, "f32"));
      for (const char* layout : {"col_major_tma", "packed_ue8m0"}) {
        cases.push_back(with_scales_by_column(dense({1, 21, 72, 288}, {by_block, scaled, layout})));
      }
    }
    cases.push_back(dense({1, 4, 70, 2880}, {by_block}));
    cases.push_back(dense({1, 3, 8, 0}, {by_block}));
    cases.push_back(dense({1, 3, 8, 0}, {by_block, 128, "row_major", true}));
  }
  for (const bool has_bias : {false, true}) {
    const Form rows{false, 128, "row_major", has_bias};
    for (const char* out_dtype : {"bf16", "f32"}) {
      cases.push_back(dense({1, 7, 100, 416}, rows, out_dtype, DType::bf16));
      cases.push_back(dense({1, 129, 64, 96}, rows, out_dtype, DType::bf16));
    }
    cases.push_back(dense({1, 5, 70, 2880}, rows, "bf16", DType::bf16));
    cases.push_back(dense({1, 3, 8, 0}, rows, "bf16", DType::bf16));
    cases.push_back(with_strides(dense({1, 9, 40, 130}, rows, "f32", DType::bf16), "a", {137, 1}));
  }
  cases.push_back(dense({1, 0, 8, 32}, {}));
  cases.push_back(dense({1, 3, 0, 32}, {}));
  cases.push_back(with_strides(dense({1, 9, 40, 130}, {}), "a", {141, 1}));
  cases.push_back(with_strides(dense({1, 9, 40, 160}, {}), "a", {176, 1}));
  return cases;
}

std::vector<OpCase> gemm_mxfp4_grouped_cases() {
  std::vector<OpCase> cases;
  const auto ids = [](int64_t rows, int64_t alignment, const std::vector<double>& of_runs) {
    std::vector<double> of_rows;
    for (int64_t row = 0; row < rows; ++row) {
      of_rows.push_back(of_runs[static_cast<size_t>(row / alignment) % of_runs.size()]);
    }
    return of_rows;
  };
  for (const bool by_block : {true, false}) {
    const Form form{by_block, by_block ? 128 : 32};
    cases.push_back(grouped({3, 200, 72, 160}, form, "psum", {70, 70, 150}, 128));
    cases.push_back(grouped({4, 40, 100, 288}, form, "psum", {3, 8, 8, 29}, 8));
    cases.push_back(grouped({4, 40, 40, 96}, form, "psum", {0, 5, 5, 40}, 1));
    cases.push_back(grouped({3, 300, 40, 144}, form, "m_indices", ids(300, 128, {2, 0, 1}), 128));
    cases.push_back(grouped({3, 45, 100, 160}, form, "m_indices", ids(45, 8, {2, -1, 1}), 8));
    cases.push_back(grouped({3, 13, 8, 32}, form, "m_indices", ids(13, 1, {2, 0, -1, 1}), 1));
    cases.push_back(grouped({2, 24, 8, 0}, form, "psum", {8, 20}, 8));
  }
  OpCase holes = grouped({3, 45, 72, 160}, {true, 128, "row_major", true}, "m_indices",
                         ids(45, 16, {1, 2, 0}), 16);
  for (const int64_t row : {0, 3, 15, 16, 31, 44}) holes.inputs["m_indices"].set_value(row, -1);
  cases.push_back(with_strides(holes, "out", {77, 1}));
  cases.push_back(with_strides(grouped({2, 24, 40, 96}, {}, "psum", {9, 24}, 8), "a", {112, 1}));
  cases.push_back(grouped({4, 40, 100, 288}, {false}, "psum", {3, 8, 8, 29}, 8, DType::bf16));
  cases.push_back(
      grouped({3, 45, 100, 160}, {false}, "m_indices", ids(45, 8, {2, -1, 1}), 8, DType::bf16));
  cases.push_back(grouped({2, 0, 8, 32}, {}, "psum", {0, 0}, 8));
  cases.push_back(grouped({0, 8, 8, 32}, {}, "psum", {}, 8));
  cases.push_back(grouped({2, 8, 0, 32}, {}, "psum", {3, 8}, 8));
  // Groups that are none: cut into range, or left out.
  cases.push_back(grouped({4, 20, 8, 32}, {}, "psum", {9, -3, 4, 25}, 4));
  cases.push_back(grouped({2, 20, 8, 32}, {}, "m_indices", ids(20, 4, {2, -7, 1, 0, 1}), 4));
  OpCase several = grouped({2, 20, 8, 32}, {}, "m_indices", ids(20, 4, {1, 0}), 4);
  several.inputs["m_indices"].set_value(5, 1);  // two groups in a run: none of it is written
  cases.push_back(several);
  return cases;
}

std::vector<OpCase> gemm_mxfp4_masked_cases() {
  std::vector<OpCase> cases;
  for (const bool by_block : {true, false}) {
    for (const int64_t scaled : {128, 32}) {
      for (const char* layout : {"row_major", "packed_ue8m0"}) {
        const Form form{by_block, scaled, layout};
        cases.push_back(masked({3, 20, 100, 416}, {20, 0, 13}, form));
      }
      const Form form{by_block, scaled};
      cases.push_back(masked({2, 9, 64, 32}, {3, 9}, form));
      cases.push_back(masked({2, 5, 70, 96}, {5, 4}, form));
      cases.push_back(poisoned(masked({2, 9, 100, 288}, {3, 8}, form)));
      cases.push_back(special(masked({1, 9, 40, 160}, {9}, form)));
      cases.push_back(masked({2, 40, 130, 272}, {40, 17}, {by_block, scaled, "row_major", true}));
    }
    cases.push_back(masked({2, 7, 1, 2}, {3, 7}, {by_block}));
    cases.push_back(masked({2, 9, 8, 0}, {4, 9}, {by_block}));  // zeros
    cases.push_back(masked({2, 9, 8, 0}, {4, 9}, {by_block, 128, "row_major", true}));
  }
  const Form rows{false};
  cases.push_back(masked({3, 20, 100, 416}, {20, 0, 13}, rows, DType::bf16));
  cases.push_back(
      masked({2, 40, 130, 272}, {40, 17}, {false, 128, "row_major", true}, DType::bf16));
  cases.push_back(poisoned(masked({2, 9, 100, 288}, {3, 8}, rows, DType::bf16)));
  cases.push_back(masked({2, 9, 40, 4}, {3, 8}, rows, DType::bf16));
  cases.push_back(masked({2, 0, 8, 32}, {0, 0}, {}));
  cases.push_back(masked({0, 5, 8, 32}, {}, {}));
  cases.push_back(masked({1, 5, 0, 32}, {5}, {}));
  cases.push_back(masked({3, 20, 8, 32}, {21, -1, 2147483647}, {}));  // counts that are none
  OpCase by_column = masked({2, 40, 72, 288}, {33, 40}, {});
  cases.push_back(with_strides(by_column, "a_sf", {40 * 3 + 5, 1, 41}));
  return cases;
}

}  // namespace tessera::test
