#include "kernels/signature/launches.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/error.h"
#include "kernels/jit/target.h"

namespace tessera::kernels {
namespace {

/// The arguments of one kernel: those of its launch first, then those of the call.
class CallArguments final : public jit::Arguments {
 public:
  CallArguments(const Call& call, const Args& args) : call_(&call), args_(&args) {}

  Device device() const override { return call_->device(); }

  TensorView tensor(std::string_view name) const override {
    for (const Args::Tensor& tensor : args_->tensors) {
      if (tensor.name == name) return tensor.view;
    }
    return call_->tensor(name);
  }

  jit::Scalar scalar(std::string_view name) const override {
    for (const Args::Scalar& scalar : args_->scalars) {
      if (scalar.name == name) return scalar.value;
    }
    const std::optional<ParamValue> value = call_->find(name);
    if (value) {
      if (const auto* integer = std::get_if<int64_t>(&*value)) return *integer;
      if (const auto* number = std::get_if<double>(&*value)) return *number;
      if (const auto* flag = std::get_if<bool>(&*value)) return *flag;
    }
    internal_error(fmt::format("{}: no scalar {}", call_->op().name, name));
  }

 private:
  const Call* call_;
  const Args* args_;
};

}  // namespace

void Launches::add_bytes(const std::string& spec, const std::function<ir::Kernel()>& build,
                         const Args& args) {
  if (collected_ != nullptr) {
    collected_->push_back(build());
    return;
  }
  jit::run_op(call_->op().name, spec, build, CallArguments(*call_, args), stream_);
}

void Launches::add(const Call& part) {
  Launches launches = *this;
  launches.call_ = &part;
  part.op().launches(part, launches);
}

void Launches::in_clusters(const std::function<void(int limit)>& add) const {
  jit::launch_in_clusters(call_->device(), add);
}

}  // namespace tessera::kernels
