#include "kernels/op_call.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernels/jit/repeatable_call.h"
#include "kernels/jit/view_check.h"

namespace tessera::kernels {
namespace {

struct AsParam {
  template <class T>
  ParamValue operator()(const T& value) const {
    return value;
  }
  ParamValue operator()(std::string_view word) const { return std::string(word); }
  ParamValue operator()(std::span<const int64_t> list) const {
    return std::vector<int64_t>(list.begin(), list.end());
  }
};

struct AsOption {
  template <class T>
  jit::OptionValue operator()(const T& value) const {
    return value;
  }
  jit::OptionValue operator()(const std::string& word) const { return std::string_view(word); }
  jit::OptionValue operator()(const std::vector<int64_t>& list) const {
    return std::span<const int64_t>(list);
  }
};

void run(const OpInfo& op, std::span<const NamedTensor> tensors, std::span<const NamedList> lists,
         std::span<const CallOption> options, Stream stream) {
  const Tensors given = given_tensors(op, tensors, lists);
  op.run(given, checked_params(op, options), stream);
}

}  // namespace

CallOption::CallOption(const char* param_, const ParamValue& value_)
    : param(param_), value(std::visit(AsOption(), value_)) {}

Tensors given_tensors(const OpInfo& op, std::span<const NamedTensor> tensors,
                      std::span<const NamedList> lists) {
  Tensors given;
  const auto add = [&](const std::string& name, const TensorView& view) {
    if (is_absent(view)) return;
    check_view(op.name, name, view, Use::read);
    given.emplace(name, view);
  };
  for (const NamedTensor& tensor : tensors) add(tensor.name, *tensor.view);
  for (const NamedList& list : lists) {
    for (size_t i = 0; i < list.views.size(); ++i) {
      add(fmt::format("{}.{}", list.name, i), list.views[i]);
    }
  }
  return given;
}

Params checked_params(const OpInfo& op, std::span<const CallOption> options) {
  Params params;
  for (const CallOption& option : options) {
    params.emplace(option.param, std::visit(AsParam(), option.value));
  }
  return check_params(op, params);
}

void call_op(const OpInfo& op, std::initializer_list<NamedTensor> tensors,
             std::initializer_list<CallOption> options, Stream stream) {
  call_op(op, std::span(tensors.begin(), tensors.size()), {},
          std::span(options.begin(), options.size()), stream);
}

void call_op(const OpInfo& op, std::initializer_list<NamedTensor> tensors,
             std::initializer_list<NamedList> lists, std::initializer_list<CallOption> options,
             Stream stream) {
  call_op(op, std::span(tensors.begin(), tensors.size()), std::span(lists.begin(), lists.size()),
          std::span(options.begin(), options.size()), stream);
}

void call_op(const OpInfo& op, std::span<const NamedTensor> tensors,
             std::span<const NamedList> lists, std::span<const CallOption> options, Stream stream) {
  jit::CallMemo memo(op.name);
  memo.add(tensors.size());
  for (const NamedTensor& tensor : tensors) memo.add_tensor(*tensor.view);
  for (const NamedList& list : lists) {
    memo.add(list.views.size());
    for (const TensorView& view : list.views) memo.add_tensor(view);
  }
  for (const CallOption& option : options) memo.add_option(option.value);
  if (memo.launch_again(stream)) return;
  memo.learn([&] { run(op, tensors, lists, options, stream); });
}

std::optional<jit::RepeatableCall> call_in_full(const OpInfo& op,
                                                std::span<const NamedTensor> tensors,
                                                std::span<const NamedList> lists,
                                                std::span<const CallOption> options,
                                                Stream stream) {
  std::vector<const TensorView*> views;
  for (const NamedTensor& tensor : tensors) views.push_back(tensor.view);
  for (const NamedList& list : lists) {
    for (const TensorView& view : list.views) views.push_back(&view);
  }
  return jit::RepeatableCall::learn(views, [&] { run(op, tensors, lists, options, stream); });
}

TensorView workspace_of(const OpInfo& op, std::initializer_list<NamedTensor> tensors,
                        std::initializer_list<NamedList> lists,
                        std::initializer_list<CallOption> options) {
  const Tensors given = given_tensors(op, std::span(tensors.begin(), tensors.size()),
                                      std::span(lists.begin(), lists.size()));
  const Params params = checked_params(op, std::span(options.begin(), options.size()));
  for (const OutputInfo& info : op.outputs(given, params)) {
    if (!info.workspace) continue;
    return {nullptr, info.dtype, info.shape, info.strides, given.begin()->second.device};
  }
  return {};
}

void call_op(const OpInfo& op, const Tensors& tensors, const Params& params, Stream stream) {
  jit::CallMemo memo(op.name);
  for (const auto& [name, view] : tensors) {
    memo.add_text(name);
    memo.add_tensor(view);
  }
  for (const auto& [name, value] : params) {
    memo.add_text(name);
    memo.add_option(std::visit(AsOption(), value));
  }
  if (memo.launch_again(stream)) return;
  for (const auto& [name, view] : tensors) check_view(op.name, name, view, Use::read);
  memo.learn([&] { op.run(tensors, params, stream); });
}

}  // namespace tessera::kernels
