#include "runtime/raise.h"

#include <utility>

namespace tessera::runtime {

void raise(ErrorKind kind, std::string_view op, std::string what, ErrorDetails details) {
  throw Error({.kind = kind,
               .op = std::string(op),
               .what = std::move(what),
               .argument = std::move(details.argument),
               .expected = std::move(details.expected),
               .got = std::move(details.got),
               .hint = std::move(details.hint),
               .code = std::move(details.code)});
}

}  // namespace tessera::runtime
