#pragma once
// Inside OpFunction: a call on its way, and what calls of one kind share.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tools/python/core/op_function.h"
#include "tools/python/core/options.h"

namespace tessera::python {

inline constexpr size_t kMostSlots = 40;

/// How an argument looks that was not given.
inline bool is_absent_object(PyObject* object) {
  return object == Py_Ellipsis || object == Py_None;
}

/// One call on its way.
struct OpFunction::Call {
  struct Views {
    size_t first = 0, count = 0;
  };

  const Library* library = nullptr;
  PyObject* first_tensor = nullptr;
  const std::string* first_name = nullptr;
  Device device;
  bool has_stream = false;
  kernels::Stream stream = nullptr;
  Inline<TensorView, 24> views;
  std::array<Views, kMostSlots> slots;  // of views; none: absent
  OptionReader options;
  Key key;
  std::array<PyObject*, kMostSlots> given = {};  // outputs that the caller gave
  std::shared_ptr<const Entry> entry;
  std::vector<nb::object> made;  // by entry->made
  bool waited = false;
  Loans loans;

  const TensorView& add(size_t slot, const kernels::TensorRule& rule, PyObject* object,
                        std::string_view op);
  /// The same of a tensor that is known to be of the call's library.
  const TensorView& borrow(size_t slot, const kernels::TensorRule& rule, PyObject* object,
                           std::string_view op);
  void add_to_key(const TensorView& view);
};

/// One tensor that a kind of call writes.
struct OpFunction::Made {
  kernels::OutputInfo info;
  size_t slot = 0;
  size_t item = 0;  // of a list
  std::unique_ptr<Allocation> allocation;
};

/// What calls that differ in addresses only have in common.
struct OpFunction::Entry {
  std::vector<uint64_t> key;
  std::vector<Made> made;
};

}  // namespace tessera::python
