// tessera compile --format c: what a C program builds with nothing of Tessera installed, and says without a GPU.

#include <dlfcn.h>

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/markdown.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

bool has_driver() {
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
}

/// The C of tools/README.md.
std::string shown_program() {
  for (const Page& page : pages()) {
    for (const CodeBlock& block : page.blocks) {
      if (page.path == "tools/README.md" && block.language == "c") return block.text;
    }
  }
  FAIL("no block of C in tools/README.md");
  return "";
}

// A call of each kind with an argument that is wrong, then one that needs the driver.
constexpr const char* kMain = R"text(
#include "gather.h"
#include "per_token_cast.h"
#include "product.h"

int main(void) {
  static char memory[1 << 16];
  char *const at = memory + (256 - (uintptr_t)memory % 256);
  tessera_tensor a = {NULL, 2, {200, 192}, {0}}, b = {NULL, 2, {320, 192}, {0}}, out = {NULL, 2, {200, 320}, {0}};
  tessera_tensor x = {NULL, 2, {5, 256}, {0}}, codes = {NULL, 2, {5, 256}, {0}}, scales = {NULL, 2, {5, 3}, {0}};
  tessera_tensor table = {NULL, 2, {9, 8}, {12, 1}}, ids = {NULL, 1, {4}, {0}}, y = {NULL, 2, {5, 8}, {0}};
  tessera_tensor taken = {NULL, 1, {9}, {0}};
  tessera_error error;
  a.data = b.data = out.data = x.data = codes.data = scales.data = table.data = ids.data = y.data = taken.data = at;
  printf("%d\n", transpose_64_by_128(NULL, NULL, NULL));
  printf("%d %s\n", product(&a, &b, NULL, NULL, &error), error.text);
  printf("%d %s\n", per_token_cast(&x, &codes, &scales, NULL, &error), error.text);
  printf("%d %s\n", gather(&table, &ids, NULL, &y, &taken, 0.5f, NULL, &error), error.text);
  out.data = at + 16384;
  out.shape[0] = 0;
  a.shape[0] = 0;
  printf("%d %s\n", product(&a, &b, &out, NULL, &error), error.text);
  printf("%d\n", transpose_64_by_128(at, at + 16384, NULL));
  return 0;
}
)text";

TEST_CASE("compile --format c refuses what is no op of its own and a file of another",
          "[cli][c-export]") {
  const ProgramResult all = run_tessera({"compile", "moe", "--format", "c", "--out", "."});
  CHECK(all.exit_code == 2);
  CHECK(all.err ==
        "tessera: --format c takes one op\n"
        "  expected  the name of an op, and no --specs\n"
        "  got       'moe'\n");
  const ProgramResult bundle = run_tessera({"compile", "moe", "--free", "T", "--out", "moe.tsb"});
  CHECK(bundle.exit_code == 2);
  CHECK(bundle.err ==
        "tessera: --free goes with --format c\n"
        "  expected  no such option for a bundle\n"
        "  got       'T'\n");
  const TemporaryFolder folder;
  write_text(folder.path("swap.c"), "int mine;\n");
  const ProgramResult taken = run_tessera(
      {"compile", "transpose", "--format", "c", "--name", "swap", "--out", folder.path("")});
  CHECK(taken.exit_code == 2);
  CHECK(taken.err.ends_with(
      "swap.c is another's file\n"
      "  expected  a folder without it, or a file that `tessera compile` wrote\n"));
  CHECK(read_text(folder.path("swap.c")) == "int mine;\n");
  for (const std::string name : {"bitand", "malloc", "TS_OP", "tessera_tensor"}) {
    const ProgramResult named = run_tessera(
        {"compile", "transpose", "--format", "c", "--name", name, "--out", folder.path("")});
    CHECK(named.exit_code == 2);
    CHECK(named.err.find("the function has a name that C does not take") != std::string::npos);
  }
  const ProgramResult nowhere = run_tessera({"compile", "transpose", "--format", "c", "--out", ""});
  CHECK(nowhere.exit_code == 2);
  CHECK(
      nowhere.err.ends_with("there is no folder to write to\n"
                            "  expected  a folder\n"
                            "  got       ''\n"));
  const ProgramResult unknown =
      run_tessera({"compile", "transpose", "--format", "d", "--out", "."});
  CHECK(unknown.exit_code == 2);
  const ProgramResult counts =
      run_tessera({"compile", "get_fused_mapping", "--format", "c", "--out", "."});
  CHECK(counts.exit_code == 1);
  CHECK(counts.err.starts_with("tessera: get_fused_mapping: the op cannot be exported as C\n"));
}

TEST_CASE("a C program links exported kernels and runs without a GPU", "[cli][c-export][slow]") {
  if (test::run_program({"cc", "--version"}, {}).exit_code != 0) TESSERA_SKIP("no cc");
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return folder.path(name); };
  const auto wrote = [&](const ProgramResult& result, const std::string& name, const char* rest) {
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out == path("") + "/" + name + ".h, " + path("") + "/" + name + ".c: " + rest);
    return result.exit_code == 0;
  };
  const ProgramResult first = run_tessera({"compile", "transpose", "--format", "c", "--case-of",
                                           "R=64 C=128 x=bf16", "--out", path("")});
  if (first.err.find("libnvrtc") != std::string::npos) TESSERA_SKIP(first.err);
  REQUIRE(wrote(first, "transpose", "1 kernels for 1 target\n"));
  REQUIRE(
      wrote(run_tessera({"compile", "gemm_bf16", "--format", "c", "--name", "product", "--case-of",
                         "M=200 N=320 K=192", "--arch", "sm_80,sm_90a", "--out", path("")}),
            "product", "2 kernels for 2 targets\n"));
  REQUIRE(wrote(run_tessera({"compile", "per_token_cast", "--format", "c", "--case-of",
                             "T=37 H=256 x=bf16 format=e4m3 num_per_channels=128", "--free", "T",
                             "--out", path("")}),
                "per_token_cast", "1 kernels for 1 target\n"));
  REQUIRE(wrote(run_own_program({"compile", "gather", "--format", "c", "--out", path("")}),
                "gather", "1 kernels for 1 target\n"));
  // A file of an earlier export may be replaced.
  REQUIRE(wrote(run_own_program({"compile", "gather", "--format", "c", "--out", path("")}),
                "gather", "1 kernels for 1 target\n"));

  write_text(path("main.c"), shown_program() + kMain);
  const std::vector<std::string> sources = {"main.c", "transpose.c", "product.c",
                                            "per_token_cast.c", "gather.c"};
  for (const bool is_cpp : {false, true}) {
    std::vector<std::string> words =
        is_cpp ? std::vector<std::string>{"c++", "-std=c++17", "-x", "c++"}
               : std::vector<std::string>{"cc", "-std=c11"};
    for (const char* flag : {"-Wall", "-Wextra", "-Werror", "-pedantic", "-o"})
      words.emplace_back(flag);
    words.push_back(path("program"));
    for (const std::string& source : sources) words.push_back(path(source));
    words.emplace_back("-ldl");
    words.emplace_back("-lpthread");
    const test::ChildResult built = test::run_program(words, {});
    CAPTURE(built.output);
    REQUIRE(built.exit_code == 0);
    const test::ChildResult ran = test::run_program({path("program")}, {});
    CHECK(ran.exit_code == 0);
    std::string said = ran.output;
    const std::string before =
        "tessera: transpose: argument 'x' has no data\n"
        "  expected  bf16[64, 128]\n"
        "  got       a null pointer\n";
    CHECK(said.find(before) != std::string::npos);
    for (const char* part : {"1 tessera: gemm_bf16: argument 'out' is missing\n"
                             "  expected  bf16[200, 320]\n"
                             "  got       a null pointer\n",
                             "1 tessera: per_token_cast: argument 'out_sf' has the wrong shape\n"
                             "  expected  extent 2 in dimension 1\n"
                             "  got       3\n",
                             "1 tessera: gather: argument 'y' has the wrong shape\n"
                             "  expected  extent 4 in dimension 0 = n\n"
                             "  got       5\n",
                             "1 tessera: gemm_bf16: argument 'a' has the wrong shape\n"
                             "  expected  extent 200 in dimension 0\n"
                             "  got       0\n"}) {
      CAPTURE(said, part);
      CHECK(said.find(part) != std::string::npos);
    }
    const char* const last = has_driver() ? "tessera: transpose: no CUDA context is current\n"
                                          : "tessera: transpose: no CUDA driver on this machine\n";
    CAPTURE(said);
    CHECK(said.find(last) != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::tests
