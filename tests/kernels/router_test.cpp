// Routers from the tokens on the executor: the references, gemm_bf16's bits, tokens that do not see each other, the pair that
// moe_gate replaces, the mistakes that the cases catch, what bad calls are told.

#include "tests/reference/router.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/jit/target.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::vector<const char*> kTargets = {"sm_90a", "sm_80"};

HostTensors run(const std::string& op, const HostTensors& inputs, const Params& params) {
  const kernels::UncheckedValues as_on_a_gpu;
  return op_runner(op, Device::cpu())(inputs, params);
}

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const kernels::UncheckedValues as_on_a_gpu;
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors product_of(int64_t tokens, int64_t experts, int64_t hidden) {
  return {{"x", random_tensor(DType::bf16, {tokens, hidden}, Values::normal, 61)},
          {"w", random_tensor(DType::bf16, {experts, hidden}, Values::normal, 62)}};
}

/// The first rows of a matrix.
HostTensor first_rows(const HostTensor& matrix, int64_t rows) {
  HostTensor part(matrix.dtype(), {rows, matrix.shape()[1]});
  for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, matrix.bits(i));
  return part;
}

/// router_logits, then the gate of the routing.
HostTensors by_pair(const HostTensors& in, Params params) {
  HostTensors given = in;
  given["logits"] = run("router_logits", {{"x", in.at("x")}, {"w", in.at("w")}}, {}).at("logits");
  given.erase("x");
  given.erase("w");
  if (in.contains("num_tokens") && params.contains("num_topk")) {  // the gate has a mask
    const int64_t tokens = in.at("x").shape()[0];
    given["mask"] = tensor_by(DType::boolean, {tokens}, [&](int64_t t) {
      const bool counts = static_cast<double>(t) < in.at("num_tokens").value(0) &&
                          (!in.contains("mask") || in.at("mask").bits(t) != 0);
      return counts ? 1 : 0;
    });
    given.erase("num_tokens");
  }
  const bool is_hash = params.contains("routing");
  params.erase("routing");
  params.erase("save_logits");
  if (is_hash) params.erase("save_scores");
  return run(is_hash ? "hash_gate" : "moe_topk_gate_fwd", given, params);
}

using Mistake = std::function<void(HostTensors&, Params&)>;

Mistake without(const std::string& name) {
  return [=](HostTensors& in, Params&) { in.erase(name); };
}

Mistake with_param(const std::string& name, const kernels::ParamValue& value) {
  return [=](HostTensors&, Params& params) {
    if (params.contains(name)) params[name] = value;
  };
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

}  // namespace

TEST_CASE("router_logits equals its reference on the executor", "[router_logits]") {
  check_cases("router_logits", router_logits_cases());
}

TEST_CASE("moe_gate equals its reference on the executor", "[moe_gate]") {
  check_cases("moe_gate", moe_gate_cases());
}

TEST_CASE("router_logits of one chunk is gemm_bf16", "[router_logits]") {
  for (const char* target : kTargets) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    for (const int64_t tokens : {5, 70}) {
      const HostTensors in = product_of(tokens, 24, 1024);
      const HostTensors product = run("gemm_bf16", {{"a", in.at("x")}, {"b", in.at("w")}},
                                      {{"out_dtype", std::string("f32")}});
      CHECK(run("router_logits", in, {}).at("logits").raw() == product.at("out").raw());
    }
  }
}

TEST_CASE("router_logits has the same bits for any number of tokens", "[router_logits]") {
  for (const char* target : kTargets) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    for (const int64_t hidden : {512, 1024, 1025, 2100}) {
      CAPTURE(target, hidden);
      const HostTensors in = product_of(130, 9, hidden);
      const HostTensor all = run("router_logits", in, {}).at("logits");
      for (const int64_t tokens : {1, 16, 17, 64, 65}) {
        const HostTensors some = with(in, "x", first_rows(in.at("x"), tokens));
        CHECK(run("router_logits", some, {}).at("logits").raw() == first_rows(all, tokens).raw());
      }
    }
  }
}

TEST_CASE("8192 tokens have the logits that they have alone", "[router_logits][slow]") {
  const HostTensors in = product_of(8192, 8, 1025);
  const HostTensor all = run("router_logits", in, {}).at("logits");
  const HostTensors one = with(in, "x", first_rows(in.at("x"), 1));
  CHECK(run("router_logits", one, {}).at("logits").raw() == first_rows(all, 1).raw());
}

TEST_CASE("a long row has the same logits in every tile", "[router_logits][slow]") {
  const HostTensors in = product_of(66, 8, 7168);
  const HostTensor all = run("router_logits", in, {}).at("logits");
  CHECK(all.raw() == reference::router_logits(in.at("x"), in.at("w")).raw());
  const HostTensors some = with(in, "x", first_rows(in.at("x"), 3));
  CHECK(run("router_logits", some, {}).at("logits").raw() == first_rows(all, 3).raw());
}

TEST_CASE("router_logits is near a product in f64", "[router_logits]") {
  const HostTensors in = product_of(7, 11, 3000);
  const HostTensor out = run("router_logits", in, {}).at("logits");
  double products = 0, squares = 0;
  for (int64_t i = 0; i < out.size(); ++i) {
    double want = 0;
    for (int64_t k = 0; k < 3000; ++k) {
      want += in.at("x").value(i / 11 * 3000 + k) * in.at("w").value(i % 11 * 3000 + k);
    }
    products += want * out.value(i);
    squares += want * want + out.value(i) * out.value(i);
  }
  CHECK(1 - 2 * products / squares <= 1e-10);  // f32 sums that are truncated at each step
}

TEST_CASE("moe_gate has the bits of router_logits and the gate of its routing", "[moe_gate]") {
  for (const char* target : kTargets) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    for (const OpCase& test : moe_gate_cases()) {
      if (test.inputs.at("x").shape()[0] > 100) continue;
      CAPTURE(target, test.label);
      const HostTensors whole = run("moe_gate", test.inputs, test.params);
      for (const auto& [name, tensor] : by_pair(test.inputs, test.params)) {
        CAPTURE(name);
        CHECK(whole.at(name).raw() == tensor.raw());
      }
    }
  }
}

TEST_CASE("a planted order of chunks, or sums without chunks, differ from router_logits",
          "[router_logits][mutants]") {
  const HostTensors in = product_of(9, 24, 3072);
  const HostTensor logits = run("router_logits", in, {}).at("logits");
  const HostTensor whole =
      run("gemm_bf16", {{"a", in.at("x")}, {"b", in.at("w")}}, {{"out_dtype", std::string("f32")}})
          .at("out");
  CHECK(logits.raw() != whole.raw());
  // The chunks exchanged: the same sums in another order.
  HostTensors turned = in;
  for (const char* name : {"x", "w"}) {
    const HostTensor& from = in.at(name);
    for (int64_t i = 0; i < from.size(); ++i) {
      const int64_t column = i % 3072;
      turned[name].set_bits(i / 3072 * 3072 + (column + 1024) % 3072, from.bits(i));
    }
  }
  CHECK(run("router_logits", turned, {}).at("logits").raw() != logits.raw());
}

TEST_CASE("the router tests catch every mutant", "[router_logits][moe_gate][mutants]") {
  const auto logits = router_logits_cases();
  CHECK_FALSE(is_caught("router_logits", logits, misled("router_logits", [](auto&, auto&) {})));
  CHECK(is_caught("router_logits", logits, misled("router_logits", [](HostTensors& in, Params&) {
                    HostTensor& x = in["x"];  // the last column is left out
                    const int64_t columns = x.shape()[1];
                    for (int64_t i = columns - 1; i < x.size(); i += columns) x.set_value(i, 0);
                  })));
  const std::string op = "moe_gate";
  const auto cases = moe_gate_cases();
  const auto caught = [&](const Mistake& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  for (const char* name :
       {"bias", "image_token_mask", "mask", "fix_routing_mask", "to_physical_map", "num_tokens"}) {
    CAPTURE(name);
    CHECK(caught(without(name)));
  }
  CHECK(caught(with_param("routed_scaling_factor", 1.0)));
  CHECK(caught(with_param("scale", std::string("shared"))));
  CHECK(caught([](HostTensors& in, Params&) {  // the last expert is never chosen
    HostTensor& w = in["w"];
    const int64_t hidden = w.shape()[1];
    for (int64_t i = w.size() - hidden; i < w.size(); ++i) w.set_value(i, 0);
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    if (!out.contains("logits")) return;  // logits of padding
                    out["logits"] = reference::router_logits(in.at("x"), in.at("w"));
                  })));
}

TEST_CASE("router_logits explains wrong arguments", "[router_logits][errors]") {
  const HostTensors inputs = {{"x", HostTensor(DType::bf16, {5, 64})},
                              {"w", HostTensor(DType::bf16, {9, 64})}};
  const auto told = [](const HostTensors& given) {
    return outputs_error("router_logits", given, {});
  };
  CHECK(told(inputs) == "no error");
  CHECK(told(with(inputs, "w", HostTensor(DType::bf16, {9, 63}))) ==
        "tessera: router_logits: argument 'w' has the wrong shape\n"
        "  expected  bf16[E, 64]   (H = 64 from x dim 1)\n"
        "  got       bf16[9, 63] on cpu");
  CHECK(told(with(inputs, "w", HostTensor(DType::f32, {9, 64}))) ==
        "tessera: router_logits: argument 'w' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[9, 64] on cpu");
}

TEST_CASE("moe_gate explains wrong arguments", "[moe_gate][errors]") {
  const HostTensors inputs = {{"x", HostTensor(DType::bf16, {5, 64})},
                              {"w", HostTensor(DType::bf16, {9, 64})}};
  const HostTensors hashed = with(with(inputs, "token_ids", HostTensor(DType::i32, {5})), "table",
                                  HostTensor(DType::i32, {7, 2}));
  const Params topk = {{"num_topk", int64_t{4}}};
  const Params hash = {{"routing", std::string("hash")}};
  const auto told = [](const HostTensors& given, const Params& params) {
    return outputs_error("moe_gate", given, params);
  };
  CHECK(told(inputs, topk) == "no error");
  CHECK(told(hashed, hash) == "no error");
  CHECK(told(inputs, {}) ==
        "tessera: moe_gate: parameter 'num_topk' is missing\n"
        "  expected  a value where routing = topk\n"
        "  got       routing = topk, num_topk = none");
  CHECK(told(inputs, {{"num_topk", int64_t{10}}}) ==
        "tessera: moe_gate: parameter 'num_topk' is out of range\n"
        "  expected  num_topk <= E where routing = topk\n"
        "  got       num_topk = 10, E = 9 from w dim 0, routing = topk");
  CHECK(told(inputs, hash) ==
        "tessera: moe_gate: argument 'token_ids' is missing\n"
        "  expected  a tensor named token_ids where routing = hash\n"
        "  got       routing = hash");
  CHECK(told(hashed, topk) ==
        "tessera: moe_gate: argument 'token_ids' goes with other arguments only\n"
        "  expected  a tensor only where routing = hash\n"
        "  got       routing = topk");
  CHECK(told(with(hashed, "bias", HostTensor(DType::f32, {9})), hash) ==
        "tessera: moe_gate: argument 'bias' goes with another routing\n"
        "  expected  routing = topk\n"
        "  got       routing = hash");
  CHECK(told(with(inputs, "w", HostTensor(DType::bf16, {513, 64})), topk) ==
        "tessera: moe_gate: argument 'w': too many experts\n"
        "  expected  E <= 512\n"
        "  got       E = 513 from w dim 0");
}
