#pragma once
// An op as a function of Python: its arguments read into a call, its results allocated by the library
// that the tensors are of.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/op.h"
#include "kernels/op_call.h"
#include "tools/python/core/library.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// Takes all arguments by position, in this order: the tensors that are always there; optional inputs
/// and in-place tensors; accumulators; parameters, each in the order of the table; `out`; `stream`; a
/// dict of names that are unknown, or None. An argument that was not given is `...`, or None.
class OpFunction {
 public:
  /// The function as an object of Python, made once.
  static nb::object of(const kernels::OpInfo& op);

  explicit OpFunction(const kernels::OpInfo& op);
  /// Errors: those of the op; argument for what is no tensor, tensors of several libraries or devices,
  ///         values of another type, unknown names; Python's own.
  nb::object operator()(PyObject* const* arguments, size_t count);

  const kernels::OpInfo& op() const { return *op_; }
  /// Tensors in the order of the arguments, and the fields of the result.
  const std::vector<const kernels::TensorInfo*>& arguments() const { return inputs_; }
  const std::vector<const kernels::TensorInfo*>& fields() const { return fields_; }
  /// The class of results of several fields.
  void set_result_type(nb::object type) { result_type_ = std::move(type); }

 private:
  struct Call;
  struct Made;
  struct Entry;

  bool is_for_torch(PyObject* const* arguments) const;
  void borrow_inputs(Call& call, PyObject* const* arguments) const;
  void read_options(Call& call, PyObject* const* arguments) const;
  void read_given_outputs(Call& call, PyObject* out, PyObject* const* arguments) const;
  std::shared_ptr<const Entry> entry_of(Call& call);
  void place_outputs(Call& call) const;
  void run(Call& call) const;
  void trim(Call& call) const;
  nb::object result(Call& call) const;

  const kernels::OpInfo* op_;
  std::vector<const kernels::TensorInfo*> inputs_;
  std::vector<const kernels::TensorInfo*> fields_;
  std::vector<size_t> argument_of_field_;  // of accumulators; else kNone
  nb::object result_type_;
  std::unordered_map<uint64_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace tessera::python
