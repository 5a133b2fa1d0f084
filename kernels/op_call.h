#pragma once
// Calls an op from its C++ function, with tensors and options by name. The op's table checks the
// first call; equal calls are launched again without checks.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/jit/call_memo.h"
#include "kernels/op.h"
#include "kernels/param_value.h"

namespace tessera::kernels {

namespace jit {
class RepeatableCall;
}

/// An option of a call with its name in the op's table: a number, a flag, a word (an enum, or text),
/// a list, or an optional value, which takes its default if absent. Text and lists must outlive the
/// call.
struct CallOption {
  template <class T>
  CallOption(const char* param_, const T& value_) : param(param_), value(value_of(value_)) {}
  /// An option whose type is known at run time.
  CallOption(const char* param_, const ParamValue& value_);
  CallOption(const char* param_, const jit::OptionValue& value_) : param(param_), value(value_) {}

  const char* param;
  jit::OptionValue value;

 private:
  template <class T>
  static jit::OptionValue value_of(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_integral_v<T>) {
      return int64_t{value};
    } else if constexpr (std::is_floating_point_v<T>) {
      return double{value};
    } else if constexpr (std::is_enum_v<T>) {
      return name(value);
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      return std::string_view(value);
    } else {
      return std::span<const int64_t>(value);
    }
  }
  template <class T>
  static jit::OptionValue value_of(const std::optional<T>& value) {
    return value ? value_of(*value) : jit::OptionValue();
  }
};

/// A tensor of a call with its name in the op's table. It must outlive the call.
struct NamedTensor {
  NamedTensor(const char* name_, const TensorView& view_) : name(name_), view(&view_) {}

  const char* name;
  const TensorView* view;
};

/// A list of tensors of a call: `name.0`, `name.1`, ...
struct NamedList {
  NamedList(const char* name_, const std::span<const TensorView>& views_)
      : name(name_), views(views_) {}

  const char* name;
  std::span<const TensorView> views;
};

/// Calls an op's `run` with the present tensors (absent: rank 0, no data) and the options, checked
/// against its table; or launches again what an equal call launched.
///
/// Errors:  those of check_params and of the op.
/// Example: call_op(table_of(parsed(sinkhorn_fwd_op)), {{"x", call.x}, {"out", call.out}},
///                  {{"repeat", call.repeat}, {"eps", call.eps}}, stream);
TESSERA_API void call_op(const OpInfo& op, std::initializer_list<NamedTensor> tensors,
                         std::initializer_list<CallOption> options, Stream stream);
TESSERA_API void call_op(const OpInfo& op, std::initializer_list<NamedTensor> tensors,
                         std::initializer_list<NamedList> lists,
                         std::initializer_list<CallOption> options, Stream stream);
/// The same. All calls of an op must name the same tensors, lists and options in the same order,
/// absent ones included: a call is recognised by its values alone.
TESSERA_API void call_op(const OpInfo& op, std::span<const NamedTensor> tensors,
                         std::span<const NamedList> lists, std::span<const CallOption> options,
                         Stream stream);
/// The same, always in full. Returns the launches, to be repeated on the addresses of `tensors`, then
/// of the items of `lists`; nothing if they cannot be repeated (RepeatableCall::learn).
TESSERA_API std::optional<jit::RepeatableCall> call_in_full(const OpInfo& op,
                                                            std::span<const NamedTensor> tensors,
                                                            std::span<const NamedList> lists,
                                                            std::span<const CallOption> options,
                                                            Stream stream);
/// The workspace that a call needs, without memory; absent if it needs none. Outputs may be absent.
///
/// Errors:  those of the inputs and options of the call.
TESSERA_API TensorView workspace_of(const OpInfo& op, std::initializer_list<NamedTensor> tensors,
                                    std::initializer_list<NamedList> lists,
                                    std::initializer_list<CallOption> options);
/// The present tensors of a call, as OpInfo takes them. Errors: those of check_view.
TESSERA_API Tensors given_tensors(const OpInfo& op, std::span<const NamedTensor> tensors,
                                  std::span<const NamedList> lists);
/// The options of a call, checked. Errors: those of check_params.
TESSERA_API Params checked_params(const OpInfo& op, std::span<const CallOption> options);
/// The same for tensors by name and checked parameters.
TESSERA_API void call_op(const OpInfo& op, const Tensors& tensors, const Params& params,
                         Stream stream);

}  // namespace tessera::kernels
