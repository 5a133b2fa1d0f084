#include "tests/support/places.h"

namespace tessera::test {

std::string in_source(std::string_view path) {
  return std::string(TESSERA_SOURCE_DIR "/").append(path);
}

std::string in_build(std::string_view path) {
  return std::string(TESSERA_BINARY_DIR "/").append(path);
}

}  // namespace tessera::test
