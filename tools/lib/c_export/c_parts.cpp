#include "tools/lib/c_export/c_parts.h"

#include <fmt/format.h>

#include <cctype>

namespace tessera::tools {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) {
      return true;
    }
  }
  return false;
}

}  // namespace

const std::string_view kCTypes = R"text(#ifndef TESSERA_C_TYPES
#define TESSERA_C_TYPES

/* A tensor in memory of a CUDA device. */
typedef struct tessera_tensor {
  void *data; /* the first element; a CUdeviceptr as a pointer */
  int rank;
  int64_t shape[8];
  int64_t strides[8]; /* in elements; all 0: row-major */
} tessera_tensor;

enum { TESSERA_OK = 0, TESSERA_ARGUMENT = 1, TESSERA_UNSUPPORTED = 2, TESSERA_DRIVER = 3 };

typedef struct tessera_error {
  int code;       /* one of those above */
  char text[768]; /* op, argument, expected, got */
} tessera_error;

#endif
)text";

std::string c_parts_for(std::string_view body, std::string_view facts) {
  std::string parts;
  for (const auto& of_kind : {c_driver_parts(), c_check_parts()}) {
    for (size_t i = of_kind.size(); i-- > 0;) {
      const CPart& part = of_kind[i];
      if (!has_word(body, part.name) && !has_word(parts, part.name)) continue;
      const std::string_view after = part.name == "ts_fact" ? facts : "";
      parts = fmt::format("{}{}{}", part.text, after, parts);
    }
  }
  return parts;
}

}  // namespace tessera::tools
