#pragma once
// An op as a function of Python: its arguments read into a call, its results allocated by the library
// that the tensors are of.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/op_call.h"
#include "kernels/signature/call.h"
#include "kernels/signature/table.h"
#include "tools/python/core/library.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// Takes all arguments by position, in this order: the tensors that are always there; optional inputs
/// and in-place tensors; accumulators; parameters, each in the order of the table; `out`; `stream`; a
/// dict of names that are unknown, or None. An argument that was not given is `...`, or None.
class OpFunction {
 public:
  explicit OpFunction(const kernels::ParsedOp& op);

  /// Errors: those of the op; argument for what is no tensor, tensors of several libraries or devices,
  ///         values of another type, unknown names; Python's own.
  nb::object operator()(PyObject* const* arguments, size_t count) {
    return call(arguments, count, Stage::all);
  }

  /// How far a call goes, for measuring what its parts cost: `all` alone is a call.
  enum class Stage : uint8_t { read, borrowed, known, allocated, launched, all };
  nb::object call(PyObject* const* arguments, size_t count, Stage last);
  /// Whether calls of this thread on GPU tensors wait and throw what kernels report of values. Returns
  /// what was set before.
  static bool check_values(bool on);
  /// The class of results of several fields, a tuple; without one they are plain tuples.
  void set_result_type(nb::object type) { result_type_ = std::move(type); }

 private:
  struct Call;
  struct Made;
  struct Entry;

  const kernels::TensorRule& rule(size_t slot) const { return op_->signature.tensors[slot]; }
  bool is_argument(size_t slot) const;
  void borrow_inputs(Call& call, PyObject* const* arguments) const;
  void read_given_outputs(Call& call, PyObject* out, PyObject* const* arguments) const;
  void give(Call& call, size_t field, PyObject* tensor) const;
  std::shared_ptr<const Entry> entry_of(Call& call);
  std::shared_ptr<const Entry> make_entry(const Call& call) const;
  void place_outputs(Call& call) const;
  void place(Call& call, size_t number) const;
  void check_room(const Library& library, const nb::object& given, const TensorView& view,
                  const kernels::OutputInfo& output) const;
  void run(Call& call) const;
  void raise_value_errors(const Call& call) const;
  void finish(Call& call) const;
  void trim(Call& call) const;
  nb::object result(Call& call) const;
  nb::object field(Call& call, size_t slot) const;

  const kernels::ParsedOp* op_;
  const kernels::OpInfo* table_;
  // Tensors by their place in the signature, the slot.
  std::vector<size_t> inputs_;  // in the order of the arguments
  std::vector<size_t> fields_;  // in the order of the results
  bool may_wait_;               // for data, to learn how long outputs are
  nb::object result_type_;
  std::unordered_map<uint64_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace tessera::python
