#pragma once
// An op is its signature and its kernels. Checks, outputs, binding, listing, cases and the table of
// ops follow from these two.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "kernels/op_arguments.h"
#include "kernels/signature/signature.h"

namespace tessera::kernels {

class Call;
class Case;
class Launches;

/// A value of a call that its signature calls as "name()".
struct CallFunction {
  std::string_view name;
  int64_t (*value)(const Call& call);
};

/// The actual extent after the kernels have run; waits for the stream.
struct TrimFunction {
  std::string_view name;
  int64_t (*value)(const Call& call, Stream stream);
};

/// The default of an optional last extent that a case lacks.
inline constexpr int64_t kNoExtent = -1;

/// A word of cases that the signature does not have, or a default for an extent of a case.
struct CaseWord {
  std::string_view name;
  int64_t (*standard)(const Case& c);  // null: the case must give it
};

/// Fixed integers of an input in cases: element `i` in row-major order. Other inputs are random.
struct InputValues {
  std::string_view tensor;
  int64_t (*value)(const Case& c, int64_t i);
};

/// Trivially destructible: ops are used until the process ends.
struct Op {
  std::string_view name, family, purpose;
  /// See signature.h.
  std::string_view signature;
  /// Adds the kernels of a call, in order. Not called if every output is empty.
  void (*launches)(const Call& call, Launches& go);
  /// Checks beyond the notation; throws by Call::need.
  void (*check)(const Call& call) = nullptr;
  /// Checks values of CPU tensors beyond the ranges of the signature.
  void (*check_values)(const Call& call) = nullptr;
  std::initializer_list<CallFunction> functions = {};
  std::initializer_list<TrimFunction> trims = {};
  /// Cases as a user types them (case.h), one per line or between semicolons: those of tests and
  /// warm-up, and those of the benchmark.
  std::string_view examples = {}, bench = {};
  std::initializer_list<CaseWord> case_words = {};
  std::initializer_list<InputValues> values = {};
  /// Minimum traffic of a case in bytes; absent: all inputs and outputs once.
  int64_t (*bytes)(const Case& c) = nullptr;
};

}  // namespace tessera::kernels
