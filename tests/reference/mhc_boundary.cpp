#include "tests/reference/mhc_boundary.h"

namespace tessera::reference {

using kernels::Params;
using test::HostTensors;

HostTensors pre_big_fuse_and_norm(const HostTensors& in, const Params& params) {
  const auto is_true = [&](const char* name) {
    const auto found = params.find(name);
    return found != params.end() && std::get<bool>(found->second);
  };
  const HostTensors mixed = runner("pre_big_fuse")(in, params);
  HostTensors out = {{"post_mix", mixed.at("post_mix")}, {"comb_mix", mixed.at("comb_mix")}};
  if (is_true("save_layer_input")) out["layer_input"] = mixed.at("layer_input");
  HostTensors row = {{"x", mixed.at("layer_input")}};
  if (in.contains("weight")) row["weight"] = in.at("weight");
  Params of_norm = params;
  of_norm["norm_eps"] = params.at("rms_eps");
  const auto format = params.find("format");
  const bool casts =
      format != params.end() && format->second == kernels::ParamValue(std::string("e4m3"));
  for (auto& [name, tensor] :
       runner(casts ? "norm_fwd_and_per_token_cast" : "norm_fwd")(row, of_norm)) {
    out[name] = tensor;
  }
  if (!casts && is_true("save_bf16")) out["out_bf16"] = out.at("out");
  return out;
}

HostTensors mhc_boundary(const HostTensors& in, const Params& params) {
  HostTensors next = in;
  next["residual"] = runner("post_fwd")(in, params).at("out");
  HostTensors out = pre_big_fuse_and_norm(next, params);
  out["next_residual"] = next.at("residual");
  for (const std::string name : {"post_mix", "comb_mix"}) {
    out["next_" + name] = std::move(out.at(name));
    out.erase(name);
  }
  return out;
}

}  // namespace tessera::reference
