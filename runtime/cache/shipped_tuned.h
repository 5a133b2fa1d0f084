#pragma once
// The JSON files of tile sizes that this build holds; tools/cmake/embed_tuned.cmake writes the definition.

#include <string_view>
#include <vector>

namespace tessera::runtime {

/// A file of kernels/tuned.
struct ShippedTuned {
  std::string_view name;  // as tuned_file_name() gives it
  std::string_view text;
};

std::vector<ShippedTuned> shipped_tuned_files();

}  // namespace tessera::runtime
