#include "tests/support/ops/mutants.h"

namespace tessera::test {

reference::Runner misled(const std::string& op,
                         const std::function<void(HostTensors&, kernels::Params&)>& mistake) {
  return [=](const HostTensors& inputs, const kernels::Params& params) {
    HostTensors changed = inputs;
    kernels::Params changed_params = params;
    mistake(changed, changed_params);
    return reference::runner(op)(changed, changed_params);
  };
}

reference::Runner spoiled(
    const std::string& op,
    const std::function<void(const HostTensors& in, HostTensors& out)>& mistake) {
  return [=](const HostTensors& inputs, const kernels::Params& params) {
    HostTensors outputs = reference::runner(op)(inputs, params);
    mistake(inputs, outputs);
    return outputs;
  };
}

std::vector<bool> caught_by(const std::string& op, const std::vector<OpCase>& cases,
                            const std::vector<reference::Runner>& mutants) {
  const kernels::UncheckedValues as_on_a_gpu;
  std::vector<bool> caught(mutants.size());
  for (const OpCase& test : cases) {
    const HostTensors want = reference::runner(op)(test.inputs, test.params);
    for (size_t i = 0; i < mutants.size(); ++i) {
      if (caught[i]) continue;
      caught[i] = !compare_outputs(test, want, mutants[i](test.inputs, test.params)).ok;
    }
  }
  return caught;
}

bool is_caught(const std::string& op, const std::vector<OpCase>& cases,
               const reference::Runner& mutant) {
  return caught_by(op, cases, {mutant}).front();
}

float at(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

}  // namespace tessera::test
