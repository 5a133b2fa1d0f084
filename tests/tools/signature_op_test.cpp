// An op that is a signature and a kernel, here one of a test, has all that an op has.

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"
#include "tools/lib/bundle_maker.h"
#include "tools/lib/cpp_interface.h"
#include "tools/lib/op_check.h"
#include "tools/lib/op_listing.h"

namespace tessera::kernels {
namespace {

extern const Op scale_rows_op;

struct Spec {
  int32_t hidden;
};

ir::Kernel build(const Spec& s) {
  OpBuilder k(scale_rows_op, {{"H", s.hidden}});
  auto x = k.tensor("x"), weight = k.tensor("weight"), out = k.tensor("out");
  auto factor = k.param("factor");
  auto at = k.launch({k.extent("T")}, {.threads = 32});
  k.parallel({s.hidden}, [&](dsl::Value h) { out(at.x, h) = x(at.x, h) * weight(h) * factor; });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("H")});
}

const Op scale_rows_op{.name = "scale_rows",
                       .family = "sample",
                       .purpose = "each row times a weight per column and a factor",
                       .signature = R"(
      x       f32 [T, H]
      weight  f32 [H]
      -> out  f32 [T, H]
      param   factor float = 2
      limit   H <= 1024
    )",
                       .launches = launches,
                       .examples = "T=5 H=64; T=3 H=33 factor=0.5",
                       .bench = "T=8192 H=1024"};

TEST_CASE("an op of a test is listed, runs and is checked", "[signature][op]") {
  const OpInfo op = op_info_of(scale_rows_op);
  CHECK(tools::list_text({op}, "") ==
        "scale_rows (sample): each row times a weight per column and a factor\n"
        "  in     x: f32 [T, H] row_major\n"
        "  in     weight: f32 [H] row_major\n"
        "  out    out: f32 [T, H] row_major\n"
        "  -p     factor: float = 2\n");
  const test::HostTensor x = test::tensor_of(DType::f32, {1, 2}, {3.0, 4.0}),
                         weight = test::tensor_of(DType::f32, {2}, {1.0, 0.5});
  const test::HostTensors made =
      test::run_op(op, {{"x", x}, {"weight", weight}}, {{"factor", 10.0}}, Device::cpu());
  CHECK(made.at("out").value(0) == 30.0);
  CHECK(made.at("out").value(1) == 20.0);
  REQUIRE(op.examples.size() == 2);
  for (const BenchCase& example : op.examples) {
    CHECK(tools::check_example(op, example, 1).kernels.size() == 1);
  }
}

TEST_CASE("an op of a test has CUDA text, a bundle's kernels, a benchmark and a C++ function",
          "[signature][op]") {
  const OpInfo op = op_info_of(scale_rows_op);
  REQUIRE(op.bench.size() == 1);
  CHECK(op.bench[0].label == "T=8192 H=1024");
  CHECK(op.bench[0].bytes == 4 * (2 * 8192 * 1024 + 1024));
  const Tensors inputs = Case(parsed(scale_rows_op), "T=5 H=64").inputs();
  const std::vector<ir::Kernel> kernels = op.kernels(inputs, check_params(op, {}));
  REQUIRE(kernels.size() == 1);
  CHECK(
      jit::cuda_text(kernels[0])
          .find(
              "tessera_scale_rows(const float* __restrict__ x, const float* __restrict__ weight") !=
      std::string::npos);
  CHECK(tools::requests_of(op, {9, 0, 'a'}).size() == 3);  // H of 64, 33 and 1024
  const std::string header = tools::cpp_header({&scale_rows_op});
  CHECK(header.find("  double factor = 2;\n};\n"
                    "void scale_rows(const ScaleRows& call, Stream stream);\n") !=
        std::string::npos);
}

TEST_CASE("an op of a test explains a wrong argument", "[signature][op][errors]") {
  const OpInfo op = op_info_of(scale_rows_op);
  const Tensors inputs = {{"x", TensorView(nullptr, DType::f32, {2, 2048})},
                          {"weight", TensorView(nullptr, DType::f32, {2048})}};
  CHECK_THROWS_WITH(op.outputs(inputs, check_params(op, {})),
                    "tessera: scale_rows: argument 'x' beyond this limit is not supported\n"
                    "  expected  H <= 1024\n"
                    "  got       H = 2048 from x dim 1");
}

}  // namespace
}  // namespace tessera::kernels
