// mla_decode and mla_combine on the executor: the ops against their references, every form of the kernel to the bit, heads,
// pages and neighbours that change nothing, the mistakes that the cases catch, bad calls.

#include "tests/reference/mla.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "kernels/attention/mla/parts/mla_kernel.h"
#include "tests/support/ops/mla_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using kernels::attention::CombineSpec;
using kernels::attention::MlaForm;
using kernels::attention::MlaSpec;
using reference::MlaMistake;

namespace {

constexpr int64_t kPart = 64, kValueWidth = 512;
constexpr double kScale = 1.0 / 24, kLog2E = 1.4426950408889634;

/// Both kernels with the sums of the tensor cores, for parts of `part` keys, causal.
HostTensors run_kernels(const HostTensors& in, const MlaSpec& form, const char* target,
                        int64_t part = kPart) {
  const HostTensor &q = in.at("q"), &cache = in.at("cache"), &table = in.at("page_table");
  const int64_t requests = q.shape()[0], tokens = q.shape()[1], heads = q.shape()[2];
  const int64_t pages = cache.shape()[0], page_size = cache.shape()[1], columns = table.shape()[1];
  const int64_t rows = requests * tokens * heads, width = q.shape()[3];
  MlaSpec s = form;
  s.q_vector = s.cache_vector = 8, s.is_causal = s.has_parts = 1;
  HostTensor out(DType::bf16, {requests, tokens * heads, kValueWidth});
  HostTensor lse(DType::f32, {requests, heads, tokens});
  const int64_t count = (columns * page_size + part - 1) / part;
  HostTensor partial(DType::f32, {count, rows, kValueWidth});
  HostTensor maxima(DType::f32, {count, rows}), sums(DType::f32, {count, rows});
  NamedArguments given;
  for (const auto& [name, tensor] : in) given.tensors[name] = tensor.view();
  given.tensors["cache"] = {
      cache.view().data, DType::bf16, {pages, page_size, 1, width}, Device::cpu()};
  given.tensors["out"] = out.view(), given.tensors["lse"] = lse.view();
  given.tensors["partial"] = partial.view();
  given.tensors["partial_max"] = maxima.view(), given.tensors["partial_sum"] = sums.view();
  given.dims = {{"B", requests},
                {"n", tokens},
                {"h", heads},
                {"P", pages},
                {"ps", page_size},
                {"Q", columns},
                {"of_table", columns},
                {"part_blocks", part / 64},
                {"R", requests * tokens * heads},
                {"part_count", count},
                {"part_len", part},
                {"cache_rows", columns * page_size},
                {"q_of_request", tokens * heads * width},
                {"q_of_row", heads * width},
                {"q_of_head", width},
                {"cache_of_request", page_size * width},
                {"cache_of_row", width},
                {"cache_of_head", width},
                {"device_blocks", 5}};
  given.numbers["c"] = kScale * kLog2E;
  run_with_target_sums(build_mla_decode(s), target, given);
  given.tensors["out"] = {
      out.view().data, DType::bf16, {requests * tokens * heads, kValueWidth}, Device::cpu()};
  run_with_target_sums(build_mla_combine(CombineSpec{0, 0, 1, 1, 1, 0, 0}), target, given);
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

MlaSpec form_of(MlaForm form, int32_t rows, int32_t page_size, bool by_engine = false) {
  MlaSpec s{};
  s.form = form, s.rows = rows, s.page_size = page_size;
  s.width = 576, s.has_lengths = 1;
  s.by_engine = by_engine ? 1 : 0;
  s.stages = form == MlaForm::plain ? 1 : 2;
  if (form == MlaForm::two_groups) s.stages = 2;
  s.p_stages = form == MlaForm::keys_on_m ? 2 : 1;
  return s;
}

Params causal_parts(int64_t part = kPart) {
  return {{"sm_scale", kScale}, {"split_len", part}, {"causal", true}};
}

bool same_bits(const HostTensors& want, const HostTensors& got) {
  return want.at("out").raw() == got.at("out").raw() && want.at("lse").raw() == got.at("lse").raw();
}

/// The same keys in pages of `page_size`, in another order.
HostTensors in_pages(const HostTensors& in, int64_t page_size) {
  HostTensors made = in;
  const HostTensor &table = in.at("page_table"), &lengths = in.at("lengths"),
                   &cache = in.at("cache");
  const int64_t requests = lengths.size(), columns = table.shape()[1];
  const int64_t before = cache.shape()[1], row = cache.shape()[2];
  const int64_t columns_now = (columns * before + page_size - 1) / page_size;
  const int64_t pages = requests * columns_now;
  made["page_table"] =
      tensor_by(DType::i32, {requests, columns_now}, [&](int64_t i) { return pages - 1 - i; });
  HostTensor moved =
      tensor_by(DType::bf16, {pages, page_size, row}, [](int64_t) { return std::nan(""); });
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
  made["cache"] = std::move(moved);
  return made;
}

/// Heads [first, first + count) of q.
HostTensors some_heads(const HostTensors& in, int64_t first, int64_t count) {
  HostTensors made = in;
  const HostTensor& q = in.at("q");
  const int64_t heads = q.shape()[2], width = q.shape()[3];
  made["q"] = tensor_by(DType::bf16, {q.shape()[0], q.shape()[1], count, width}, [&](int64_t i) {
    const int64_t row = i / width;
    return q.value((row / count * heads + first + row % count) * width + i % width);
  });
  return made;
}

/// The same call of sparse_mla_fwd: all slots of both caches as rows, and the first list in whole blocks.
HostTensors as_chosen(const OpCase& test, const ListedSize& s) {
  const auto load = op_runner("kv_load", Device::cpu());
  const auto param = [&](const std::string& name, const std::string& standard) {
    const auto found = test.params.find(name);
    return found == test.params.end() ? standard : std::get<std::string>(found->second);
  };
  const auto rows_of = [&](const std::string& prefix) {
    const HostTensor& cache = test.inputs.at(prefix + "cache");
    const int64_t page_size = std::get<int64_t>(test.params.at(prefix + "page_size"));
    Params params = {{"format", param(prefix + "format", s.format)},
                     {"page_size", page_size},
                     {"cache_order", param("cache_order", "planes")}};
    HostTensors in = {{"cache", cache}};
    in["loc"] = tensor_by(DType::i32, {cache.shape()[0] * page_size}, [](int64_t i) { return i; });
    return load(in, params).at("out");
  };
  std::vector<HostTensor> rows = {rows_of("")};
  if (!s.extra_format.empty()) rows.push_back(rows_of("extra_"));
  const int64_t width = rows[0].shape()[1], slots = rows[0].shape()[0];
  const int64_t padded = (s.count + 63) / 64 * 64, count = padded + s.extra_count;
  HostTensors in;
  const HostTensor& q = test.inputs.at("q");
  in["q"] = tensor_by(DType::bf16, {s.requests * s.tokens, s.heads, width},
                      [&](int64_t i) { return q.value(i); });
  in["kv"] = HostTensor(DType::bf16, {slots + (rows.size() > 1 ? rows[1].shape()[0] : 0), width});
  for (int64_t i = 0; i < in["kv"].size(); ++i) {
    const int64_t first = rows[0].size();
    in["kv"].set_bits(i, i < first ? rows[0].bits(i) : rows[1].bits(i - first));
  }
  in["indices"] = tensor_by(DType::i32, {s.requests * s.tokens, count}, [&](int64_t i) {
    const int64_t token = i / count, j = i % count;
    if (j < s.count) return test.inputs.at("indices").value(token * s.count + j);
    if (j < padded) return -1.0;
    const double second = test.inputs.at("extra_indices").value(token * s.extra_count + j - padded);
    return static_cast<double>(slots) + second;
  });
  return in;
}

}  // namespace

TEST_CASE("mla_decode equals its reference on the executor", "[attention][mla]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("mla_decode", mla_decode_cases());
}

TEST_CASE("mla_combine equals its reference on the executor", "[attention][mla]") {
  check_products("mla_combine", mla_combine_cases());
}

TEST_CASE("sparse_mla_fwd equals its reference on the executor", "[attention][mla]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("sparse_mla_fwd", sparse_mla_fwd_cases());
}

TEST_CASE("sparse_mla_decode equals its reference on the executor", "[attention][mla]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("sparse_mla_decode", sparse_mla_decode_cases());
}

TEST_CASE("sparse_mla_fwd has the bits of mla_decode over the same keys", "[attention][mla]") {
  const HostTensors in = normal_latent("", {1, 24, 1, {130}}).inputs;
  const HostTensors want = op_runner("mla_decode", Device::cpu())(in, {{"sm_scale", kScale}});
  HostTensors chosen;
  const auto reshaped = [](const HostTensor& tensor, Dims shape) {
    return tensor_by(tensor.dtype(), shape, [&](int64_t i) { return tensor.value(i); });
  };
  chosen["q"] = reshaped(in.at("q"), {1, 24, 576});
  chosen["kv"] = reshaped(in.at("cache"), {in.at("cache").shape()[0], 576});
  chosen["indices"] = in.at("page_table");
  chosen["topk_length"] = in.at("lengths");
  const HostTensors got =
      op_runner("sparse_mla_fwd", Device::cpu())(chosen, {{"sm_scale", kScale}});
  CHECK(same_bits(want, got));
}

TEST_CASE("mla_decode has the bits of its definition, whatever form and target (A34)",
          "[attention][mla]") {
  const HostTensors in = normal_latent("", {2, 8, 64, {200, 0, 65}}).inputs;
  const HostTensors want = reference::mla_decode(in, causal_parts());
  CHECK(same_bits(want, run_kernels(in, form_of(MlaForm::plain, 16, 64), "sm_90")));
  CHECK(same_bits(want, run_kernels(in, form_of(MlaForm::plain, 16, 0), "sm_90a")));
  CHECK(same_bits(want, run_kernels(in, form_of(MlaForm::keys_on_m, 8, 64), "sm_90a")));
  CHECK(same_bits(want, run_kernels(in, form_of(MlaForm::keys_on_m, 16, 64, true), "sm_90a")));
  CHECK(same_bits(want, run_kernels(in, form_of(MlaForm::keys_on_m, 32, 64, true), "sm_90a")));
}

TEST_CASE("two groups have the bits of one, however many blocks they share (A34)",
          "[attention][mla]") {
  const HostTensors in =
      normal_latent("", {2, 40, 64, {300, 0, 1, 63, 64, 65, 128, 129, 192}}).inputs;
  for (const int64_t part : {int64_t{64}, int64_t{192}, int64_t{4096}}) {
    CAPTURE(part);
    const HostTensors want = run_kernels(in, form_of(MlaForm::plain, 16, 64), "sm_90a", part);
    for (const bool by_engine : {false, true}) {
      const MlaSpec form = form_of(MlaForm::two_groups, 64, 64, by_engine);
      CHECK(same_bits(want, run_kernels(in, form, "sm_90a", part)));
    }
    if (part == 4096) CHECK(same_bits(want, reference::mla_decode(in, causal_parts(part))));
  }
}

TEST_CASE("neither heads, pages nor other requests change bits of mla_decode (A05, A28, A33)",
          "[attention][mla]") {
  const auto run = op_runner("mla_decode", Device::cpu());
  const Params params = causal_parts();
  const HostTensors in = normal_latent("", {1, 72, 16, {130, 17, 66}}).inputs;
  const HostTensors want = run(in, params);
  for (const int64_t page_size : {1, 7, 64}) {
    CAPTURE(page_size);
    CHECK(same_bits(want, run(in_pages(in, page_size), params)));
  }
  const auto wrong_bits = [&](const HostTensors& got, int64_t request, int64_t first,
                              int64_t count) {
    int64_t wrong = 0;
    for (const auto& [name, size] : {std::pair("out", kValueWidth), std::pair("lse", int64_t{1})}) {
      for (int64_t i = 0; i < got.at(name).size(); ++i) {
        const int64_t row = i / size + request * count;
        const int64_t of_all = row / count * 72 + first + row % count;
        wrong += got.at(name).bits(i) != want.at(name).bits(of_all * size + i % size);
      }
    }
    return wrong;
  };
  for (const auto& [first, count] : {std::pair(8, 8), std::pair(40, 32)}) {
    CAPTURE(first, count);
    CHECK(wrong_bits(run(some_heads(in, first, count), params), 0, first, count) == 0);
  }
  HostTensors alone = in;  // the last request
  const HostTensor& table = in.at("page_table");
  const int64_t columns = table.shape()[1], size = in.at("q").size() / 3;
  alone["q"] = tensor_by(DType::bf16, {1, 1, 72, 576},
                         [&](int64_t i) { return in.at("q").value(2 * size + i); });
  alone["page_table"] =
      tensor_by(DType::i32, {1, columns}, [&](int64_t i) { return table.value(2 * columns + i); });
  alone["lengths"] = tensor_of(DType::i32, {1}, {66});
  CHECK(wrong_bits(run(alone, params), 2, 0, 72) == 0);
}

TEST_CASE("mla_decode with parts has the bits of mla_combine of them", "[attention][mla]") {
  const HostTensors in = normal_latent("", {1, 8, 16, {200}}).inputs;
  const HostTensors want = reference::mla_decode(in, causal_parts());
  const std::vector<reference::Number> q = reference::numbers_of(in.at("q")),
                                       keys = reference::numbers_of(in.at("cache"));
  HostTensors parts;
  constexpr int64_t kCount = 4, kHeads = 8, kWidth = 576;
  parts["partial"] = HostTensor(DType::f32, {kCount, kHeads, kValueWidth});
  for (const char* name : {"partial_max", "partial_sum"}) {
    parts[name] = HostTensor(DType::f32, {kCount, kHeads});
  }
  for (int64_t z = 0; z < kCount; ++z) {
    std::vector<const reference::Number*> entries;
    for (int64_t j = z * kPart; j < std::min<int64_t>(200, (z + 1) * kPart); ++j) {
      const auto page = static_cast<int64_t>(in.at("page_table").value(j / 16));
      entries.push_back(&keys[static_cast<size_t>((page * 16 + j % 16) * kWidth)]);
    }
    for (int64_t head = 0; head < kHeads; ++head) {
      const auto part = reference::mla_part(&q[static_cast<size_t>(head * kWidth)], kWidth, entries,
                                            static_cast<float>(kScale * kLog2E));
      const int64_t row = z * kHeads + head;
      parts["partial_max"].set_value(row, static_cast<double>(part.ms));
      parts["partial_sum"].set_value(row, static_cast<double>(part.l));
      for (int64_t d = 0; d < kValueWidth; ++d) {
        parts["partial"].set_bits(row * kValueWidth + d, part.o[static_cast<size_t>(d)]);
      }
    }
  }
  const auto run = op_runner("mla_combine", Device::cpu());
  CHECK(same_bits(want, run(parts, {{"num_heads", kHeads}})));
}

TEST_CASE("classes and the order of parts are bits of mla_decode (A70, A79)", "[attention][mla]") {
  const HostTensors in = normal_latent("", {1, 16, 16, {300}}).inputs;
  for (const int64_t part : {int64_t{64}, int64_t{4096}}) {
    Params params = causal_parts();
    params["split_len"] = part, params["out_dtype"] = std::string("f32");
    const HostTensors want = reference::mla_decode(in, params);
    using enum MlaMistake;
    for (const MlaMistake mistake : {no_parity, scaled_scores, backwards, folds_parts}) {
      const bool is_of_parts = mistake == backwards || mistake == folds_parts;
      if (is_of_parts != (part == 64)) continue;
      CAPTURE(static_cast<int>(mistake));
      CHECK_FALSE(same_bits(want, reference::mla_decode(in, params, mistake)));
    }
  }
}

TEST_CASE("the cases of mla_decode catch mistakes (A61 to A74, A79)", "[attention][mutants]") {
  using enum MlaMistake;
  const std::vector<MlaMistake> mistakes = {
      none,        large_negative, sums_rounded_p,      forgets_half,  forgets_parity,
      drops_nan,   top_left,       last_block_unmasked, behind_length, missing_page,
      pages_of_64, part_twice,     forgets_part};
  std::vector<reference::Runner> mutants;
  for (const MlaMistake mistake : mistakes) {
    mutants.emplace_back([mistake](const HostTensors& in, const Params& params) {
      return reference::mla_decode(in, params, mistake);
    });
  }
  const std::vector<bool> caught = caught_by("mla_decode", mla_decode_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("the cases of mla_combine catch mistakes", "[attention][mutants]") {
  using enum MlaMistake;
  const std::vector<MlaMistake> mistakes = {none,        part_twice,  forgets_part, negative_zero,
                                            sink_in_lse, sink_of_row, adds_maxima};
  std::vector<reference::Runner> mutants;
  for (const MlaMistake mistake : mistakes) {
    mutants.emplace_back([mistake](const HostTensors& in, const Params& params) {
      return reference::mla_combine(in, params, mistake);
    });
  }
  const std::vector<bool> caught = caught_by("mla_combine", mla_combine_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("the cases of sparse_mla_fwd catch mistakes (A35)", "[attention][mutants]") {
  using enum MlaMistake;
  const std::vector<MlaMistake> mistakes = {none,          large_negative, sums_rounded_p,
                                            forgets_half,  forgets_parity, drops_nan,
                                            behind_length, missing_page,   last_block_unmasked,
                                            sink_in_lse,   counts_once,    first_scale};
  std::vector<reference::Runner> mutants;
  for (const MlaMistake mistake : mistakes) {
    mutants.emplace_back([mistake](const HostTensors& in, const Params& params) {
      return reference::sparse_mla_fwd(in, params, mistake);
    });
  }
  const std::vector<bool> caught = caught_by("sparse_mla_fwd", sparse_mla_fwd_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("the cases of sparse_mla_decode catch mistakes (A35, A76)", "[attention][mutants]") {
  using enum MlaMistake;
  const std::vector<MlaMistake> mistakes = {
      none,           large_negative, sums_rounded_p,    forgets_half,
      forgets_parity, drops_nan,      behind_length,     missing_page,
      sink_in_lse,    first_scale,    part_twice,        forgets_part,
      forgets_second, first_cache,    one_length,        length_of_token,
      one_page_size,  other_order,    exchanges_nibbles, sink_per_part};
  std::vector<reference::Runner> mutants;
  for (const MlaMistake mistake : mistakes) {
    mutants.emplace_back([mistake](const HostTensors& in, const Params& params) {
      return reference::sparse_mla_decode(in, params, mistake);
    });
  }
  const std::vector<bool> caught =
      caught_by("sparse_mla_decode", sparse_mla_decode_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("sparse_mla_decode has the bits of sparse_mla_fwd over the rows of kv_load (A36)",
          "[attention][mla]") {
  for (const ListedSize& s : {ListedSize{"v32_fp8", 2, 2, 16, 130, 53},
                              {"v4_fp8", 2, 1, 40, 70, 5, "v4_fp8", 130, 2},
                              {"v32_fp8", 17, 1, 128, 130, 7},
                              {"v41_fp8", 1, 2, 8, 70, 61, "v41_fp4", 100, 5},
                              {"v41_fp8", 1, 1, 8, 20, 1, "v41_fp4", 70, 69, true},
                              {"v41_fp8", 1, 1, 16, 64, 576, "v41_fp8", 1, 2}}) {
    CAPTURE(s.format, s.extra_format);
    OpCase test = normal_listed("", s);
    HostTensors chosen = as_chosen(test, s);
    if (s.requests >
        2) {  // more tokens than multiprocessors for small tiles, of which one has entries
      const HostTensor lengths =
          tensor_by(DType::i32, {s.requests}, [&](int64_t i) { return i == 0 ? s.count : 0; });
      test.inputs["topk_length"] = lengths, chosen["topk_length"] = lengths;
    }
    const HostTensors got = op_runner("sparse_mla_decode", Device::cpu())(test.inputs, test.params);
    const HostTensors want = op_runner("sparse_mla_fwd", Device::cpu())(
        chosen, {{"sm_scale", test.params.at("sm_scale")}});
    CHECK(want.at("out").raw() == got.at("out").raw());
    int64_t wrong = 0;
    for (int64_t i = 0; i < got.at("lse").size(); ++i) {
      const int64_t token = i % s.tokens, head = i / s.tokens % s.heads,
                    request = i / s.tokens / s.heads;
      const int64_t at = (request * s.tokens + token) * s.heads + head;
      wrong += got.at("lse").bits(i) != want.at("lse").bits(at);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("parts of sparse_mla_decode and the place of its second list are bits (A43)",
          "[attention][mla]") {
  using enum MlaMistake;
  const OpCase test = normal_listed("", {"v4_fp8", 1, 1, 32, 70, 5, "v4_fp8", 250, 2});
  for (const auto& [splits, mistake] :
       {std::pair(1, no_parity), {1, unpadded}, {2, unpadded}, {7, backwards}, {7, folds_parts}}) {
    CAPTURE(splits, static_cast<int>(mistake));
    Params params = test.params;
    params["num_splits"] = int64_t{splits}, params["out_dtype"] = std::string("f32");
    const HostTensors want = reference::sparse_mla_decode(test.inputs, params);
    CHECK_FALSE(same_bits(want, reference::sparse_mla_decode(test.inputs, params, mistake)));
  }
}

TEST_CASE("neither heads nor other requests change bits of sparse_mla_decode (A33)",
          "[attention][mla]") {
  const OpCase test = normal_listed("", {"v32_fp8", 2, 1, 48, 130, 5});
  const auto run = op_runner("sparse_mla_decode", Device::cpu());
  const HostTensors want = run(test.inputs, test.params);
  const auto part_of = [&](const char* name, int64_t request, int64_t first, int64_t count) {
    const HostTensor& all = want.at(name);
    const int64_t size = all.size() / (2 * 48);
    return tensor_by(all.dtype(), {count * size},
                     [&](int64_t i) { return all.value((request * 48 + first) * size + i); });
  };
  for (const int64_t count : {8, 16, 40}) {
    CAPTURE(count);
    HostTensors in = test.inputs;
    const HostTensor& q = test.inputs.at("q");
    in["q"] = tensor_by(DType::bf16, {1, 1, count, 576},
                        [&](int64_t i) { return q.value((48 + 8) * 576 + i); });
    in["indices"] = tensor_by(DType::i32, {1, 1, 130},
                              [&](int64_t i) { return test.inputs.at("indices").value(130 + i); });
    const HostTensors got = run(in, test.params);
    CHECK(part_of("out", 1, 8, count).raw() == got.at("out").raw());
    CHECK(part_of("lse", 1, 8, count).raw() == got.at("lse").raw());
  }
}

TEST_CASE("sparse_mla_decode explains wrong arguments", "[attention][errors]") {
  const OpCase test = normal_listed("", {"v41_fp8", 1, 1, 8, 10, 4, "v41_fp4", 6, 2});
  const auto of = [&](const std::function<void(HostTensors&, Params&)>& change) {
    HostTensors in = test.inputs;
    Params params = test.params;
    change(in, params);
    return outputs_error("sparse_mla_decode", in, params);
  };
  const auto with = [&](const char* name, const kernels::ParamValue& value) {
    return of([&](HostTensors&, Params& params) { params[name] = value; });
  };
  CHECK(of([](HostTensors&, Params&) {}) == "no error");
  const auto says = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(with("sm_scale", -1.0), "parameter 'sm_scale' has a wrong value");
  says(with("format", std::string("v32_fp8")), "parameter 'format' does not go with the channels");
  says(with("format", std::string("v4_fp8")), "argument 'cache' has the wrong shape");
  says(with("extra_format", std::string("v4_fp8")),
       "the formats of 'cache' and 'extra_cache' do not go together");
  says(with("page_size", int64_t{5}), "argument 'cache' has the wrong shape");
  says(with("extra_page_size", int64_t{5}), "argument 'extra_cache' has the wrong shape");
  says(with("num_splits", int64_t{33}), "num_splits");
  const auto without_second = [](HostTensors& in) {
    in.erase("extra_cache"), in.erase("extra_indices");
  };
  says(of([&](HostTensors& in, Params&) { without_second(in); }),
       "parameter 'extra_format' goes with 'extra_cache'");
  says(of([&](HostTensors& in, Params& params) {
         without_second(in), params.erase("extra_format");
         in["extra_length"] = tensor_of(DType::i32, {1}, {1});
       }),
       "argument 'extra_length' goes with 'extra_cache'");
  const auto run = op_runner("sparse_mla_decode", Device::cpu());
  const auto told = [&](const char* name, const HostTensor& tensor) -> std::string {
    HostTensors bad = test.inputs;
    bad[name] = tensor;
    try {
      run(bad, test.params);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(told("topk_length", tensor_of(DType::i32, {1}, {10})) == "no error");
  says(told("topk_length", tensor_of(DType::i32, {1}, {11})),
       "argument 'topk_length' has a value out of range");
  says(told("extra_length", tensor_of(DType::i32, {1}, {-1})),
       "argument 'extra_length' has a value out of range");
  says(told("q_scale", tensor_of(DType::f32, {1, 1, 8}, {1, 1, -2})), "-2 at [0, 0, 2]");
}

TEST_CASE("sparse_mla_fwd explains wrong arguments", "[attention][errors]") {
  HostTensors in;
  in["q"] = HostTensor(DType::bf16, {1, 8, 576});
  in["kv"] = HostTensor(DType::bf16, {4, 576});
  in["indices"] = tensor_of(DType::i32, {1, 3}, {-1, 4, 2});
  for (const char* name : {"q", "kv"}) fill_random(in[name], Values::normal, 3);
  const Params params = {{"sm_scale", kScale}};
  CHECK(outputs_error("sparse_mla_fwd", in, params) == "no error");
  HostTensors other = in;
  other["q"] = HostTensor(DType::bf16, {1, 8, 128}),
  other["kv"] = HostTensor(DType::bf16, {4, 128});
  CHECK(outputs_error("sparse_mla_fwd", other, params)
            .find("argument 'q' has channels that are not supported") != std::string::npos);
  const auto run = op_runner("sparse_mla_fwd", Device::cpu());
  const auto told = [&](const char* name, const HostTensor& tensor) -> std::string {
    HostTensors bad = in;
    bad[name] = tensor;
    try {
      run(bad, params);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(told("topk_length", tensor_of(DType::i32, {1}, {3})) == "no error");
  CHECK(told("topk_length", tensor_of(DType::i32, {1}, {4}))
            .find("argument 'topk_length' has a value out of range") != std::string::npos);
  const std::string text = told("q_scale", tensor_of(DType::f32, {1, 8}, {1, 1, -2}));
  CHECK(text.find("argument 'q_scale' has a value out of range") != std::string::npos);
  CHECK(text.find("-2 at [0, 2]") != std::string::npos);
}

TEST_CASE("mla_decode and mla_combine explain wrong arguments (A12, A30)", "[attention][errors]") {
  const HostTensors in = normal_latent("", {1, 8, 16, {40}}).inputs;
  const auto says = [](const std::string& text, const std::string& what,
                       const std::string& expected, const std::string& got) {
    CAPTURE(text);
    CHECK(text.find(": " + what + "\n") != std::string::npos);
    CHECK(text.find("\n  expected  " + expected) != std::string::npos);
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  const auto of = [&](Params params) {
    params.try_emplace("sm_scale", kScale);
    return outputs_error("mla_decode", in, params);
  };
  CHECK(of({}) == "no error");
  says(of({{"split_len", int64_t{100}}}), "parameter 'split_len' has a wrong value",
       "a multiple of 64", "100");
  says(of({{"split_len", int64_t{0}}}), "parameter 'split_len' has a wrong value", "split_len >= 1",
       "split_len = 0");
  for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e-60}) {
    says(of({{"sm_scale", scale}}), "parameter 'sm_scale' has a wrong value",
         "a finite number above 0", fmt::format("{}", scale));
  }
  HostTensors other = in;
  other["q"] = HostTensor(DType::bf16, {1, 1, 12, 576});
  says(outputs_error("mla_decode", other, {{"sm_scale", kScale}}),
       "the heads of 'q' are no multiple of 8", "h % 8 = 0", "h = 12");
  other["q"] = HostTensor(DType::bf16, {1, 1, 136, 576});
  says(outputs_error("mla_decode", other, {{"sm_scale", kScale}}),
       "so many heads are not supported", "h <= 128", "h = 136");
  const auto run = op_runner("mla_decode", Device::cpu());
  const auto told = [&](const char* name, double value) -> std::string {
    HostTensors bad = in;
    bad.at(name).set_value(0, value);
    try {
      run(bad, {{"sm_scale", kScale}});
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  says(told("lengths", -1), "argument 'lengths' has a value out of range", "0 .. 64", "-1");
  says(told("page_table", 1000), "argument 'page_table' has a value out of range", "0 .. 4",
       "1000");
  HostTensors parts;
  parts["partial"] = HostTensor(DType::f32, {2, 6, kValueWidth});
  for (const char* name : {"partial_max", "partial_sum"}) {
    parts[name] = HostTensor(DType::f32, {2, 6});
  }
  says(outputs_error("mla_combine", parts, {{"num_heads", int64_t{4}}}),
       "the rows of 'partial' are no multiple of 'num_heads'", "R % num_heads = 0", "R = 6");
}
