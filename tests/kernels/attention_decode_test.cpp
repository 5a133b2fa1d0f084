// attention_decode on the executor: the op against its reference, every tile and target to the bit, the same rows of
// attention_fwd, pages and neighbours that change nothing, the mistakes that the cases catch, bad calls.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "kernels/attention/parts/decode_kernel.h"
#include "tests/reference/attention.h"
#include "tests/support/ops/attention_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using kernels::attention::DecodeSpec;
using kernels::attention::JoinSpec;
using reference::AttentionMistake;

namespace {

constexpr int64_t kPart = 128;

/// Both kernels with the sums of the tensor cores, for parts of 128 keys.
HostTensors run_kernels(const HostTensors& in, const DecodeSpec& tile, const char* target,
                        int64_t left = -1) {
  const HostTensor &q = in.at("q"), &k = in.at("k_cache"), &v = in.at("v_cache"),
                   &table = in.at("page_table");
  const int64_t requests = q.shape()[0], tokens = q.shape()[1], heads = q.shape()[2];
  const int64_t page_size = k.shape()[1], columns = table.shape()[1];
  DecodeSpec s = tile;
  s.width = static_cast<int32_t>(q.shape()[3]);
  s.value_width = static_cast<int32_t>(v.shape()[3]);
  s.is_e4m3 = k.dtype() == DType::e4m3 ? 1 : 0;
  s.q_vector = 8, s.k_vector = s.v_vector = 16 / bytes(k.dtype());
  s.is_causal = s.has_parts = 1;
  s.has_left = left >= 0 ? 1 : 0;
  HostTensor out(q.dtype(), {requests, tokens, heads, v.shape()[3]});
  HostTensor lse(DType::f32, {requests, heads, tokens});
  const int64_t parts_of_table = (columns * page_size + kPart - 1) / kPart;
  HostTensor parts(DType::f32, {parts_of_table, requests * tokens * heads, v.shape()[3] + 2});
  NamedArguments given;
  given.tensors = {{"out", out.view()}, {"lse", lse.view()}, {"parts", parts.view()}};
  for (const auto& [name, tensor] : in) given.tensors[name] = tensor.view();
  given.dims = {{"B", requests},
                {"n", tokens},
                {"h", heads},
                {"g", k.shape()[2]},
                {"P", k.shape()[0]},
                {"ps", page_size},
                {"Q", columns},
                {"of_table", columns},
                {"left", left},
                {"part_blocks", kPart / s.keys()},
                {"group", heads / k.shape()[2]},
                {"part_count", parts_of_table},
                {"cache_rows", columns * page_size},
                {"device_blocks", 5}};
  given.numbers["c"] = 1.4426950408889634 / std::sqrt(static_cast<double>(s.width));
  for (const auto& [name, tensor] :
       {std::pair("q", &q), std::pair("k_cache", &k), std::pair("v_cache", &v)}) {
    const char* const ends[] = {"_of_request", "_of_row", "_of_head"};
    for (int i = 0; i < 3; ++i) given.dims[std::string(name) + ends[i]] = tensor->strides()[i];
  }
  run_with_target_sums(build_decode(s), target, given);
  const JoinSpec join{s.value_width,
                      s.is_f16,
                      s.is_causal,
                      s.has_left,
                      s.has_sink,
                      s.is_e4m3,
                      static_cast<int32_t>(s.keys())};
  run_with_target_sums(build_join(join), target, given);
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

DecodeSpec tile_of(int32_t rows, int32_t stages, int32_t warps, int32_t page_size = 16) {
  DecodeSpec s{};
  s.page_size = page_size, s.blocks_per_sm = 1;
  s.rows = rows, s.warps = warps, s.stages = stages;
  s.load_warps = warps == 8 ? 4 : 2, s.has_moves = warps == 8 ? 1 : 0;
  return s;
}

bool same_bits(const HostTensors& want, const HostTensors& got) {
  return want.at("out").raw() == got.at("out").raw() && want.at("lse").raw() == got.at("lse").raw();
}

/// The same keys and values in pages of `page_size`, in another order.
HostTensors in_pages(const HostTensors& in, int64_t page_size) {
  HostTensors made = in;
  const HostTensor &table = in.at("page_table"), &lengths = in.at("lengths");
  const int64_t requests = lengths.size(), columns = table.shape()[1];
  const int64_t before = in.at("k_cache").shape()[1];
  const int64_t columns_now = (columns * before + page_size - 1) / page_size;
  const int64_t pages = requests * columns_now;
  made["page_table"] =
      tensor_by(DType::i32, {requests, columns_now}, [&](int64_t i) { return pages - 1 - i; });
  for (const char* name : {"k_cache", "v_cache"}) {
    const HostTensor& cache = in.at(name);
    const int64_t row = cache.shape()[2] * cache.shape()[3];
    HostTensor moved =
        tensor_by(cache.dtype(), {pages, page_size, cache.shape()[2], cache.shape()[3]},
                  [](int64_t) { return std::nan(""); });
    for (int64_t b = 0; b < requests; ++b) {
      for (int64_t j = 0; j < static_cast<int64_t>(lengths.value(b)); ++j) {
        const auto from = static_cast<int64_t>(table.value(b * columns + j / before));
        const int64_t to = pages - 1 - (b * columns_now + j / page_size);
        for (int64_t i = 0; i < row; ++i) {
          moved.set_bits((to * page_size + j % page_size) * row + i,
                         cache.bits((from * before + j % before) * row + i));
        }
      }
    }
    made[name] = std::move(moved);
  }
  return made;
}

/// Keys or values of request `b`, in order: [1, length, g, d].
HostTensor gathered(const HostTensors& in, const char* name, int64_t b) {
  const HostTensor &cache = in.at(name), &table = in.at("page_table");
  const auto length = static_cast<int64_t>(in.at("lengths").value(b));
  const int64_t page_size = cache.shape()[1], row = cache.shape()[2] * cache.shape()[3];
  return tensor_by(cache.dtype(), {1, length, cache.shape()[2], cache.shape()[3]}, [&](int64_t i) {
    const int64_t j = i / row;
    const auto page = static_cast<int64_t>(table.value(b * table.shape()[1] + j / page_size));
    return cache.value((page * page_size + j % page_size) * row + i % row);
  });
}

}  // namespace

TEST_CASE("attention_decode equals its reference on the executor", "[attention]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("attention_decode", attention_decode_cases());
}

TEST_CASE("attention_decode has the bits of its definition, whatever tile and target (A29)",
          "[attention]") {
  const Params params = {{"split_len", kPart}};
  for (const PagedSize& size :
       {PagedSize{1, 4, 2, 64, 64, 16, {300, 0, 129}}, PagedSize{5, 4, 1, 64, 64, 16, {260, 3}}}) {
    const HostTensors in = normal_paged("", size).inputs;
    const HostTensors want = reference::attention_decode(in, params);
    CHECK(same_bits(want, run_kernels(in, tile_of(16, 1, 4), "sm_90")));
    CHECK(same_bits(want, run_kernels(in, tile_of(16, 2, 8), "sm_90a")));
    CHECK(same_bits(want, run_kernels(in, tile_of(32, 3, 8, 0), "sm_90a")));
    CHECK(same_bits(want, run_kernels(in, tile_of(64, 1, 8), "sm_90a")));
    DecodeSpec by_engine = tile_of(16, 2, 4);
    by_engine.by_engine = 1;
    CHECK(same_bits(want, run_kernels(in, by_engine, "sm_90a")));
  }
  const HostTensors wide = normal_paged("", {1, 2, 1, 256, 256, 16, {150}}).inputs;
  CHECK(same_bits(reference::attention_decode(wide, params),
                  run_kernels(wide, tile_of(16, 1, 8), "sm_90a")));
  const HostTensors window = normal_paged("", {2, 2, 1, 64, 64, 16, {300}}).inputs;
  CHECK(same_bits(
      reference::attention_decode(window, {{"split_len", kPart}, {"window_left", int64_t{150}}}),
      run_kernels(window, tile_of(16, 1, 8), "sm_90a", 150)));
  for (const int64_t width : {64, 128}) {
    const PagedSize size{1, 4, 2, width, width, 16, {150}};
    const HostTensors codes = normal_paged("", size, {}, DType::e4m3).inputs;
    const HostTensors of_codes = reference::attention_decode(codes, params);
    CHECK(same_bits(of_codes, run_kernels(codes, tile_of(16, 1, width == 64 ? 4 : 8), "sm_90a")));
    CHECK(same_bits(of_codes, run_kernels(codes, tile_of(32, 2, 8), "sm_90a")));
  }
}

TEST_CASE("attention_decode gives the last rows of a causal attention_fwd to the bit (A27)",
          "[attention]") {
  const auto decode = op_runner("attention_decode", Device::cpu());
  const auto forward = op_runner("attention_fwd", Device::cpu());
  for (const int64_t left : {-1, 70}) {
    for (const bool has_sink : {false, true}) {
      HostTensors in = normal_paged("", {2, 4, 2, 64, 64, 16, {300, 150}}).inputs;
      if (has_sink) in["sink"] = tensor_of(DType::f32, {4}, {0.5, -3, 2, 1});
      const HostTensors got = decode(in, {{"window_left", left}});
      const HostTensor& q = in.at("q");
      for (int64_t b = 0; b < 2; ++b) {
        HostTensors dense;
        const int64_t size = q.size() / 2;
        dense["q"] =
            tensor_by(q.dtype(), {1, 2, 4, 64}, [&](int64_t i) { return q.value(b * size + i); });
        dense["k"] = gathered(in, "k_cache", b), dense["v"] = gathered(in, "v_cache", b);
        if (has_sink) dense["sink"] = in.at("sink");
        const HostTensors want = forward(dense, {{"causal", true}, {"window_left", left}});
        for (const auto& [name, tensor] : want) {
          CAPTURE(left, has_sink, b, name);
          int64_t wrong = 0;
          for (int64_t i = 0; i < tensor.size(); ++i) {
            wrong += tensor.bits(i) != got.at(name).bits(b * tensor.size() + i);
          }
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("neither pages nor other requests change bits of attention_decode (A05, A28)",
          "[attention]") {
  const auto run = op_runner("attention_decode", Device::cpu());
  const Params params = {{"split_len", kPart}};
  const HostTensors in = normal_paged("", {1, 4, 2, 64, 64, 16, {300, 17, 129}}).inputs;
  const HostTensors want = run(in, params);
  for (const int64_t page_size : {1, 7, 64, 512}) {
    CAPTURE(page_size);
    CHECK(same_bits(want, run(in_pages(in, page_size), params)));
  }
  HostTensors alone = in;  // the last request
  const HostTensor& table = in.at("page_table");
  const int64_t columns = table.shape()[1], size = in.at("q").size() / 3;
  alone["q"] = tensor_by(DType::bf16, {1, 1, 4, 64},
                         [&](int64_t i) { return in.at("q").value(2 * size + i); });
  alone["page_table"] =
      tensor_by(DType::i32, {1, columns}, [&](int64_t i) { return table.value(2 * columns + i); });
  alone["lengths"] = tensor_of(DType::i32, {1}, {129});
  const HostTensors got = run(alone, params);
  for (const auto& [name, tensor] : got) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      wrong += tensor.bits(i) != want.at(name).bits(2 * tensor.size() + i);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the length of a part changes bits of attention_decode", "[attention]") {
  const HostTensors in = normal_paged("", {1, 8, 1, 64, 64, 16, {500}}).inputs;
  const Params params = {{"split_len", kPart}};
  CHECK_FALSE(same_bits(reference::attention_decode(in, params),
                        reference::attention_decode(in, {{"split_len", int64_t{256}}})));
}

// Sums of different order differ in single bits of lse, and seldom in out, which is rounded.
TEST_CASE("the order of the parts changes bits of attention_decode (A70)", "[attention]") {
  const HostTensors in = normal_paged("", {1, 64, 4, 64, 64, 16, {900, 700, 1000}}).inputs;
  const Params params = {{"split_len", kPart}};
  const HostTensors want = reference::attention_decode(in, params);
  CHECK_FALSE(same_bits(
      want, reference::attention_decode(in, params, reference::AttentionMistake::backwards)));
  CHECK(same_bits(want, run_kernels(in, tile_of(16, 1, 8), "sm_90a")));
}

TEST_CASE("the cases of attention_decode catch mistakes (A60 to A75)", "[attention][mutants]") {
  using enum AttentionMistake;
  const std::vector<AttentionMistake> mistakes = {
      none,         top_left,      large_negative,      sums_rounded_p,  sink_in_lse,
      forgets_half, forgets_sum,   last_block_unmasked, left_edge,       exchanged_heads,
      drops_nan,    negative_zero, part_twice,          forgets_part,    behind_length,
      missing_page, pages_of_64,   scale_of_head_0,     v_sf_before_sink};
  std::vector<reference::Runner> mutants;
  for (const AttentionMistake mistake : mistakes) {
    mutants.emplace_back([mistake](const HostTensors& in, const Params& params) {
      return reference::attention_decode(in, params, mistake);
    });
  }
  const std::vector<bool> caught = caught_by("attention_decode", attention_decode_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("attention_decode explains wrong arguments (A12, A30)", "[attention][errors]") {
  const HostTensors in = normal_paged("", {1, 4, 2, 64, 64, 16, {40}}).inputs;
  const auto says = [](const std::string& text, const std::string& what,
                       const std::string& expected, const std::string& got) {
    CAPTURE(text);
    CHECK(text.starts_with("tessera: attention_decode: " + what + "\n"));
    CHECK(text.find("\n  expected  " + expected) != std::string::npos);
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  const auto of = [&](const Params& params) {
    return outputs_error("attention_decode", in, params);
  };
  CHECK(of({}) == "no error");
  says(of({{"split_len", int64_t{100}}}), "parameter 'split_len' has a wrong value",
       "a multiple of 128", "100");
  says(of({{"split_len", int64_t{0}}}), "parameter 'split_len' has a wrong value", "split_len >= 1",
       "split_len = 0");
  says(of({{"scale", -1.0}}), "parameter 'scale' has a wrong value", "a finite number above 0",
       "-1");
  HostTensors other = in;
  other["k_cache"] = HostTensor(DType::f16, in.at("k_cache").shape());
  other["v_cache"] = other["k_cache"];
  says(outputs_error("attention_decode", other, {}), "argument 'k_cache' has the wrong dtype",
       "bf16, as 'q', or e4m3", "f16");
  const HostTensors codes = normal_paged("", {1, 2, 1, 96, 96, 16, {4}}, {}, DType::e4m3).inputs;
  says(outputs_error("attention_decode", codes, {}),
       "argument 'k_cache': e4m3 goes without heads of these extents", "dk and dv of 64 and 64",
       "96 and 96");
  const auto run = op_runner("attention_decode", Device::cpu());
  const auto told = [&](const char* name, double value) -> std::string {
    HostTensors bad = in;
    bad.at(name).set_value(0, value);
    try {
      run(bad, {});
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  says(told("lengths", -1), "argument 'lengths' has a value out of range", "0 .. 64", "-1");
  says(told("page_table", 1000), "argument 'page_table' has a value out of range", "0 .. 5",
       "1000");
  for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    HostTensors bad = normal_paged("", {1, 4, 2, 64, 64, 16, {40}}, {}, DType::e4m3).inputs;
    bad.at("k_sf").set_value(1, scale);
    std::string text;
    try {
      run(bad, {});
    } catch (const std::exception& error) {
      text = error.what();
    }
    says(text, "argument 'k_sf' has a value out of range", "finite numbers above 0",
         fmt::format("{} at [1]", scale));
  }
}
