#include "runtime/raise.h"

#include <utility>

namespace tessera::runtime {

void raise(ErrorKind kind, std::string_view op, std::string what, ErrorDetails details) {
  ErrorFields fields;
  fields.kind = kind;
  fields.op = op;
  fields.what = std::move(what);
  fields.argument = std::move(details.argument);
  fields.expected = std::move(details.expected);
  fields.got = std::move(details.got);
  fields.hint = std::move(details.hint);
  fields.code = std::move(details.code);
  throw Error(std::move(fields));
}

}  // namespace tessera::runtime
