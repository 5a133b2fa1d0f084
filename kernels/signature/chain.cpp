#include "kernels/signature/chain.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kUnit =
    64;  // elements of f32 that a tensor in the workspace begins at a multiple of

std::string name_here(std::string_view in_part, std::initializer_list<Chain::Name> names) {
  for (const Chain::Name& name : names) {
    if (name.in_part == in_part) return std::string(name.here);
  }
  return std::string(in_part);
}

/// Translates an error of a part to the names of the whole op.
Error in_whole(const Error& error, std::string_view op, std::initializer_list<Chain::Name> names) {
  ErrorFields fields = error.fields();
  fields.op = op;
  const std::string before = fmt::format("'{}'", fields.argument);
  fields.argument = name_here(fields.argument, names);
  if (const size_t at = fields.what.find(before); at != std::string::npos) {
    fields.what.replace(at, before.size(), fmt::format("'{}'", fields.argument));
  }
  return Error(std::move(fields));
}

}  // namespace

Chain::Chain(const Call& call, Launches* go) : call_(&call), go_(go) {}

void Chain::set(std::string name, const TensorView& view) {
  between_[std::move(name)] = view;
}

void Chain::allocate(const std::string& name, DType dtype, const Dims& shape) {
  OutputInfo info;
  info.name = name;
  info.dtype = dtype;
  info.shape = shape;
  info.strides = row_major_strides(shape);
  between_[name] = in_workspace(info);
}

TensorView Chain::find(const std::string& name) const {
  const auto found = between_.find(name);
  return found == between_.end() ? call_->given(name) : found->second;
}

TensorView Chain::in_workspace(const OutputInfo& info) {
  TensorView view(nullptr, info.dtype, info.shape, info.strides, call_->device());
  if (go_ != nullptr) {
    // As an integer: a dry call has a workspace without memory.
    const auto begin = reinterpret_cast<uintptr_t>(call_->given("workspace").data);
    view.data = reinterpret_cast<void*>(begin + static_cast<uintptr_t>(elements_) * sizeof(float));
  }
  int64_t elements =
      1;  // with the gaps of the layout: columns of scales may be further apart than their rows say
  for (int i = 0; i < info.shape.rank; ++i) {
    elements = std::max(elements, info.shape[i] * info.strides[i]);
  }
  const int64_t bytes = elements * tessera::bytes(info.dtype);
  elements_ += (bytes + 4 * kUnit - 1) / (4 * kUnit) * kUnit;
  return view;
}

void Chain::add(const Op& part, std::initializer_list<Name> names, Params params) {
  try {
    add_part(kernels::parsed(part), names, std::move(params));
  } catch (const Error& error) {
    throw in_whole(error, call_->op().name, names);
  }
}

void Chain::add_part(const ParsedOp& parsed, std::initializer_list<Name> names, Params params) {
  for (const ParamRule& rule : parsed.signature.params) {
    const auto found = call_->params().find(name_here(rule.name, names));
    if (found != call_->params().end()) params.emplace(rule.name, found->second);
  }
  params = check_params(table_of(parsed), params);

  Tensors tensors;
  for (const TensorRule& rule : parsed.signature.tensors) {
    const TensorView view = find(name_here(rule.name, names));
    if (!rule.is_workspace && !is_absent(view)) tensors[rule.name] = view;
  }
  for (const OutputInfo& info : Call(parsed, tensors, params).outputs()) {
    if (tensors.count(info.name) > 0) continue;
    const std::string here = name_here(info.name, names);
    TensorView view(nullptr, info.dtype, info.shape, info.strides, call_->device());
    if (info.workspace || !call_->writes(here)) {
      view = in_workspace(info);
    } else {
      TESSERA_CHECK(go_ == nullptr, fmt::format("{}: no output {}", call_->op().name, here));
    }
    if (!info.workspace) between_[here] = view;
    tensors[info.name] = view;
  }
  if (go_ == nullptr) return;
  const Call call(parsed, tensors, params);
  if (!call.is_empty()) go_->add(call);
}

int64_t chained_elements(const Call& call, void (*parts)(Chain&)) {
  Chain chain(call, nullptr);
  parts(chain);
  return chain.elements_;
}

void launch_chain(const Call& call, Launches& go, void (*parts)(Chain&)) {
  Chain chain(call, &go);
  parts(chain);
}

}  // namespace tessera::kernels
