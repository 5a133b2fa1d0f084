// Mistakes planted in the program of gemm_bf16 for sm_90a: tensor copies into a ring, wgmma, tensor stores. The
// executor runs what the GPU runs, so it names each of them.

#include <algorithm>
#include <functional>
#include <string>

#include "codegen/lower.h"
#include "codegen/thread_ir/walk.h"
#include "kernels/gemm/parts/bf16_kernel.h"
#include "tests/reference/gemm.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/ops/products.h"
#include "tests/support/random_tensor.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using codegen::Program;
using codegen::Stmt;
using Part = codegen::Array::RingPart;

namespace {

/// Two tiles, each of four steps through a ring of two stages; the result is stored by the engine.
struct Call {
  int64_t m = 64, n = 256, depth = 256;
  HostTensor a = random_tensor(DType::bf16, {m, depth}, Values::normal, 1);
  HostTensor b = random_tensor(DType::bf16, {n, depth}, Values::normal, 2);
  HostTensor bias{DType::f32, {n}};
  HostTensor out{DType::bf16, {m, n}};

  Program program() const {
    return codegen::lower(kernels::gemm::build_bf16({.a = {0, 8},
                                                     .b = {0, 8},
                                                     .m_multiple = 1,
                                                     .n_multiple = 8,
                                                     .k_multiple = 8,
                                                     .out_vector = 8,
                                                     .has_depth = 1,
                                                     .has_bias = 1,
                                                     .is_f32 = 0,
                                                     .by_engine = 1,
                                                     .tile = {64, 128, 64, 2, 1}}),
                          parse_target("sm_90a").value());
  }
  void run(const Program& program) const {
    run_with_target_sums(
        program, {{{"a", a.view()}, {"b", b.view()}, {"bias", bias.view()}, {"out", out.view()}},
                  {{"m", m},
                   {"n", n},
                   {"depth", depth},
                   {"a_stride", depth},
                   {"b_stride", depth},
                   {"out_stride", n},
                   {"device_blocks", 1}}});
  }
};

std::string trap_of(const std::function<int(Program&)>& plant) {
  const Call call;
  Program program = call.program();
  REQUIRE(plant(program) > 0);
  return error_of([&] { call.run(program); });
}

/// Leaves out every statement of which `is` holds. Returns how many.
int leave_out(Program& program, const std::function<bool(const Stmt&)>& is) {
  size_t count = 0;
  codegen::walk(program.body, [&](Stmt& stmt) {
    codegen::for_each_body(stmt, [&](codegen::Body& body) { count += std::erase_if(body, is); });
  });
  return static_cast<int>(count);
}

bool arrives_at_empty(const Stmt& stmt) {
  return codegen::any_in(stmt, [](const Stmt& inner) {
    const auto* arrive = std::get_if<codegen::MbarrierArrive>(&inner.node);
    return arrive != nullptr && arrive->at.array->ring_part == Part::empty;
  });
}

/// Gives a stage back as soon as its product has started.
int give_back_early(Program& program) {
  int count = 0;
  codegen::walk(program.body, [&](Stmt& stmt) {
    codegen::for_each_body(stmt, [&](codegen::Body& body) {
      const auto is_product = [](const Stmt& inner) { return test::is_group_product(inner); };
      const auto product = std::find_if(body.begin(), body.end(), is_product);
      if (product == body.end()) return;
      const auto arrive = std::find_if(product, body.end(), arrives_at_empty);
      if (arrive == body.end()) return;
      std::rotate(product, arrive, arrive + 1);
      ++count;
    });
  });
  return count;
}

bool has(const std::string& text, const char* word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("the program of gemm_bf16 for sm_90a runs on the CPU as it is", "[gemm][gemm_bf16]") {
  const Call call;
  const Program program = call.program();
  int products = 0, copies = 0;
  codegen::walk(program.body, [&](const Stmt& stmt) {
    products += test::is_group_product(stmt);
    copies += std::holds_alternative<codegen::TensorCopy>(stmt.node);
  });
  CHECK(products > 0);
  CHECK(copies > 0);
  CHECK(program.maps.size() == 3);  // a, b and, stored by the engine, out
  call.run(program);
  CHECK(call.out.raw() == reference::gemm_bf16(call.a, call.b, &call.bias, DType::bf16).raw());
}

TEST_CASE("the executor names what the program of gemm_bf16 may not leave out",
          "[gemm][gemm_bf16]") {
  const std::string fence = trap_of([](Program& program) {
    return leave_out(program, [](const Stmt& stmt) { return test::is_proxy_fence(stmt); });
  });
  CAPTURE(fence);
  CHECK(has(fence, "[PROXY]"));
  CHECK(has(fence, "bf16_kernel.cpp:"));

  const std::string early = trap_of(give_back_early);
  CAPTURE(early);
  CHECK(has(early, "[RING_LATE]"));
  CHECK(has(early, "bf16_kernel.cpp:"));

  const std::string unfilled = trap_of([](Program& program) {
    return leave_out(program, [](const Stmt& stmt) {
      const auto* wait = std::get_if<codegen::MbarrierWait>(&stmt.node);
      return wait != nullptr && wait->at.array->ring_part == Part::full;
    });
  });
  CAPTURE(unfilled);
  CHECK(has(unfilled, "a_tile[0] is read before it is written"));
  CHECK(has(unfilled, "bf16_kernel.cpp:"));

  const std::string unawaited = trap_of([](Program& program) {
    return leave_out(program, [](const Stmt& stmt) {
      const auto* wait = std::get_if<codegen::Await>(&stmt.node);
      return wait != nullptr && wait->work == codegen::Work::products;
    });
  });
  CAPTURE(unawaited);
  CHECK(has(unawaited, "[PRODUCT_BUSY]"));
  CHECK(has(unawaited, "bf16_kernel.cpp:"));
}
