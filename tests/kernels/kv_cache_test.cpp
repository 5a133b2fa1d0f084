// The ops of KV caches on the executor: the references, the chains that they equal, the mistakes that their cases catch, what
// bad calls are told.

#include <array>
#include <cmath>

#include "tests/reference/cache_entry.h"
#include "tests/reference/numeric.h"
#include "tests/support/ops/kv_cache_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const kernels::UncheckedValues as_on_a_gpu;
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors run(const std::string& op, const HostTensors& in, const Params& params) {
  return op_runner(op, Device::cpu())(in, params);
}

using Mistake = std::function<void(HostTensors&, Params&)>;

void check_mistakes(const std::string& op, const std::vector<OpCase>& cases,
                    const std::vector<Mistake>& mistakes) {
  CHECK_FALSE(is_caught(op, cases, misled(op, [](HostTensors&, Params&) {})));
  for (size_t i = 0; i < mistakes.size(); ++i) {
    CAPTURE(op, i);
    CHECK(is_caught(op, cases, misled(op, mistakes[i])));
  }
}

Mistake param_is(const char* name, const kernels::ParamValue& value) {
  return [=](HostTensors&, Params& params) { params[name] = value; };
}

/// Integers of a tensor that are not negative, some further.
Mistake moved(const char* name, double by) {
  return [=](HostTensors& in, Params&) {
    HostTensor& tensor = in.at(name);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (tensor.value(i) >= 0) tensor.set_value(i, tensor.value(i) + by);
    }
  };
}

/// The scales of a token behind its codes instead of behind the block's, and the other way round.
void exchange_orders(HostTensors&, Params& params) {
  const auto& format = std::get<std::string>(params.at("format"));
  if (!format.starts_with("v41") && format != "index_fp4") return;
  const bool in_rows = std::get<std::string>(params.at("cache_order")) == "rows";
  params["cache_order"] = std::string(in_rows ? "planes" : "rows");
}

/// Where a token's scales begin in a block of planes, and the bytes of a block.
struct Planes {
  int64_t scales, bytes;
};

/// A mistake about the bytes that a call has stored in one format's planes.
reference::Runner stored_wrong(
    const std::string& op, const std::string& format, const Planes& of_token,
    const std::function<uint64_t(int64_t byte, bool is_scale, uint64_t stored)>& mistake) {
  return [=](const HostTensors& in, const Params& params) {
    HostTensors out = reference::runner(op)(in, params);
    const bool is_one = std::get<std::string>(params.at("format")) == format &&
                        std::get<std::string>(params.at("cache_order")) == "planes";
    HostTensor& cache = out.at("cache");
    for (int64_t i = 0; is_one && i < cache.size(); ++i) {
      if (cache.bits(i) == in.at("cache").bits(i)) continue;
      const int64_t byte = i % cache.shape()[1];
      const bool is_scale = byte >= of_token.scales * std::get<int64_t>(params.at("page_size"));
      cache.set_bits(i, mistake(byte, is_scale, cache.bits(i)));
    }
    return out;
  };
}

HostTensor as_f32(const HostTensor& tensor) {
  return tensor_by(DType::f32, tensor.shape(), [&](int64_t i) { return tensor.value(i); });
}
HostTensor as_bf16(const HostTensor& tensor) {
  return tensor_by(DType::bf16, tensor.shape(), [&](int64_t i) { return tensor.value(i); });
}

/// Columns `first` .. of a matrix.
HostTensor columns(const HostTensor& matrix, int64_t first, int64_t count) {
  const int64_t width = matrix.shape()[1];
  HostTensor part(matrix.dtype(), {matrix.shape()[0], count});
  for (int64_t i = 0; i < part.size(); ++i) {
    part.set_bits(i, matrix.bits(i / count * width + first + i % count));
  }
  return part;
}
void put_columns(const HostTensor& part, HostTensor& matrix, int64_t first) {
  const int64_t width = matrix.shape()[1], count = part.shape()[1];
  for (int64_t i = 0; i < part.size(); ++i) {
    matrix.set_bits(i / count * width + first + i % count, part.bits(i));
  }
}

HostTensor reshaped(const HostTensor& tensor, const Dims& shape) {
  HostTensor result(tensor.dtype(), shape);
  for (int64_t i = 0; i < result.size(); ++i) result.set_bits(i, tensor.bits(i));
  return result;
}

/// apply_rotary of 64 columns of each row.
void rotate(HostTensor& rows, int64_t first, const HostTensors& in, const HostTensor& positions,
            const Params& params) {
  const HostTensor part = columns(rows, first, 64);
  const HostTensors out =
      run("apply_rotary",
          {{"cos_sin", in.at("cos_sin")},
           {"positions", positions},
           {"query", reshaped(part, {part.shape()[0], 1, 64})}},
          {{"interleaved", true}, {"cos_sin_layout", params.at("cos_sin_layout")}});
  put_columns(reshaped(out.at("query"), part.shape()), rows, first);
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return compare_bits(a.view(), b.view()).ok;
}

/// Positions and slots that are all there.
OpCase without_padding(OpCase test) {
  HostTensor& positions = test.inputs.at("positions");
  for (int64_t i = 0; i < positions.size(); ++i) {
    if (positions.value(i) < 0) positions.set_value(i, 3);
  }
  return test;
}

}  // namespace

TEST_CASE("kv_store equals its reference on the executor", "[kv_store]") {
  check_cases("kv_store", kv_store_cases());
}
TEST_CASE("kv_load equals its reference on the executor", "[kv_load]") {
  check_cases("kv_load", kv_load_cases());
}
TEST_CASE("kv_norm_rope_store equals its reference on the executor", "[kv_norm_rope_store]") {
  check_cases("kv_norm_rope_store", kv_norm_rope_store_cases());
}
TEST_CASE("q_norm_rope equals its reference on the executor", "[q_norm_rope]") {
  check_cases("q_norm_rope", q_norm_rope_cases());
}
TEST_CASE("index_q_store equals its reference on the executor", "[index_q_store]") {
  check_cases("index_q_store", index_q_store_cases());
}

TEST_CASE("caches of every format store and load in blocks of any size", "[kv_store][kv_load]") {
  // Cases that a test of every op need not repeat: what is not stored keeps its pattern.
  const kernels::UncheckedValues as_on_a_gpu;
  const std::vector<CacheSetup> formats = {
      {"v32_fp8"},         {"v4_fp8"},    {"v41_fp8"},   {"v41_fp8", "rows"},  {"v41_fp4"},
      {"v41_fp4", "rows"}, {"index_fp8"}, {"index_fp4"}, {"index_fp4", "rows"}};
  for (CacheSetup s : formats) {
    for (const int64_t page_size : {1, 2, 5, 61, 64, 69, 576}) {
      s.page_size = page_size;
      s.seed = static_cast<uint64_t>(page_size);
      const OpCase store = kv_store_case(s);
      const HostTensors stored = run("kv_store", store.inputs, store.params);
      const HostTensors want = reference::runner("kv_store")(store.inputs, store.params);
      CAPTURE(store.label);
      CHECK(same_bits(stored.at("cache"), want.at("cache")));
      OpCase load = kv_load_case(s);
      load.inputs["cache"] = want.at("cache");
      CHECK(same_bits(run("kv_load", load.inputs, load.params).at("out"),
                      reference::runner("kv_load")(load.inputs, load.params).at("out")));
    }
  }
}

TEST_CASE("values that were loaded keep their bits when they are stored again",
          "[kv_store][kv_load]") {
  // A smaller scale may do for them, so the bytes need not be the same.
  for (const CacheSetup& s : std::vector<CacheSetup>{
           {"v32_fp8"}, {"v4_fp8"}, {"v41_fp8"}, {"v41_fp8", "rows"}, {"index_fp4"}}) {
    const OpCase store = kv_store_case(s);
    CAPTURE(store.label);
    HostTensors in = store.inputs;
    Params params = store.params;
    in["cache"] = run("kv_store", in, params).at("cache");
    in["x"] = run("kv_load", {{"cache", in.at("cache")}, {"loc", in.at("loc")}}, params).at("out");
    in["cache"] = run("kv_store", in, params).at("cache");
    CHECK(same_bits(
        run("kv_load", {{"cache", in.at("cache")}, {"loc", in.at("loc")}}, params).at("out"),
        in.at("x")));
  }
}

TEST_CASE("a scale of v41_fp4 that is NaN is of the groups that are not finite",
          "[kv_store][kv_load]") {
  CacheSetup s{"v41_fp4", "planes", 4, 1};
  s.x = DType::f32;
  OpCase store = kv_store_case(s);
  store.inputs.at("loc").set_value(0, 2);
  store.inputs.at("x").set_value(20, NAN);
  store.inputs.at("x").set_value(40, -INFINITY);
  HostTensors in = {{"cache", run("kv_store", store.inputs, store.params).at("cache")},
                    {"loc", store.inputs.at("loc")}};
  const HostTensor out = run("kv_load", in, store.params).at("out");
  for (int64_t i = 0; i < 512; ++i) {
    CAPTURE(i);
    CHECK(std::isnan(out.value(i)) == (i / 16 == 1 || i / 16 == 2));
  }
}

TEST_CASE("kv_norm_rope_store equals the chain of its parts, bit for bit", "[kv_norm_rope_store]") {
  const kernels::UncheckedValues as_on_a_gpu;
  for (OpCase test : kv_norm_rope_store_cases()) {
    const HostTensors& in = test.inputs;
    const int64_t tokens = in.at("x").shape()[0], width = in.at("x").shape()[1];
    if (tokens == 0 || std::get<bool>(test.params.at("hadamard"))) continue;
    if (test.label.find("NaN") != std::string::npos) continue;
    test = without_padding(test);
    CAPTURE(test.label);
    HostTensor rows = as_f32(in.at("x"));
    const int64_t normed = width == 576 ? 512 : width;
    const HostTensor weight = as_f32(in.at("norm_weight"));
    put_columns(
        run("norm_fwd", {{"x", columns(rows, 0, normed)}, {"weight", reshaped(weight, {normed})}},
            {{"norm_eps", test.params.at("norm_eps")}})
            .at("out"),
        rows, 0);
    rotate(rows, width - 64, in, in.at("positions"), test.params);
    if (std::get<bool>(test.params.at("round_before"))) rows = as_bf16(rows);
    Params params = test.params;
    for (const char* name : {"norm_eps", "hadamard", "round_before", "cos_sin_layout"}) {
      params.erase(name);
    }
    const HostTensors chained =
        run("kv_store", {{"x", rows}, {"loc", in.at("loc")}, {"cache", in.at("cache")}}, params);
    const HostTensors fused = run("kv_norm_rope_store", in, test.params);
    CHECK(same_bits(fused.at("cache"), chained.at("cache")));
  }
}

TEST_CASE("compress_store equals compress_fwd and kv_norm_rope_store, bit for bit",
          "[compress_store][kv_norm_rope_store]") {
  const kernels::UncheckedValues as_on_a_gpu;
  for (const OpCase& test : compress_store_cases()) {
    const HostTensors& in = test.inputs;
    CAPTURE(test.label);
    if (test.label.find("x ") == std::string::npos || in.at("x").size() > 400000) continue;
    const auto ratio = std::get<int64_t>(test.params.at("ratio"));
    const HostTensor& plan = in.at("plan");
    const int64_t windows = plan.shape()[0];
    HostTensor loc(DType::i32, {windows}), positions(DType::i32, {windows});
    for (int64_t i = 0; i < windows; ++i) {
      const bool is_planned =
          plan.value(8 * i) >= 0 &&
          plan.value(8 * i + 7) ==
              static_cast<double>(std::get<int64_t>(test.params.at("page_size")));
      const auto last = static_cast<int64_t>(plan.value(8 * i + 1));
      loc.set_value(i, is_planned ? plan.value(8 * i + 5) : -1);
      positions.set_value(i, is_planned ? static_cast<double>(last / ratio * ratio) : -1);
    }
    const HostTensor entries =
        run("compress_fwd",
            {{"x", in.at("x")}, {"ape", in.at("ape")}, {"state", in.at("state")}, {"plan", plan}},
            {{"ratio", ratio}, {"out_dtype", std::string("f32")}})
            .at("out");
    Params params = test.params;
    for (const char* name : {"ratio", "save_out"}) params.erase(name);
    const HostTensors stored = run("kv_norm_rope_store",
                                   {{"x", entries},
                                    {"norm_weight", in.at("norm_weight")},
                                    {"cos_sin", in.at("cos_sin")},
                                    {"positions", positions},
                                    {"loc", loc},
                                    {"cache", in.at("cache")}},
                                   params);
    const HostTensors fused = run("compress_store", in, test.params);
    // Windows that are planned wrongly have no entry to store.
    if (test.label.find("astray") == std::string::npos) {
      CHECK(same_bits(stored.at("cache"), fused.at("cache")));
    }
  }
}

TEST_CASE("q_norm_rope equals norm_fwd and apply_rotary, bit for bit", "[q_norm_rope]") {
  const kernels::UncheckedValues as_on_a_gpu;
  for (OpCase test : q_norm_rope_cases()) {
    test = without_padding(test);
    const HostTensors& in = test.inputs;
    const Dims shape = in.at("q").shape();
    if (num_elements(shape) == 0 || test.label.find("zeros") != std::string::npos) continue;
    CAPTURE(test.label);
    HostTensor rows =
        run("norm_fwd", {{"x", reshaped(in.at("q"), {shape[0] * shape[1], shape[2]})}},
            {{"norm_eps", test.params.at("norm_eps")}})
            .at("out");
    HostTensor positions(in.at("positions").dtype(), {shape[0] * shape[1]});
    for (int64_t i = 0; i < positions.size(); ++i) {
      positions.set_bits(i, in.at("positions").bits(i / shape[1]));
    }
    rotate(rows, shape[2] - 64, in, positions, test.params);
    CHECK(same_bits(run("q_norm_rope", in, test.params).at("out"), reshaped(rows, shape)));
  }
}

TEST_CASE("index_q_store equals apply_rotary and per_token_cast, bit for bit", "[index_q_store]") {
  const kernels::UncheckedValues as_on_a_gpu;
  int compared = 0;
  for (OpCase test : index_q_store_cases()) {
    test = without_padding(test);
    const HostTensors& in = test.inputs;
    const Dims shape = in.at("q").shape();
    const bool is_first = std::get<bool>(test.params.at("rope_first"));
    if (num_elements(shape) == 0 || std::get<bool>(test.params.at("hadamard"))) continue;
    CAPTURE(test.label);
    HostTensor rows = as_f32(reshaped(in.at("q"), {shape[0] * shape[1], 128}));
    HostTensor positions(in.at("positions").dtype(), {shape[0] * shape[1]});
    for (int64_t i = 0; i < positions.size(); ++i) {
      positions.set_bits(i, in.at("positions").bits(i / shape[1]));
    }
    rotate(rows, is_first ? 0 : 64, in, positions, test.params);
    const HostTensors cast =
        run("per_token_cast", {{"x", rows}},
            {{"format", std::string("e4m3")}, {"num_per_channels", int64_t{128}}});
    const HostTensors got = run("index_q_store", in, test.params);
    CHECK(same_bits(got.at("out"), reshaped(cast.at("out"), shape)));
    const auto scale = static_cast<float>(std::get<double>(test.params.at("weight_scale")));
    for (int64_t i = 0; i < got.at("weights").size(); ++i) {
      const auto weight = static_cast<float>(in.at("weight").value(i));
      const auto sf = static_cast<float>(cast.at("out_sf").value(i));
      CHECK(got.at("weights").bits(i) == reference::bits_of(weight * scale * sf));
    }
    ++compared;
  }
  CHECK(compared >= 4);
}

TEST_CASE("the kv_store tests catch every mutant", "[kv_store][mutants]") {
  const std::vector<OpCase> cases = kv_store_cases();
  check_mistakes("kv_store", cases,
                 {moved("loc", 1), exchange_orders,
                  [](HostTensors& in, Params&) {  // values are rounded before
                    in["x"] = as_f32(as_bf16(in.at("x")));
                  }});
  const auto nibbles = [](int64_t, bool is_scale, uint64_t stored) {
    return is_scale ? stored : (stored >> 4 | (stored & 15) << 4);
  };
  CHECK(is_caught("kv_store", cases, stored_wrong("kv_store", "v41_fp4", {256, 288}, nibbles)));
  CHECK(is_caught("kv_store", cases, stored_wrong("kv_store", "index_fp4", {64, 68}, nibbles)));
  // A scale is at least 1e-4: 2^-13.
  const auto floor = [](int64_t, bool is_scale, uint64_t stored) {
    return is_scale ? std::max<uint64_t>(stored, 114) : stored;
  };
  for (const auto& [format, planes] :
       {std::pair("v4_fp8", Planes{576, 584}), std::pair("v41_fp8", Planes{512, 528}),
        std::pair("index_fp4", Planes{64, 68})}) {
    CAPTURE(format);
    CHECK(is_caught("kv_store", cases, stored_wrong("kv_store", format, planes, floor)));
  }
}

TEST_CASE("the kv_load tests catch every mutant", "[kv_load][mutants]") {
  check_mistakes("kv_load", kv_load_cases(), {moved("loc", 1), exchange_orders});
}

TEST_CASE("the kv_norm_rope_store tests catch every mutant", "[kv_norm_rope_store][mutants]") {
  check_mistakes(
      "kv_norm_rope_store", kv_norm_rope_store_cases(),
      {moved("loc", 1), moved("positions", 1), exchange_orders, param_is("norm_eps", 1e-6),
       param_is("hadamard", false), param_is("round_before", true), param_is("round_before", false),
       param_is("cos_sin_layout", std::string("pairs")),
       param_is("cos_sin_layout", std::string("halves")),
       [](HostTensors& in, Params&) {  // padding is stored
         HostTensor& positions = in.at("positions");
         for (int64_t i = 0; i < positions.size(); ++i) {
           positions.set_value(i, std::max(positions.value(i), 0.0));
         }
       },
       [](HostTensors& in, Params&) {  // the rotation is conjugate
         HostTensor& table = in.at("cos_sin");
         for (int64_t i = 1; i < table.size(); i += 2) {
           table.set_value(i, -table.value(i));
         }
       }});
}

TEST_CASE("the q_norm_rope tests catch every mutant", "[q_norm_rope][mutants]") {
  check_mistakes("q_norm_rope", q_norm_rope_cases(),
                 {moved("positions", 1), param_is("norm_eps", 1e-6),
                  param_is("cos_sin_layout", std::string("pairs")),
                  param_is("cos_sin_layout", std::string("halves"))});
}

TEST_CASE("the index_q_store tests catch every mutant", "[index_q_store][mutants]") {
  check_mistakes("index_q_store", index_q_store_cases(),
                 {moved("positions", 1), param_is("hadamard", true), param_is("hadamard", false),
                  param_is("rope_first", true), param_is("rope_first", false),
                  param_is("weight_scale", 1.0), param_is("cos_sin_layout", std::string("pairs")),
                  param_is("cos_sin_layout", std::string("halves")), [](HostTensors& in, Params&) {
                    in["weight"] =
                        tensor_by(DType::f32, in.at("weight").shape(), [](int64_t) { return 1; });
                  }});
}

TEST_CASE("kv_store and kv_load explain wrong arguments", "[kv_store][kv_load][errors]") {
  const auto told = [](const HostTensors& other, const Params& more) {
    HostTensors inputs = {{"x", HostTensor(DType::bf16, {5, 512})},
                          {"loc", HostTensor(DType::i32, {5})},
                          {"cache", HostTensor(DType::u8, {3, 37440})}};
    for (const auto& [name, tensor] : other) inputs[name] = tensor;
    Params params = {{"format", std::string("v4_fp8")}};
    for (const auto& [name, value] : more) params[name] = value;
    return outputs_error("kv_store", inputs, params);
  };
  CHECK(told({}, {}) == "no error");
  CHECK(told({}, {{"format", std::string("v32_fp8")}}) ==
        "tessera: kv_store: parameter 'format' does not go with the channels\n"
        "  expected  576 channels for v32_fp8\n"
        "  got       512");
  CHECK(told({{"x", HostTensor(DType::bf16, {5, 72})}}, {{"format", std::string("bf16")}}) ==
        "tessera: kv_store: parameter 'format' does not go with the channels\n"
        "  expected  a multiple of 64 channels, at most 1024, for bf16\n"
        "  got       72");
  CHECK(told({}, {{"cache_order", std::string("rows")}}) ==
        "tessera: kv_store: parameter 'cache_order' does not go with the format\n"
        "  expected  the default for v4_fp8\n"
        "  got       rows");
  CHECK(told({{"cache", HostTensor(DType::u8, {3, 37376})}}, {}) ==
        "tessera: kv_store: argument 'cache' has the wrong shape\n"
        "  expected  [.., 37440] for v4_fp8\n"
        "  got       u8[3, 37376]");
  CHECK(told({{"loc", HostTensor(DType::i32, {4})}}, {}) ==
        "tessera: kv_store: argument 'loc' has the wrong shape\n"
        "  expected  i32|i64[5]   (T = 5 from x dim 0)\n"
        "  got       i32[4] on cpu");
  CHECK(told({{"x", HostTensor(DType::bf16, {5, 576})},
              {"cache", HostTensor(DType::u8, {3, 64 * 656}, {64 * 656 + 4, 1})}},
             {{"format", std::string("v32_fp8")}}) ==
        "tessera: kv_store: argument 'cache' has the wrong strides\n"
        "  expected  a row stride that is a multiple of 8\n"
        "  got       u8[3, 41984], strides [41988, 1]");
  CHECK(outputs_error(
            "kv_load",
            {{"loc", HostTensor(DType::i32, {5})}, {"cache", HostTensor(DType::bf16, {3, 100})}},
            {{"format", std::string("bf16")}}) ==
        "tessera: kv_load: parameter 'format' does not go with the channels\n"
        "  expected  a multiple of 64 channels, at most 1024, for bf16\n"
        "  got       100");
}

TEST_CASE("the ops beside kv_store explain wrong arguments",
          "[kv_norm_rope_store][q_norm_rope][index_q_store][errors]") {
  const auto told = [](int64_t channels, const Params& more) {
    HostTensors inputs = {{"x", HostTensor(DType::bf16, {5, channels})},
                          {"norm_weight", HostTensor(DType::f32, {channels})},
                          {"cos_sin", HostTensor(DType::f32, {9, 64})},
                          {"positions", HostTensor(DType::i64, {5})},
                          {"loc", HostTensor(DType::i32, {5})},
                          {"cache", HostTensor(DType::bf16, {3, channels})}};
    Params params = {{"format", std::string("bf16")}};
    for (const auto& [name, value] : more) params[name] = value;
    return outputs_error("kv_norm_rope_store", inputs, params);
  };
  CHECK(told(512, {}) == "no error");
  CHECK(told(192, {}) ==
        "tessera: kv_norm_rope_store: argument 'x': so many channels are not supported\n"
        "  expected  576, or a multiple of 128\n"
        "  got       192");
  CHECK(told(512, {{"hadamard", true}}) ==
        "tessera: kv_norm_rope_store: parameter 'hadamard' does not go with the channels\n"
        "  expected  128 channels\n"
        "  got       512");
  CHECK(outputs_error("q_norm_rope",
                      {{"q", HostTensor(DType::bf16, {5, 2, 72})},
                       {"cos_sin", HostTensor(DType::f32, {9, 64})},
                       {"positions", HostTensor(DType::i64, {5})}},
                      {}) ==
        "tessera: q_norm_rope: argument 'q': a head has the wrong number of channels\n"
        "  expected  d % 16 = 0\n"
        "  got       d = 72 from q dim 2");
  CHECK(outputs_error("index_q_store",
                      {{"q", HostTensor(DType::bf16, {5, 2, 64})},
                       {"weight", HostTensor(DType::f32, {5, 2})},
                       {"cos_sin", HostTensor(DType::f32, {9, 64})},
                       {"positions", HostTensor(DType::i64, {5})}},
                      {{"weight_scale", 1.0}}) ==
        "tessera: index_q_store: argument 'q' has the wrong shape\n"
        "  expected  bf16[T, h, 128]\n"
        "  got       bf16[5, 2, 64] on cpu");
}
