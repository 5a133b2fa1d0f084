#pragma once
// Runs programs with roles, given as text.

#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

namespace tessera::codegen::cpu {

/// Runs a block around the body, with traps unless told otherwise; "out" is a tensor of 128 i32.
inline std::vector<int32_t> run(int threads, const std::string& memory, const char* body,
                                bool traps = true, int64_t n = 1, uint32_t schedule = 0) {
  const Program program = test::read_body(threads, "param out: i32[128]\n" + memory, body);
  std::vector<int32_t> out(128, -1);
  const Argument arguments[] = {argument(n), argument(out, DType::i32)};
  Options options;
  options.traps = traps;
  options.schedule = schedule;
  Executable(program).run(arguments, options);
  return out;
}

inline Error trap_of(int threads, const std::string& memory, const char* body, int64_t n = 1,
                     uint32_t schedule = 0) {
  try {
    run(threads, memory, body, true, n, schedule);
  } catch (const Error& error) {
    return error;
  }
  FAIL("no trap");
  std::abort();
}

inline constexpr const char* kTile = "shared s: i32[64] at byte 0";

/// The line of the trap and of the other statement, as read_body counts them.
inline std::string lines(const Error& error) {
  return to_string(error.loc()) + " " + to_string(error.fields().related);
}
inline bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace tessera::codegen::cpu
