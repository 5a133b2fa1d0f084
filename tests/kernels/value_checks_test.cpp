// Values that break a promise: CPU calls are told, by the name of the tensor; without the checks they
// do what a GPU does.

#include <cmath>

#include "kernels/jit/jit.h"
#include "kernels/value_check.h"
#include "tests/support/catch.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

/// What a CPU call is told; the same call without the checks must go through, and its kernels report the
/// same where they see it.
std::string told(const std::string& op, const HostTensors& inputs, const Params& params) {
  kernels::jit::take_value_errors(Device::cpu(), nullptr);  // those of other tests
  std::vector<std::string> reports;
  {
    const kernels::UncheckedValues unchecked;
    run_op(kernels::find_op(op), inputs, params, Device::cpu());
    reports = kernels::jit::take_value_errors(Device::cpu(), nullptr);
    CHECK(kernels::jit::take_value_errors(Device::cpu(), nullptr).empty());
  }
  try {
    run_op(kernels::find_op(op), inputs, params, Device::cpu());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    const std::string text = error.what();
    // No kernel sees whether a position belongs to one pair.
    if (text.find("is not that of one pair") == std::string::npos) {
      CHECK(reports == std::vector{text.substr(9, text.find('\n') - 9)});  // behind "tessera: "
    }
    return text;
  }
  CHECK(reports.empty());
  return "no error";
}

}  // namespace

TEST_CASE("get_fused_mapping is told of ids and capacities", "[kernels][values]") {
  const auto call = [](const std::vector<double>& ids, int64_t capacity) {
    return told("get_fused_mapping", {{"topk_idx", tensor_of(DType::i64, {2, 2}, ids)}},
                {{"num_experts", int64_t{3}},
                 {"alignment", int64_t{4}},
                 {"num_expanded_tokens", capacity},
                 {"force_no_sync", true}});
  };
  CHECK(call({0, 2, -1, 2}, 8) == "no error");
  CHECK(call({-1}, 0) == "no error");
  CHECK(call({0, 3, -1, 2}, 8) ==
        "tessera: get_fused_mapping: argument 'topk_idx' has a value out of range\n"
        "  expected  -1 .. 2\n"
        "  got       3 at [0, 1]");
  CHECK(call({0, 2, -2, 2}, 8).ends_with("got       -2 at [1, 0]"));
  CHECK(call({0, 2, -1, 2}, 0).ends_with("  expected  at most 0\n  got       8"));
  CHECK(call({0, 2, -1, 2}, 7) ==
        "tessera: get_fused_mapping: the experts of 'topk_idx' need more positions\n"
        "  expected  at most 7\n"
        "  got       8");
}

TEST_CASE("expand_to_fused_with_sf is told of positions", "[kernels][values]") {
  const auto call = [](const std::vector<double>& positions, const std::vector<double>& experts) {
    return told("expand_to_fused_with_sf",
                {{"x", tensor_of(DType::e4m3, {2, 128}, {1})},
                 {"x_sf", tensor_of(DType::f32, {2, 1}, {1})},
                 {"token_topk_to_pos", tensor_of(DType::i32, {2, 2}, positions)},
                 {"pos_to_expert", tensor_of(DType::i32, {4}, experts)}},
                {{"num_per_channels", int64_t{128}}});
  };
  CHECK(call({0, 3, -1, 2}, {0, -1, 1, 1}) == "no error");
  CHECK(call({0, 4, -1, 2}, {0, -1, 1, 1}) ==
        "tessera: expand_to_fused_with_sf: argument 'token_topk_to_pos' has a value out of range\n"
        "  expected  -1 .. 3\n"
        "  got       4 at [0, 1]");
  CHECK(call({0, -1, -1, 2}, {0, -1, 1, 1}) ==
        "tessera: expand_to_fused_with_sf: position 3 is not that of one pair\n"
        "  expected  one pair, or none and an expert of -1\n"
        "  got       0 pairs");
}

TEST_CASE("reduce_fused is told of positions", "[kernels][values]") {
  const auto call = [](double position) {
    return told("reduce_fused",
                {{"x", tensor_of(DType::f32, {2, 256}, {1})},
                 {"token_topk_to_pos", tensor_of(DType::i32, {1, 2}, {0, position})}},
                {});
  };
  CHECK(call(-1) == "no error");
  CHECK(call(2) ==
        "tessera: reduce_fused: argument 'token_topk_to_pos' has a value out of range\n"
        "  expected  -1 .. 1\n"
        "  got       2 at [0, 1]");
}

TEST_CASE("swiglu_forward_and_per_token_cast is told of weights that are not there",
          "[kernels][values]") {
  const auto call = [](double slot) {
    return told("swiglu_forward_and_per_token_cast",
                {{"x", tensor_of(DType::bf16, {1, 256}, {1})},
                 {"pos_to_token_topk", tensor_of(DType::i32, {1}, {slot})},
                 {"topk_weights", tensor_of(DType::f32, {2, 3}, {1})}},
                {{"num_per_channels", int64_t{128}}});
  };
  CHECK(call(5) == "no error");
  CHECK(call(-7) == "no error");
  CHECK(
      call(6).ends_with("argument 'pos_to_token_topk' has a value out of range\n"
                        "  expected  -2147483648 .. 5\n"
                        "  got       6 at [0]"));
}

TEST_CASE("engram_hash is told of empty tables", "[kernels][values]") {
  const auto call = [](double size) {
    return told("engram_hash",
                {{"ngram_token_ids", tensor_of(DType::i32, {2, 2}, {5, 6})},
                 {"multipliers", tensor_of(DType::i64, {1, 2}, {3})},
                 {"vocab_sizes", tensor_of(DType::i32, {1, 1, 2}, {7, size})},
                 {"offsets", tensor_of(DType::i32, {1, 2}, {0, 7})}},
                {});
  };
  CHECK(call(1) == "no error");
  CHECK(call(0) ==
        "tessera: engram_hash: argument 'vocab_sizes' has a value out of range\n"
        "  expected  1 .. 2147483647\n"
        "  got       0 at [0, 0, 1]");
}

TEST_CASE("top2_sum_gate is told of logits, kept experts and replicas", "[kernels][values]") {
  const auto call = [](double logit, double kept, double count, bool mask) {
    return told("top2_sum_gate",
                {{"logits", tensor_of(DType::f32, {1, 4}, {1, 2, logit, 4})},
                 {"bias", tensor_of(DType::f32, {4}, {0})},
                 {"mask", tensor_of(DType::boolean, {1}, {mask ? 1.0 : 0.0})},
                 {"fix_routing_mask", tensor_of(DType::boolean, {1}, {1})},
                 {"unmapped_topk_idx", tensor_of(DType::i64, {1, 2}, {0, kept})},
                 {"to_physical_map", tensor_of(DType::i32, {4, 1}, {0, 1, 2, 3})},
                 {"logical_count", tensor_of(DType::i32, {4}, {1, 1, 1, count})}},
                {{"num_topk", int64_t{2}}, {"scoring_func", std::string("sigmoid")}});
  };
  CHECK(call(3, 1, 1, true) == "no error");
  CHECK(call(NAN, 9, 1, false) == "no error");  // masked: nothing of the token is read
  CHECK(call(INFINITY, 1, 1, true) ==
        "tessera: top2_sum_gate: argument 'logits' has a value out of range\n"
        "  expected  finite logits of tokens that are not masked\n"
        "  got       inf at [0, 2]");
  CHECK(call(3, 4, 1, true) ==
        "tessera: top2_sum_gate: argument 'unmapped_topk_idx' has a value out of range\n"
        "  expected  0 .. 3 where fix_routing_mask is true\n"
        "  got       4 at [0, 1]");
  CHECK(call(3, 3, 2, true) ==
        "tessera: top2_sum_gate: argument 'logical_count' has a value out of range\n"
        "  expected  1 .. 1\n"
        "  got       2 at [3]");
}
