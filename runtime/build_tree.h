#pragma once
// Finds the packages of tools/setup.sh for a program that runs from Tessera's own build tree.

#include <string>

namespace tessera::runtime {

/// Returns the folder .deps of the sources if the running program lies in a build tree of Tessera, at most one folder
/// below its CMakeCache.txt. Returns "" in an installed program: the library keeps no path of the build machine.
std::string dependencies_of_build_tree();

/// Does the same for a program at `path`.
std::string dependencies_of_build_tree(const std::string& path);

}  // namespace tessera::runtime
