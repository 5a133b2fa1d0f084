// NVRTC itself, where it can be found: no GPU needed.

#include "runtime/nvrtc/compile.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "runtime/options.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

using namespace tessera;
using namespace tessera::runtime;

namespace {

KernelSource scale_source() {
  KernelSource source;
  source.op = "scale";
  source.entry = "scale_kernel";
  source.text =
      "extern \"C\" __global__ void scale_kernel(float* x, float factor, int count) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (i < count) {\n"
      "    x[i] = x[i] * factor + 1.0f;\n"
      "  }\n"
      "}\n";
  source.params = {{"x", true, DType::f32}, {"factor", false, DType::f32}, {"count"}};
  source.threads = 128;
  return source;
}

// Null, and the reason printed, if this machine has none.
const Nvrtc* real_nvrtc() {
  static const std::unique_ptr<const Nvrtc> nvrtc = []() -> std::unique_ptr<const Nvrtc> {
    try {
      const Options options = options_from(process_environment());
      return open_nvrtc(system_loader(),
                        {options.nvrtc, options.cuda_homes, test::in_source(".deps")});
    } catch (const Error& error) {
      std::cout << error.what() << std::endl;
      return nullptr;
    }
  }();
  return nvrtc.get();
}

}  // namespace

#define REQUIRE_NVRTC()                    \
  const Nvrtc* const nvrtc = real_nvrtc(); \
  if (!nvrtc) TESSERA_SKIP("no usable libnvrtc on this machine")

TEST_CASE("NVRTC compiles a kernel for every target without a GPU") {
  REQUIRE_NVRTC();
  for (const char* word : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    CAPTURE(word);
    const Image image = compile(*nvrtc, scale_source(), *parse_target(word));
    CHECK(image.cubin.substr(1, 3) == "ELF");
    CHECK(image.resources.registers > 0);
    CHECK(image.resources.spill_bytes == 0);
    CHECK(image.threads == 128);
    CHECK(image.entry == "scale_kernel");
    CHECK(image.compiler == nvrtc->identity);
  }
}

TEST_CASE("the compiler's identity has the build ids of both its libraries") {
  REQUIRE_NVRTC();
  CHECK(nvrtc->identity.find("NVRTC ") == 0);
  CHECK(nvrtc->identity.find("builtins") != std::string::npos);
  CHECK(nvrtc->identity.find("build-id ") != std::string::npos);
}

TEST_CASE("a * b + c stays two roundings, fma is one") {
  REQUIRE_NVRTC();
  const std::string ptx = compile_to_ptx(*nvrtc, scale_source(), {9, 0, 'a'});
  CHECK(ptx.find(".target sm_90a") != std::string::npos);
  CHECK(ptx.find("mul.rn.f32") != std::string::npos);
  CHECK(ptx.find("add.rn.f32") != std::string::npos);
  CHECK(ptx.find("fma") == std::string::npos);
}

TEST_CASE("the same text gives the same cubin and log") {
  REQUIRE_NVRTC();
  const Image first = compile(*nvrtc, scale_source(), {8, 0, 0});
  const Image second = compile(*nvrtc, scale_source(), {8, 0, 0});
  CHECK(first.cubin == second.cubin);
  CHECK(first.log == second.log);
  CHECK(first.log.find("Used ") != std::string::npos);
}

TEST_CASE("a compile error shows the compiler's words and the lines around them") {
  REQUIRE_NVRTC();
  KernelSource source = scale_source();
  source.text.replace(source.text.find("factor +"), 6, "fcator");
  try {
    compile(*nvrtc, source, {9, 0, 'a'});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(error.op() == "scale");
    CHECK(error.fields().what == nvrtc->describe() + " refused the CUDA text for sm_90a");
    const std::string expected =
        "scale.cu(4): error: identifier \"fcator\" is undefined\n"
        "     2 |   int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "     3 |   if (i < count) {\n"
        ">    4 |     x[i] = x[i] * fcator + 1.0f;\n"
        "     5 |   }\n"
        "     6 | }\n"
        "\n"
        "whole log:\n";
    CHECK(error.got().substr(0, expected.size()) == expected);
    CHECK(error.got().find("\noptions: --gpu-architecture=sm_90a --std=c++17") !=
          std::string::npos);
  }
}

TEST_CASE("an error in the CUDA text of a kernel names the author's file and line (R22.13)") {
  REQUIRE_NVRTC();
  dsl::ExternFunction f;
  f.name = "takes_a_pointer";
  f.source = "__device__ float takes_a_pointer(const float* x) { return *x; }\n";
  f.result = DType::f32;
  f.params = {DType::f32};  // which it does not take
  dsl::Builder k("mistyped");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto twice = k.let("twice", x(k.thread()) * 2.0f);
  const int line = __LINE__ + 1;
  y(k.thread()) = k.call(f, {twice});
  const KernelSource source = codegen::cuda::emit(codegen::lower(k.finish()));
  try {
    compile(*nvrtc, source, {9, 0, 'a'});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(error.loc().line == line);
    const std::string text = error.what();
    CHECK(text.find("mistyped.cu(") != std::string::npos);
    CHECK(text.find("takes_a_pointer(") != std::string::npos);
    const std::string end = "compile_test.cpp:" + std::to_string(line) +
                            "\n    y(k.thread()) = k.call(f, {twice});\n                      ^";
    REQUIRE(text.size() > end.size());
    CHECK(text.substr(text.size() - end.size()) == end);
  }
}

TEST_CASE("generated text that does not compile is our bug, with all that a report needs") {
  REQUIRE_NVRTC();
  KernelSource source = scale_source();
  source.text.replace(source.text.find("factor +"), 6, "fcator");
  source.origins = {{1, {}}, {3, SourceLoc::here()}};
  try {
    compile(*nvrtc, source, {9, 0, 'a'});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::internal);
    CHECK(error.fields().what == "internal error, a bug in Tessera: " + nvrtc->describe() +
                                     " refused the CUDA text for sm_90a");
    CHECK(error.loc().line == source.origins[1].loc.line);
    const std::string words = "please report it, with what is in ";
    REQUIRE(error.hint().find(words) == 0);
    const std::filesystem::path folder = error.hint().substr(words.size());
    const auto content = [&](const char* name) {
      std::ifstream file(folder / name);
      return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    };
    CHECK(content("scale.cu") == source.text);
    CHECK(content("log.txt").find("identifier \"fcator\" is undefined") != std::string::npos);
    CHECK(content("compile.txt").find(nvrtc->identity + "\n--gpu-architecture=sm_90a\n") !=
          std::string::npos);
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("the text of a compile error is bounded") {
  REQUIRE_NVRTC();
  KernelSource source = scale_source();
  for (int i = 0; i < 3000; ++i) {
    source.text +=
        "#warning \"a long line of text that fills the log, number " + std::to_string(i) + "\"\n";
  }
  source.text += "not C++;\n";
  try {
    compile(*nvrtc, source, {9, 0, 'a'});
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.size() < 70 * 1024);
    CHECK(text.find(" bytes left out ...") != std::string::npos);
    CHECK(text.find("number 0") != std::string::npos);
  }
}

TEST_CASE("spills are read from the log") {
  REQUIRE_NVRTC();
  KernelSource source = scale_source();
  source.text =
      "extern \"C\" __global__ void scale_kernel(float* x, int count) {\n"
      "  float v[64];\n"
      "  for (int r = 0; r < count; ++r) {\n"
      "    #pragma unroll\n"
      "    for (int i = 0; i < 64; ++i) v[i] = x[i * 128 + threadIdx.x + r];\n"
      "    __syncthreads();\n"
      "    #pragma unroll\n"
      "    for (int i = 0; i < 64; ++i) x[(63 - i) * 128 + threadIdx.x] = v[i] * v[(i + 7) % 64];\n"
      "  }\n"
      "}\n";
  source.options = {"--maxrregcount=24"};
  CHECK(compile(*nvrtc, source, {8, 0, 0}).resources.spill_bytes > 0);
}

TEST_CASE("what ptxas says is parsed") {
  const KernelResources resources = parse_ptxas_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "ptxas info    : Function properties for f\n"
      "    24 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 24 bytes cumulative stack size, 512 "
      "bytes smem, 380 bytes cmem[0]\n");
  CHECK(resources == KernelResources{40, 12, 24, 512});
  CHECK(parse_ptxas_log("") == KernelResources{});
}

TEST_CASE("kernels that cannot be cached or named are refused") {
  test::FakeCuda fake;
  const auto nvrtc = open_nvrtc(fake.loader(), {});
  const auto error_of = [&](const KernelSource& source, Target target) {
    try {
      compile(*nvrtc, source, target);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  KernelSource source = scale_source();
  SECTION("an option that reads files") {
    source.options = {"-I/usr/include"};
    CHECK(error_of(source, {9, 0, 'a'}) ==
          "tessera: scale: a compiler option cannot be used for cached kernels\n"
          "  expected  one that begins with -D, --define-macro=, --maxrregcount=, "
          "--ptxas-options=, --generate-line-info, --extra-device-vectorization\n"
          "  got       -I/usr/include");
  }
  SECTION("an op name that is a path") {
    source.op = "../x";
    CHECK(error_of(source, {9, 0, 'a'}) ==
          "tessera: ../x: a kernel has a name that cannot be used\n"
          "  expected  letters, digits and _, at most 64, no digit first\n"
          "  got       ../x");
  }
  SECTION("a parameter's name that the manifest would not take") {
    source.params[0].name = "x-y";
    CHECK(error_of(source, {9, 0, 'a'}).find("got       x-y") != std::string::npos);
  }
  SECTION("a tensor map of what is no pointer, and not one that the kernel writes") {
    source.params.push_back({"map", false, DType::bf16, TensorMapParam{0, {64, 32}, 64}});
    for (const int tensor : {-2, static_cast<int>(source.params.size())}) {
      source.params.back().map->tensor = tensor;
      CHECK(error_of(source, {9, 0, 'a'}).find("a kernel has a tensor map that cannot be made") !=
            std::string::npos);
    }
    source.params.back().map->tensor = TensorMapParam::kNoTensor;
    CHECK(error_of(source, {9, 0, 'a'}) == "no error");
  }
  SECTION("a family before there were any") {
    fake.state().nvrtc_version = 12080;
    CHECK([&] {
      try {
        compile(*open_nvrtc(fake.loader(), {}), source, {10, 0, 'f'});
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    }() == "tessera: scale: NVRTC 12.8 (/usr/local/cuda/lib64/libnvrtc.so.13) does not know "
           "families of targets\n"
           "  expected  NVRTC 12.9 or newer for sm_100f\n"
           "  got       NVRTC 12.8");
  }
  SECTION("a target that does not exist") {
    CHECK(error_of(source, {9, 0, 'f'}).find("tessera: scale: no kernel can be made for sm_90f") ==
          0);
    CHECK(error_of(source, {7, 5, 0}).find("tessera: scale: no kernel can be made for sm_75") == 0);
  }
  SECTION("a target that this NVRTC does not know") {
    CHECK(error_of(source, {13, 0, 'a'}) ==
          "tessera: scale: NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13) does not know the "
          "target\n"
          "  expected  one of sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120\n"
          "  got       sm_130a");
  }
}

TEST_CASE("builtins of another version are explained") {
  test::FakeCuda fake;
  fake.state().builtins_files.clear();
  fake.state().compile_result = 7;  // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
  const auto nvrtc = open_nvrtc(fake.loader(), {});
  try {
    compile(*nvrtc, scale_source(), {9, 0, 'a'});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: scale: NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13) found no builtins of "
          "its version\n"
          "  expected  libnvrtc-builtins.so.13.0 beside it\n"
          "  got       no such file\n"
          "  hint      two CUDA versions are mixed: name one libnvrtc with TESSERA_NVRTC");
  }
}

TEST_CASE("the standard options are few and fixed") {
  test::FakeCuda fake;
  using Words = std::vector<std::string>;
  CHECK(standard_options(open_nvrtc(fake.loader(), {})->version, {9, 0, 'a'}) ==
        Words{"--gpu-architecture=sm_90a", "--std=c++17", "--fmad=false", "--ptxas-options=-v",
              "--no-cache"});
  fake.state().nvrtc_version = 12040;  // knows no --no-cache
  CHECK(standard_options(open_nvrtc(fake.loader(), {})->version, {8, 0, 0}) ==
        Words{"--gpu-architecture=sm_80", "--std=c++17", "--fmad=false", "--ptxas-options=-v"});
}

TEST_CASE("a generated text is compiled without the features that it never uses") {
  test::FakeCuda fake;
  KernelSource source = scale_source();
  const auto is_minimal = [&] {
    compile(*open_nvrtc(fake.loader(), {}), source, {9, 0, 'a'});
    const std::vector<std::string>& options = fake.state().options;
    return std::find(options.begin(), options.end(), "--minimal") != options.end();
  };
  CHECK_FALSE(is_minimal());  // hand-written: may use anything
  source.origins = {{1, {}}};
  CHECK(is_minimal());
  source.calls_author_text = true;
  CHECK_FALSE(is_minimal());
  source.calls_author_text = false;
  fake.state().nvrtc_version = 12030;  // does not know the option
  CHECK_FALSE(is_minimal());
}
