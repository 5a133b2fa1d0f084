#include <functional>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

OpInfo cast_op() {
  OpInfo op;
  op.name = "per_token_cast";
  ParamInfo block = tuple("x_block_size", ParamValue());
  block.min = 1;
  op.params = {word("format", {"e4m3", "e2m1"}),
               integer("num_per_channels", {"16", "32", "H"}),
               block,
               flag("round_sf", false),
               count("num_topk", "1..E", 8),
               number("eps", 1e-6),
               word("target", {"none", "e4m3"}, ParamValue())};
  return op;
}

Params required() {
  return {{"format", ParamValue(std::string("e4m3"))},
          {"num_per_channels", ParamValue(int64_t{32})}};
}

Params with(const std::string& name, ParamValue value) {
  Params params = required();
  params[name] = std::move(value);
  return params;
}

TEST_CASE("defaults are filled in", "[op]") {
  const Params params = check_params(cast_op(), required());
  CHECK(params.size() == 7);
  CHECK(std::get<std::string>(params.at("format")) == "e4m3");
  CHECK(std::holds_alternative<std::monostate>(params.at("x_block_size")));
  CHECK(std::get<bool>(params.at("round_sf")) == false);
  CHECK(std::get<int64_t>(params.at("num_topk")) == 8);
  CHECK(std::get<double>(params.at("eps")) == 1e-6);
  CHECK(std::holds_alternative<std::monostate>(params.at("target")));
}

TEST_CASE("values of every type are accepted", "[op]") {
  const OpInfo op = cast_op();
  CHECK(std::get<double>(check_params(op, with("eps", int64_t{2})).at("eps")) == 2.0);
  CHECK(std::get<int64_t>(
            check_params(op, with("num_per_channels", int64_t{7168})).at("num_per_channels")) ==
        7168);
  CHECK(std::holds_alternative<std::monostate>(
      check_params(op, with("target", std::string("none"))).at("target")));
  CHECK(std::get<std::vector<int64_t>>(
            check_params(op, with("x_block_size", std::vector<int64_t>{128, 128}))
                .at("x_block_size")) == std::vector<int64_t>{128, 128});
  // none stands for "not given" where it is not a value of its own.
  CHECK(std::get<int64_t>(check_params(op, with("num_topk", ParamValue())).at("num_topk")) == 8);
}

TEST_CASE("parameter mistakes are explained", "[op]") {
  const OpInfo op = cast_op();
  CHECK(message([&] { check_params(op, with("num_per_channel", int64_t{32})); }) ==
        "tessera: per_token_cast: unknown parameter 'num_per_channel'\n"
        "  expected  format, num_per_channels, x_block_size, round_sf, num_topk, eps, target\n"
        "  got       num_per_channel=32\n"
        "  hint      did you mean 'num_per_channels'?");
  CHECK(message([&] {
          check_params(op, {{"format", ParamValue(std::string("e4m3"))}});
        }) ==
        "tessera: per_token_cast: parameter 'num_per_channels' is missing\n"
        "  expected  {16, 32, H}\n"
        "  got       none");
  CHECK(message([&] { check_params(op, with("format", std::string("e4m"))); }) ==
        "tessera: per_token_cast: parameter 'format' has a wrong value\n"
        "  expected  {e4m3, e2m1}\n"
        "  got       e4m\n"
        "  hint      did you mean 'e4m3'?");
  CHECK(message([&] { check_params(op, with("num_topk", int64_t{0})); }) ==
        "tessera: per_token_cast: parameter 'num_topk' has a wrong value\n"
        "  expected  int 1..E\n"
        "  got       0");
  CHECK(message([&] { check_params(op, with("num_topk", 1.5)); }) ==
        "tessera: per_token_cast: parameter 'num_topk' has a wrong value\n"
        "  expected  int 1..E\n"
        "  got       1.5");
  CHECK(message([&] {
          check_params(op, with("x_block_size", std::vector<int64_t>{0, 4}));
        }) ==
        "tessera: per_token_cast: parameter 'x_block_size' has a wrong value\n"
        "  expected  tuple >= 1 or none\n"
        "  got       0,4");
  CHECK(message([&] { check_params(op, with("num_per_channels", int64_t{0})); }) ==
        "tessera: per_token_cast: parameter 'num_per_channels' has a wrong value\n"
        "  expected  {16, 32, H}\n"
        "  got       0");
}

TEST_CASE("an unknown op names the nearest", "[op]") {
  OpInfo a, b;
  a.name = "transpose";
  b.name = "batched_transpose";
  const std::vector<OpInfo> two = {a, b};
  CHECK(find_op(two, "transpose").name == "transpose");
  CHECK(message([&] { find_op(two, "transpsoe"); }) ==
        "tessera: unknown op 'transpsoe'\n"
        "  expected  transpose, batched_transpose\n"
        "  got       transpsoe\n"
        "  hint      did you mean 'transpose'?");
  CHECK(message([&] { find_op(two, "x"); }) ==
        "tessera: unknown op 'x'\n"
        "  expected  transpose, batched_transpose\n"
        "  got       x");
}

}  // namespace
}  // namespace tessera::kernels
