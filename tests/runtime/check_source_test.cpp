// Kernels that are refused before anything is compiled, and how a text that reads files is found.

#include "runtime/check_source.h"

#include <string>

#include "tests/runtime/fake_process.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;

namespace {

std::string use_in(const std::string& text) {
  const auto use = find_file_use(text);
  return use ? std::to_string(use->line) + ": " + use->words : "none";
}

}  // namespace

TEST_CASE("a text that reads files is found however it is written") {
  CHECK(use_in("#include \"w/hdr/h.h\"\n") == "1: #include \"w/hdr/h.h\"");
  CHECK(use_in("int a;\n  #  include <cuda_fp16.h>  // halves\n") ==
        "2: #include <cuda_fp16.h>  // halves");
  CHECK(use_in("/* a\n comment */ # /* more */ include MACRO") == "2: #include MACRO");
  CHECK(use_in("%:include \"x\"") == "1: #include \"x\"");
  CHECK(use_in("#inc\\\nlude \"x\"") == "1: #include \"x\"");
  CHECK(use_in("#\\\r\n include \"x\"") == "1: #include \"x\"");
  CHECK(use_in("#include_next \"x\"") == "1: #include_next \"x\"");
  CHECK(use_in("\f#import \"x\"") == "1: #import \"x\"");
  CHECK(use_in("#if 0\n#include \"x\"\n#endif") == "2: #include \"x\"");
  CHECK(use_in("int a = 1'000; /* \" */\n#include \"x\"") == "2: #include \"x\"");
  CHECK(use_in("#error don't\n#include \"x\"") == "2: #include \"x\"");
  CHECK(use_in("const char* a = \"\\\"\";\n#include \"x\"") == "2: #include \"x\"");
  CHECK(use_in("const char* a = R\"(\" /* )\";\n#include \"x\"") == "2: #include \"x\"");
  CHECK(use_in("auto a = R\"x()\" )x\";\n#include \"x\"") == "2: #include \"x\"");
  CHECK(use_in("#if __has_include(\"x.h\")\n") == "1: __has_include(\"x.h\")");
  CHECK(use_in("int a; // \\\n int b;\n#include \"x\"") == "3: #include \"x\"");
}

TEST_CASE("a text that only speaks of files reads none") {
  CHECK(use_in("") == "none");
  CHECK(use_in("// #include \"x\"\n/*\n#include \"x\"\n*/\nint include = 1;\n") == "none");
  CHECK(use_in("const char* a = \"\\\n#include <x>\";") == "none");
  CHECK(use_in("const char* a = R\"(\n#include <x>\n)\";") == "none");
  CHECK(use_in("int a; #include <x>\n") == "none");  // no directive: not first in its line
  CHECK(use_in("// the end \\\n#include <x>\n") == "none");
  CHECK(use_in("#define include 1\n#pragma unroll\n#line 3 \"include\"\n") == "none");
  CHECK(use_in("int a = '\"'; // '\n/* #include */ int b = 0x1'f; char c = '\\'';\n") == "none");
  CHECK(use_in("int a = 1 / 2;") == "none");
}

TEST_CASE("a text that includes a file is refused, from a warm cache and when compiled") {
  FakeCuda fake;
  Process process(fake, "");
  const std::string said =
      "tessera: scale: the CUDA text reads a file, which the key of its cache entry would not "
      "know\n"
      "  expected  a self-contained text\n"
      "  got       line 1: #include \"w/hdr/h.h\"";
  const std::string hint = "\n  hint      put what the file holds into the text";
  const std::string text = "#include \"w/hdr/h.h\"\nextern \"C\" void scale_kernel() {}";
  CHECK(error_of([&] { process.runtime->image(Process::with_text(text), kTarget); }) ==
        said + hint);
  const KernelRequest with_spec{"scale", "a", [&] { return source_of(text); }};
  CHECK(error_of([&] { process.runtime->image(with_spec, kTarget); }) == said + ", spec 61" + hint);
  CHECK(fake.state().num_compiles == 0);
}

TEST_CASE("a kernel whose cache entry could not be read again is refused") {
  const auto said = [](const std::function<void(KernelSource&)>& change) {
    KernelSource source = source_of("text");
    change(source);
    return error_of([&] { check_source(source); });
  };
  CHECK(said([](KernelSource&) {}) == "no error");
  CHECK(said([](KernelSource& s) { s.threads = -1; }) ==
        "tessera: scale: a kernel has threads out of range\n"
        "  expected  threads from 1 to 1024\n"
        "  got       -1");
  CHECK(said([](KernelSource& s) { s.threads = 1025; }).find("got       1025") !=
        std::string::npos);
  CHECK(said([](KernelSource& s) { s.cluster = 0; }).find("cluster from 1 to 16") !=
        std::string::npos);
  CHECK(said([](KernelSource& s) {
          s.shared_bytes = -1;
        }).find("shared_bytes from 0 to 16777216") != std::string::npos);
  CHECK(said([](KernelSource& s) {
          s.params.resize(5000, s.params[0]);
        }).find("params from 0 to 4096") != std::string::npos);
  CHECK(said([](KernelSource& s) { s.text.clear(); }) ==
        "tessera: scale: a kernel has a text that cannot be compiled\n"
        "  expected  CUDA text of 1 to 16777216 bytes\n"
        "  got       0 bytes");
}

TEST_CASE("an option that makes ptxas read or write a file is refused") {
  const auto said = [](const std::string& option) {
    KernelSource source = source_of("text");
    source.options = {option};
    return error_of([&] { check_source(source); });
  };
  for (const char* words :
       {"--options-file=x", "-optf=x", "-v,-optf,x", "-o x", "-v,-o=x", "--output-file=x", "-o"}) {
    CAPTURE(words);
    const std::string option = std::string("--ptxas-options=") + words;
    CHECK(said(option).find(" and names no file\n  got       " + option) != std::string::npos);
  }
  for (const char* option : {"--ptxas-options=-O3", "--ptxas-options=--opt-level=2", "-DFILE=file",
                             "--ptxas-options=-v", "--maxrregcount=64"}) {
    CHECK(said(option) == "no error");
  }
}
