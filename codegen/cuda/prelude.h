#pragma once
// The device functions that generated kernels call, as named pieces of CUDA text. A kernel's text
// carries only the pieces it uses, so it compiles without any header and fast.
//
// A piece may have lines for some targets only. They stand between lines `$if FACT` or `$if not FACT`, `$else`
// and `$end`, where FACT is a member of TargetFacts, and are chosen when the text is printed: the text of a kernel
// is that of its target, with no condition left. `$threads` and `$blocks` are those of a multiprocessor.

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "dsl/base/target.h"

namespace tessera::codegen::cuda {

/// One named piece: a type, a constant or a function with its overloads.
struct Snippet {
  std::string_view name;
  std::string_view
      needs;  // names of other snippets, separated by spaces; they stand before this one
  std::string_view text;
};

/// The tables, in the order in which they are printed.
std::span<const Snippet> type_snippets();
std::span<const Snippet> memory_snippets();
std::span<const Snippet> cache_snippets();
std::span<const Snippet> narrowing_snippets();
std::span<const Snippet> widening_snippets();
std::span<const Snippet> arithmetic_snippets();
std::span<const Snippet> f64_snippets();
std::span<const Snippet> packed_snippets();
std::span<const Snippet> atomic_snippets();
std::span<const Snippet> mark_snippets();
std::span<const Snippet> cluster_snippets();
std::span<const Snippet> mbarrier_snippets();
std::span<const Snippet> tensor_snippets();
std::span<const Snippet> matrix_snippets();

/// The text for a target of `used` and of everything they need, each once, in table order: the same set gives
/// the same bytes. An unknown name is an internal error.
///
/// Example: device_functions({"bf16_to_f32"}, target) defines u32, bf16 and bf16_to_f32.
std::string device_functions(const std::set<std::string, std::less<>>& used, Target target);

/// True if `name` is the name of a snippet, which no variable of a kernel may then have.
bool is_device_name(std::string_view name);

}  // namespace tessera::codegen::cuda
