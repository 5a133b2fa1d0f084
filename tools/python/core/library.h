#pragma once
// Whose tensors they are: how a library's tensors are read as views, and how results are allocated by
// it.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/call_types.h"
#include "tools/python/core/dlpack_abi.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// Resources to give back when a call has ended: managed tensors of exporters, references.
class Loans {
 public:
  Loans() = default;
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  void keep(nb::object object) { objects_.push_back(std::move(object)); }
  void keep(DlManagedVersioned* tensor) { versioned_.push_back(tensor); }
  void keep(DlManaged* tensor) { unversioned_.push_back(tensor); }

 private:
  std::vector<nb::object> objects_;
  std::vector<DlManagedVersioned*> versioned_;
  std::vector<DlManaged*> unversioned_;
};

/// How one output of a kind of call is made, prepared once: every call makes a tensor from it.
class Allocation {
 public:
  virtual ~Allocation() = default;
  /// A new tensor of the output's dtype, shape, strides and storage.
  virtual nb::object make() const = 0;
};

/// Facts about a tensor for a call that is like an earlier one.
struct LentTensor {
  void* data = nullptr;
  Device device;
};

/// Where a tensor lies in the memory that it is a part of.
struct MemoryAround {
  int64_t bytes_before = 0;  // its first element
  int64_t bytes_behind = 0;  // from its first element on
};

/// A library of tensors. One object each, never destroyed.
class Library {
 public:
  virtual ~Library() = default;
  /// "torch", "numpy": what messages call it.
  virtual std::string_view name() const = 0;

  /// The view of a tensor of this library; nothing is copied or waited for. `stream` is the stream of
  /// the call if the caller gave one.
  ///
  /// Errors: argument, naming `argument`, for what no view can describe; Redirected; Python's own.
  virtual TensorView borrow(PyObject* tensor, std::string_view op, std::string_view argument,
                            const kernels::Stream* stream, Loans& loans) const = 0;
  /// True if lend() may be called: the library's tensors are looked at without a call of Python.
  virtual bool lends() const { return false; }
  /// Adds to `key` all that borrow() would say of a tensor but its address, and the alignment of that.
  /// Errors: those of borrow(), but for what no view can describe.
  virtual LentTensor lend(PyObject* tensor, std::string_view op, std::string_view argument,
                          Key& key) const;
  virtual std::unique_ptr<Allocation> prepare(const kernels::OutputInfo& output, Device device,
                                              PyObject* like) const = 0;
  /// Nothing if the memory is not known.
  virtual std::optional<MemoryAround> memory_around(const nb::handle& tensor) const {
    static_cast<void>(tensor);
    return std::nullopt;
  }
  /// The stream that work on such tensors is queued in now.
  virtual kernels::Stream current_stream(Device device) const = 0;
  /// True if the library would record what is done with the tensor, for gradients.
  virtual bool records(PyObject* tensor) const {
    static_cast<void>(tensor);
    return false;
  }
  /// Warns the user that an op records nothing.
  virtual void warn_of_gradient(const std::string& op, const std::string& argument) const {
    static_cast<void>(op), static_cast<void>(argument);
  }
  /// Called before a call writes a tensor that it did not allocate.
  /// Errors: argument, if a gradient would be wrong afterwards.
  virtual void will_write(PyObject* tensor, const std::string& op,
                          const std::string& argument) const {
    static_cast<void>(tensor), static_cast<void>(op), static_cast<void>(argument);
  }
  /// True if tensors of this thread may have tangents, of forward-mode differentiation.
  virtual bool may_have_tangents() const { return false; }
  /// Errors: unsupported, for a tensor that has one.
  virtual void refuse_tangent(PyObject* tensor, const std::string& op) const {
    static_cast<void>(tensor), static_cast<void>(op);
  }
  /// True if a mode is active that may replace what tensors mean.
  virtual bool is_intercepted() const { return false; }
  /// The object that the caller gets for a tensor of an Allocation, when it has been written.
  virtual nb::object finished(nb::object made) const { return made; }
  /// True if that is another object.
  virtual bool finishes() const { return false; }
  /// A look at the first `extents` of each dimension.
  virtual nb::object shortened(const nb::object& tensor, const Dims& extents) const;
};

/// runtime::view_of, whose errors name the op too.
TensorView view_of(const runtime::DlTensor& tensor, std::string_view op, std::string_view argument,
                   uint64_t flags = 0);

/// How tensors of one Python type are taken.
struct TensorType {
  const Library* library = nullptr;  // null: not a tensor
  bool is_redirected = false;        // torch decides what a call of these means: tensor_types.cpp
};

/// That of an object. Found by the object's type, which is looked at once as long as few types are in use.
TensorType tensor_type_of(PyObject* object);

const Library& numpy_library();
const Library& torch_library();
/// The library of a tensor that speaks DLPack and is none of these.
const Library& dlpack_library(PyObject* tensor);

/// Thrown instead of reading a tensor whose meaning is torch's to say: the call has to go through its
/// dispatcher.
struct Redirected {};

}  // namespace tessera::python
