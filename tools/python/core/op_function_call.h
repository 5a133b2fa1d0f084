#pragma once
// Inside OpFunction: a call on its way, and what calls of one kind share.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/jit/repeatable_call.h"
#include "tools/python/core/op_function.h"
#include "tools/python/core/options.h"

namespace tessera::python {

inline constexpr size_t kMostSlots = 40;
inline constexpr size_t kMostArguments = 64;

/// How an argument looks that was not given.
inline bool is_absent_object(PyObject* object) {
  return object == Py_Ellipsis || object == Py_None;
}

/// One call on its way.
struct OpFunction::Call {
  struct Tensor {
    PyObject* object;
    void* data;
  };
  struct Range {
    uint16_t first = 0, count = 0;  // of `tensors`; none: absent
  };

  std::array<PyObject*, kMostArguments> arguments;
  const Library* library = nullptr;
  PyObject* first_tensor = nullptr;
  const std::string* first_name = nullptr;
  Device device;
  bool has_stream = false;
  kernels::Stream stream = nullptr;
  Inline<Tensor, 24> tensors;
  std::array<Range, kMostSlots> slots;
  Inline<TensorView, 24> views;  // of `tensors`, as far as they were looked at
  OptionReader options;  // empty if known constants were given and no call in full read them
  Key key;
  std::array<PyObject*, kMostSlots> given = {};  // outputs that the caller gave
  References given_outputs;  // those of `out`, a container that other code may change
  std::shared_ptr<Entry> entry;
  References made;  // by entry->made
  bool waited = false;
  Loans loans;

  /// Adds a tensor of a slot, and what it is to the key. Errors: argument, if it is none of `library`.
  void add(size_t slot, const kernels::TensorRule& rule, PyObject* object, const std::string& op);
  /// The same of a tensor that is known to be of the call's library.
  void add_known(size_t slot, const kernels::TensorRule& rule, PyObject* object,
                 const std::string& op);
  /// The view of a tensor that is not looked at yet.
  TensorView view_of(const kernels::TensorRule& rule, PyObject* object, const std::string& op);
  kernels::Stream stream_of_kernels() const { return device.is_cuda() ? stream : nullptr; }
};

/// One tensor that a kind of call writes.
struct OpFunction::Made {
  kernels::OutputInfo info;
  size_t slot = 0;
  size_t item = 0;  // of a list
  std::unique_ptr<Allocation> allocation;
  bool needs_room = false;  // a given tensor, whose view does not show the padding behind it
  uint64_t alignment = 0;   // of what `again` was learned with
};

/// The part that calls share which differ in addresses only.
struct OpFunction::Entry {
  std::vector<uint64_t> key;
  std::vector<Made> made;
  std::optional<kernels::jit::RepeatableCall> again;
};

/// The tensors of a call under their names, in the order of the signature.
struct OpFunction::Named {
  Inline<kernels::NamedTensor, kMostSlots> tensors;
  Inline<kernels::NamedList, kMostSlots> lists;

  enum class Which : uint8_t { arguments, all };  // all: with outputs
  Named(const OpFunction& function, Call& call, Which which);
  std::span<const kernels::NamedTensor> all_tensors() const {
    return {tensors.data(), tensors.size()};
  }
  std::span<const kernels::NamedList> all_lists() const { return {lists.data(), lists.size()}; }
};

}  // namespace tessera::python
