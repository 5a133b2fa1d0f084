#pragma once
// Where the tests find the sources and what was built. Only places.cpp knows the absolute folders,
// so that the objects of all other tests are the same in every checkout (ccache).

#include <string>
#include <string_view>

namespace tessera::test {

/// A path below the source folder.
///
/// Example: read_file(in_source("README.md"))
std::string in_source(std::string_view path);

/// A path below the build folder.
///
/// Example: run_program({in_build("tools/tessera"), "doctor"}, {})
std::string in_build(std::string_view path);

}  // namespace tessera::test
