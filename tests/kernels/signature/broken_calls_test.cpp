// Every rule of every signature, broken once in a call that is right otherwise: the error names the
// argument.

#include <fmt/format.h>

#include <functional>

#include "kernels/checks/arg_check.h"
#include "kernels/op.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"
#include "tests/support/ops/bench_inputs.h"
#include "tests/support/ops/op_errors.h"

using namespace tessera;

namespace {

/// A right call of an op, with memory of its own.
struct RightCall {
  explicit RightCall(const kernels::OpInfo& op, const kernels::BenchCase& example) {
    const test::OpCase made = test::case_of(example);
    memory = made.inputs;
    params = made.params;
    for (const auto& [name, tensor] : memory) views[name] = tensor.view();
    for (const kernels::OutputInfo& info : op.outputs(views, kernels::check_params(op, params))) {
      memory.try_emplace(info.name, info.dtype, info.shape, info.strides, info.storage_elements);
    }
    for (const auto& [name, tensor] : memory) views[name] = tensor.view();
  }

  test::HostTensors memory;
  kernels::Tensors views;
  kernels::Params params;
};

class Breaker {
 public:
  Breaker(const kernels::ParsedOp& op, const RightCall& right) : op_(op), right_(right) {}

  /// Changes one tensor of the right call: the error says so and names it.
  void tensor(const std::string& name, const std::string& how,
              const std::function<void(TensorView&)>& change) const {
    kernels::Tensors views = right_.views;
    change(views.at(name));
    expect(name, how, test::run_error(std::string(op_.op->name), views, right_.params));
  }
  /// Changes the tensors as a whole.
  void tensors(const std::string& name, const std::string& how,
               const std::function<void(kernels::Tensors&)>& change) const {
    kernels::Tensors views = right_.views;
    change(views);
    expect(name, how, test::run_error(std::string(op_.op->name), views, right_.params));
  }
  void param(const std::string& name, const std::string& how,
             const std::function<void(kernels::Params&)>& change) const {
    kernels::Params params = right_.params;
    change(params);
    expect(name, how, test::run_error(std::string(op_.op->name), right_.views, params));
  }

  int broken() const { return broken_; }

 private:
  void expect(const std::string& name, const std::string& how, const std::string& text) const {
    CAPTURE(op_.op->name, name, how, text);
    ++broken_;
    CHECK(text.starts_with(fmt::format("tessera: {}: ", op_.op->name)));
    CHECK(text.find(fmt::format("'{}'", name)) != std::string::npos);
    CHECK(text.find("\n  expected  ") != std::string::npos);
    CHECK(text.find("\n  got       ") != std::string::npos);
  }

  const kernels::ParsedOp& op_;
  const RightCall& right_;
  mutable int broken_ = 0;
};

void break_tensor(const Breaker& breaker, const kernels::TensorRule& rule, const std::string& name,
                  const RightCall& right, bool is_first) {
  const TensorView& view = right.views.at(name);
  breaker.tensor(name, "dtype", [](TensorView& v) { v.dtype = DType::u64; });
  if (!is_first) {  // with which the others are compared
    breaker.tensor(name, "device", [](TensorView& v) { v.device = Device::cuda(1); });
  }
  if (!rule.has_token_dims) {
    breaker.tensor(name, "rank", [&](TensorView& v) {
      for (int i = 0; i < (rule.may_lack_last ? 2 : 1); ++i) {
        v.shape.push_back(1);
        v.strides.push_back(1);
      }
    });
  }
  if (view.size() > 0) {
    breaker.tensor(name, "no data", [](TensorView& v) { v.data = nullptr; });
  }
  const int last = view.rank() - 1;
  const bool has_steps = view.size() > 0 && last >= 0 && view.shape[last] > 1;
  if (has_steps && !rule.scales && rule.layout != kernels::TensorRule::Layout::any) {
    breaker.tensor(name, "stride", [&](TensorView& v) { v.strides[last] = 2; });
  }
  if (rule.role == kernels::Role::in) return;
  breaker.tensor(name, "read only", [](TensorView& v) { v.read_only = true; });
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (rule.is_workspace || rule.has_token_dims) continue;
    if (rule.role == kernels::Role::inout && !rule.accumulate)
      continue;  // its extents are those of the call
    breaker.tensor(name, fmt::format("extent of dimension {}", dim), [&](TensorView& v) {
      v.shape[dim] += 1;
      if (!rule.scales) v = TensorView(v.data, v.dtype, v.shape, v.device);
    });
  }
  for (const auto& [other, memory] : right.views) {
    if (other == name || view.size() == 0 || memory.size() == 0) continue;
    breaker.tensor(name, "shares memory with " + other,
                   [data = memory.data](TensorView& v) { v.data = data; });
    break;
  }
}

/// A list without its last tensor is a shorter list.
bool is_last_of_list(const RightCall& right, const kernels::TensorRule& rule,
                     const std::string& name) {
  if (rule.list.empty()) return false;
  const int index = std::stoi(name.substr(rule.name.size() + 1));
  return right.views.count(fmt::format("{}.{}", rule.name, index + 1)) == 0;
}

void break_param(const Breaker& breaker, const kernels::ParamRule& rule) {
  using Type = kernels::ParamRule::Type;
  const std::string& name = rule.name;
  if (!rule.standard) breaker.param(name, "missing", [&](auto& params) { params.erase(name); });
  breaker.param(name, "type", [&](auto& params) {
    params[name] = rule.type == Type::word || rule.type == Type::tuple
                       ? kernels::ParamValue(true)
                       : kernels::ParamValue(std::string("many"));
  });
  if (rule.type == Type::word) {
    breaker.param(name, "word", [&](auto& params) { params[name] = std::string("neither"); });
  }
  if (rule.type == Type::integer && (rule.least || rule.most)) {
    breaker.param(name, "too small",
                  [&](auto& params) { params[name] = rule.least.value_or(INT64_MIN + 1) - 1; });
  }
  if (rule.most) {
    breaker.param(name, "too large", [&](auto& params) { params[name] = INT64_MAX; });
  }
}

}  // namespace

TEST_CASE("a call that breaks one rule of a signature is refused with the argument's name",
          "[signature][errors][slow]") {
  for (const kernels::Op* op : kernels::all_ops()) {
    const kernels::ParsedOp& parsed = kernels::parsed(*op);
    const kernels::OpInfo& info = kernels::find_op(std::string(op->name));
    for (const kernels::BenchCase& example : info.examples) {
      CAPTURE(op->name, example.label);
      const RightCall right(info, example);
      REQUIRE(test::run_error(info.name, right.views, right.params) == "no error");
      const Breaker breaker(parsed, right);
      for (const auto& [name, view] : right.views) {
        const kernels::TensorRule& rule =
            *parsed.signature.find_tensor(name.substr(0, name.find('.')));
        break_tensor(breaker, rule, name, right, &rule == &parsed.signature.tensors.front());
        if (rule.optional || rule.accumulate || is_last_of_list(right, rule, name)) continue;
        breaker.tensors(name, "missing",
                        [&erased = name](kernels::Tensors& views) { views.erase(erased); });
      }
      kernels::Tensors more = right.views;
      more["stranger"] = TensorView(nullptr, DType::f32, {0});
      CHECK_THROWS_WITH(kernels::check_tensor_names(info, more),
                        Catch::Matchers::StartsWith(fmt::format(
                            "tessera: {}: unknown tensor 'stranger'\n  expected  ", op->name)));
      for (const kernels::ParamRule& rule : parsed.signature.params) break_param(breaker, rule);
      breaker.param("strange", "unknown", [](auto& params) { params["strange"] = true; });
      CHECK(breaker.broken() >= 10);
    }
  }
}
