#pragma once
// "OP, family or all" and --case on the command line.

#include <string>
#include <vector>

#include "kernels/op.h"

namespace tessera::tools {

/// The op of that name, else all ops of the family of that name, else all for "all" (and for no
/// word), in order. Throws Error (argument) naming the nearest word.
std::vector<const kernels::OpInfo*> choose_ops(const std::vector<kernels::OpInfo>& ops,
                                               const std::string& word);

struct ChosenCase {
  const kernels::OpInfo* op;
  kernels::BenchCase one;
};
/// Those of the ops' examples (or benchmark) whose label has the text in it, in order. Throws Error
/// (argument) if the text is in none.
///
/// Example: choose_cases(chosen, &kernels::OpInfo::bench, "bf16")
std::vector<ChosenCase> choose_cases(const std::vector<const kernels::OpInfo*>& ops,
                                     std::vector<kernels::BenchCase> kernels::OpInfo::*list,
                                     const std::string& text);

/// The cases of these texts, in the words of the op's own.
///
/// Errors:  argument, unless it is one op, and if a text is no case of it.
/// Example: cases_of(choose_ops(program_ops(), "post_fwd"), {"T=100 n=4 H=7168"})
std::vector<ChosenCase> cases_of(const std::vector<const kernels::OpInfo*>& ops,
                                 const std::vector<std::string>& texts);

}  // namespace tessera::tools
