#include "kernels/signature/param_grammar.h"

#include <limits>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "tests/support/catch.h"

namespace tessera::tools {
namespace {

using kernels::OpInfo;
using kernels::ParamInfo;
using kernels::Params;
using kernels::ParamValue;
using Type = ParamInfo::Type;

OpInfo op() {
  OpInfo info;
  info.name = "fake";
  info.params = {{"count", Type::integer, ParamValue(int64_t{1}), {}, std::nullopt, ""},
                 {"eps", Type::floating, ParamValue(1.0), {}, std::nullopt, ""},
                 {"flag", Type::boolean, ParamValue(false), {}, std::nullopt, ""},
                 {"word", Type::word, ParamValue(std::string("a")), {"a", "b"}, std::nullopt, ""},
                 {"block", Type::tuple, ParamValue(), {}, std::nullopt, ""}};
  return info;
}

ParamValue value(const std::string& assignment) {
  const std::vector<std::string> one = {assignment};
  return kernels::parse_params(op(), one).at(assignment.substr(0, assignment.find('=')));
}

std::string message(const std::vector<std::string>& assignments) {
  try {
    kernels::parse_params(op(), assignments);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_CASE("values are read by the type of their parameter", "[grammar]") {
  CHECK(value("count=128") == ParamValue(int64_t{128}));
  CHECK(value("count=-1") == ParamValue(int64_t{-1}));
  CHECK(value("eps=1e-6") == ParamValue(1e-6));
  CHECK(value("eps=128") == ParamValue(128.0));
  CHECK(value("eps=inf") == ParamValue(std::numeric_limits<double>::infinity()));
  CHECK(value("eps=-inf") == ParamValue(-std::numeric_limits<double>::infinity()));
  CHECK(value("flag=true") == ParamValue(true));
  CHECK(value("flag=false") == ParamValue(false));
  CHECK(value("word=b") == ParamValue(std::string("b")));
  CHECK(value("block=128,128") == ParamValue(std::vector<int64_t>{128, 128}));
  CHECK(value("block=[128, 32]") == ParamValue(std::vector<int64_t>{128, 32}));
  CHECK(value("block=none") == ParamValue());
  CHECK(value("count=none") == ParamValue(int64_t{1}));
}

TEST_CASE("texts outside the grammar are refused", "[grammar]") {
  for (const char* text : {"count=",     "count=1.5",  "count=1e3",
                           "count= 1",   "count=0x10", "count=9223372036854775808",
                           "count=128x", "count=true", "eps=",
                           "eps=nan",    "eps=1e",     "eps=1,5",
                           "flag=1",     "flag=True",  "flag=",
                           "word=",      "block=",     "block=1,",
                           "block=,1",   "block=[1,2", "block=1,2]",
                           "block=a"}) {
    CAPTURE(text);
    CHECK(message({text}).find("cannot be read") != std::string::npos);
  }
  CHECK(message({"count=1e3"}) ==
        "tessera: fake: parameter 'count' cannot be read\n"
        "  expected  an int, such as 128\n"
        "  got       '1e3'");
  CHECK(message({"block=[1"}) ==
        "tessera: fake: parameter 'block' cannot be read\n"
        "  expected  a tuple, such as 128,128\n"
        "  got       '[1'");
}

TEST_CASE("assignments are name=value, each name once", "[grammar]") {
  CHECK(message({"count"}) ==
        "tessera: fake: parameter 'count' has no value\n"
        "  expected  name=value\n"
        "  got       count");
  CHECK(message({"=3"}) ==
        "tessera: fake: parameter '=3' has no value\n"
        "  expected  name=value\n"
        "  got       =3");
  CHECK(message({"count=1", "count=2"}) ==
        "tessera: fake: parameter 'count' is given twice\n"
        "  expected  each parameter once\n"
        "  got       count=2");
  CHECK(message({"cuont=1"}) ==
        "tessera: fake: unknown parameter 'cuont'\n"
        "  expected  count, eps, flag, word, block\n"
        "  got       cuont=1\n"
        "  hint      did you mean 'count'?");
  CHECK(message({"word=c"}) ==
        "tessera: fake: parameter 'word' has a wrong value\n"
        "  expected  {a, b}\n"
        "  got       c");
}

}  // namespace
}  // namespace tessera::tools
