// torch tensors. Read through the exchange interface of their type, or by their attributes where torch
// is older than that; allocated by torch.empty, whose memory torch knows as its own.

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "kernels/jit/repeatable_call.h"
#include "runtime/driver/device.h"
#include "tools/python/core/dtype_names.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/library.h"
#include "tools/python/core/torch_state.h"

namespace tessera::python {
namespace {

nb::object torch(const char* name) {
  return nb::module_::import_("torch").attr(name);
}

/// A function of the package's Python code, which has the words of warnings and errors.
nb::object autograd(const char* name) {
  return nb::module_::import_("tessera._autograd").attr(name);
}

nb::tuple tuple_of(const Dims& dims) {
  nb::list list;
  for (const int64_t value : dims) list.append(value);
  return nb::tuple(list);
}

/// One size of tensor, the arguments of torch's functions made ready. Tensors of the current device
/// come from the allocator's entry that compiled graphs use, a third of the time of torch.empty; their
/// memory is torch's own just the same.
class TorchAllocation final : public Allocation {
 public:
  TorchAllocation(const kernels::OutputInfo& output, Device device, nb::object torch_device)
      : make_(torch(output.starts_at_zero ? "zeros" : "empty")),
        dtype_(torch(library_name(output.dtype))),
        device_(std::move(torch_device)),
        names_(nb::make_tuple("dtype", "device")),
        ordinal_(device.ordinal),
        is_dense_(output.storage_elements == num_elements(output.shape) &&
                  output.strides == row_major_strides(output.shape)),
        size_(is_dense_ ? tuple_of(output.shape) : nb::make_tuple(output.storage_elements)),
        shape_(tuple_of(output.shape)),
        strides_(tuple_of(output.strides)),
        here_(nb::make_tuple(shape_, strides_, dtype_)) {
    if (!device.is_cuda() || !is_dense_ || output.starts_at_zero) return;
    const nb::object compiled = nb::module_::import_("torch._C").attr("_dynamo").attr("guards");
    if (has_attribute(compiled, "_empty_strided_cuda"))
      make_here_ = compiled.attr("_empty_strided_cuda");
  }

  nb::object make() const override {
    if (make_here_.is_valid() && runtime::is_current(ordinal_)) {
      return owned(PyObject_Call(make_here_.ptr(), here_.ptr(), nullptr));
    }
    PyObject* const arguments[] = {size_.ptr(), dtype_.ptr(), device_.ptr()};
    nb::object made = owned(PyObject_Vectorcall(make_.ptr(), arguments, 1, names_.ptr()));
    return is_dense_ ? made : made.attr("as_strided")(shape_, strides_);
  }

 private:
  nb::object make_, make_here_, dtype_, device_, names_;
  int ordinal_;
  bool is_dense_;
  nb::object size_, shape_, strides_, here_;
};

class Torch final : public Library {
 public:
  Torch() {
    const nb::object tensor = torch("Tensor");
    if (!has_attribute(tensor, "__dlpack_c_exchange_api__")) return;
    const nb::object capsule = tensor.attr("__dlpack_c_exchange_api__");
    const auto* exchange =
        static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (exchange == nullptr) throw nb::python_error();
    while (exchange != nullptr && exchange->version.major != kDlMajor) exchange = exchange->older;
    if (exchange != nullptr && exchange->tensor_from_object != nullptr) exchange_ = exchange;
  }

  std::string_view name() const override { return "torch"; }

  TensorView borrow(PyObject* tensor, std::string_view op, std::string_view argument,
                    const kernels::Stream*, Loans&) const override {
    if (exchange_ == nullptr) return by_attributes(tensor, op, argument);
    runtime::DlTensor borrowed;
    if (exchange_->tensor_from_object(tensor, &borrowed) != 0)
      raise_unreadable(tensor, op, argument);
    const TensorView view = view_of(borrowed, op, argument);
    // Complex numbers alone have tensors that say "minus what is in memory".
    if (view.dtype == DType::f32 || view.dtype == DType::f16) refuse_negative(tensor, op, argument);
    return view;
  }

  bool lends() const override { return exchange_ != nullptr; }

  LentTensor lend(PyObject* tensor, std::string_view op, std::string_view argument,
                  Key& key) const override {
    runtime::DlTensor lent;
    if (exchange_->tensor_from_object(tensor, &lent) != 0) raise_unreadable(tensor, op, argument);
    if (lent.type_code == kDlFloat) refuse_negative(tensor, op, argument);
    LentTensor result;
    if (lent.data != nullptr) result.data = static_cast<char*>(lent.data) + lent.byte_offset;
    if (lent.device_type == kDlCuda) result.device = Device::cuda(lent.device_id);
    const auto word = [](auto value, int shift) {
      return static_cast<uint64_t>(static_cast<uint32_t>(value)) << shift;
    };
    key.push_back(word(lent.type_code, 0) | word(lent.type_bits, 8) | word(lent.type_lanes, 16) |
                  word(lent.ndim, 32));
    key.push_back(word(lent.device_type, 0) | word(lent.device_id, 32));
    key.push_back(kernels::jit::alignment_of(result.data));
    for (int32_t i = 0; i < lent.ndim; ++i) {
      key.push_back(static_cast<uint64_t>(lent.shape[i]));
      key.push_back(static_cast<uint64_t>(lent.strides[i]));
    }
    return result;
  }

  std::unique_ptr<Allocation> prepare(const kernels::OutputInfo& output, Device device,
                                      PyObject* like) const override {
    return std::make_unique<TorchAllocation>(output, device, nb::handle(like).attr("device"));
  }

  std::optional<MemoryAround> memory_around(const nb::handle& tensor) const override {
    const auto size = nb::cast<int64_t>(tensor.attr("untyped_storage")().attr("nbytes")());
    const int64_t before = nb::cast<int64_t>(tensor.attr("storage_offset")()) *
                           nb::cast<int64_t>(tensor.attr("element_size")());
    return MemoryAround{before, size - before};
  }

  bool records(PyObject* tensor) const override {
    return state_.is_grad_enabled() && state_.requires_grad(tensor);
  }

  void warn_of_gradient(const std::string& op, const std::string& argument) const override {
    autograd("warn")(op, argument);
  }

  void will_write(PyObject* tensor, const std::string& op,
                  const std::string& argument) const override {
    if (records(tensor)) autograd("refuse_write")(op, argument, nb::handle(tensor));
    state_.bump_version(tensor);
  }

  bool may_have_tangents() const override { return state_.in_dual_level(); }

  void refuse_tangent(PyObject* tensor, const std::string& op) const override {
    autograd("refuse_tangents")(op, nb::make_tuple(nb::handle(tensor)));
  }

  bool is_intercepted() const override { return state_.any_mode(); }

  kernels::Stream current_stream(Device device) const override {
    if (!device.is_cuda()) return nullptr;
    if (exchange_ != nullptr) {
      void* stream = nullptr;
      if (exchange_->current_stream(kDlCuda, device.ordinal, &stream) != 0)
        throw nb::python_error();
      return stream;
    }
    const nb::object raw =
        nb::module_::import_("torch._C").attr("_cuda_getCurrentRawStream")(device.ordinal);
    return PyLong_AsVoidPtr(raw.ptr());
  }

 private:
  void refuse_negative(PyObject* tensor, std::string_view op, std::string_view argument) const {
    if (!state_.is_negative(tensor)) return;
    refuse(op, argument, "TYPE", fmt::format("argument '{}' has its negative bit set", argument),
           "a tensor that is what its memory says: resolve_neg()", "a negative view");
  }

  /// Tensors that torch could not lend: sparse, quantised, conjugate tensors and others without plain memory.
  [[noreturn]] static void raise_unreadable(PyObject* tensor, std::string_view op,
                                            std::string_view argument) {
    const nb::python_error reason;
    const nb::handle given(tensor);
    const nb::object is_wrapped =
        nb::module_::import_("torch._C").attr("_functorch").attr("is_functorch_wrapped_tensor");
    if (nb::cast<bool>(is_wrapped(given)) || nb::cast<bool>(given.attr("is_meta"))) {
      throw Redirected();
    }
    const std::string why = str_of(reason.value());
    refuse(op, argument, "TYPE",
           fmt::format("argument '{}' is a tensor without plain memory", argument),
           "a dense tensor that is neither a conjugate nor a negative of another",
           str_of(given.attr("layout")) + ": " + why.substr(0, why.find('\n')));
  }

  static TensorView by_attributes(PyObject* tensor, std::string_view op,
                                  std::string_view argument) {
    const nb::handle given(tensor);
    TensorView view;
    const auto dtype = str_of(given.attr("dtype"));
    constexpr std::string_view kModule = "torch.";
    const std::optional<DType> known =
        dtype.starts_with(kModule) ? dtype_named(std::string_view(dtype).substr(kModule.size()))
                                   : std::nullopt;
    if (!known) {
      refuse(op, argument, "DTYPE",
             fmt::format("argument '{}' has an element type that is not known", argument),
             "an integer, f16, f32, bf16, bool, e4m3 or e5m2", dtype);
    }
    view.dtype = *known;
    const nb::object device = given.attr("device");
    const auto kind = nb::cast<std::string>(device.attr("type"));
    if (kind == "cuda") {
      view.device = Device::cuda(nb::cast<int>(device.attr("index")));
    } else if (kind != "cpu") {
      refuse(op, argument, "DEVICE",
             fmt::format("argument '{}' is on a device of another kind", argument), "cpu or cuda",
             kind);
    }
    const nb::object shape = given.attr("shape"), strides = given.attr("stride")();
    for (size_t i = 0; i < nb::len(shape); ++i) {
      view.shape.push_back(nb::cast<int64_t>(shape[i]));
      view.strides.push_back(nb::cast<int64_t>(strides[i]));
    }
    view.data = PyLong_AsVoidPtr(nb::object(given.attr("data_ptr")()).ptr());
    return view;
  }

  const DlExchange* exchange_ = nullptr;
  const TorchState state_;
};

}  // namespace

const Library& torch_library() {
  static const Library& torch = *new Torch;
  return torch;
}

}  // namespace tessera::python
