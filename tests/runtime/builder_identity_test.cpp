// The identity of the kernels of a caller's builder: never its op and Spec alone.

#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

struct Spec {
  int64_t cols;
};
using Build = ir::Kernel (*)(const Spec&);

/// out = x * factor, f32 [cols].
ir::Kernel scaled(const Spec& spec, float factor) {
  dsl::Builder k("scaled");
  auto x = k.input("x", DType::f32, {spec.cols});
  auto out = k.output("out", DType::f32, {spec.cols});
  k.launch({1}, {.threads = 32});
  k.parallel({spec.cols}, [&](dsl::Value i) { out(i) = x(i) * factor; });
  return k.finish();
}
ir::Kernel twice(const Spec& spec) {
  return scaled(spec, 2.0f);
}
/// The author's changed version of the other one.
ir::Kernel thrice(const Spec& spec) {
  return scaled(spec, 3.0f);
}

/// The request of a process to the caches for a call.
runtime::KernelRequest request_of(Build build, const jit::Code& code) {
  const auto at = [](uintptr_t address) {
    return TensorView(reinterpret_cast<void*>(address), DType::f32, {64}, Device::cuda(0));
  };
  const auto requests = jit::kernels_needed([&] {
    jit::run("scaled", Spec{64}, build, {{at(0x10000), at(0x20000)}}, {}, nullptr, code);
  });
  REQUIRE(requests.size() == 1);
  return requests[0];
}

}  // namespace

TEST_CASE("two builders under one op and Spec do not share a kernel") {
  const std::vector<float> x(64, 1.0f);
  std::vector<float> out(64);
  const TensorView tensors[] = {{x.data(), DType::f32, {64}}, {out.data(), DType::f32, {64}}};
  for (const jit::Code& code : {jit::Code::text(), jit::Code::stamp("one stamp")}) {
    jit::run("scaled", Spec{64}, twice, tensors, {}, nullptr, code);
    CHECK(out[7] == 2.0f);
    jit::run("scaled", Spec{64}, thrice, tensors, {}, nullptr, code);
    CHECK(out[7] == 3.0f);
    jit::run(
        "scaled", Spec{64}, [](const Spec& spec) { return scaled(spec, 4.0f); }, tensors, {},
        nullptr, code);
    CHECK(out[7] == 4.0f);
  }
}

TEST_CASE("a builder that was edited does not get its old binary from disk") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const auto image_of = [&](Build build) {  // each time in a new process
    return Process(fake, scratch / "cache")
        .runtime->image(request_of(build, jit::Code::text()), kTarget);
  };
  CHECK(image_of(twice)->source.find("2.0f") != std::string::npos);
  CHECK(image_of(thrice)->source.find("3.0f") != std::string::npos);
  CHECK(fake.state().num_compiles == 2);
  image_of(twice);
  CHECK(fake.state().num_compiles == 2);
}

TEST_CASE("a stamped builder is not lowered again, unless its stamp or its kernel changes") {
  FakeCuda fake;
  const ScratchFolder scratch;
  int num_emits = 0;
  const auto load = [&](Build build, const char* stamp) {
    runtime::KernelRequest request = request_of(build, jit::Code::stamp(stamp));
    request.emit = [&num_emits, emit = request.emit] {
      ++num_emits;
      return emit();
    };
    Process(fake, scratch / "cache").runtime->image(request, kTarget);
  };
  load(twice, "v1");
  load(twice, "v1");
  CHECK(num_emits == 1);
  load(twice, "v2");
  CHECK(num_emits == 2);
  load(thrice, "v1");
  CHECK(num_emits == 3);
  CHECK_THROWS_AS(jit::Code::stamp(""), Error);
}
