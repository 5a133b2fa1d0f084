#pragma once
// Calls with values that break what ops.md 1.4 lets callers promise, and what they are told. Their
// results are the same on every device: exponentials of 0 alone.

#include <string>
#include <vector>

#include "kernels/call_types.h"
#include "tests/reference/ops.h"

namespace tessera::test {

struct PromiseCase {
  std::string label;
  std::string op;
  HostTensors inputs;
  kernels::Params params;
  std::string refusal;      // of a CPU call, whole; empty: the promise is kept
  bool is_reported = true;  // by the kernels, too; by its first line
  std::string part = {};    // of a composition: the op whose kernel reports it

  /// The report of the kernels, without the name of the library.
  std::vector<std::string> reports() const;
};

std::vector<PromiseCase> promise_cases();

/// Those of the serving family, which promise_cases has too.
std::vector<PromiseCase> serving_promise_cases();
/// Those of the cache of rows on the host, which promise_cases has too.
std::vector<PromiseCase> hisparse_promise_cases();
/// Those of the gemm family, which promise_cases has too.
std::vector<PromiseCase> gemm_promise_cases();

}  // namespace tessera::test
