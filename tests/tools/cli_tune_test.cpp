// tessera tune without a GPU: candidates, and the stored entries (T11).

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "runtime/cache/tuned.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/tune/tuner.h"

namespace tessera::tests {
namespace {

runtime::TunedEntry entry_of(const std::string& op, int64_t rows, const std::string& date) {
  runtime::TunedEntry entry;
  entry.key = {op, 1, {{"bytes", 2}}, {}, "NVIDIA H200", 132, "sm_90a"};
  entry.choice = {{"rows", rows}, {"cols", 128}, {"threads", 512}};
  entry.us = 12.5;
  entry.standard_us = 14;
  entry.date = date;
  return entry;
}

/// A user's database.
struct Stored {
  Stored() { options.tune_dir = folder.path("tuned"); }
  void add(const runtime::TunedEntry& entry) { REQUIRE(publish_tuned(options, entry).empty()); }
  ProgramResult run(std::vector<std::string> words) const {
    words.insert(words.begin(), "tune");
    return run_tessera(words, "", {"TESSERA_TUNE_DIR=" + options.tune_dir});
  }
  std::vector<runtime::TunedEntry> entries() const {
    return read_tuned(options, "NVIDIA H200", 132).entries;
  }
  TemporaryFolder folder;
  runtime::Options options;
};

}  // namespace

TEST_CASE("tune lists candidates without a GPU, and says what it needs", "[cli][tune]") {
  const ProgramResult dry = run_tessera({"tune", "transpose", "--case", "bf16", "--dry-run"});
  CHECK(dry.exit_code == 0);
  CHECK(dry.out.find("transpose R=8064 C=7168 x=bf16") == 0);
  CHECK(dry.out.find("\n  cols=128 rows=128 threads=512\n") < dry.out.find("cols=64"));
  CHECK(run_tessera({"tune", "topk_gate", "--dry-run"}).out ==
        "nothing to tune: these kernels leave no choice open\n");
  const ProgramResult failed = run_tessera({"tune", "transpose"}, "", {"CUDA_VISIBLE_DEVICES="});
  CHECK(failed.exit_code == 1);
  CHECK(failed.err.find("tessera: tune needs a GPU\n") == 0);
  CHECK(run_tessera({"tune"}).exit_code == 2);
  CHECK(run_tessera({"tune", "transpose", "--budget", "0"}).exit_code == 2);
  const ProgramResult none =
      run_tessera({"tune", "show", "transpose"}, "", {"TESSERA_TUNE_DIR=/nowhere/tuned"});
  CHECK(none.exit_code == 1);
  CHECK(none.err.find("nothing is stored for it") != std::string::npos);
  const ProgramResult no_model =
      run_tessera({"compile", "transpose", "--gpu", "B300", "--out", "x"}, "",
                  {"TESSERA_TUNE_DIR=/nowhere/tuned"});
  CHECK(no_model.exit_code == 2);
  CHECK(no_model.err.find("tessera: no tile sizes are stored for this GPU\n"
                          "  expected  one of: NVIDIA H100 80GB HBM3, 132 SMs\n"
                          "  got       B300\n") == 0);
  CHECK(run_tessera({"tune", "ls", "--json"}, "", {"TESSERA_TUNE_DIR=/nowhere/tuned"}).out ==
        "[]\n");
}

TEST_CASE("tune takes cases with other values of parameters", "[cli][tune]") {
  const ProgramResult dry =
      run_tessera({"tune", "expand_to_mhc_fwd", "-p", "mhc_mult=2", "--dry-run"});
  CHECK(dry.exit_code == 0);
  CHECK(dry.out.find(" mhc_mult=2: ") != std::string::npos);
  const ProgramResult unknown = run_tessera({"tune", "transpose", "-p", "rows=1", "--dry-run"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("tessera: transpose: unknown parameter 'rows'") == 0);
}

TEST_CASE("tune takes the cases of a recording", "[cli][tune][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string recording = folder.path("specs.jsonl");
  const ProgramResult compiled =
      run_tessera({"compile", "transpose", "--arch", "sm_90a", "--out", folder.path("k.tsb")}, "",
                  {"TESSERA_RECORD=" + recording, "TESSERA_CACHE=off"});
  REQUIRE(compiled.exit_code == 0);
  const ProgramResult dry = run_tessera({"tune", "--specs", recording, "--dry-run"});
  CHECK(dry.exit_code == 0);
  CHECK(dry.out.find("transpose R=8064 C=7168 x=bf16") != std::string::npos);
  CHECK(dry.out.find("batched_transpose") == std::string::npos);
  CHECK(run_tessera({"tune", "transpose", "--specs", recording, "--dry-run"}).exit_code == 2);
  CHECK(run_tessera({"tune", "--specs", "/nowhere", "--dry-run"}).exit_code == 2);
}

TEST_CASE("a bundle for a GPU model holds stored and standard choices (T11, U48)",
          "[cli][tune][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  Stored stored;
  const kernels::OpInfo& op = kernels::find_op("expand_to_mhc_fwd");
  const auto asked = tools::open_choices(op, op.bench.front(), {9, 0, 'a'});
  REQUIRE(asked.size() == 1);
  const kernels::jit::TuneSpace& space = *asked[0].space;
  runtime::TunedEntry entry = entry_of(op.name, 1, "2026-01-01");
  entry.key.spec = asked[0].facts.spec;
  entry.key.bucket = space.bucket_of(asked[0].facts);
  entry.choice = named(space, candidates(space, asked[0].facts).at(1));
  stored.add(entry);
  const std::string bundle = stored.folder.path("k.tsb");
  const std::string tune_dir = "TESSERA_TUNE_DIR=" + stored.options.tune_dir;
  const auto compile = [&](const std::string& out, const std::string& cache,
                           const std::vector<std::string>& variables) {
    std::vector<std::string> words = {"compile", op.name, "--arch", "sm_90a",
                                      "--gpu",   "H200",  "--out",  stored.folder.path(out)};
    return run_tessera(words, cache, variables);
  };
  REQUIRE(compile("k.tsb", "", {tune_dir}).exit_code == 0);
  CHECK(compile("again", bundle, {tune_dir, "TESSERA_JIT=off"}).exit_code == 0);
  CHECK(run_tessera({"compile", op.name, "--arch", "sm_90a", "--out", stored.folder.path("own")},
                    bundle, {"TESSERA_JIT=off"})
            .exit_code == 0);
  // Without the stored choice the bundle lacks one kernel.
  REQUIRE(
      run_tessera({"compile", op.name, "--arch", "sm_90a", "--out", bundle}, "", {}).exit_code ==
      0);
  CHECK(compile("never", bundle, {tune_dir, "TESSERA_JIT=off"}).exit_code == 1);
}

TEST_CASE("explain names where tile sizes come from (T11)", "[cli][tune]") {
  const ProgramResult own =
      run_tessera({"show", "transpose", "--stage", "explain", "--arch", "sm_90a"});
  CHECK(own.out.find("// tile sizes of transpose: cols=256 rows=128 threads=512 (standard)\n") ==
        0);
  Stored stored;
  runtime::TunedEntry entry = entry_of("transpose", 64, "2026-01-01");
  entry.key.spec = {{"align", 16},
                    {"bytes", 1},
                    {"cols_multiple", 128},
                    {"rows_multiple", 64},
                    {"stride_multiple", 256}};
  entry.choice = {{"rows", 64}, {"cols", 128}, {"threads", 256}};
  stored.add(entry);
  const auto explain = [&](const std::string& mode) {
    return run_tessera(
               {"show", "transpose", "--stage", "explain", "--arch", "sm_90a", "--gpu", "H200"}, "",
               {"TESSERA_TUNE_DIR=" + stored.options.tune_dir, "TESSERA_TUNE=" + mode})
        .out;
  };
  const std::string tuned = explain("cached");
  CHECK(tuned.find("// tile sizes of transpose: cols=128 rows=64 threads=256 (user)\n") == 0);
  CHECK(tuned.substr(tuned.find('\n')) != own.out.substr(own.out.find('\n')));  // its kernel
  CHECK(explain("off") == own.out);
  CHECK(run_tessera({"show", "transpose", "--gpu", "B200"}).exit_code == 2);
}

TEST_CASE("tune moves entries from one database to another", "[cli][tune]") {
  Stored from, to;
  from.add(entry_of("transpose", 64, "2026-01-02"));
  from.add(entry_of("own", 32, "2026-01-02"));
  to.add(entry_of("transpose", 128, "2026-01-01"));
  to.add(entry_of("own", 16, "2026-01-03"));
  const std::string file = from.folder.path("all.json");
  CHECK(from.run({"export", file}).out == "2 entries\n");
  CHECK(to.run({"import", file}).out == "2 entries\n");
  std::map<std::string, int64_t> rows;
  for (const runtime::TunedEntry& entry : to.entries()) {
    rows[entry.key.op] = entry.choice.at("rows");
  }
  CHECK(rows == std::map<std::string, int64_t>{{"own", 16}, {"transpose", 64}});  // newer ones win
  CHECK(from.run({"export", file, "--op", "own", "--gpu", "H200"}).out == "1 entries\n");
  CHECK(from.run({"export", file, "--gpu", "B200"}).out == "0 entries\n");
  write_text(file, "[{}]");
  const ProgramResult damaged = to.run({"import", file});
  CHECK(damaged.exit_code == 2);
  CHECK(damaged.err == "tessera: " + file +
                           " holds no tile sizes that can be read\n"
                           "  expected  a file of `tessera tune --out` or `tune export`\n"
                           "  got       entry 1: it lacks 'op'\n");
  CHECK(to.entries().size() == 2);
}

TEST_CASE("tune says what changed between two files", "[cli][tune]") {
  Stored before, after;
  before.add(entry_of("transpose", 64, "2026-01-01"));
  before.add(entry_of("gone", 64, "2026-01-01"));
  after.add(entry_of("transpose", 128, "2026-01-02"));
  after.add(entry_of("new", 64, "2026-01-02"));
  const std::string a = before.folder.path("a.json"), b = before.folder.path("b.json");
  REQUIRE(before.run({"export", a}).exit_code == 0);
  REQUIRE(after.run({"export", b}).exit_code == 0);
  const std::string text = run_tessera({"tune", "diff", a, b}).out;
  CHECK(text.find("cols=128 rows=64 threads=512 (12.50 us)  cols=128 rows=128 threads=512 (12.50 "
                  "us)\n") != std::string::npos);
  CHECK(text.find("gone ") != std::string::npos);
  CHECK(text.find("new ") != std::string::npos);
  CHECK(run_tessera({"tune", "diff", a, a}).out == "the same choices\n");
  CHECK(run_tessera({"tune", "diff", a, "/nowhere"}).exit_code == 2);
}

TEST_CASE("tune prunes what no kernel can use, and keeps what is of unknown ones", "[cli][tune]") {
  Stored stored;
  stored.add(entry_of("transpose", 64, "2026-01-01"));
  runtime::TunedEntry revised = entry_of("batched_transpose", 64, "2026-01-01");
  revised.key.revision = 0;
  stored.add(revised);
  runtime::TunedEntry renamed = entry_of("transpose", 64, "2026-01-01");
  renamed.key.spec["align"] = 16;
  renamed.choice = {{"height", 64}};
  stored.add(renamed);
  stored.add(entry_of("own", 32, "2026-01-01"));
  const std::string pruned =
      "batched_transpose bytes=2, NVIDIA H200: of revision 0, now 1\n"
      "transpose align=16 bytes=2, NVIDIA H200: chooses height, now cols, rows, threads\n";
  CHECK(stored.run({"prune", "--dry-run"}).out == pruned);
  CHECK(stored.entries().size() == 4);
  CHECK(stored.run({"prune"}).out == pruned);
  REQUIRE(stored.entries().size() == 2);
  CHECK(stored.entries()[0].key.op == "transpose");
  CHECK(stored.entries()[1].key.op == "own");
  CHECK(stored.run({"prune"}).out == "nothing to prune\n");
}

TEST_CASE("tune import keeps every entry under a umask that lets a group write", "[cli][tune]") {
  Stored from, to;
  for (const char* op : {"a", "b", "c"}) from.add(entry_of(op, 64, "2026-01-01"));
  const std::string file = from.folder.path("all.json");
  REQUIRE(from.run({"export", file}).exit_code == 0);
  const mode_t before = ::umask(002);
  const ProgramResult imported = to.run({"import", file});
  ::umask(before);
  CHECK(imported.out == "3 entries\n");
  CHECK(to.entries().size() == 3);
}

TEST_CASE("tune import stores all entries of a file, or none on a full disk", "[cli][tune]") {
  Stored to;
  to.add(entry_of("before", 64, "2026-01-01"));
  std::vector<runtime::TunedEntry> many;
  for (int i = 0; i < 2000; ++i) {  // took a minute when each was written by itself
    many.push_back(entry_of("op" + std::to_string(i), 64, "2026-01-01"));
  }
  const std::string file = to.folder.path("all.json");
  write_text(file, encode_tuned(many));
  struct rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const struct rlimit small = {16384, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const ProgramResult full = to.run({"import", file});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK(full.exit_code == 1);
  CHECK(full.out == "0 entries\n");
  CHECK(full.err == "tessera: not stored: " + to.options.tune_dir +
                        "/nvidia-h200_132sm.json cannot be written: File too large\n");
  CHECK(to.entries().size() == 1);
  CHECK(to.run({"import", file}).out == "2000 entries\n");
  CHECK(to.entries().size() == 2001);
}

TEST_CASE("tune names the stored files that it cannot read, and fails", "[cli][tune]") {
  Stored stored;
  stored.add(entry_of("transpose", 64, "2026-01-01"));
  const std::string bad = stored.options.tune_dir + "/nvidia-b200_148sm.json";
  write_text(bad, "[");
  const std::string file = stored.folder.path("all.json");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"ls"}, {"show", "transpose"}, {"prune"}, {"export", file}}) {
    CAPTURE(words[0]);
    const ProgramResult result = stored.run(words);
    CHECK(result.exit_code == 1);
    CHECK(result.err == "tessera: not read: " + bad + ": it is no JSON list of entries\n");
  }
  CHECK(stored.run({"import", file}).out == "1 entries\n");  // what could be read was exported
}

TEST_CASE("tune lists what it stored in a cache folder with files of others", "[cli][tune]") {
  Stored from;
  from.add(entry_of("transpose", 64, "2026-01-01"));
  const std::string file = from.folder.path("all.json"), cache = from.folder.path("home");
  REQUIRE(from.run({"export", file}).exit_code == 0);
  std::filesystem::create_directory(cache);
  write_text(cache + "/letter.txt", "not Tessera's");
  CHECK(run_tessera({"tune", "import", file}, cache).out == "1 entries\n");
  CHECK(run_tessera({"tune", "ls"}, cache).out.find("transpose  bytes=2") != std::string::npos);
  CHECK(run_tessera({"tune", "export", file}, cache).out == "1 entries\n");
}

}  // namespace tessera::tests
