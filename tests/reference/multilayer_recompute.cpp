#include "tests/reference/multilayer_recompute.h"

#include <string>

#include "tests/reference/mhc.h"

namespace tessera::reference {

using test::HostTensor;
using test::HostTensors;

HostTensors multilayer_recompute(const HostTensors& inputs) {
  HostTensors outputs;
  HostTensor residual = inputs.at("initial_residual");
  for (int layer = 0;; ++layer) {
    const std::string suffix = "." + std::to_string(layer);
    const auto pre_mix = inputs.find("pre_mix_list" + suffix);
    if (pre_mix == inputs.end()) return outputs;
    outputs["layer_input_list" + suffix] = pre_apply_mix_fwd(residual, pre_mix->second);
    const auto layer_output = inputs.find("layer_output_list" + suffix);
    if (layer_output == inputs.end()) return outputs;
    residual = post_fwd(layer_output->second, residual, inputs.at("post_mix_list" + suffix),
                        inputs.at("comb_mix_list" + suffix));
    outputs["residual_list" + suffix] = residual;
  }
}

}  // namespace tessera::reference
