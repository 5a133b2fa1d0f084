// Tensors of other libraries, as DLPack lends them: through the exchange interface of their type, else
// through __dlpack__. Results are made by the library's own array functions.

#include <fmt/format.h>

#include <map>
#include <string>

#include "tools/python/core/buffer.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/library.h"

namespace tessera::python {

Loans::~Loans() {
  for (DlManagedVersioned* tensor : versioned_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (DlManaged* tensor : unversioned_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
}

namespace {

/// Stream 0 stands for the legacy default stream, which DLPack calls 1.
nb::object dlpack_stream(const kernels::Stream* stream) {
  const auto address = stream == nullptr ? 0 : reinterpret_cast<uintptr_t>(*stream);
  return nb::int_(address == 0 ? uintptr_t{1} : address);
}

class BufferAllocation final : public Allocation {
 public:
  BufferAllocation(kernels::OutputInfo output, Device device)
      : output_(std::move(output)), device_(device) {}
  nb::object make() const override { return make_buffer(output_, device_); }

 private:
  kernels::OutputInfo output_;
  Device device_;
};

/// Results are memory of ours, which the library's from_dlpack takes over.
class Dlpack final : public Library {
 public:
  Dlpack(std::string name, nb::object from_dlpack)
      : name_(std::move(name)),
        is_jax_(name_.starts_with("jax")),
        from_dlpack_(std::move(from_dlpack)) {}

  std::string_view name() const override { return is_jax_ ? std::string_view("jax") : name_; }
  bool finishes() const override { return true; }
  nb::object finished(nb::object made) const override { return from_dlpack_(made); }

  TensorView borrow(PyObject* tensor, std::string_view op, std::string_view argument,
                    const kernels::Stream* stream, Loans& loans) const override {
    const nb::object capsule = export_of(tensor, stream);
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
      auto* const managed = static_cast<DlManagedVersioned*>(
          PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
      check(PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned"));
      loans.keep(managed);
      if (managed->version.major != kDlMajor) {  // nothing but its deleter may be used
        refuse(op, argument, "TYPE",
               fmt::format("argument '{}' comes by an unknown version of DLPack", argument),
               fmt::format("version {}", kDlMajor),
               fmt::format("version {}.{}", managed->version.major, managed->version.minor));
      }
      return view_of(managed->tensor, op, argument, managed->flags | read_only_flag(tensor));
    }
    auto* const managed = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (managed == nullptr) throw nb::python_error();
    check(PyCapsule_SetName(capsule.ptr(), "used_dltensor"));
    loans.keep(managed);
    return view_of(managed->tensor, op, argument, read_only_flag(tensor));
  }

  std::unique_ptr<Allocation> prepare(const kernels::OutputInfo& output, Device device,
                                      PyObject*) const override {
    if (!from_dlpack_.is_valid()) {
      throw Error({.kind = ErrorKind::unsupported,
                   .what = fmt::format("{} cannot take over results", name_),
                   .argument = output.name,
                   .expected = "a library with from_dlpack, or 'out'",
                   .got = name_});
    }
    return std::make_unique<BufferAllocation>(output, device);
  }

  kernels::Stream current_stream(Device) const override { return nullptr; }

 private:
  uint64_t read_only_flag(PyObject* tensor) const {
    return is_jax_ && tensor_type_of(tensor).library == this ? runtime::kDlReadOnly : 0;
  }
  static nb::object export_of(PyObject* tensor, const kernels::Stream* stream) {
    const nb::handle given(tensor);
    const nb::object device = given.attr("__dlpack_device__")();
    const nb::object order =
        nb::cast<int>(device[0]) == kDlCuda ? dlpack_stream(stream) : nb::object(nb::none());
    try {
      return given.attr("__dlpack__")(nb::arg("stream") = order,
                                      nb::arg("max_version") = nb::make_tuple(1, 3));
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
    return given.attr("__dlpack__")(nb::arg("stream") = order);  // an exporter before version 1
  }

  const std::string name_;
  const bool is_jax_;  // whose arrays nobody may write
  const nb::object from_dlpack_;
};

/// The function from_dlpack of a library, which its array namespace or its module has; none: invalid.
nb::object from_dlpack_of(const std::string& module, PyObject* tensor) {
  if (module.starts_with("jax")) return nb::module_::import_("jax.dlpack").attr("from_dlpack");
  const nb::handle given(tensor);
  nb::object space = has_attribute(given, "__array_namespace__")
                         ? nb::object(given.attr("__array_namespace__")())
                         : nb::object(nb::module_::import_(module.c_str()));
  return has_attribute(space, "from_dlpack") ? nb::object(space.attr("from_dlpack")) : nb::object();
}

}  // namespace

const Library& dlpack_library(PyObject* tensor) {
  static auto& libraries = *new std::map<std::string, Dlpack>;
  const nb::handle object(reinterpret_cast<PyObject*>(Py_TYPE(tensor)));
  const auto module = str_of(object.attr("__module__"));
  const std::string name = module.substr(0, module.find('.'));
  const auto found = libraries.find(name);
  if (found != libraries.end()) return found->second;
  return libraries.try_emplace(name, name, from_dlpack_of(name, tensor)).first->second;
}

TensorView view_of(const runtime::DlTensor& tensor, std::string_view op, std::string_view argument,
                   uint64_t flags) {
  try {
    return runtime::view_of(tensor, argument, runtime::Access::read, flags);
  } catch (const Error& error) {
    ErrorFields fields = error.fields();
    fields.op = op;
    throw Error(std::move(fields));
  }
}

LentTensor Library::lend(PyObject*, std::string_view, std::string_view, Key&) const {
  internal_error(fmt::format("{} lends no tensors", name()));
}

nb::object Library::shortened(const nb::object& tensor, const Dims& extents) const {
  nb::list slices;
  for (const int64_t extent : extents)
    slices.append(nb::slice(nb::int_(0), nb::int_(extent), nb::none()));
  return tensor[nb::tuple(slices)];
}

}  // namespace tessera::python
