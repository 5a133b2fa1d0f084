// An op that is a signature and a kernel, here one of a test, has all that an op has.

#include <fmt/format.h>

#include <array>

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"
#include "tools/lib/calls/op_check.h"
#include "tools/lib/calls/op_listing.h"
#include "tools/lib/docs/cpp_interface.h"
#include "tools/lib/images/bundle_maker.h"

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

// ---- lists, accumulators and any number of token dimensions

extern const Op sum_parts_op;

struct PartsSpec {
  int32_t parts, hidden;
  int32_t with_total;
};

ir::Kernel build_parts(const PartsSpec& s) {
  OpBuilder k(sum_parts_op, {{"H", s.hidden}});
  auto x = k.tensor("x");
  std::vector<dsl::Ref> parts, sums;
  for (int32_t i = 0; i < s.parts; ++i) {
    parts.push_back(k.tensor("parts." + std::to_string(i)));
    sums.push_back(k.tensor("sums." + std::to_string(i)));
  }
  std::optional<dsl::Ref> total;
  if (s.with_total != 0) total = k.tensor("total");
  k.launch({1}, {.threads = 32});
  k.parallel({s.hidden}, [&](dsl::Value h) {
    auto sum = k.var(DType::f32, 0.0, "sum");
    k.serial(0, k.extent("T"), [&](dsl::Value t) {
      for (size_t i = 0; i < parts.size(); ++i) {
        dsl::Value one = x(t, h) + parts[i](t, h);
        sums[i](t, h) = one;
        sum = sum + one;
      }
    });
    if (total) (*total)(h) = (*total)(h) + sum;
  });
  return k.finish();
}

void launch_parts(const Call& c, Launches& go) {
  Args args;
  for (const char* list : {"parts", "sums"}) {
    for (int64_t i = 0; i < c["L"]; ++i) {
      args.tensors.push_back(
          {fmt::format("{}_{}", list, i), c.tensor(fmt::format("{}.{}", list, i))});
    }
  }
  go.add(build_parts, PartsSpec{c.i32("L"), c.i32("H"), c.flag("with_total") ? 1 : 0}, args);
}

const Op sum_parts_op{.name = "sum_parts",
                      .family = "sample",
                      .purpose = "x added to each of several tensors, and the sum of all rows",
                      .signature = R"(
      x                f32 [.., H]
      list parts (L)   f32 [.., H]
      -> list sums (L) f32 [.., H]
      -> acc total?    f32 [H]           iff with_total
      param  with_total bool = true
      limit  H <= 1024
    )",
                      .launches = launch_parts,
                      .examples = "T=3 H=4 L=2; T=2 H=4 L=0 with_total=false"};

test::HostTensor row(std::initializer_list<double> values) {
  return test::tensor_of(DType::f32, {static_cast<int64_t>(values.size())}, values);
}

TEST_CASE("lists have a length, accumulators are added to and start at zero", "[signature][op]") {
  const OpInfo op = op_info_of(sum_parts_op);
  CHECK(tools::list_text({op}, "").find("x: f32 [.., H] row_major\n") != std::string::npos);
  test::HostTensors inputs = {
      {"x", row({1, 2})}, {"parts.0", row({10, 20})}, {"parts.1", row({100, 200})}};
  test::HostTensors made = test::run_op(op, inputs, {}, Device::cpu());
  REQUIRE(made.size() == 3);
  CHECK(made.at("sums.0").value(1) == 22.0);
  CHECK(made.at("sums.1").value(0) == 101.0);
  CHECK(made.at("total").value(0) == 112.0);
  inputs["total"] = row({1000, 2000});
  CHECK(test::run_op(op, inputs, {}, Device::cpu()).at("total").value(0) == 1112.0);
  for (const BenchCase& example : op.examples) tools::check_example(op, example, 1);

  inputs.erase("total");
  CHECK(test::run_op(op, inputs, {{"with_total", false}}, Device::cpu()).size() == 2);
  const Tensors views = {{"x", TensorView(nullptr, DType::f32, {2, 3, 4, 5})}};
  const std::vector<OutputInfo> outputs = op.outputs(views, check_params(op, {}));
  REQUIRE(outputs.size() == 1);  // no list, the total
  CHECK(outputs[0].starts_at_zero);
}

TEST_CASE("a call without an accumulator, with one too many or a longer list is refused",
          "[signature][op][errors]") {
  const OpInfo op = op_info_of(sum_parts_op);
  const auto told = [&](Tensors tensors, const Params& given) {
    try {
      op.run(tensors, check_params(op, given), nullptr);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  std::array<float, 2> x{}, part{}, sum{}, total{};
  const auto view = [](std::array<float, 2>& memory) {
    return TensorView(memory.data(), DType::f32, {2});
  };
  Tensors tensors = {{"x", view(x)}, {"parts.0", view(part)}, {"sums.0", view(sum)}};
  CHECK(told(tensors, {}) ==
        "tessera: sum_parts: argument 'total' is missing\n"
        "  expected  f32[2]\n"
        "  got       parts.0, sums.0, x");
  tensors["total"] = view(total);
  CHECK(told(tensors, {}) == "no error");
  CHECK(told(tensors, {{"with_total", false}}) ==
        "tessera: sum_parts: argument 'total' goes with other arguments only\n"
        "  expected  a tensor only where with_total\n"
        "  got       with_total = false");
  tensors.erase("sums.0");
  CHECK(told(tensors, {}).starts_with("tessera: sum_parts: argument 'sums.0' is missing\n"));
}

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
                    "TESSERA_API void scale_rows(const ScaleRows& call, Stream stream);\n") !=
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
