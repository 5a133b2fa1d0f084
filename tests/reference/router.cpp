#include "tests/reference/router.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/numeric.h"
#include "tests/reference/serving.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

bool is_true(const Params& params, const std::string& name) {
  const auto found = params.find(name);
  return found != params.end() && std::get<bool>(found->second);
}

bool is_by_table(const Params& params) {
  const auto found = params.find("routing");
  return found != params.end() && std::get<std::string>(found->second) == "hash";
}

bool is_counted(const HostTensors& in, int64_t token) {
  if (in.contains("mask") && in.at("mask").bits(token) == 0) return false;
  return !in.contains("num_tokens") || static_cast<double>(token) < in.at("num_tokens").value(0);
}

}  // namespace

HostTensor router_logits(const HostTensor& x, const HostTensor& w) {
  constexpr int64_t kChunk = 1024, kStep = 16;
  const int64_t tokens = x.shape()[0], experts = w.shape()[0], hidden = x.shape()[1];
  const std::vector<Number> left = numbers_of(x), right = numbers_of(w);
  HostTensor out(DType::f32, {tokens, experts});
  for (int64_t i = 0; i < out.size(); ++i) {
    const Number* const row = left.data() + i / experts * hidden;
    const Number* const of_expert = right.data() + i % experts * hidden;
    float logit = 0;
    for (int64_t chunk = 0; chunk < hidden; chunk += kChunk) {
      uint32_t sum = 0;
      const int64_t end = std::min(chunk + kChunk, hidden);
      for (int64_t k = chunk; k < end; k += kStep) {
        sum = sum_of({}, number_of(DType::f32, sum), row + k, of_expert + k,
                     static_cast<size_t>(std::min(kStep, end - k)));
      }
      logit = chunk == 0 ? float_of(sum) : logit + float_of(sum);
    }
    out.set_bits(i, encode(DType::f32, static_cast<double>(logit)));  // NaN has one form
  }
  return out;
}

HostTensors moe_gate(const HostTensors& in, const Params& params) {
  HostTensors given = in;
  given["logits"] = router_logits(in.at("x"), in.at("w"));
  if (in.contains("num_tokens") && !is_by_table(params)) {
    HostTensor mask(DType::boolean, {in.at("x").shape()[0]});
    for (int64_t t = 0; t < mask.size(); ++t) mask.set_bits(t, is_counted(in, t) ? 1 : 0);
    given["mask"] = std::move(mask);
  }
  HostTensors out =
      serving_runner(is_by_table(params) ? "hash_gate" : "moe_topk_gate_fwd")(given, params);
  if (is_by_table(params) && is_true(params, "save_scores")) {
    HostTensor scores(DType::f32, given.at("logits").shape());
    const int64_t row = scores.shape()[1];
    for (int64_t i = 0; i < scores.size(); ++i) {
      const auto x = static_cast<float>(given.at("logits").value(i));
      const float score = std::sqrt(x > 20 ? x : std::log1p(std::exp(x)));
      scores.set_value(i, is_counted(in, i / row) ? static_cast<double>(score) : 0);
    }
    out["scores"] = std::move(scores);
  }
  if (!is_true(params, "save_logits")) return out;
  HostTensor saved = given.at("logits");
  const int64_t experts = saved.shape()[1];
  for (int64_t i = 0; i < saved.size(); ++i) {
    if (!is_counted(in, i / experts)) saved.set_bits(i, 0);
  }
  out["logits"] = std::move(saved);
  return out;
}

Runner router_runner(const std::string& op) {
  if (op == "router_logits") {
    return [](const HostTensors& in, const Params&) {
      return HostTensors{{"logits", router_logits(in.at("x"), in.at("w"))}};
    };
  }
  if (op == "moe_gate") return moe_gate;
  return nullptr;
}

}  // namespace tessera::reference
