#pragma once
// Checks what a kernel must satisfy to be compiled, cached and recorded. Hand-written CUDA and
// recordings are checked; generated kernels satisfy it by construction.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dsl/base/kernel_source.h"

namespace tessera::runtime {

/// Largest CUDA text, in bytes.
inline constexpr int64_t kMaxTextBytes = int64_t{16} << 20;
/// Upper bound on any per-block byte count, far above the limits of every device.
inline constexpr int64_t kMaxBytesPerBlock = int64_t{1} << 24;

struct SourceProblem {
  std::string what, expected, got;
};

/// Describes the first problem of the launch facts and options: names that are no identifiers,
/// numbers out of range, options that depend on more than the text. Does not read the text.
std::optional<SourceProblem> find_fact_problem(const KernelSource& source);

/// Throws an argument error for a fact problem, an empty text, and a hand-written text that reads
/// files (#include, __has_include): the cache key covers the text alone.
void check_source(const KernelSource& source);

/// A place where a CUDA text reads a file or looks for one.
struct FileUse {
  int line = 0;  // from 1
  std::string words;
};
std::optional<FileUse> find_file_use(std::string_view text);

/// True if no part of the text was written by a kernel author.
bool is_generated(const KernelSource& source);

}  // namespace tessera::runtime
