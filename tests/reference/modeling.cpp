#include "tests/reference/modeling.h"

#include <map>
#include <vector>

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

// A name of a part and what the whole calls it.
struct Name {
  const char* part;
  const char* whole;

  Name(const char* same) : part(same), whole(same) {}  // NOLINT
  Name(const char* in_part, const char* in_whole) : part(in_part), whole(in_whole) {}
};

struct Part {
  const char* op;
  std::vector<Name> inputs, outputs, params;
};

struct Composition {
  std::vector<Part> parts;
  std::vector<const char*> outputs, saved;  // saved: only where save_for_backward says so
};

const std::map<std::string, Composition>& compositions() {
  static const std::map<std::string, Composition> all = {
      {"engram_fwd",
       {{{"fused_weight", {"weight_hidden", "weight_embed"}, {"weight_fused"}, {}},
         {"engram_gate_fwd",
          {"hidden_states", "k", "v", "weight_fused", "image_token_mask"},
          {"out", "dot", "gate_score", "rstd_x", "rstd_k"},
          {"eps", "clamp_value"}}},
        {"out"},
        {"weight_fused", "dot", "gate_score", "rstd_x", "rstd_k"}}},
      {"engram_bwd",
       {{{"engram_gate_bwd",
          {"grad_out", "hidden_states", "k", "v", "weight_fused", "dot", "gate_score", "rstd_x",
           "rstd_k", "image_token_mask"},
          {"grad_hidden_states", "grad_k", "grad_v", "grad_w_partial"},
          {"clamp_value", "num_persistent_blocks"}},
         {"grad_w_reduce",
          {"grad_w_partial", "weight_hidden", "weight_embed", "grad_weight_hidden",
           "grad_weight_embed"},
          {"grad_weight_hidden", "grad_weight_embed"},
          {}}},
        {"grad_hidden_states", "grad_k", "grad_v", "grad_weight_hidden", "grad_weight_embed"},
        {}}},
      {"mhc_pre_fwd",
       {{{"norm_fn_fwd",
          {"residual", "fn", "norm_weight"},
          {{"out", "input_mixes"}, "out_mul", "sqrsum"},
          {"norm_eps", "n_splits"}},
         {"pre_split_mixes_fwd",
          {"input_mixes", "scale", "base"},
          {"pre_mix", "post_mix", "comb_logits"},
          {"post_mult_value", "pre_eps"}},
         {"sinkhorn_fwd",
          {{"x", "comb_logits"}},
          {{"out", "comb_mix"}},
          {{"repeat", "sinkhorn_repeat"}, {"eps", "sinkhorn_eps"}}},
         {"pre_apply_mix_fwd",
          {{"x", "residual"}, {"mix", "pre_mix"}},
          {{"out", "layer_input"}},
          {}}},
        {"layer_input", "post_mix", "comb_mix"},
        {"out_mul", "sqrsum", "input_mixes", "pre_mix", "comb_logits"}}},
      {"mhc_pre_bwd",
       {{{"pre_apply_mix_bwd",
          {{"grad_out", "grad_layer_input"},
           {"x", "residual"},
           {"mix", "pre_mix"},
           {"grad_x", "grad_residual"}},
          {{"grad_x", "grad_residual"}, {"grad_mix", "grad_pre_mix"}},
          {}},
         {"sinkhorn_bwd",
          {{"grad_out", "grad_comb_mix"}, {"x", "comb_logits"}},
          {{"grad_x", "grad_comb_logits"}},
          {{"repeat", "sinkhorn_repeat"}, {"eps", "sinkhorn_eps"}}},
         {"pre_split_mixes_bwd",
          {"grad_pre_mix", "grad_post_mix", "grad_comb_logits", "input_mixes", "post_mix", "scale",
           "base", "grad_scale", "grad_base"},
          {"grad_input_mixes", "grad_scale", "grad_base"},
          {"post_mult_value"}},
         {"norm_fn_bwd",
          {{"grad_out", "grad_input_mixes"},
           "residual",
           "fn",
           "norm_weight",
           "out_mul",
           "sqrsum",
           "grad_residual",
           "grad_fn",
           "grad_norm_weight"},
          {"grad_residual", "grad_fn", "grad_norm_weight"},
          {"norm_eps"}}},
        {"grad_residual", "grad_fn", "grad_scale", "grad_base", "grad_norm_weight"},
        {}}},
      {"mhc_head_fwd",
       {{{"norm_fn_fwd",
          {"residual", {"fn", "first_fn"}, "norm_weight"},
          {{"out", "input_mix"}, "out_mul", "sqrsum"},
          {"norm_eps", "n_splits"}},
         {"head_compute_mix_fwd",
          {"input_mix", "scale", "base"},
          {{"out", "pre_mix"}},
          {"pre_eps"}},
         {"pre_apply_mix_fwd", {{"x", "residual"}, {"mix", "pre_mix"}}, {"out"}, {}}},
        {"out"},
        {"out_mul", "sqrsum", "input_mix", "pre_mix"}}},
      {"mhc_head_bwd",
       {{{"pre_apply_mix_bwd",
          {"grad_out", {"x", "residual"}, {"mix", "pre_mix"}, {"grad_x", "grad_residual"}},
          {{"grad_x", "grad_residual"}, {"grad_mix", "grad_pre_mix"}},
          {}},
         {"head_compute_mix_bwd",
          {{"grad_out", "grad_pre_mix"}, "input_mix", "scale", "base", "grad_scale", "grad_base"},
          {"grad_input_mix", "grad_scale", "grad_base"},
          {}},
         {"norm_fn_bwd",
          {{"grad_out", "grad_input_mix"},
           "residual",
           {"fn", "first_fn"},
           "norm_weight",
           "out_mul",
           "sqrsum",
           "grad_residual",
           {"grad_fn", "first_grad_fn"},
           "grad_norm_weight"},
          {"grad_residual", {"grad_fn", "first_grad_fn"}, "grad_norm_weight"},
          {"norm_eps"}}},
        {"grad_residual", "grad_fn", "grad_scale", "grad_base", "grad_norm_weight"},
        {}}}};
  return all;
}

// The elements of `from`, of rows as long, as the first of a tensor of `rows` rows; zeros behind.
HostTensor with_rows(const HostTensor& from, int64_t rows) {
  const int64_t columns = from.shape()[1];
  HostTensor made(from.dtype(), {rows, columns});
  made.fill_bytes(std::byte{0});
  for (int64_t i = 0; i < std::min(made.size(), from.size()); ++i) made.set_bits(i, from.bits(i));
  return made;
}

}  // namespace

bool is_composition(const std::string& op) {
  return compositions().count(op) > 0;
}

HostTensors compose(const std::string& op, const HostTensors& inputs, const Params& params,
                    const std::function<Runner(const std::string&)>& part) {
  const Composition& composition = compositions().at(op);
  const bool is_head = op.starts_with("mhc_head");
  HostTensors known = inputs;
  Params values = params;
  if (op == "engram_bwd") values["num_persistent_blocks"] = int64_t{132};
  if (is_head) {
    const Dims& residual = inputs.at("residual").shape();
    const int64_t streams = residual[residual.rank - 2];
    for (const auto& [whole, first] : {std::pair{"fn", "first_fn"}, {"grad_fn", "first_grad_fn"}}) {
      if (known.count(whole) > 0) known[first] = with_rows(known.at(whole), streams);
    }
  }
  for (const Part& one : composition.parts) {
    HostTensors given;
    for (const Name& name : one.inputs) {
      if (known.count(name.whole) > 0) given[name.part] = known.at(name.whole);
    }
    Params options;
    for (const Name& name : one.params) {
      if (values.count(name.whole) > 0) options[name.part] = values.at(name.whole);
    }
    HostTensors made = part(one.op)(given, options);
    for (const Name& name : one.outputs) {
      if (made.count(name.part) > 0) known[name.whole] = std::move(made.at(name.part));
    }
  }
  if (op == "mhc_head_bwd") {
    const int64_t rows = inputs.at("fn").shape()[0];
    HostTensor all = with_rows(known.at("first_grad_fn"), rows);
    if (inputs.count("grad_fn") > 0) {
      const HostTensor& before = inputs.at("grad_fn");
      for (int64_t i = known.at("first_grad_fn").size(); i < all.size(); ++i) {
        all.set_bits(i, before.bits(i));
      }
    }
    known["grad_fn"] = std::move(all);
  }
  HostTensors outputs;
  std::vector<const char*> names = composition.outputs;
  const auto save = params.find("save_for_backward");
  if (save == params.end() || std::get<bool>(save->second)) {
    names.insert(names.end(), composition.saved.begin(), composition.saved.end());
  }
  for (const char* name : names) {
    if (known.count(name) > 0) outputs[name] = std::move(known.at(name));
  }
  return outputs;
}

}  // namespace tessera::reference
