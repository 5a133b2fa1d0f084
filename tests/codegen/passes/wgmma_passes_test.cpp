// Passes for wgmma on small programs of the thread IR: layouts of operands and proxy fences.

#include "codegen/passes/arrange_shared.h"
#include "codegen/passes/fence_proxies.h"
#include "codegen/passes/insert_barriers.h"
#include "codegen/passes/place_arena.h"
#include "codegen/verify/thread_ir.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using test::body_text;
using test::count;
using test::read_body;

namespace {

constexpr const char* kMemory = R"(
  shared a: bf16[64, 128]
  shared b: bf16[64, 128]
  undeclared registers c: f32[32]
)";
const std::string kProduct =
    "\nc[0 .. +32] += wgmma matrix of 64 rows a[open .. +8] at [0, 64], proved * matrix of 64 rows "
    "b[open .. +8] at [0, 0], proved\n";

codegen::Program arranged(const std::string& body, const char* memory = kMemory) {
  codegen::Program program = read_body(128, memory, body);
  codegen::arrange_shared(program);
  codegen::place_arena(program);
  return program;
}

std::string fenced(const std::string& body) {
  codegen::Program program = arranged(body);
  codegen::fence_proxies(program);
  return body_text(program);
}

}  // namespace

TEST_CASE("operands of wgmma lie in the widest panels that fit, aligned to their pattern",
          "[passes][wgmma]") {
  const codegen::Program program = arranged(kProduct);
  for (const codegen::ArrayRef& array : program.shared) {
    CHECK(array->swizzle == layout::swizzle_mode(64, 128, 16, layout::SwizzleMode::bytes_128));
    CHECK(array->shared_offset % 1024 == 0);
  }
  // The second panel follows all rows of the first.
  CHECK(body_text(program).find("a[4096 .. +8]") != std::string::npos);
  const codegen::Program narrow = arranged(
      "c[0 .. +32] += wgmma matrix of 64 rows a[open .. +8] at [0, 0], proved * matrix of 64 rows "
      "a[open .. +8] at [0, 16], proved",
      "shared a: bf16[64, 48]\nundeclared registers c: f32[32]");
  CHECK(narrow.shared[0]->swizzle ==
        layout::swizzle_mode(64, 48, 16, layout::SwizzleMode::bytes_32));
}

TEST_CASE("a transposed operand of wgmma begins with a panel", "[passes][wgmma]") {
  const codegen::Program program = arranged(
      "c[0 .. +32] += wgmma matrix of 64 rows transposed a[open .. +8] at [0, 64], proved * matrix "
      "of 32 rows transposed b[open .. +8] at [16, 32], proved");
  CHECK(program.shared[0]->swizzle->panel == 64);
  CHECK(program.shared[1]->swizzle->panel == 32);
}

TEST_CASE("a shared array keeps the layout that it is given", "[passes]") {
  codegen::Program program =
      read_body(32, "shared s: f32[8, 64]", "store s[open] = 1 at [thread / 8, 33], proved");
  auto given = std::make_shared<codegen::Array>(*program.shared[0]);
  given->swizzle = layout::swizzle_mode(8, 64, 32, layout::SwizzleMode::bytes_128);
  std::get<codegen::Store>(program.body[0].node).to.array = given;
  program.shared[0] = given;
  codegen::arrange_shared(program);
  CHECK(program.shared[0]->swizzle == given->swizzle);
  CHECK(body_text(program).find("257") != std::string::npos);  // of the second panel
}

TEST_CASE("a proxy fence stands between the last write to an operand and the next barrier",
          "[passes][wgmma]") {
  const std::string written = "store a[open] = 1 at [0, thread], proved\n";
  const std::string text = fenced(written + "barrier\nbarrier" + kProduct);
  CHECK(text.find("proxy fence\nbarrier\nbarrier\n") != std::string::npos);
  CHECK(count(text, "proxy fence") == 1);
  CHECK(count(fenced(std::string("barrier") + kProduct + written), "proxy fence") == 0);
  // The stores of one round meet the barrier of the next.
  const std::string loop =
      fenced("for i = 0; < 4; += 1\n  barrier\n  store a[open] = 1 at [i, thread], proved" +
             std::string("\nbarrier") + kProduct);
  CHECK(count(loop, "proxy fence") == 2);
  const std::string branch = fenced(
      "if n < 3\n  store a[open] = 1 at [0, thread], proved\nbarrier" + std::string(kProduct));
  CHECK(count(branch, "proxy fence") == 1);
}

TEST_CASE("barriers keep writes and the reads of wgmma apart", "[passes][wgmma]") {
  codegen::Program program =
      arranged("store a[open] = 1 at [0, thread], proved" + std::string(kProduct) +
               "store b[open] = 1 at [1, thread], proved");
  codegen::insert_barriers(program, {});
  const std::string text = body_text(program);
  CHECK(count(text, "barrier") == 2);
  CHECK(text.find("barrier") < text.find("wgmma"));
  CHECK(text.rfind("barrier") > text.find("wgmma"));
}

TEST_CASE("the verifier knows what wgmma needs", "[passes][wgmma][verify]") {
  const auto problem = [](const codegen::Program& program) {
    return test::error_of(
        [&] { codegen::verify(program, {}, {.is_shared_placed = true}, "a test"); });
  };
  CHECK(problem(arranged(kProduct)).empty());
  codegen::Program narrow = arranged(kProduct);
  narrow.threads = 96;
  CHECK(problem(narrow).find("a product of four warps is issued by groups of 128 threads") !=
        std::string::npos);
  codegen::Program moved = arranged(kProduct);
  auto misplaced = std::make_shared<codegen::Array>(*moved.shared[1]);
  misplaced->shared_offset += 128;
  moved.shared_bytes += 128;
  std::get<codegen::Mma>(moved.body[0].node).right.first.array = misplaced;
  moved.shared[1] = misplaced;
  CHECK(problem(moved).find("begin at a multiple of eight rows") != std::string::npos);
  const codegen::Program parted = arranged(
      "if thread < 64\n  c[0 .. +32] += wgmma matrix of 64 rows a[open .. +8] at [0, 0], proved * "
      "matrix of 64 rows b[open .. +8] at [0, 0], proved");
  CHECK(problem(parted).find("all threads of the block come to a product of four warps") !=
        std::string::npos);
}
