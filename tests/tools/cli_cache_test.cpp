// tessera compile and tessera cache, as a user runs them. No GPU needed; NVRTC is.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/runtime.h"
#include "tests/support/child_process.h"
#include "tests/support/each_family.h"
#include "tests/support/places.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

std::vector<std::string> keys_in(const std::string& table) {
  std::vector<std::string> keys;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const std::string last = line.substr(line.find_last_of(' ') + 1);
    const bool is_key = last.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (last.size() == 16 && is_key) keys.push_back(last);
  }
  return keys;
}

using Files = std::map<std::string, std::string>;

Files files_below(const std::string& folder) {
  Files files;
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
    if (item.is_regular_file()) files[item.path().string()] = read_text(item.path().string());
  }
  return files;
}

// Files as people have them, some with names like the cache's, all older than what is swept.
void fill_home(const std::string& home) {
  const std::string digits(64, 'a');
  std::vector<std::string> names = {"source/main.cpp",
                                    "source/notes.txt",
                                    "source/scale-sm_90a-0123abcd.cu.orig",
                                    "vendor/lib/core/a.c",
                                    "videos/2024/jan/party.mp4",
                                    "v2/notes.txt",
                                    "v2/sm_90a/aa/notes.txt",
                                    "v2/sm_90a/aa/scale-" + digits + ".tsk.bak",
                                    "v1.2/sm_90a/aa/scale-" + digits + ".tsk",
                                    "CACHEDIR.TAG"};
  for (int i = 0; i < 70; ++i) names.push_back("tmp/chapter" + std::to_string(i) + ".tex");
  const auto then = std::filesystem::file_time_type::clock::now() - std::chrono::hours(48);
  for (const std::string& name : names) {
    const std::filesystem::path path = home + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    write_text(path.string(), "precious " + name);
    std::filesystem::last_write_time(path, then);
  }
}

}  // namespace

TEST_CASE("cache names the folders that it cannot read, and fails", "[cli][cache]") {
  const TemporaryFolder folder;
  const std::string cache = folder.path("cache"), open = cache + "/v2";
  std::filesystem::create_directories(open + "/sm_90a/aa");
  write_text(cache + "/CACHEDIR.TAG",
             "Signature: 8a477f597d28d172789f06886806bc55\n# Compiled kernels of Tessera.");
  std::filesystem::permissions(open, std::filesystem::perms::all);
  for (const char* name : {"", "/CACHEDIR.TAG"}) {
    std::filesystem::permissions(cache + name, std::filesystem::perms::owner_all);
  }
  for (const char* word : {"ls", "du", "verify", "clear"}) {
    CAPTURE(word);
    const ProgramResult result = run_tessera({"cache", word}, cache);
    CHECK(result.exit_code == 1);
    CHECK(result.err ==
          "tessera: not read: " + open + " is writable by group or others (mode 0777)\n");
  }
}

TEST_CASE(
    "a home folder named as the cache loses no file to compile, prune, clear, eviction, sweep",
    "[cli][cache][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string home = folder.path("home");
  const std::string own = home + "/tessera-cache";
  fill_home(home);
  // With `marked` the files lie in the midst of a cache: only their names protect them.
  const bool marked = GENERATE(false, true);
  if (marked) {
    REQUIRE(run_tessera({"compile", "topk_gate", "--out", folder.path("b")}, own).exit_code == 0);
    std::filesystem::rename(own + "/CACHEDIR.TAG", home + "/CACHEDIR.TAG");
    std::filesystem::remove_all(own);
  }
  const Files before = files_below(home);
  const std::vector<std::string> tiny = {"TESSERA_CACHE_MAX_SIZE=1"};
  const std::vector<std::string> compile = {"compile", "topk_gate", "--out", folder.path("b")};
  const ProgramResult made = run_tessera(compile, home, tiny);
  CHECK(made.exit_code == 0);
  CHECK(made.err == (marked ? ""
                            : "tessera: warn: cache folder " + home +
                                  " holds other files: kernels are kept in " + own +
                                  ", and nothing else there is touched\n"));
  const size_t num_keys = keys_in(run_tessera({"cache", "ls"}, home).out).size();
  CHECK(num_keys > 0);
  for (int day = 0; day < 2; ++day) {  // on the second all entries are old enough to go
    CHECK(run_tessera({"cache", "prune"}, home, tiny).exit_code == 0);
    CHECK(run_tessera(compile, home, tiny).err.empty());
    for (const auto& item : std::filesystem::recursive_directory_iterator(home)) {
      if (item.path().extension() != ".tsk") continue;
      std::filesystem::last_write_time(
          item.path(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
    }
  }
  const ProgramResult dry = run_tessera({"cache", "clear", "--dry-run"}, home);
  CHECK(dry.out.find(" entries of ") != std::string::npos);
  CHECK(dry.out.find(" bytes would be removed from " + (marked ? home : own) + "\n") !=
        std::string::npos);
  CHECK(keys_in(run_tessera({"cache", "ls"}, home).out).size() == num_keys);
  CHECK(run_tessera({"cache", "clear"}, home).out ==
        std::to_string(num_keys) + " entries removed\n");
  Files after = files_below(home);
  for (const auto& [path, text] : before) {
    CAPTURE(path);
    CHECK(after[path] == text);
    after.erase(path);
  }
  for (const auto& [path, text] : after) {  // what is left of the cache's own
    CAPTURE(path);
    CHECK((path == own + "/CACHEDIR.TAG" || path == own + "/prune.lock" ||
           path == home + "/prune.lock"));
  }
}

TEST_CASE("clear removes nothing where there is no cache, and says so", "[cli][cache]") {
  const TemporaryFolder folder;
  const std::string home = folder.path("home");
  fill_home(home);
  const Files before = files_below(home);
  for (const char* word : {"clear", "prune"}) {
    const ProgramResult result = run_tessera({"cache", word}, home);
    CHECK(result.exit_code == 1);
    CHECK(result.err == "tessera: " + home +
                            " holds other files and no cache of Tessera\n"
                            "  expected  a folder that Tessera has made or marked (CACHEDIR.TAG)\n"
                            "  got       neither that nor " +
                            home + "/tessera-cache\n");
  }
  CHECK(files_below(home) == before);
}

TEST_CASE("a bundle can be listed, summed up, verified and explained", "[cli][cache][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string bundle = folder.path("kernels.tsb");
  const std::vector<std::string> compile = {"compile",      "transpose", "--arch",
                                            "sm_80,sm_90a", "--out",     bundle};
  REQUIRE(run_tessera(compile).exit_code == 0);
  const std::vector<std::string> keys = keys_in(run_tessera({"cache", "ls"}, bundle).out);
  REQUIRE(keys.size() >= 2);
  CHECK(run_tessera({"cache", "verify"}, bundle).out ==
        std::to_string(keys.size()) + " entries are whole, 0 damaged\n");
  const auto listed = nlohmann::json::parse(run_tessera({"cache", "ls", "--json"}, bundle).out);
  REQUIRE(listed.size() == keys.size());
  CHECK(listed[0].at("key") == keys[0]);
  CHECK(listed[0].at("bytes").is_number());
  CHECK(listed[0].at("hours") == "-");  // of a file that nobody prunes
  CHECK(listed[0].at("launch").get<std::string>().starts_with("grid ("));
  CHECK(nlohmann::json::parse(run_tessera({"cache", "verify", "--json"}, bundle).out).at("whole") ==
        keys.size());
  const ProgramResult usage = run_tessera({"cache", "du"}, bundle);
  CHECK(usage.out.find("bundle  sm_80 ") != std::string::npos);
  CHECK(usage.out.find("bundle  sm_90a") != std::string::npos);
  CHECK(run_tessera({"cache", "explain", keys[0]}, bundle).out.find("transpose") !=
        std::string::npos);
  std::string bytes = read_text(bundle);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(bundle, bytes);
  const ProgramResult damaged = run_tessera({"cache", "verify"}, bundle);
  CHECK(damaged.exit_code == 1);
  CHECK(damaged.out == std::to_string(keys.size() - 1) + " entries are whole, 1 damaged\n");
  CHECK(damaged.err.find("tessera: " + bundle + ", kernel ") == 0);
  write_text(bundle, "TESSERAB but no more");
  CHECK(run_tessera({"cache", "ls"}, bundle).err ==
        "tessera: bundle " + bundle +
            " cannot be used\n"
            "  expected  a whole bundle that can be trusted\n"
            "  got       it is not a bundle\n");
}

TEST_CASE("compile makes a bundle, and the cache can be looked into, checked and emptied",
          "[cli][cache][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string cache = folder.path("cache");
  const std::string bundle = folder.path("kernels.tsb");
  const ProgramResult made =
      run_tessera({"compile", "topk_gate", "--arch", "sm_80,sm_90a", "--out", bundle}, cache);
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(made.out.find(" kernels for 2 targets, ") != std::string::npos);
  CHECK(
      run_tessera({"compile", "topk_gate", "--arch", "sm_80,sm_90a,sm_80", "--out", bundle}, cache)
          .out == made.out);

  const ProgramResult list = run_tessera({"cache", "ls"}, cache);
  const std::vector<std::string> keys = keys_in(list.out);
  REQUIRE(keys.size() >= 2);
  CHECK(list.out.find("topk_gate") != std::string::npos);
  CHECK(run_tessera({"cache", "du"}, cache).out.find("sm_80") != std::string::npos);
  CHECK(run_tessera({"cache", "verify"}, cache).out ==
        std::to_string(keys.size()) + " entries are whole, 0 damaged\n");
  CHECK(run_tessera({"cache", "prune"}, cache).out == "0 entries removed\n");

  const ProgramResult one = run_tessera({"cache", "explain", keys[0]}, cache);
  CHECK(one.out.find("\ncompiler    NVRTC ") != std::string::npos);
  CHECK(one.out.find("\nparameters  ") != std::string::npos);
  // The kernels of an op are told apart by more than the digest of their Spec.
  CHECK(list.out.find("  grid (") != std::string::npos);
  CHECK(one.out.find("\nlaunch      grid (") != std::string::npos);
  const ProgramResult two = run_tessera({"cache", "explain", keys[0], keys[1]}, cache);
  CHECK(two.exit_code == 0);
  CHECK(two.out.find("\ncompiler") == std::string::npos);  // alike, so not shown
  CHECK(two.out.find(keys[1]) != std::string::npos);
  const ProgramResult none = run_tessera({"cache", "explain", "xyz"}, cache);
  CHECK(none.exit_code == 2);
  CHECK(none.err ==
        "tessera: argument 'key' does not name one entry\n"
        "  expected  the first digits of a key of tessera cache ls\n"
        "  got       'xyz', which begins 0 keys\n");

  const ProgramResult files =
      run_tessera({"cache", "extract", keys[0], "--out", folder.path("")}, cache);
  CHECK(files.exit_code == 0);
  const std::string stem = folder.path("topk_gate-" + keys[0].substr(0, 8));
  CHECK(read_text(stem + ".cubin").substr(1, 3) == "ELF");
  CHECK(read_text(stem + ".cu").find("__global__") != std::string::npos);

  // A bundle is a cache folder of its own kind: what is in it is not compiled again.
  const ProgramResult doctor = run_tessera({"doctor"}, bundle);
  CHECK(doctor.out.find(bundle + ": trusted, a bundle") != std::string::npos);
  const ProgramResult again =
      run_tessera({"compile", "topk_gate", "--arch", "sm_80,sm_90a", "--out", folder.path("again")},
                  bundle, {"TESSERA_JIT=off"});
  CAPTURE(again.err);
  CHECK(again.exit_code == 0);
  CHECK(read_text(folder.path("again")).size() > 1000);
  const ProgramResult missing =
      run_tessera({"compile", "topk_gate", "--arch", "sm_120a", "--out", folder.path("never")},
                  bundle, {"TESSERA_JIT=off"});
  CHECK(missing.exit_code == 1);
  CHECK(
      missing.err.find("tessera: topk_gate: the kernel is in no bundle, and compiling is switched "
                       "off (TESSERA_JIT=off)\n  expected  a bundle with sm_120a, Spec ") == 0);

  CHECK(run_tessera({"cache", "clear"}, cache).out ==
        std::to_string(keys.size()) + " entries removed\n");
  CHECK(keys_in(run_tessera({"cache", "ls"}, cache).out).empty());
}

/// For child processes: NVRTC itself for one family, for the others one that compiles empty kernels, in `folder` with the
/// builtins that tell its version. What NVRTC makes of their texts is looked at where work is counted.
std::vector<std::string> compiler_for(const std::string& family, const TemporaryFolder& folder) {
  if (family == "moe") return {};
  const runtime::Nvrtc& nvrtc = runtime::Runtime::instance().nvrtc();
  const auto slash = nvrtc.builtins.rfind('/');
  if (slash == std::string::npos) return {};
  const std::string library = folder.path("libnvrtc.so");
  std::filesystem::create_symlink(test::in_build("libtessera_quick_nvrtc.so"), library);
  std::filesystem::create_symlink(nvrtc.builtins, folder.path(nvrtc.builtins.substr(slash + 1)));
  return {"TESSERA_NVRTC=" + library, "QUICK_NVRTC_OF=" + nvrtc.path};
}

/// The kernels of examples are compiled once: a second process finds them in the cache, a bundle is made of them, and it
/// serves where no libnvrtc is.
void serve_family(const std::string& family) {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string cache = folder.path("cache"), bundle = folder.path("kernels.tsb");
  std::vector<std::string> words = {test::in_build("every_op_program")};
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family == family) words.push_back(op.name);
  }
  const std::vector<std::string> compiler = compiler_for(family, folder);
  std::vector<std::string> environment = compiler;
  environment.push_back("TESSERA_CACHE_DIR=" + cache);
  const test::ChildResult cold = test::run_program(words, environment);
  words.push_back("no-compiler");
  const test::ChildResult warm = test::run_program(words, environment);
  CHECK(cold.exit_code == 0);
  CHECK(warm.exit_code == 0);
  CHECK(warm.output == cold.output);
  CHECK(cold.output.size() > 1000);

  const ProgramResult made = run_tessera({"compile", family, "--out", bundle}, cache, compiler);
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  const std::vector<std::string> without = {"TESSERA_JIT=off",
                                            "TESSERA_NVRTC=/nowhere/libnvrtc.so"};
  const std::string again = folder.path("again.tsb");
  const ProgramResult served = run_tessera({"compile", family, "--out", again}, bundle, without);
  CHECK(served.err.empty());
  CHECK(served.exit_code == 0);
  const auto count = [](const ProgramResult& result) {
    return result.out.substr(result.out.find(": "),
                             result.out.find(" kernels") - result.out.find(": "));
  };
  CHECK(count(served) == count(made));
  // The served kernels are a bundle as good as the first.
  CHECK(run_tessera({"compile", family, "--out", folder.path("third.tsb")}, again, without)
            .exit_code == 0);
}

TESSERA_TEST_EACH_FAMILY(
    "a process that finds its kernels in the cache, or in a bundle, opens no libnvrtc (R22.10)",
    "[cli][cache][slow]", serve_family)

TEST_CASE("keys and binaries do not depend on what a process made before (C01)",
          "[cli][cache][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const std::string program = test::in_build("every_op_program");
  const auto made = [&](const std::string& first, const std::string& second) {
    const test::ChildResult child =
        test::run_program({program, first, second}, {"TESSERA_CACHE=off"});
    CHECK(child.exit_code == 0);
    std::vector<std::string> lines;
    std::istringstream text(child.output);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const std::vector<std::string> one_way = made("transpose", "topk_gate");
  CHECK(one_way.size() >= 4);
  CHECK(made("topk_gate", "transpose") == one_way);
}

TEST_CASE("prune and clear leave alone what is only read", "[cli][cache][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string own = folder.path("own"), layer = folder.path("layer");
  REQUIRE(run_tessera({"compile", "topk_gate", "--out", folder.path("b")}, layer).exit_code == 0);
  const size_t num_keys = keys_in(run_tessera({"cache", "ls"}, layer).out).size();
  REQUIRE(num_keys > 0);
  for (const char* word : {"prune", "clear"}) {
    const ProgramResult read_only = run_tessera({"cache", word}, layer, {"TESSERA_CACHE=ro"});
    CHECK(read_only.exit_code == 1);
    CHECK(read_only.err ==
          "tessera: no cache folder is written, and what is only read stays as it is\n"
          "  expected  TESSERA_CACHE=rw, and a folder first in TESSERA_CACHE_DIR\n"
          "  got       TESSERA_CACHE=ro\n");
    const ProgramResult layered = run_tessera({"cache", word}, own + ":" + layer);
    CHECK(layered.exit_code == 0);
    CHECK(layered.out == "0 entries removed\n");
    CHECK(run_tessera({"cache", word}, folder.path("b")).exit_code == 1);
  }
  CHECK(keys_in(run_tessera({"cache", "ls"}, layer).out).size() == num_keys);
}

TEST_CASE("a prune that cannot be made fails", "[cli][cache]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("cache"));
  const std::string path = folder.path("cache/prune.lock");
  const int held = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  REQUIRE(::fcntl(held, F_OFD_SETLK, &lock) == 0);
  const ProgramResult result = run_tessera({"cache", "prune"}, folder.path("cache"));
  ::close(held);
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK(result.err == "tessera: " + folder.path("cache") +
                          ": another process is pruning it, or it cannot be written\n");
}

TEST_CASE("verify names a damaged entry and fails", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string cache = folder.path("cache");
  REQUIRE(run_tessera({"compile", "topk_gate", "--out", folder.path("b")}, cache).exit_code == 0);
  std::string entry;
  for (const auto& item : std::filesystem::recursive_directory_iterator(cache)) {
    if (item.path().extension() == ".tsk") entry = item.path().string();
  }
  REQUIRE_FALSE(entry.empty());
  std::filesystem::resize_file(entry, 1000);
  const ProgramResult result = run_tessera({"cache", "verify"}, cache);
  CHECK(result.exit_code == 1);
  CHECK(result.err == "tessera: " + entry + ": truncated\n");
}

TEST_CASE("wrong words for compile and cache are wrong usage", "[cli][cache][slow]") {
  const TemporaryFolder folder;
  CHECK(run_tessera({"compile", "topk_gate"}).err.find("--out is required") != std::string::npos);
  const ProgramResult arch =
      run_tessera({"compile", "topk_gate", "--arch", "sm_90a,hopper", "--out", folder.path("x")});
  CHECK(arch.exit_code == 2);
  CHECK(arch.err ==
        "tessera: unknown target 'hopper'\n"
        "  expected  targets with commas between, such as sm_90a,sm_100a\n"
        "  got       sm_90a,hopper\n");
  CHECK(run_tessera({"compile", "topk_gate", "--arch", "", "--out", folder.path("x")}).err ==
        "tessera: no target\n"
        "  expected  targets with commas between, such as sm_90a,sm_100a\n"
        "  got       an empty list\n");
  for (const char* list : {"", "sm_90a,sm_80"}) {
    const std::string said = "tessera: unknown target '" + std::string(list) + "'\n";
    const ProgramResult cold = run_tessera({"bench", "topk_gate", "--cold", "--arch", list});
    CHECK(cold.exit_code == 2);
    CHECK(cold.err.find(said) == 0);
    if (*list == '\0') continue;  // check without a target compiles nothing
    const ProgramResult check = run_tessera({"check", "topk_gate", "--arch", list});
    CHECK(check.exit_code == 2);
    CHECK(check.err.find(said) == 0);
  }
  for (const char* target : {"sm_90f", "sm_80a", "sm_75"}) {
    const std::string said = "tessera: no kernel can be made for " + std::string(target) + "\n";
    const ProgramResult list =
        run_tessera({"compile", "topk_gate", "--arch", target, "--out", folder.path("x")});
    CHECK(list.exit_code == 2);
    CHECK(list.err.find(said) == 0);
    const ProgramResult show =
        run_tessera({"show", "topk_gate", "--stage", "ptx", "--arch", target});
    CHECK(show.exit_code == 2);
    CHECK(show.err.find(said) == 0);
  }
  CHECK(run_tessera({"cache"}).exit_code == 2);
  CHECK(run_tessera({"cache", "eat"}).exit_code == 2);
}

}  // namespace tessera::tests
