#pragma once
// Reads the op tables of the interface contract (a markdown file), for comparison with `tessera
// list --json`.

#include <string>
#include <vector>

namespace tessera::tests {

/// The contract's row of an op in the form of `tessera list --json`, without "purpose"; empty if
/// there is no such row. Scale tensors (layout "SF(...) ...") carry no dtypes and no shape: their
/// rows do not state them.
std::string spec_row(const std::string& markdown, const std::string& op);

/// Names of all ops, in order.
std::vector<std::string> spec_ops(const std::string& markdown);

}  // namespace tessera::tests
