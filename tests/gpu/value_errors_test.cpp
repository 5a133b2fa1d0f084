// Values that break a caller's promise, on the GPU: the op does the safe thing, and whoever asks is told.

#include <cmath>

#include "kernels/jit/jit.h"
#include "kernels/value_check.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;

namespace {

/// What the call reports on the GPU; on the CPU the same, and the same outputs.
std::vector<std::string> reported(const std::string& op, const HostTensors& inputs,
                                  const kernels::Params& params) {
  const Device gpu = Device::cuda(0);
  for (const Device device : {gpu, Device::cpu()}) {  // those of other tests
    kernels::jit::take_value_errors(device, nullptr);
  }
  const HostTensors outputs = run_op(kernels::find_op(op), inputs, params, gpu);
  const std::vector<std::string> errors = kernels::jit::take_value_errors(gpu, nullptr);
  CHECK(kernels::jit::take_value_errors(gpu, nullptr).empty());
  const kernels::UncheckedValues unchecked;
  for (const auto& [name, want] : run_op(kernels::find_op(op), inputs, params, Device::cpu())) {
    CAPTURE(op, name);
    CHECK(outputs.at(name).raw() == want.raw());
  }
  CHECK(kernels::jit::take_value_errors(Device::cpu(), nullptr) == errors);
  return errors;
}

using Errors = std::vector<std::string>;

}  // namespace

TEST_CASE("values out of range are reported on the GPU", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  SECTION("engram_hash") {
    const auto call = [](double size) {
      return reported("engram_hash",
                      {{"ngram_token_ids", tensor_of(DType::i32, {2, 2}, {5, 6})},
                       {"multipliers", tensor_of(DType::i64, {1, 2}, {3})},
                       {"vocab_sizes", tensor_of(DType::i32, {1, 1, 2}, {7, size})},
                       {"offsets", tensor_of(DType::i32, {1, 2}, {0, 7})}},
                      {});
    };
    CHECK(call(1).empty());
    CHECK(call(0) == Errors{"engram_hash: argument 'vocab_sizes' has a value out of range"});
    CHECK(call(1).empty());
  }
  SECTION("get_fused_mapping") {
    const auto call = [](const std::vector<double>& ids, int64_t capacity) {
      return reported("get_fused_mapping", {{"topk_idx", tensor_of(DType::i64, {2, 2}, ids)}},
                      {{"num_experts", int64_t{3}},
                       {"alignment", int64_t{4}},
                       {"num_expanded_tokens", capacity},
                       {"force_no_sync", true}});
    };
    CHECK(call({0, 2, -1, 2}, 8).empty());
    CHECK(call({0, 3, -1, 2}, 8) ==
          Errors{"get_fused_mapping: argument 'topk_idx' has a value out of range"});
    CHECK(call({0, 2, -1, 2}, 7) ==
          Errors{"get_fused_mapping: the experts of 'topk_idx' need more positions"});
  }
  SECTION("expand_to_fused_with_sf") {
    const auto call = [](double position) {
      return reported("expand_to_fused_with_sf",
                      {{"x", tensor_of(DType::e4m3, {2, 128}, {1})},
                       {"x_sf", tensor_of(DType::f32, {2, 1}, {1})},
                       {"token_topk_to_pos", tensor_of(DType::i32, {2, 2}, {0, position, 1, 2})},
                       {"pos_to_expert", tensor_of(DType::i32, {3}, {0})}},
                      {{"num_per_channels", int64_t{128}}});
    };
    CHECK(call(-1).empty());
    CHECK(call(3) ==
          Errors{"expand_to_fused_with_sf: argument 'token_topk_to_pos' has a value out of range"});
  }
  SECTION("reduce_fused") {
    const auto call = [](double position) {
      return reported("reduce_fused",
                      {{"x", tensor_of(DType::f32, {2, 256}, {1})},
                       {"token_topk_to_pos", tensor_of(DType::i32, {1, 2}, {0, position})}},
                      {});
    };
    CHECK(call(-1).empty());
    CHECK(call(2) == Errors{"reduce_fused: argument 'token_topk_to_pos' has a value out of range"});
  }
  SECTION("swiglu_forward_and_per_token_cast") {
    const auto call = [](double slot) {
      return reported("swiglu_forward_and_per_token_cast",
                      {{"x", tensor_of(DType::bf16, {1, 256}, {0})},
                       {"pos_to_token_topk", tensor_of(DType::i32, {1}, {slot})},
                       {"topk_weights", tensor_of(DType::f32, {2, 3}, {1})}},
                      {{"num_per_channels", int64_t{128}}});
    };
    CHECK(call(-7).empty());
    CHECK(call(6) == Errors{"swiglu_forward_and_per_token_cast: argument 'pos_to_token_topk' has a "
                            "value out of range"});
  }
  SECTION("top2_sum_gate") {
    const auto call = [](double logit, double kept, double count) {
      return reported("top2_sum_gate",
                      {{"logits", tensor_of(DType::f32, {1, 4}, {0, 0, logit, 0})},
                       {"bias", tensor_of(DType::f32, {4}, {0})},
                       {"fix_routing_mask", tensor_of(DType::boolean, {1}, {1})},
                       {"unmapped_topk_idx", tensor_of(DType::i64, {1, 2}, {0, kept})},
                       {"to_physical_map", tensor_of(DType::i32, {4, 1}, {0, 1, 2, 3})},
                       {"logical_count", tensor_of(DType::i32, {4}, {1, 1, 1, count})}},
                      {{"num_topk", int64_t{2}}, {"scoring_func", std::string("sigmoid")}});
    };
    const auto error = [](const std::string& name) {
      return Errors{"top2_sum_gate: argument '" + name + "' has a value out of range"};
    };
    CHECK(call(0, 1, 1).empty());
    CHECK(call(INFINITY, 1, 1) == error("logits"));
    CHECK(call(0, 4, 1) == error("unmapped_topk_idx"));
    CHECK(call(0, 3, 2) == error("logical_count"));
  }
}
