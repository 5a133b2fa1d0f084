#include "dsl/base/error.h"

#include "tests/support/catch.h"

using namespace tessera;

TEST_CASE("the hint of an error with a code and no other hint is the page of codes", "[dsl]") {
  const Error error({.kind = ErrorKind::program, .what = "no", .got = "1", .code = "ALIGN"});
  CHECK(error.hint() == "dsl/ERRORS.md, ALIGN");
  CHECK(std::string(error.what()) == "tessera: no [ALIGN]\n  got       1");
  ErrorFields fields = error.fields();  // as they are thrown again, with more said
  fields.op = "scale";
  const Error again(std::move(fields));
  CHECK(again.hint() == error.hint());
  CHECK(std::string(again.what()) == "tessera: scale: no [ALIGN]\n  got       1");
}

TEST_CASE("an error keeps its own hint", "[dsl]") {
  const Error own({.kind = ErrorKind::trap, .what = "no", .hint = "do so", .code = "OOB"});
  CHECK(own.hint() == "do so");
  CHECK(std::string(own.what()) == "tessera: no [OOB]\n  hint      do so");
  const Error argument({.kind = ErrorKind::argument, .what = "no", .code = "DTYPE"});
  CHECK(argument.hint() == "dsl/ERRORS.md, DTYPE");
  CHECK(std::string(argument.what()) == "tessera: no");
  CHECK(Error({.kind = ErrorKind::argument, .what = "no"}).code() == "VALUE");
  CHECK(Error({.kind = ErrorKind::driver, .what = "no"}).hint().empty());
}
