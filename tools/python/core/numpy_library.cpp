// numpy arrays, by their attributes: numpy refuses to export bf16 and 8-bit floats by DLPack.

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tools/python/core/dtype_names.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/library.h"

namespace tessera::python {
namespace {

DType dtype_of(nb::handle array, std::string_view op, std::string_view argument) {
  const nb::object dtype = array.attr("dtype");
  const nb::object name = dtype.attr("name");
  if (nb::cast<bool>(dtype.attr("isnative"))) {
    if (const std::optional<DType> known = dtype_named(text_of(name))) return *known;
  }
  refuse(op, argument, "DTYPE",
         fmt::format("argument '{}' has an element type that is not known", argument),
         "integers, float16, float32, float64, bool, and of ml_dtypes bfloat16, float8_e4m3fn, "
         "float8_e5m2; in "
         "native byte order",
         str_of(dtype));
}

/// Elements that an array masks do not count; the ops would compute with the memory behind the mask.
void refuse_masked(PyObject* array, std::string_view op, std::string_view argument) {
  const nb::object masked = nb::module_::import_("numpy.ma").attr("MaskedArray");
  const int is_masked = PyObject_IsInstance(array, masked.ptr());
  check(is_masked);
  if (is_masked == 0) return;
  refuse(op, argument, "TYPE", fmt::format("argument '{}' is a masked array", argument),
         "an array without a mask: x.filled(value), or x.data to ignore the mask",
         str_of(nb::handle(array).type()));
}

/// numpy's own, of ml_dtypes where it is none of numpy's.
nb::object dtype_object(DType dtype) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const bool is_numpys = dtype != DType::bf16 && dtype != DType::e4m3 && dtype != DType::e5m2;
  const nb::object type = (is_numpys ? numpy : nb::module_::import_("ml_dtypes"))
                              .attr(dtype == DType::boolean ? "bool_" : library_name(dtype));
  return numpy.attr("dtype")(type);
}

class ArrayAllocation final : public Allocation {
 public:
  explicit ArrayAllocation(const kernels::OutputInfo& output)
      : numpy_(nb::module_::import_("numpy")),
        dtype_(dtype_object(output.dtype)),
        shape_(tuple_of(output.shape, 1)),
        is_dense_(output.storage_elements == num_elements(output.shape) &&
                  output.strides == row_major_strides(output.shape)),
        strides_(tuple_of(output.strides, bytes(output.dtype))),
        storage_(nb::int_(output.storage_elements)),
        make_(numpy_.attr(output.starts_at_zero ? "zeros" : "empty")) {}

  nb::object make() const override {
    if (is_dense_) return make_(shape_, dtype_);
    return numpy_.attr("ndarray")(shape_, dtype_, make_(storage_, dtype_), 0, strides_);
  }

 private:
  static nb::tuple tuple_of(const Dims& dims, int64_t factor) {
    nb::list list;
    for (const int64_t value : dims) list.append(value * factor);
    return nb::tuple(list);
  }

  nb::module_ numpy_;
  nb::object dtype_, shape_;
  bool is_dense_;
  nb::object strides_, storage_, make_;
};

class Numpy final : public Library {
 public:
  std::string_view name() const override { return "numpy"; }

  TensorView borrow(PyObject* tensor, std::string_view op, std::string_view argument,
                    const kernels::Stream*, Loans&) const override {
    const nb::handle array(tensor);
    if (!array.type().is(ndarray_)) refuse_masked(tensor, op, argument);
    const DType dtype = dtype_of(array, op, argument);
    const nb::object interface = array.attr("__array_interface__");
    const nb::object shape = interface["shape"], strides = array.attr("strides");
    const nb::object data = interface["data"];
    const size_t rank = nb::len(shape);
    if (rank > kMaxRank) {
      refuse(op, argument, "SHAPE",
             fmt::format("argument '{}' has a rank that is not supported", argument),
             fmt::format("0 to {} dimensions", kMaxRank), fmt::format("{}", rank));
    }
    TensorView view;
    view.dtype = dtype;
    view.data = PyLong_AsVoidPtr(nb::object(data[0]).ptr());
    if (view.data == nullptr && PyErr_Occurred()) throw nb::python_error();
    view.read_only = nb::cast<bool>(data[1]);
    for (size_t i = 0; i < rank; ++i) {
      const auto extent = nb::cast<int64_t>(shape[i]), stride = nb::cast<int64_t>(strides[i]);
      if (stride < 0) {
        refuse(op, argument, "STRIDES",
               fmt::format("argument '{}' has a negative stride", argument), "0 or more",
               fmt::format("{} bytes in dimension {}", stride, i));
      }
      if (stride % bytes(dtype) != 0 && extent > 1) {
        refuse(op, argument, "STRIDES",
               fmt::format("argument '{}' has a stride between elements", argument),
               fmt::format("a multiple of {} bytes", bytes(dtype)),
               fmt::format("{} bytes in dimension {}", stride, i));
      }
      view.shape.push_back(extent);
      view.strides.push_back(stride / bytes(dtype));
    }
    return view;
  }

  std::unique_ptr<Allocation> prepare(const kernels::OutputInfo& output, Device,
                                      PyObject*) const override {
    return std::make_unique<ArrayAllocation>(output);
  }

  // The memory is that of the array at the end of the chain of bases.
  std::optional<MemoryAround> memory_around(const nb::handle& tensor) const override {
    nb::object owner = nb::borrow(tensor);
    while (has_attribute(owner, "base") && !owner.attr("base").is_none())
      owner = owner.attr("base");
    if (!has_attribute(owner, "__array_interface__")) return std::nullopt;
    const auto address = [](const nb::handle& array) {
      return nb::cast<int64_t>(array.attr("__array_interface__")["data"][0]);
    };
    const int64_t before = address(tensor) - address(owner);
    return MemoryAround{before, nb::cast<int64_t>(owner.attr("nbytes")) - before};
  }

  kernels::Stream current_stream(Device) const override { return nullptr; }

 private:
  const nb::object ndarray_ = nb::module_::import_("numpy").attr("ndarray");
};

}  // namespace

const Library& numpy_library() {
  static const Library& numpy = *new Numpy;
  return numpy;
}

}  // namespace tessera::python
