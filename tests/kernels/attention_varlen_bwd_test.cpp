// attention_varlen_bwd on the executor: against its reference, against attention_bwd request by request, mistakes and bad
// calls.

#include "tests/reference/attention_bwd.h"
#include "tests/support/ops/attention_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::BackwardMistake;

TEST_CASE("attention_varlen_bwd equals its reference on the executor (A25)", "[attention]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("attention_varlen_bwd", attention_varlen_bwd_cases());
}

TEST_CASE("packed gradients have the bits that attention_bwd gives each request alone",
          "[attention]") {
  const auto packed = op_runner("attention_varlen_bwd", Device::cpu());
  const auto alone = op_runner("attention_bwd", Device::cpu());
  constexpr int64_t kHeads = 2, kWidth = 64;
  const PackedSize size = {{70, 5, 33}, {140, 129, 40}, kHeads, 1, kWidth, kWidth, 2};
  const Params params = {{"causal", true}, {"window_left", int64_t{100}}};
  const HostTensors in = normal_packed_backward("", size, params).inputs;
  const HostTensors got = packed(in, params);
  const int64_t q_rows = in.at("q").shape()[0];
  int64_t q_row = 0, k_row = 0;
  for (size_t b = 0; b < size.queries.size(); ++b) {
    CAPTURE(b);
    const int64_t rows = size.queries[b];
    HostTensors one;
    for (const char* name : {"q", "k", "v", "out", "grad_out"}) {
      const HostTensor& from = in.at(name);
      const bool is_key = *name == 'k' || *name == 'v';
      const int64_t row = from.shape()[1] * from.shape()[2], first = is_key ? k_row : q_row;
      one[name] = tensor_by(from.dtype(),
                            {1, is_key ? size.keys[b] : rows, from.shape()[1], from.shape()[2]},
                            [&](int64_t i) { return from.value(first * row + i); });
    }
    one["lse"] = tensor_by(DType::f32, {1, kHeads, rows}, [&](int64_t i) {
      return in.at("lse").value(i / rows * q_rows + q_row + i % rows);
    });
    for (const auto& [name, want] : alone(one, params)) {
      CAPTURE(name);
      const int64_t row = want.shape()[2] * want.shape()[3];
      const int64_t first = (name == "grad_q" ? q_row : k_row) * row;
      int64_t wrong = 0;
      for (int64_t i = 0; i < want.size(); ++i) {
        wrong += want.bits(i) != got.at(name).bits(first + i);
      }
      CHECK(wrong == 0);
    }
    q_row += rows, k_row += size.keys[b];
  }
}

TEST_CASE("the cases of attention_varlen_bwd catch mistakes (A60, A66, A67, A71 to A73)",
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
  const std::vector<bool> caught =
      caught_by("attention_varlen_bwd", attention_varlen_bwd_cases(), mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(i);
    CHECK(caught[i] == (mistakes[i] != none));
  }
}

TEST_CASE("attention_varlen_bwd explains wrong arguments", "[attention][errors]") {
  const HostTensors in = normal_packed_backward("", {{20, 20}, {30, 30}, 2, 1, 64, 64, 0}).inputs;
  const auto says = [](const std::string& text, const std::string& what, const std::string& got) {
    CAPTURE(text);
    CHECK(text.starts_with("tessera: attention_varlen_bwd: " + what));
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  const auto run = op_runner("attention_varlen_bwd", Device::cpu());
  for (const auto& [name, place, value, got] :
       {std::tuple{"cu_q", 0, 1.0, "1 at [0]"}, std::tuple{"cu_q", 1, 50.0, "50 at [1]"},
        std::tuple{"cu_k", 2, 29.0, "29 at [2]"}}) {
    HostTensors bad = in;
    bad.at(name).set_value(place, value);
    std::string text = "no error";
    try {
      run(bad, {});
    } catch (const std::exception& error) {
      text = error.what();
    }
    says(text, std::string("argument '") + name + "' has a value out of range", got);
  }
  HostTensors bad = in;
  bad["grad_out"] = HostTensor(DType::f16, in.at("grad_out").shape());
  says(outputs_error("attention_varlen_bwd", bad, {}), "argument 'grad_out' has the wrong dtype\n",
       "f16");
  bad = in;
  bad["lse"] = HostTensor(DType::f32, {2, 39});
  says(outputs_error("attention_varlen_bwd", bad, {}), "argument 'lse' has the wrong shape",
       "f32[2, 39]");
}
