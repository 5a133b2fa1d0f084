#pragma once
// "OP, family or all" on the command line.

#include <string>
#include <vector>

#include "kernels/op.h"

namespace tessera::tools {

/// The op of that name, else all ops of the family of that name, else all for "all" (and for no
/// word), in order. Throws Error (argument) naming the nearest word.
std::vector<const kernels::OpInfo*> choose_ops(const std::vector<kernels::OpInfo>& ops,
                                               const std::string& word);

}  // namespace tessera::tools
