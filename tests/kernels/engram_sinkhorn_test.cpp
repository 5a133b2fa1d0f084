// The optimizer of Engram tables on the executor: the references, the mistakes that their cases catch, what
// bad calls are told.

#include "tests/reference/engram_sinkhorn.h"

#include <cmath>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors matrix(int64_t rows, int64_t columns) {
  return {{"matrix", HostTensor(DType::f32, {rows, columns})},
          {"row_scale", HostTensor(DType::f32, {rows})},
          {"col_scale", HostTensor(DType::f32, {columns})}};
}

HostTensors momentum(int64_t size, int64_t of_momentum) {
  return {{"grad", HostTensor(DType::bf16, {size})},
          {"momentum", HostTensor(DType::f32, {of_momentum})}};
}

}  // namespace

TEST_CASE("engram_sinkhorn_momentum equals its reference on the executor",
          "[engram_sinkhorn_momentum]") {
  check_cases("engram_sinkhorn_momentum", engram_sinkhorn_momentum_cases());
}

TEST_CASE("engram_sinkhorn_step equals its reference on the executor", "[engram_sinkhorn_step]") {
  check_cases("engram_sinkhorn_step", engram_sinkhorn_step_cases());
}

TEST_CASE("engram_sinkhorn_finalize equals its reference on the executor",
          "[engram_sinkhorn_finalize]") {
  check_cases("engram_sinkhorn_finalize", engram_sinkhorn_finalize_cases());
}

TEST_CASE("the engram_sinkhorn_momentum tests catch every mutant",
          "[engram_sinkhorn_momentum][mutants]") {
  const std::string op = "engram_sinkhorn_momentum";
  const auto cases = engram_sinkhorn_momentum_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors&, Params& params) { params["nesterov"] = true; }));
  CHECK(caught([](HostTensors&, Params& params) { params["nesterov"] = false; }));
  CHECK(is_caught(op, cases, [&](const HostTensors& in, const Params& params) {  // 1 - beta1 in f32
    HostTensors out = reference::runner(op)(in, params);
    const auto beta = static_cast<float>(std::get<double>(params.at("beta1")));
    for (int64_t i = 0; i < in.at("grad").size(); ++i) {
      const float g = at(in.at("grad"), i), rest = 1.0F - beta;
      const float m = std::fma(at(in.at("momentum"), i), beta, rest * g);
      const bool nesterov = std::get<bool>(params.at("nesterov"));
      out["out"].set_value(i, static_cast<double>(nesterov ? std::fma(g, rest, beta * m) : m));
    }
    return out;
  }));
  CHECK(is_caught(op, cases, [&](const HostTensors& in, const Params& params) {  // out of rounded m
    HostTensors out = reference::runner(op)(in, params);
    const double beta1 = std::get<double>(params.at("beta1"));
    const auto beta = static_cast<float>(beta1), rest = static_cast<float>(1 - beta1);
    if (!std::get<bool>(params.at("nesterov"))) return out;
    for (int64_t i = 0; i < in.at("grad").size(); ++i) {
      const float kept = beta * at(out.at("momentum"), i);
      out["out"].set_value(i, static_cast<double>(std::fma(at(in.at("grad"), i), rest, kept)));
    }
    return out;
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    out["momentum"] = in.at("momentum");
                  })));
}

TEST_CASE("the engram_sinkhorn_step tests catch every mutant", "[engram_sinkhorn_step][mutants]") {
  const std::string op = "engram_sinkhorn_step";
  const auto cases = engram_sinkhorn_step_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors&, Params& params) { params["eps"] = 0.0; }));
  CHECK(caught([](HostTensors& in, Params&) {  // columns in another order of the sum
    HostTensor &x = in["matrix"], &scale = in["col_scale"];
    const int64_t columns = x.shape()[1];
    for (int64_t i = 0; i < x.shape()[0]; ++i) {
      const uint64_t first = x.bits(i * columns);
      x.set_bits(i * columns, x.bits(i * columns + 4));
      x.set_bits(i * columns + 4, first);
    }
    scale.set_bits(0, scale.bits(4));
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    out["row_scale"] = in.at("row_scale");
                  })));
  enum { one_chain, old_scale, more_runs };
  for (const int mistake : {one_chain, old_scale, more_runs}) {
    CAPTURE(mistake);
    CHECK(is_caught(op, cases, [&](const HostTensors& in, const Params& params) {
      HostTensors out = reference::runner(op)(in, params);
      const HostTensor& x = in.at("matrix");
      const int64_t rows = x.shape()[0], columns = x.shape()[1];
      const int64_t runs = mistake == one_chain ? 1 : mistake == more_runs ? 396 : 264;
      const int64_t of_run = (rows + runs - 1) / runs;
      for (int64_t d = 0; d < columns; ++d) {
        float total = 0, run = 0;
        for (int64_t i = 0; i < rows; ++i) {
          const HostTensor& scale = mistake == old_scale ? in.at("row_scale") : out.at("row_scale");
          const float v = at(scale, i) * at(x, i * columns + d) * at(in.at("col_scale"), d);
          run = std::fma(v, v, run);
          if ((i + 1) % of_run != 0 && i + 1 != rows) continue;
          total += run;
          run = 0;
        }
        out["col_sumsq"].set_value(d, static_cast<double>(total));
      }
      return out;
    }));
  }
}

TEST_CASE("the engram_sinkhorn_finalize tests catch every mutant",
          "[engram_sinkhorn_finalize][mutants]") {
  const std::string op = "engram_sinkhorn_finalize";
  const auto cases = engram_sinkhorn_finalize_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors&, Params& params) { params["eps"] = 0.0; }));
  CHECK(caught([](HostTensors&, Params& params) { params["alpha"] = 1.0; }));
  for (const char* name : {"row_scale", "col_scale"}) {
    CHECK(caught(
        [=](HostTensors& in, Params&) {  // twice, which the norm takes out but for its rounding
          for (int64_t i = 0; i < in[name].size(); ++i)
            in[name].set_value(i, in[name].value(i) * 3);
        }));
  }
}

TEST_CASE("the optimizer of Engram tables explains wrong arguments",
          "[engram_sinkhorn_step][engram_sinkhorn_momentum][errors]") {
  const Params eps = {{"eps", 1e-8}}, beta = {{"beta1", 0.9}};
  CHECK(outputs_error("engram_sinkhorn_step", matrix(5, 512), eps) == "no error");
  CHECK(outputs_error("engram_sinkhorn_step", matrix(5, 512), {}) ==
        "tessera: engram_sinkhorn_step: parameter 'eps' is missing\n"
        "  expected  float\n"
        "  got       none");
  CHECK(outputs_error("engram_sinkhorn_step", matrix(5, 300), eps) ==
        "tessera: engram_sinkhorn_step: argument 'matrix': a row has the wrong number of columns\n"
        "  expected  D % 256 = 0\n"
        "  got       D = 300 from matrix dim 1");
  CHECK(
      outputs_error("engram_sinkhorn_finalize", matrix(5, 4352), {{"eps", 0.0}, {"alpha", 1.0}}) ==
      "tessera: engram_sinkhorn_finalize: argument 'matrix': rows this long are not supported\n"
      "  expected  D <= 4096\n"
      "  got       D = 4352 from matrix dim 1");
  CHECK(outputs_error("engram_sinkhorn_momentum", momentum(512, 512), beta) == "no error");
  CHECK(outputs_error("engram_sinkhorn_momentum", momentum(300, 300), beta) ==
        "tessera: engram_sinkhorn_momentum: argument 'grad': the number of elements is no multiple "
        "of 256\n"
        "  expected  n % 256 = 0\n"
        "  got       n = 300 from grad dim 0");
  CHECK(outputs_error("engram_sinkhorn_momentum", momentum(512, 256), beta) ==
        "tessera: engram_sinkhorn_momentum: argument 'momentum' has the wrong shape\n"
        "  expected  bf16|f32[512]   (n = 512 from grad dim 0)\n"
        "  got       f32[256] on cpu");
}
