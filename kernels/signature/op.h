#pragma once
// An op is its signature and its kernels. Everything else of it follows from the two: checks,
// outputs, binding, listing, cases, the table of ops.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "kernels/signature/signature.h"

namespace tessera::kernels {

class Call;
class Case;
class Launches;
using Stream = void*;

/// A value of a call that its signature names as "name()".
struct CallFunction {
  std::string_view name;
  int64_t (*value)(const Call& call);
};

/// What an extent has come to be once the kernels have run; waits for the stream.
struct TrimFunction {
  std::string_view name;
  int64_t (*value)(const Call& call, Stream stream);
};

/// A word of cases that is no name of the signature, or an extent that a case may leave out.
struct CaseWord {
  std::string_view name;
  int64_t (*standard)(const Case& c);  // null: the case gives it
};

/// Integers of an input that a case does not leave to chance: element `i` in row-major order.
struct InputValues {
  std::string_view tensor;
  int64_t (*value)(const Case& c, int64_t i);
};

/// Trivially destructible: ops are used until the process ends.
struct Op {
  std::string_view name, family, purpose;
  /// See signature.h.
  std::string_view signature;
  /// The kernels of a call, in order. Not asked where every output is empty.
  void (*launches)(const Call& call, Launches& go);
  /// What the notation cannot say; throws by Call::need.
  void (*check)(const Call& call) = nullptr;
  /// What is to be looked at in the values of CPU tensors, beyond the ranges of the signature.
  void (*check_values)(const Call& call) = nullptr;
  std::initializer_list<CallFunction> functions = {};
  std::initializer_list<TrimFunction> trims = {};
  /// Cases in the words that a user types (case.h), one per line or between semicolons: those that
  /// stand for the op in tests and warm-up, and those of the benchmark.
  std::string_view examples = {}, bench = {};
  std::initializer_list<CaseWord> case_words = {};
  std::initializer_list<InputValues> values = {};
  /// The least bytes of a case that are moved; absent: all inputs and outputs once.
  int64_t (*bytes)(const Case& c) = nullptr;
};

}  // namespace tessera::kernels
