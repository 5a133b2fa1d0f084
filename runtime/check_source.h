#pragma once
// What a kernel must be to be compiled, cached and recorded. Checked for hand-written CUDA and for
// recordings; generated kernels hold it by construction.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dsl/base/kernel_source.h"

namespace tessera::runtime {

/// Largest CUDA text, in bytes.
inline constexpr int64_t kMaxTextBytes = int64_t{16} << 20;
/// Largest number of bytes that a block may have of anything, far above any device's limits.
inline constexpr int64_t kMaxBytesPerBlock = int64_t{1} << 24;

struct SourceProblem {
  std::string what, expected, got;
};

/// What is wrong with the launch facts and options: names that are no identifiers, numbers out of
/// range, options whose effect depends on more than the text. Does not look at the text.
std::optional<SourceProblem> find_fact_problem(const KernelSource& source);

/// Throws an argument error for a fact problem, an empty text, and a hand-written text that reads
/// files (#include, __has_include): the text is all that its cache key knows.
void check_source(const KernelSource& source);

/// Where a CUDA text reads a file, or looks for one.
struct FileUse {
  int line = 0;  // from 1
  std::string words;
};
std::optional<FileUse> find_file_use(std::string_view text);

/// Whether nothing of the text is an author's.
bool is_generated(const KernelSource& source);

}  // namespace tessera::runtime
