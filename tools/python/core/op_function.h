#pragma once
// An op as a function of Python: its arguments read into a call, its results allocated by the library
// that the tensors are of. A call like an earlier one is found by words that tell calls apart and
// launched again; any other is checked and made in full.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/op_call.h"
#include "kernels/signature/call.h"
#include "kernels/signature/table.h"
#include "tools/python/core/arguments.h"
#include "tools/python/core/library.h"
#include "tools/python/core/options.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// Takes, as a vectorcall: the tensors that are always there, by position or by name; by name alone
/// optional inputs and in-place tensors; accumulators; parameters, each in the order of the table;
/// `out`; `stream`. None stands for what was not given.
class OpFunction {
 public:
  explicit OpFunction(const kernels::ParsedOp& op);

  /// Errors: those of the op; argument for what is no tensor, tensors of several libraries or devices,
  ///         values of another type, unknown names; Python's own.
  nb::object operator()(PyObject* const* arguments, Py_ssize_t num_positional, PyObject* names) {
    return call(arguments, num_positional, names, Stage::all);
  }

  /// How far a call goes, for measuring what its parts cost: `all` alone is a call.
  enum class Stage : uint8_t { read, borrowed, known, allocated, launched, all };
  nb::object call(PyObject* const* arguments, Py_ssize_t num_positional, PyObject* names,
                  Stage last);
  /// Whether calls of this thread on GPU tensors wait and throw what kernels report of values. Returns
  /// what was set before.
  static bool check_values(bool on);
  /// The class of results of several fields, a tuple; without one they are plain tuples.
  void set_result_type(nb::object type) { result_type_ = std::move(type); }

 private:
  struct Call;
  struct Made;
  struct Entry;
  struct Named;

  nb::object run_stages(Call& call, PyObject* const* arguments, Py_ssize_t num_positional,
                        PyObject* names, Stage last);
  const kernels::TensorRule& rule(size_t slot) const { return op_->signature.tensors[slot]; }
  bool is_argument(size_t slot) const;
  // In the order of a call.
  void add_inputs(Call& call) const;
  void read_given_outputs(Call& call, PyObject* out) const;
  void give(Call& call, size_t slot, PyObject* tensor) const;
  void add_given_outputs(Call& call) const;
  void find_entry(Call& call);
  std::shared_ptr<Entry> make_entry(Call& call) const;
  void place_outputs(Call& call) const;
  void check_given(const Call& call, Entry& entry) const;
  void check_room(const Call& call, const Made& made, PyObject* given) const;
  void announce_writes(const Call& call) const;
  void run(Call& call);
  bool launch_again(const Call& call) const;
  void run_in_full(Call& call) const;
  void warn_of_gradients(const Call& call);
  void raise_value_errors(const Call& call) const;
  void finish(Call& call) const;
  void trim(Call& call) const;
  nb::object result(Call& call) const;
  nb::object field(Call& call, size_t slot) const;

  const kernels::ParsedOp* op_;
  const kernels::OpInfo* table_;
  // Tensors by their place in the signature, the slot.
  std::vector<size_t> inputs_;     // in the order of the arguments
  std::vector<size_t> fields_;     // in the order of the results
  std::vector<size_t> written_;    // outputs, accumulators and in-place tensors
  std::vector<size_t> addresses_;  // in the order of kernels::call_in_full: lists last
  std::vector<nb::object> field_names_;
  std::optional<ArgumentNames> names_;
  bool has_warned_ = false;  // that it records no gradient
  bool may_wait_;            // for data, to learn how long outputs are
  nb::object result_type_;
  KnownOptions known_options_;
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_;
};

}  // namespace tessera::python
