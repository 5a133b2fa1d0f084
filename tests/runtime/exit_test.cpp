// A process ends quietly whatever of Tessera is still loaded: as part of a program, of a plugin that
// is unloaded, of a Python interpreter. On the GPU where there is one, else on the executor.

#include <string>
#include <vector>

#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/nvrtc.h"
#include "tests/support/places.h"

using tessera::test::ChildResult;
using tessera::test::ScratchFolder;

namespace {

ChildResult run(const std::vector<std::string>& words, const std::string& cache) {
  return tessera::test::run_program(words, {"TESSERA_CACHE_DIR=" + cache});
}

const std::string kPlugin = tessera::test::in_build("libtessera_exit_plugin.so");
const std::string kProgram = tessera::test::in_build("exit_program");
const std::string kThreads = tessera::test::in_build("exit_threads_program");

}  // namespace

TEST_CASE("a program ends with kernels loaded (R22.19)") {
  const ScratchFolder scratch;
  const ChildResult ended = run({kProgram}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.exit_code == 0);
}

TEST_CASE("a program unloads a plugin that has kernels loaded, and ends (R22.19)") {
  const ScratchFolder scratch;
  const ChildResult ended = run({kProgram, kPlugin}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.exit_code == 0);
}

TEST_CASE("a Python interpreter ends with kernels loaded (R22.19)") {
#ifdef __SANITIZE_THREAD__
  TESSERA_SKIP(
      "an interpreter that was built without ThreadSanitizer cannot load a library with it");
#endif
  const ScratchFolder scratch;
  const ChildResult ended = run({"python3", "-c",
                                 "import ctypes, sys\n"
                                 "sys.exit(ctypes.CDLL(sys.argv[1]).tessera_exit_plugin_run())\n",
                                 kPlugin},
                                scratch / "cache");
  if (ended.exit_code == 127) TESSERA_SKIP("no python3");
  CHECK(ended.output == "");
  CHECK(ended.exit_code == 0);
}

TEST_CASE("a program that returns from main while threads lower and run kernels ends quietly") {
  const ScratchFolder scratch;
  const ChildResult ended = run({kThreads, "run"}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.exit_code == 0);
}

TEST_CASE("a program that returns from main while threads compile ends quietly") {
#ifdef __SANITIZE_THREAD__
  TESSERA_SKIP(
      "libnvrtc was built without ThreadSanitizer, which does not see the locks between its "
      "threads and its end");
#endif
  std::string reason;
  if (!tessera::test::Nvrtc::open(reason)) TESSERA_SKIP(reason);
  const ScratchFolder scratch;
  const ChildResult ended = run({kThreads, "compile"}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.exit_code == 0);
}

TEST_CASE("the destructor of a global object may run a kernel after main has run one") {
  const ScratchFolder scratch;
  const ChildResult ended = run({kThreads, "destructor"}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.exit_code == 0);
}
