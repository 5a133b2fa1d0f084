// The KV compressor on the executor: the references, and the mistakes that their cases catch.

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
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

using Mistake = std::function<void(HostTensors&, Params&)>;

/// A mistake about a field of every row of a plan that is used.
Mistake in_field(const char* plan, int64_t field, double added) {
  return [=](HostTensors& in, Params&) {
    HostTensor& rows = in.at(plan);
    const int64_t columns = rows.shape()[1];
    for (int64_t i = field; i < rows.size(); i += columns) {
      if (rows.value(i - field) >= 0 && rows.value(i) >= 0)
        rows.set_value(i, rows.value(i) + added);
    }
  };
}

/// Rows of a tensor in another order: row r is that of r + by.
Mistake turned(const char* name, int64_t by) {
  return [=](HostTensors& in, Params&) {
    HostTensor& tensor = in.at(name);
    const HostTensor old = tensor;
    const int64_t columns = tensor.shape()[1], size = tensor.size();
    for (int64_t i = 0; i < size; ++i) tensor.set_bits(i, old.bits((i + by * columns) % size));
  };
}

/// Columns of x and of the state, as many as there are channels, from other parts of the rows.
Mistake parts_moved(int64_t by) {
  return [=](HostTensors& in, Params&) {
    const int64_t channels = in.at("ape").shape()[1];
    for (const char* name : {"x", "state"}) {
      HostTensor& rows = in.at(name);
      const HostTensor old = rows;
      const int64_t length = rows.shape()[1];
      for (int64_t i = 0; i < rows.size(); ++i) {
        rows.set_bits(i, old.bits(i - i % length + (i + by * channels) % length));
      }
    }
  };
}

void check_mutants_of(const std::string& op, const std::vector<OpCase>& cases,
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

/// The mistakes that compress_store and compress_decode_store could make with an entry.
const std::vector<Mistake> kEntryMistakes = {
    in_field("plan", 5, 1),
    in_field("plan", 7, 1),
    in_field("plan", 7, -1),
    turned("cos_sin", 1),
    param_is("norm_eps", 1e-6),
    param_is("hadamard", false),
    param_is("cos_sin_layout", std::string("pairs")),
    [](HostTensors& in, Params&) {
      HostTensor& weight = in.at("norm_weight");
      weight.set_value(weight.size() - 1, 3.0);
    },
};

}  // namespace

TEST_CASE("compress_fwd equals its reference on the executor", "[compress_fwd]") {
  check_cases("compress_fwd", compress_fwd_cases());
}

TEST_CASE("compress_state_write equals its reference on the executor", "[compress_state_write]") {
  check_cases("compress_state_write", compress_state_write_cases());
}

TEST_CASE("compress_decode equals its reference on the executor", "[compress_decode]") {
  check_cases("compress_decode", compress_decode_cases());
}

TEST_CASE("compress_store equals its reference on the executor", "[compress_store]") {
  check_cases("compress_store", compress_store_cases());
}

TEST_CASE("compress_decode_store equals its reference on the executor", "[compress_decode_store]") {
  check_cases("compress_decode_store", compress_decode_store_cases());
}

TEST_CASE("compress_prefill equals its reference on the executor", "[compress_prefill]") {
  check_cases("compress_prefill", compress_prefill_cases());
}

TEST_CASE("the compress_fwd tests catch every mutant", "[compress_fwd][mutants]") {
  check_mutants_of("compress_fwd", compress_fwd_cases(),
                   {in_field("plan", 0, 1), in_field("plan", 1, 4), in_field("plan", 2, -1),
                    in_field("plan", 3, 1), in_field("plan", 4, 1), turned("ape", 1),
                    turned("ape", 4), parts_moved(1), parts_moved(2)});
}

TEST_CASE("the compress_state_write tests catch every mutant", "[compress_state_write][mutants]") {
  check_mutants_of("compress_state_write", compress_state_write_cases(),
                   {in_field("write_plan", 0, 1), in_field("write_plan", 1, 1)});
}

TEST_CASE("the compress_prefill tests catch every mutant", "[compress_prefill][mutants]") {
  check_mutants_of("compress_prefill", compress_prefill_cases(),
                   {in_field("plan", 2, -1), in_field("write_plan", 1, 1),
                    // the rows are written before the windows are read
                    [](HostTensors& in, Params& params) {
                      in["state"] =
                          reference::runner("compress_state_write")(in, params).at("state");
                    }});
}

TEST_CASE("the compress_decode tests catch every mutant", "[compress_decode][mutants]") {
  check_mutants_of("compress_decode", compress_decode_cases(),
                   {in_field("plan", 0, 1), in_field("plan", 1, 1), in_field("plan", 3, 1),
                    in_field("plan", 4, 1), turned("ape", 1), parts_moved(1), turned("x", 1)});
}

TEST_CASE("the compress_store tests catch every mutant", "[compress_store][mutants]") {
  check_mutants_of("compress_store", compress_store_cases(), kEntryMistakes);
}

TEST_CASE("the compress_decode_store tests catch every mutant",
          "[compress_decode_store][mutants]") {
  check_mutants_of("compress_decode_store", compress_decode_store_cases(), kEntryMistakes);
}

TEST_CASE("compress_store explains wrong arguments", "[compress_store][errors]") {
  const HostTensors right = {
      {"x", HostTensor(DType::bf16, {8, 2048})},      {"ape", HostTensor(DType::f32, {8, 512})},
      {"state", HostTensor(DType::bf16, {8, 2048})},  {"plan", HostTensor(DType::i32, {2, 8})},
      {"norm_weight", HostTensor(DType::f32, {512})}, {"cos_sin", HostTensor(DType::f32, {8, 64})},
      {"cache", HostTensor(DType::u8, {3, 37440})}};
  const auto told = [&](const HostTensors& other, const Params& more) {
    HostTensors inputs = right;
    for (const auto& [name, tensor] : other) inputs[name] = tensor;
    Params params = {{"ratio", int64_t{4}}, {"format", std::string("v4_fp8")}};
    for (const auto& [name, value] : more) params[name] = value;
    return outputs_error("compress_store", inputs, params);
  };
  CHECK(told({}, {}) == "no error");
  CHECK(told({{"ape", HostTensor(DType::f32, {8, 192})},
              {"norm_weight", HostTensor(DType::f32, {192})}},
             {}) ==
        "tessera: compress_store: argument 'ape' has the wrong shape\n"
        "  expected  columns that are a multiple of 128\n"
        "  got       f32[8, 192]");
  CHECK(told({}, {{"ratio", int64_t{128}}}) ==
        "tessera: compress_store: argument 'ape' has the wrong shape\n"
        "  expected  128 rows for ratio 128\n"
        "  got       f32[8, 512]");
  CHECK(told({{"state", HostTensor(DType::bf16, {8, 1024})}}, {}) ==
        "tessera: compress_store: argument 'state' has the wrong shape\n"
        "  expected  f32|bf16[slots, 2048]   (L = 2048 from x dim 1)\n"
        "  got       bf16[8, 1024] on cpu");
  CHECK(told({{"x", HostTensor(DType::f32, {8, 2048})}}, {}) ==
        "tessera: compress_store: argument 'state' has the wrong dtype\n"
        "  expected  f32, or that of x\n"
        "  got       bf16[8, 2048]");
  CHECK(told({{"cache", HostTensor(DType::u8, {3, 37376})}}, {}) ==
        "tessera: compress_store: argument 'cache' has the wrong shape\n"
        "  expected  [.., 37440] for v4_fp8\n"
        "  got       u8[3, 37376]");
  CHECK(told({}, {{"format", std::string("bf16")}}) ==
        "tessera: compress_store: argument 'cache' has the wrong dtype\n"
        "  expected  bf16 for bf16\n"
        "  got       u8[3, 37440]");
  CHECK(told({}, {{"format", std::string("index_fp8")}}) ==
        "tessera: compress_store: parameter 'format' does not go with the channels\n"
        "  expected  128 channels for index_fp8\n"
        "  got       512");
  CHECK(told({}, {{"hadamard", true}}) ==
        "tessera: compress_store: parameter 'hadamard' does not go with the channels\n"
        "  expected  128 channels\n"
        "  got       512");
  CHECK(told({}, {{"page_size", int64_t{0}}}) ==
        "tessera: compress_store: parameter 'page_size' is out of range\n"
        "  expected  1 .. 1048576\n"
        "  got       0");
  HostTensor apart(DType::u8, {3, 37440}, {37448, 1});
  CHECK(told({{"cache", apart}}, {}) ==
        "tessera: compress_store: argument 'cache' has the wrong strides\n"
        "  expected  a row stride that is a multiple of 16\n"
        "  got       u8[3, 37440], strides [37448, 1]");
}

TEST_CASE(
    "a plan for pages of 64 does not store into the blocks of other requests in a cache of 16",
    "[compress_store][errors]") {
  const HostTensors planned = op_runner("compress_plan", Device::cpu())(
      {{"start", tensor_of(DType::i32, {1}, {0})},
       {"row_start", tensor_of(DType::i32, {2}, {0, 8})},
       {"state_slot", tensor_of(DType::i32, {1}, {0})},
       {"page_table", tensor_of(DType::i32, {1, 2}, {1, 2})}},
      {{"ratio", int64_t{4}},
       {"ring", int64_t{8}},
       {"num_windows", int64_t{3}},
       {"num_writes", int64_t{8}}});
  const HostTensor& plan = planned.at("plan");
  CHECK(plan.value(7) == 64);
  CHECK(plan.value(8 * 2 + 7) == -1);  // a row that is not used
  HostTensors inputs = {
      {"x", HostTensor(DType::f32, {8, 512})},        {"ape", HostTensor(DType::f32, {8, 128})},
      {"state", HostTensor(DType::f32, {8, 512})},    {"plan", plan},
      {"norm_weight", HostTensor(DType::f32, {128})}, {"cos_sin", HostTensor(DType::f32, {8, 64})},
      {"cache", HostTensor(DType::u8, {6, 16 * 132})}};
  for (auto& [name, tensor] : inputs) {
    if (name != "plan") tensor.fill_bytes(std::byte{0});
  }
  const auto told = [&](int64_t page_size) {
    kernels::Tensors views;
    for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
    return run_error(
        "compress_store", views,
        {{"ratio", int64_t{4}}, {"format", std::string("index_fp8")}, {"page_size", page_size}});
  };
  CHECK(told(16) ==
        "tessera: compress_store: argument 'plan' was made for another page size\n"
        "  expected  16, the page_size of this call\n"
        "  got       64 at [0, 7]");
  inputs["cache"] = HostTensor(DType::u8, {3, 64 * 132});
  CHECK(told(64) == "no error");
}

TEST_CASE("stored entries of ratio 128 need a workspace", "[compress_store][errors]") {
  HostTensors inputs = {
      {"x", HostTensor(DType::bf16, {128, 1024})},    {"ape", HostTensor(DType::f32, {128, 512})},
      {"state", HostTensor(DType::bf16, {8, 1024})},  {"plan", HostTensor(DType::i32, {2, 8})},
      {"norm_weight", HostTensor(DType::f32, {512})}, {"cos_sin", HostTensor(DType::f32, {8, 64})},
      {"cache", HostTensor(DType::u8, {3, 37440})}};
  const auto told = [&] {
    kernels::Tensors views;
    for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
    return run_error("compress_store", views,
                     {{"ratio", int64_t{128}}, {"format", std::string("v4_fp8")}});
  };
  CHECK(told() ==
        "tessera: compress_store: argument 'workspace' is missing\n"
        "  expected  f32[2, 512]\n"
        "  got       ape, cache, cos_sin, norm_weight, plan, state, x\n"
        "  hint      workspace_of(call) gives its dtype and shape");
  inputs["workspace"] = HostTensor(DType::f32, {1, 512});
  CHECK(told() ==
        "tessera: compress_store: argument 'workspace' has the wrong shape\n"
        "  expected  f32[2, 512]   (C = 2 from plan dim 0; D = 512 from ape dim 1)\n"
        "  got       f32[1, 512] on cpu");
}
