#include "tools/python/core/launch_plan.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "kernels/jit/launch_plan.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "tools/lib/bench/bare_launches.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/library.h"
#include "tools/python/core/options.h"

namespace tessera::python {
namespace {

/// The tensors of a plan, or of a call of it.
struct Borrowed {
  const Library* library = nullptr;
  std::vector<TensorView> views;
  Loans loans;
};

void borrow(const nb::args& tensors, Borrowed& borrowed) {
  size_t i = 0;
  for (const nb::handle tensor : tensors) {
    const std::string name = fmt::format("tensors[{}]", i++);
    const TensorType type = tensor_type_of(tensor.ptr());
    if (type.library == nullptr || type.is_redirected) {
      refuse("plan", name, "TYPE", fmt::format("argument '{}' is no tensor", name),
             "a tensor in memory", describe(tensor));
    }
    borrowed.library = type.library;
    borrowed.views.push_back(
        type.library->borrow(tensor.ptr(), "plan", name, nullptr, borrowed.loans));
  }
}

/// torch's count of changes; 0 for tensors that have none.
int64_t version_of(const nb::handle& tensor) {
  try {
    return nb::cast<int64_t>(tensor.attr("_version"));
  } catch (const nb::python_error&) {
    return 0;
  }
}

class Plan {
 public:
  Plan(const nb::object& call, const nb::args& tensors) {
    borrow(tensors, made_from_);
    std::vector<int64_t> before;
    for (const nb::handle tensor : tensors) before.push_back(version_of(tensor));
    plan_.emplace(kernels::jit::plan(made_from_.views, [&] { call_python([&] { call(); }); }));
    // The calls announced what they write, though nothing is launched.
    for (size_t i = 0; i < before.size(); ++i) {
      if (version_of(tensors[i]) != before[i]) written_.push_back(i);
    }
  }

  void launch(const nb::args& tensors, const nb::object& stream) const {
    Borrowed given;
    borrow(tensors, given);
    if (given.views.size() != made_from_.views.size()) {
      refuse("plan", "tensors", "NAME", "a wrong number of tensors",
             fmt::format("{}", made_from_.views.size()), fmt::format("{}", given.views.size()));
    }
    Inline<void*, 16> data;
    for (size_t i = 0; i < given.views.size(); ++i) {
      const TensorView &view = given.views[i], &expected = made_from_.views[i];
      if (view.dtype != expected.dtype || view.device != expected.device ||
          !(view.shape == expected.shape) || !(view.strides == expected.strides)) {
        const std::string name = fmt::format("tensors[{}]", i);
        const char* const code = view.dtype != expected.dtype      ? "DTYPE"
                                 : view.device != expected.device  ? "DEVICE"
                                 : !(view.shape == expected.shape) ? "SHAPE"
                                                                   : "STRIDES";
        refuse("plan", name, code, fmt::format("argument '{}' is not like that of the plan", name),
               fmt::format("{} on {}", to_string(expected), to_string(expected.device)),
               fmt::format("{} on {}", to_string(view), to_string(view.device)));
      }
      data.push_back(view.data);
    }
    for (const size_t i : written_) {
      given.library->will_write(nb::handle(tensors[i]).ptr(), "plan",
                                fmt::format("tensors[{}]", i));
    }
    const Device device = given.views.empty() ? Device::cuda(0) : given.views.front().device;
    (*plan_)({data.data(), data.size()}, !stream.is_none() ? stream_of(stream.ptr(), "plan")
                                         : given.library == nullptr
                                             ? nullptr
                                             : given.library->current_stream(device));
  }

  /// Nanoseconds of the driver's launches alone, on the tensors of the plan.
  double time_bare(int calls) const {
    std::vector<void*> data;
    for (const TensorView& view : made_from_.views) data.push_back(view.data);
    tools::BareLaunches bare(*plan_, data);
    const int device = made_from_.views.empty() ? 0 : made_from_.views.front().device.ordinal;
    const runtime::ContextScope context(device);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) bare();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    return spent.count() / calls;
  }

 private:
  Borrowed made_from_;
  std::vector<size_t> written_;
  std::optional<kernels::jit::LaunchPlan> plan_;
};

}  // namespace

void add_launch_plan(nb::module_& module) {
  nb::class_<Plan> plan(
      module, "Plan",
      "A checked call, launched again on other tensors. Alignment and overlaps are the "
      "caller's promise.");
  plan.def("__call__", &Plan::launch, nb::arg("tensors"), nb::kw_only(),
           nb::arg("stream") = nb::none(),
           "Launches it on tensors of the same dtypes, shapes, strides and device.");
  plan.def("time_bare", &Plan::time_bare, nb::arg("calls"),
           "Nanoseconds of what the driver alone takes to launch it, for measurements.");
  module.def(
      "plan",
      [](const nb::object& call, const nb::args& tensors) { return new Plan(call, tensors); },
      nb::arg("call"), nb::arg("tensors"), nb::rv_policy::take_ownership);
}

}  // namespace tessera::python
