// attention_bwd on the executor: the op against its reference, every tile and target to the bit, the reference against
// central differences, neighbours that change nothing, the mistakes that the cases catch, bad calls.

#include "tests/reference/attention_bwd.h"

#include <cmath>

#include "kernels/attention/parts/bwd_kernel.h"
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
using kernels::attention::BackwardSpec;
using reference::BackwardMistake;

namespace {

/// The kernels of a causal call with the sums of the tensor cores, heads of their own, without options.
HostTensors run_kernels(const HostTensors& in, int32_t tile, const char* target, bool is_causal,
                        bool by_roles = false) {
  const HostTensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
  const Dims &rows = q.shape(), &keys = k.shape();
  BackwardSpec s{};
  s.width = static_cast<int32_t>(rows[3]), s.value_width = static_cast<int32_t>(v.shape()[3]);
  s.is_f16 = q.dtype() == DType::f16 ? 1 : 0;
  s.q_vector = s.k_vector = s.v_vector = s.grad_vector = s.o_vector = 8;
  s.has_right = is_causal ? 1 : 0;
  s.tile = tile, s.by_roles = by_roles ? 1 : 0;
  HostTensors out;
  for (const char* name : {"q", "k", "v"}) {
    out[std::string("grad_") + name] = HostTensor(q.dtype(), in.at(name).shape());
  }
  HostTensor stats(DType::f32, {2, rows[0], rows[2], rows[1]});
  NamedArguments given;
  given.tensors = {{"rows", stats.view()}};
  for (const auto& [name, tensor] : in) given.tensors[name] = tensor.view();
  for (const auto& [name, tensor] : out) given.tensors[name] = tensor.view();
  given.dims = {{"B", rows[0]}, {"Sq", rows[1]}, {"Sk", keys[1]},
                {"h", rows[2]}, {"g", keys[2]},  {"right", 0}};
  const double scale = 1 / std::sqrt(static_cast<double>(s.width));
  given.numbers = {{"c", scale * 1.4426950408889634}, {"scale", scale}};
  for (const char* name : {"q", "k", "v", "out", "grad_out"}) {
    const char* const ends[] = {"_of_request", "_of_row", "_of_head"};
    for (int i = 0; i < 3; ++i) given.dims[std::string(name) + ends[i]] = in.at(name).strides()[i];
  }
  run_with_target_sums(build_backward_rows(s), target, given);
  run_with_target_sums(build_backward_queries(s), target, given);
  run_with_target_sums(build_backward_keys(s), target, given);
  return out;
}

void check_bits(const HostTensors& want, const HostTensors& got) {
  for (const auto& [name, tensor] : want) {
    CAPTURE(name);
    int64_t wrong = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) wrong += tensor.bits(i) != got.at(name).bits(i);
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("attention_bwd equals its reference on the executor (A20, A22 to A24)", "[attention]") {
  check_products("attention_bwd", attention_bwd_cases());
}

TEST_CASE("attention_bwd has the bits of its definition, whatever tile and target (A21)",
          "[attention]") {
  const HostTensors in = normal_backward("", {2, 70, 150, 2, 2, 64, 64}).inputs;
  for (const bool is_causal : {false, true}) {
    const HostTensors want = reference::attention_bwd(in, {{"causal", is_causal}});
    check_bits(want, run_kernels(in, 64, "sm_90", is_causal));
    check_bits(want, run_kernels(in, 64, "sm_90a", is_causal));
    check_bits(want, run_kernels(in, 32, "sm_90a", is_causal));
    check_bits(want, run_kernels(in, 64, "sm_90a", is_causal, /*by_roles=*/true));
  }
  for (const int64_t width : {128, 192, 256}) {
    CAPTURE(width);
    const int64_t value_width = width == 256 ? 256 : 128;
    const HostTensors wide = normal_backward("", {1, 20, 70, 1, 1, width, value_width}).inputs;
    const HostTensors want = reference::attention_bwd(wide, {});
    check_bits(want, run_kernels(wide, 64, "sm_90a", false));
    check_bits(want, run_kernels(wide, 32, "sm_90", false));
    if (width == 128) check_bits(want, run_kernels(wide, 64, "sm_90a", false, /*by_roles=*/true));
  }
}

TEST_CASE("the reference of attention_bwd gives the slopes of that of attention_fwd (A20)",
          "[attention]") {
  const BackwardSize size = {1, 5, 9, 2, 1, 64, 64};
  for (const Params& params : {Params{}, Params{{"causal", true}}, Params{{"softcap", 2.0}}}) {
    HostTensors in = normal_backward("", size, params, DType::f16).inputs;
    const HostTensors grads = reference::attention_bwd(in, params);
    const auto loss = [&](const HostTensors& at) {
      const HostTensors made = reference::attention(at, params);
      double sum = 0;
      const HostTensor &out = made.at("out"), &grad = in.at("grad_out");
      for (int64_t i = 0; i < out.size(); ++i) sum += out.value(i) * grad.value(i);
      return sum;
    };
    for (const char* name : {"q", "k", "v"}) {
      // Along a random direction of whole steps of the dtype, where f16 leaves noise of about 1 %.
      HostTensors up = in, down = in;
      Random random(7);
      double slope = 0;
      for (int64_t i = 0; i < in.at(name).size(); ++i) {
        const double x = in.at(name).value(i), step = (random.below(2) == 0 ? 1 : -1) * 0x1p-5;
        up.at(name).set_value(i, x + step), down.at(name).set_value(i, x - step);
        slope += (up.at(name).value(i) - down.at(name).value(i)) *
                 grads.at(std::string("grad_") + name).value(i);
      }
      CAPTURE(name, slope);
      const double difference = loss(up) - loss(down);
      CHECK(std::abs(difference - slope) <= 0.05 * std::abs(slope) + 0.03);
    }
  }
}

TEST_CASE("gradients of a request do not depend on other requests (A21)", "[attention]") {
  const auto run = op_runner("attention_bwd", Device::cpu());
  const HostTensors three = normal_backward("", {3, 20, 40, 2, 1, 64, 64}).inputs;
  const HostTensors all = run(three, {});
  HostTensors alone;
  for (const auto& [name, tensor] : three) {
    Dims shape = tensor.shape();
    shape[0] = 1;
    HostTensor one(tensor.dtype(), shape);
    for (int64_t i = 0; i < one.size(); ++i) one.set_bits(i, tensor.bits(one.size() + i));
    alone[name] = std::move(one);
  }
  for (const auto& [name, tensor] : run(alone, {})) {
    CAPTURE(name);
    int64_t wrong = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      wrong += tensor.bits(i) != all.at(name).bits(tensor.size() + i);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the order of heads and the blocks of keys change bits of attention_bwd (A71)",
          "[attention]") {
  // f16, whose rounding hides less.
  const HostTensors in = normal_backward("", {1, 80, 300, 4, 1, 64, 64}, {}, DType::f16).inputs;
  const HostTensors want = reference::attention_bwd(in, {});
  for (const BackwardMistake mistake :
       {BackwardMistake::heads_backwards, BackwardMistake::small_blocks}) {
    CAPTURE(static_cast<int>(mistake));
    const HostTensors got = reference::attention_bwd(in, {}, mistake);
    bool same = true;
    for (const auto& [name, tensor] : want) same = same && tensor.raw() == got.at(name).raw();
    CHECK_FALSE(same);
  }
}

TEST_CASE("the cases of attention_bwd catch mistakes (A60, A66, A67, A71 to A73)",
          "[attention][mutants]") {
  using enum BackwardMistake;
  const std::vector<BackwardMistake> mistakes = {none,
                                                 top_left,
                                                 left_edge,
                                                 right_edge,
                                                 exchanged_heads,
                                                 first_head_alone,
                                                 scales_early,
                                                 no_sink_in_p,
                                                 forgets_delta,
                                                 forgets_grad_lse,
                                                 forgets_cap,
                                                 unscaled_grad_k,
                                                 overwrites_sink};
  std::vector<reference::Runner> mutants;
  for (const BackwardMistake mistake : mistakes) {
    mutants.emplace_back([mistake](const HostTensors& in, const Params& params) {
      return reference::attention_bwd(in, params, mistake);
    });
  }
  const std::vector<bool> caught = caught_by("attention_bwd", attention_bwd_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("attention_bwd explains wrong arguments (A12)", "[attention][errors]") {
  HostTensors in = normal_backward("", {1, 4, 6, 2, 1, 64, 64}).inputs;
  const auto says = [](const std::string& text, const std::string& what,
                       const std::string& expected, const std::string& got) {
    CAPTURE(text);
    CHECK(text.starts_with("tessera: attention_bwd: " + what + "\n"));
    CHECK(text.find("\n  expected  " + expected) != std::string::npos);
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  CHECK(outputs_error("attention_bwd", in, {}) == "no error");
  says(outputs_error("attention_bwd", in, {{"scale", -1.0}}), "parameter 'scale' has a wrong value",
       "a finite number above 0", "-1");
  HostTensors other = in;
  other["grad_out"] = HostTensor(DType::f16, in.at("grad_out").shape());
  says(outputs_error("attention_bwd", other, {}), "argument 'grad_out' has the wrong dtype",
       "bf16, as 'q'", "f16");
  in["sink"] = tensor_of(DType::f32, {2}, {0, 1});
  in["grad_lse"] = tensor_of(DType::f32, {1, 2, 4}, {0, 0, 0, 0, 0, 0, 0, 0});
  says(outputs_error("attention_bwd", in, {}), "argument 'grad_lse' goes without 'sink'",
       "one of them", "both");
}
