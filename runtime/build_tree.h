#pragma once
// Where a program that runs from Tessera's own build tree finds what tools/setup.sh has installed.

#include <string>

namespace tessera::runtime {

/// The folder .deps of the sources if the running program lies in a build tree of Tessera, at most one folder below its
/// CMakeCache.txt. Empty in an installed program: no path of the build machine is kept in the library.
std::string dependencies_of_build_tree();

/// The same for a program at `path`.
std::string dependencies_of_build_tree(const std::string& path);

}  // namespace tessera::runtime
