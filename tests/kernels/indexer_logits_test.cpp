// The indexer's logits on the executor: the ops against their references, the bits of the tensor cores in every tile,
// neighbours and pages that change nothing, the mistakes that the cases catch, bad calls.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/serving/indexer/parts/logits_kernel.h"
#include "tests/reference/indexer.h"
#include "tests/support/ops/indexer_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using kernels::serving::LogitsSpec;
using kernels::serving::LogitsTile;
using reference::LogitsMistake;

namespace {

LogitsSpec spec_of(const HostTensors& in, const LogitsTile& tile) {
  LogitsSpec s{};
  const HostTensor& q = in.at("q");
  s.heads = static_cast<int32_t>(q.shape()[q.shape().rank - 2]);
  s.width = static_cast<int32_t>(q.shape()[q.shape().rank - 1]);
  s.q_vector = s.k_vector = 16;
  s.is_clean = s.by_wgmma = 1;
  s.tile = tile;
  return s;
}

/// The kernel with the sums of the tensor cores, `chunk` tiles of keys an item.
HostTensor run_rows(const HostTensors& in, const LogitsTile& tile, int64_t chunk, int64_t blocks,
                    uint32_t schedule = 0) {
  const LogitsSpec s = spec_of(in, tile);
  const int64_t rows = in.at("q").shape()[0], keys = in.at("k").shape()[0];
  HostTensor logits(DType::f32, {rows, keys});
  NamedArguments given;
  for (const auto& [name, tensor] : in) given.tensors[name] = tensor.view();
  const auto seen_as = [&](const char* name, Dims shape) {
    const TensorView view = in.at(name).view();
    given.tensors[name] = TensorView(view.data, view.dtype, shape, view.device);
  };
  seen_as("q", {rows * s.heads, s.width}), seen_as("k_sf", {keys, 1});
  given.tensors["logits"] = logits.view();
  given.dims = {
      {"rows", rows},          {"columns", keys},
      {"keys", keys},          {"q_rows", rows * s.heads},
      {"k_stride", s.width},   {"weights_stride", s.heads},
      {"logits_stride", keys}, {"rows_of_request", rows},
      {"chunk", chunk},        {tile.by_roles != 0 ? "device_blocks" : "device_blocks_2", blocks}};
  run_with_target_sums(build_logits(s), "sm_90a", given, schedule);
  return logits;
}

bool is_same(const HostTensor& a, const HostTensor& b) {
  return a.raw() == b.raw();
}

}  // namespace

TEST_CASE("mqa_logits equals its reference on the executor", "[serving][mqa_logits]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("mqa_logits", mqa_logits_cases());
}

TEST_CASE("paged_mqa_logits equals its reference on the executor", "[serving][paged_mqa_logits]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("paged_mqa_logits", paged_mqa_logits_cases());
}

TEST_CASE("mqa_logits has the bits of the tensor cores in every tile", "[serving][mqa_logits]") {
  OpCase test = exact_logits("", {7, 16, 128, 150});
  fill_random(test.inputs["q"], Values::normal, 21);
  fill_random(test.inputs["k"], Values::normal, 22);
  const HostTensor want = reference::mqa_logits(test.inputs, {});
  struct Form {
    LogitsTile tile;
    int64_t chunk = 1, blocks = 132;
    uint32_t schedule = 0;
  };
  for (const Form& form :
       {Form{{1, 64, 2, 0, 1}}, Form{{4, 64, 3, 0, 1}, 2, 2}, Form{{1, 64, 2, 1, 1}},
        Form{{4, 128, 2, 1, 1}, 2, 1, 1}, Form{{8, 128, 2, 1, 1}, 1, 3},
        Form{{2, 192, 2, 1, 1}, 1, 2}, Form{{2, 64, 3, 1, 2}, 3, 2, 1}, Form{{8, 256, 2, 1, 1}}}) {
    const LogitsTile& t = form.tile;
    CAPTURE(t.rows, t.keys, t.stages, t.by_roles, t.parts, form.chunk, form.blocks);
    CHECK(is_same(want, run_rows(test.inputs, t, form.chunk, form.blocks, form.schedule)));
  }
}

TEST_CASE("a row of paged_mqa_logits has the bits of mqa_logits of its keys alone",
          "[serving][paged_mqa_logits]") {
  const auto run = op_runner("paged_mqa_logits", Device::cpu());
  const auto rows = op_runner("mqa_logits", Device::cpu());
  const std::vector<int64_t> lengths = {70, 71, 3, 100};
  for (const int64_t page_size : {16, 28}) {
    const OpCase paged = exact_paged_logits("", {2, 16, 64, page_size, lengths});
    const HostTensor got = run(paged.inputs, paged.params).at("logits");
    const HostTensor &cache = paged.inputs.at("cache"), &table = paged.inputs.at("page_table");
    for (int64_t row = 0; row < 4; ++row) {
      const int64_t length = lengths[static_cast<size_t>(row)];
      HostTensors in;
      in["q"] = HostTensor(DType::e4m3, {1, 16, 64});
      for (int64_t i = 0; i < 16 * 64; ++i) {
        in["q"].set_bits(i, paged.inputs.at("q").bits(row * 16 * 64 + i));
      }
      in["weights"] = tensor_by(DType::f32, {1, 16}, [&](int64_t i) {
        return paged.inputs.at("weights").value(row * 16 + i);
      });
      in["k"] = HostTensor(DType::e4m3, {length, 64});
      in["k_sf"] = HostTensor(DType::f32, {length});
      for (int64_t j = 0; j < length; ++j) {
        const int64_t of_page = cache.shape()[1], token = j % page_size;
        const int64_t at =
            static_cast<int64_t>(table.value(row / 2 * table.shape()[1] + j / page_size)) * of_page;
        for (int64_t d = 0; d < 64; ++d)
          in["k"].set_bits(j * 64 + d, cache.bits(at + token * 64 + d));
        uint64_t scale = 0;
        for (int64_t b = 0; b < 4; ++b) {
          scale |= cache.bits(at + page_size * 64 + 4 * token + b) << (8 * b);
        }
        in["k_sf"].set_bits(j, scale);
      }
      in["k_start"] = tensor_of(DType::i32, {1}, {0});
      in["k_end"] = tensor_of(DType::i32, {1}, {static_cast<double>(length)});
      const HostTensor alone = rows(in, {}).at("logits");
      int64_t wrong = 0;
      for (int64_t j = 0; j < length; ++j) {
        wrong += alone.bits(j) != got.bits(row * got.shape()[1] + j) ? 1 : 0;
      }
      CAPTURE(page_size, row);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the cases of mqa_logits catch mistakes", "[serving][mutants]") {
  using enum LogitsMistake;
  for (const char* op : {"mqa_logits", "paged_mqa_logits"}) {
    const bool is_paged = std::string(op) == "paged_mqa_logits";
    std::vector<LogitsMistake> mistakes = {
        none,           last_head_missing, negative_counts, scale_before_sum, first_scale,
        weight_of_next, end_seen,          start_missing,   last_unclean};
    for (const LogitsMistake more : is_paged ? std::vector{next_page, pages_of_64}
                                             : std::vector{nan_counts, from_first_column}) {
      mistakes.push_back(more);
    }
    std::vector<reference::Runner> mutants;
    for (const LogitsMistake mistake : mistakes) {
      mutants.push_back(reference::mistaken_logits(op, mistake));
    }
    const std::vector<bool> caught = caught_by(op, cases_of(op), mutants);
    for (size_t i = 0; i < caught.size(); ++i) {
      CAPTURE(op, i);
      CHECK(caught[i] == (mistakes[i] != none));
    }
  }
}

TEST_CASE("mqa_logits explains wrong arguments", "[serving][errors]") {
  const auto says = [](const std::string& text, const std::string& what,
                       const std::string& expected, const std::string& got) {
    CAPTURE(text);
    CHECK(text.find(": " + what + "\n") != std::string::npos);
    CHECK(text.find("\n  expected  " + expected) != std::string::npos);
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  const auto told = [](const char* op, const OpCase& test) -> std::string {
    try {
      op_runner(op, Device::cpu())(test.inputs, test.params);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  const OpCase rows = exact_logits("", {2, 8, 32, 20});
  CHECK(told("mqa_logits", rows) == "no error");
  says(told("mqa_logits", exact_logits("", {2, 12, 32, 20})),
       "argument 'q': so many heads are not supported", "a multiple of 8, at most 128", "12");
  says(told("mqa_logits", exact_logits("", {2, 8, 96, 20})),
       "argument 'q': so many channels are not supported", "32, 64 or 128", "96");
  OpCase test = rows;
  test.inputs["k_end"].set_value(1, 21);
  says(told("mqa_logits", test), "argument 'k_end' has a value out of range", "0 .. 20",
       "21 at [1]");
  test = rows;
  test.inputs["k_start"].set_value(0, 20);
  says(told("mqa_logits", test), "argument 'k_start' has a value out of range", "at most k_end, 19",
       "20 at [0]");
  test = rows;
  test.params = {{"compressed", true}, {"max_len", int64_t{19}}};
  says(told("mqa_logits", test), "argument 'k_end' has a value out of range",
       "at most 19 keys in a row", "20 at [1]");
  const OpCase pages = exact_paged_logits("", {1, 8, 32, 16, {40, 20}});
  CHECK(told("paged_mqa_logits", pages) == "no error");
  test = pages;
  test.inputs["cache"] = HostTensor(DType::u8, {9, 560});
  says(told("paged_mqa_logits", test), "argument 'cache' has the wrong shape",
       "[.., 576], page_size * (D + 4)", "u8[9, 560]");
  test = pages;
  test.inputs["lengths"].set_value(1, 46);
  says(told("paged_mqa_logits", test), "argument 'lengths' has a value out of range", "0 .. 45",
       "46 at [1, 0]");
  test = pages;
  test.inputs["page_table"].set_value(5, 9);
  says(told("paged_mqa_logits", test), "argument 'page_table' has a value out of range", "0 .. 8",
       "9 at [1, 1]");
  test = pages;
  test.inputs["page_table"] = HostTensor(DType::i32, {2, 2});
  says(told("paged_mqa_logits", test), "argument 'page_table' has too few columns", "3 for 40 keys",
       "2");
}

TEST_CASE("mqa_logits is as near to f64 as promised", "[serving][mqa_logits]") {
  const int64_t rows = 3, heads = 32, width = 128, keys = 50;
  OpCase test = exact_logits("", {rows, heads, width, keys});
  HostTensors& in = test.inputs;
  fill_random(in["q"], Values::normal, 41);
  fill_random(in["k"], Values::normal, 42);
  in["k_end"] = tensor_of(DType::i32, {rows}, {static_cast<double>(keys)});
  for (const auto& [dtype, allowed] : {std::pair{"f32", 5e-6}, std::pair{"bf16", 3e-5}}) {
    const Params params = {{"logits_dtype", std::string(dtype)}};
    const HostTensor got = op_runner("mqa_logits", Device::cpu())(in, params).at("logits");
    double products = 0, squares = 0;
    for (int64_t i = 0; i < got.size(); ++i) {
      double logit = 0;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t of_head = i / keys * heads + head;
        double product = 0;
        for (int64_t d = 0; d < width; ++d) {
          product += in["q"].value(of_head * width + d) * in["k"].value(i % keys * width + d);
        }
        logit += std::max(product, 0.0) * in["weights"].value(of_head);
      }
      logit *= in["k_sf"].value(i % keys);
      products += logit * got.value(i);
      squares += logit * logit + got.value(i) * got.value(i);
    }
    CAPTURE(dtype);
    CHECK(1 - 2 * products / squares <= allowed);
    CHECK(squares > 0);
  }
}
