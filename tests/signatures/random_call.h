#pragma once
// Random calls of the ops, as a user could write them on the command line: half of them close to an
// example, the rest with parameters, tensors, strides and values that no op takes.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "tools/lib/safetensors.h"

namespace tessera::test {

/// Repeatable choices.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t next() { return engine_(); }
  /// 0 to bound - 1.
  uint64_t below(uint64_t bound) { return engine_() % bound; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomCall {
  const kernels::OpInfo* op = nullptr;
  std::vector<std::string> params;  // "name=value"
  tools::Safetensors file;
};

/// A call of `op`. Its tensors take less than a megabyte each.
RandomCall random_call(const kernels::OpInfo& op, Random& random);

/// Damages the bytes of a safetensors file.
std::string damaged(std::string bytes, Random& random);

/// The call for a person: op, parameters, tensors with dtypes, shapes and strides.
std::string to_string(const RandomCall& call);

}  // namespace tessera::test
