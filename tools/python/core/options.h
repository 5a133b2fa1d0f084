#pragma once
// Options of a call as Python gives them, and other arguments that are no tensors.

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/op.h"
#include "kernels/op_call.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// The options of one call. Words and lists live as long as the arguments and the reader.
class OptionReader {
 public:
  /// Reads the arguments of all parameters, in the order of the table, unless that was done. A value
  /// keeps its Python type: the op's table says whether it takes it.
  ///
  /// Errors: argument (TYPE), naming the parameter, for a value that no parameter can have.
  void read(const kernels::OpInfo& op, PyObject* const* arguments);
  std::span<const kernels::CallOption> all() const { return {options_.data(), options_.size()}; }

 private:
  kernels::jit::OptionValue value_of(const kernels::OpInfo& op, const kernels::ParamInfo& param,
                                     PyObject* value);
  kernels::jit::OptionValue list_of(const kernels::OpInfo& op, const kernels::ParamInfo& param,
                                    PyObject* value);

  Inline<kernels::CallOption, 16> options_;
  std::array<int64_t, 64> numbers_;  // of lists
  size_t num_numbers_ = 0;
};

/// Adds to keys what options say, without reading them where the same objects were read before: most
/// calls give constants. Only objects that cannot change are remembered, the last 8 calls' or so.
class KnownOptions {
 public:
  /// `arguments` of all parameters, in the order of the table. Objects that may change are read by `reader`: once, so
  /// that the call runs with the values of its key. Errors: those of OptionReader::read.
  void add_to_key(const kernels::OpInfo& op, PyObject* const* arguments, OptionReader& reader,
                  Key& key);

 private:
  struct Known {
    std::vector<nb::object> objects;
    std::vector<uint64_t> words;
  };
  std::vector<Known> known_;
  size_t last_ = 0;  // found or made
};

/// The stream that `stream=` says: an address, or an object with `__cuda_stream__`, `cuda_stream` or
/// `ptr`. Errors: argument (TYPE).
kernels::Stream stream_of(PyObject* value, std::string_view op);

/// A list or tuple of what is a sequence, but no tensor. Errors: argument (TYPE).
nb::object sequence_of(PyObject* value, std::string_view op, std::string_view argument);

/// True if a call of an op whose data decide how long its outputs are waits to learn it.
bool waits_for_data(const kernels::Params& params);

/// Throws the argument error of the first key of `unknown`, a dict of arguments that `op` does not have.
[[noreturn]] void refuse_unknown_name(const kernels::OpInfo& op, PyObject* unknown);
/// The same of a name of `out`.
[[noreturn]] void refuse_unknown_output(const kernels::OpInfo& op, const nb::object& name);

}  // namespace tessera::python
