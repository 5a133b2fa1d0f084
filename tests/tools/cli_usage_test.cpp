// The program's output without running an op: words, exit codes, listings.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

TEST_CASE("unknown commands and words are wrong usage, with the nearest", "[cli]") {
  const ProgramResult typo = run_tessera({"lsit"});
  CHECK(typo.exit_code == 2);
  CHECK(typo.out.empty());
  CHECK(typo.err ==
        "tessera: unknown command 'lsit'\n"
        "  expected  list, run, show, check, bench, tune, report, compile, cache, doctor, docs, "
        "completion\n"
        "  got       lsit\n"
        "  hint      did you mean 'list'?\n");
  const ProgramResult inner = run_tessera({"cache", "lss"});
  CHECK(inner.exit_code == 2);
  CHECK(inner.err.find("tessera: unknown command 'lss'\n  expected  ls, ") == 0);
  CHECK(inner.err.find("  hint      did you mean 'ls'?\n") != std::string::npos);
  const ProgramResult option = run_tessera({"--foo"});
  CHECK(option.exit_code == 2);
  CHECK(option.err ==
        "tessera: unknown option '--foo'\n"
        "  expected  -h, --help, -V, --version\n"
        "  got       --foo\n");
  const ProgramResult of_run =
      run_tessera({"run", "transpose", "-pa=1", "--in", "--foo", "--ouT=x", "--device", "cpu"});
  CHECK(of_run.exit_code == 2);
  CHECK(of_run.err ==
        "tessera: unknown option '--ouT'\n"
        "  expected  -h, --help, -p, --param, --in, --out, --device, --traps\n"
        "  got       --ouT\n"
        "  hint      did you mean '--out'?\n");
  const ProgramResult none = run_tessera({});
  CHECK(none.exit_code == 2);
  CHECK(none.out == run_tessera({"--help"}).out);
  const ProgramResult missing = run_tessera({"run", "transpose", "--in", "x"});
  CHECK(missing.exit_code == 2);
  CHECK(missing.err.find("--out is required") != std::string::npos);
  const ProgramResult stage = run_tessera({"show", "transpose", "--stage", "asm"});
  CHECK(stage.exit_code == 2);
  CHECK(stage.err ==
        "tessera: --stage: unknown stage 'asm', expected ir, layout, thread, cuda, ptx, sass, "
        "explain "
        "or after:PASS\n"
        "  hint      run with --help for the words it knows\n");
  const ProgramResult pass = run_tessera({"show", "transpose", "--stage", "after:lower_tile"});
  CHECK(pass.err.find("did you mean 'after:lower_tiles'?") != std::string::npos);
}

TEST_CASE("a message for a closed or full stderr is lost, the exit code stays", "[cli]") {
  const std::string program = test::in_build("tools/tessera");
  for (const char* to : {"2>&-", "2>/dev/full"}) {
    const test::ChildResult result =
        test::run_program({"sh", "-c", "exec \"$0\" lsit " + std::string(to), program}, {});
    CHECK(result.exit_code == 2);
  }
}

TEST_CASE("check and bench name ops, families and all", "[cli]") {
  const ProgramResult check = run_tessera({"check", "mo"});
  CHECK(check.exit_code == 2);
  CHECK(check.err ==
        "tessera: unknown op or family 'mo'\n"
        "  expected  an op of `tessera list`, moe, quant, transpose, engram, mhc, modeling, gemm, "
        "serving, attention, linear or all\n"
        "  got       mo\n"
        "  hint      did you mean 'moe'?\n");
  CHECK(run_tessera({"bench", "per_token_cats"}).err.find("'per_token_cast'?") !=
        std::string::npos);
}

TEST_CASE("version is no error", "[cli]") {
  for (const char* option : {"-V", "--version"}) {
    const ProgramResult version = run_tessera({option});
    CHECK(version.exit_code == 0);
    CHECK(version.out.find("tessera ") == 0);
    CHECK(version.err.empty());
  }
}

TEST_CASE("help is a command too", "[cli]") {
  CHECK(run_tessera({"help"}).out == run_tessera({"--help"}).out);
  const ProgramResult run = run_tessera({"help", "run"});
  CHECK(run.exit_code == 0);
  CHECK(run.out == run_tessera({"run", "--help"}).out);
  CHECK(run_tessera({"help", "cache", "ls"}).out == run_tessera({"cache", "ls", "--help"}).out);
  const ProgramResult typo = run_tessera({"help", "rnu"});
  CHECK(typo.exit_code == 2);
  CHECK(typo.err.find("  hint      did you mean 'run'?\n") != std::string::npos);
}

TEST_CASE("words with control characters do not reach the terminal", "[cli]") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"list", "\x1B[31mred\xC2\x9B"},
                                             {"list", "--json", "transpose", "\x1B[31m"},
                                             {"\x1B[31m"},
                                             {"--\x1B[31m"},
                                             {"check", "transpose", "--seed", "\x1B[31m"},
                                             {"show", "transpose", "--stage", "\x1B[31m"}}) {
    const ProgramResult result = run_tessera(words);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("\\x1b[31m") != std::string::npos);
    CHECK(result.err.find('\x1B') == std::string::npos);
    CHECK(result.err.find('\x9B') == std::string::npos);
  }
  const ProgramResult warning =
      run_tessera({"show", "transpose", "--stage", "ptx"}, "", {"TESSERA_PDL=\x1B[31m"});
  CHECK(warning.err.find("\\x1b[31m") != std::string::npos);
  CHECK(warning.err.find('\x1B') == std::string::npos);
  const ProgramResult doctor = run_tessera({"doctor"}, "", {"TESSERA_PDL=\x1B[31m"});
  CHECK(doctor.out.find("\\x1b[31m") != std::string::npos);
  CHECK(doctor.out.find('\x1B') == std::string::npos);
}

TEST_CASE("a reader that goes away is a failure, not the end of the process", "[cli]") {
  const std::string program = test::in_build("tools/tessera");
  for (const char* command : {"list", "--help"}) {
    const test::ChildResult result = test::run_program(
        {"bash", "-c",
         "exec 3> >(:); wait $!; \"$0\" " + std::string(command) + " >&3; echo \"status $?\" >&2",
         program},
        {});
    CHECK(result.output.find("status 1\n") != std::string::npos);
  }
}

TEST_CASE("help is no error", "[cli]") {
  const ProgramResult help = run_tessera({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(help.err.empty());
  for (const char* command :
       {"list", "run", "show", "check", "bench", "tune", "report", "compile", "cache", "doctor"}) {
    CHECK(help.out.find(command) != std::string::npos);
    const ProgramResult sub = run_tessera({command, "--help"});
    CHECK(sub.exit_code == 0);
    CHECK(sub.err.empty());
  }
}

TEST_CASE("list prints every op, as JSON and as text", "[cli]") {
  const ProgramResult json = run_tessera({"list", "--json"});
  CHECK(json.exit_code == 0);
  CHECK(json.err.empty());
  const auto listed = nlohmann::json::parse(json.out);
  REQUIRE(listed.at("ops").size() == kernels::ops().size());
  const ProgramResult text = run_tessera({"list"});
  CHECK(text.exit_code == 0);
  for (const kernels::OpInfo& op : kernels::ops()) {
    CHECK(text.out.find(op.name + " (" + op.family + "): ") != std::string::npos);
  }
  const ProgramResult unknown = run_tessera({"list", "--family", "no_such_family"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("tessera: unknown family 'no_such_family'\n") == 0);
}

TEST_CASE("list shows one op or one family", "[cli]") {
  const ProgramResult one = run_tessera({"list", "per_token_cast"});
  CHECK(one.exit_code == 0);
  CHECK(one.out.find("per_token_cast (quant): ") == 0);
  CHECK(one.out.find("\n\n") == std::string::npos);
  CHECK(run_tessera({"list", "moe"}).out == run_tessera({"list", "--family", "moe"}).out);
  CHECK(nlohmann::json::parse(run_tessera({"list", "transpose", "--json"}).out).at("ops").size() ==
        1);
  const ProgramResult typo = run_tessera({"list", "per_token_cats"});
  CHECK(typo.exit_code == 2);
  CHECK(typo.err.find("  hint      did you mean 'per_token_cast'?\n") != std::string::npos);
}

TEST_CASE("list finds ops by what a user calls them", "[cli]") {
  const auto finds = [](const std::string& word, const std::string& op) {
    const ProgramResult found = run_tessera({"list", word});
    CAPTURE(word, op, found.out, found.err);
    CHECK(found.exit_code == 0);
    CHECK(found.out.find("\n" + op + " ") != std::string::npos);
  };
  finds("quantize", "per_token_cast");
  finds("Dequantise", "per_token_cast_back");
  finds("fp8", "gemm_fp8_block");
  finds("fp8", "per_block_cast");
  finds("softmax", "top2_sum_gate");
  finds("matmul", "gemm_bf16");
  finds("doubly", "sinkhorn_fwd");  // of a purpose
  finds("convolution", "causal_conv1d_fwd");
  const ProgramResult none = run_tessera({"list", "winograd"});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("tessera: unknown op or family 'winograd'\n") == 0);
  CHECK(nlohmann::json::parse(run_tessera({"list", "rmsnorm", "--json"}).out).at("ops").size() > 1);
}

TEST_CASE("the tables of check fit the terminal and say what was checked", "[cli][check]") {
  const ProgramResult folded = run_tessera({"check", "moe"}, "", {"COLUMNS=90"});
  CHECK(folded.exit_code == 0);
  std::istringstream lines(folded.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 90);
  CHECK(folded.out.find(": no trap\n") != std::string::npos);
  // In a pipe the words of a case stand in one line, and the figures of a kernel stay in view.
  std::istringstream piped(run_tessera({"check", "moe"}).out);
  for (std::string line; std::getline(piped, line);) {
    if (line.find(": no trap") == std::string::npos) CHECK(line.size() <= 110);
  }
}

TEST_CASE("check takes a case that a user types", "[cli][check]") {
  const ProgramResult typed =
      run_tessera({"check", "post_fwd", "--case-of", "T=3 n=2 H=40", "--case-of", "H=8 n=1 T=1"});
  CHECK(typed.exit_code == 0);
  CHECK(typed.out.find("T=3 n=2 H=40") != std::string::npos);
  CHECK(typed.out.find("H=8 n=1 T=1") != std::string::npos);
  CHECK(typed.out.find("T=5 n=4 H=7168") == std::string::npos);
  const auto told = [](const std::string& op, const std::string& text) {
    const ProgramResult result = run_tessera({"check", op, "--case-of", text});
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(told("post_fwd", "T=3 m=2 H=40") ==
        "tessera: post_fwd: unknown word 'm' in a case\n"
        "  expected  T, H, n\n"
        "  got       m=2\n");
  CHECK(told("post_fwd", "T=3 H=40") ==
        "tessera: post_fwd: the case says nothing of 'n'\n"
        "  expected  n=number\n"
        "  got       T=3 H=40\n");
  CHECK(told("post_fwd", "T=3 n=2 H=40 T=4") ==
        "tessera: post_fwd: 'T' is given twice\n"
        "  expected  each word once\n"
        "  got       T=3 n=2 H=40 T=4\n");
  CHECK(told("post_fwd", "T=3 n=9 H=40")
            .starts_with(
                "tessera: post_fwd: argument 'residual': so many streams are not supported\n"));
  CHECK(
      told("mhc", "T=3 n=2 H=40").starts_with("tessera: argument 'case-of' is a case of one op\n"));
  CHECK(run_tessera({"bench", "post_fwd", "--case-of", "T=3 k=2"}).exit_code == 2);
  CHECK(run_tessera({"bench", "post_fwd", "--against", "/nowhere/record.jsonl"}).exit_code == 2);
  CHECK(run_tessera({"bench", "post_fwd", "--launch", "--record", "times"}).exit_code == 2);
}

TEST_CASE("a seed that no 64 bits hold is wrong usage", "[cli]") {
  for (const char* seed : {"-1", "99999999999999999999", "1x", ""}) {
    CAPTURE(seed);
    const ProgramResult result = run_tessera({"check", "transpose", "--seed", seed});
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("a number of 0 to 2^64 - 1") != std::string::npos);
  }
}

TEST_CASE("the help of list names every family", "[cli]") {
  const ProgramResult help = run_tessera({"list", "--help"});
  for (const kernels::OpInfo& op : kernels::ops()) {
    CHECK(help.out.find(op.family) != std::string::npos);
  }
}

TEST_CASE("without a folder for temporary files bench --cold says so", "[cli]") {
  const ProgramResult cold = run_tessera({"bench", "topk_gate", "--cold"}, "", {"TMPDIR=/nowhere"});
  CHECK(cold.exit_code == 1);
  CHECK(cold.err.find("tessera: cannot make a folder for temporary files\n") == 0);
}

TEST_CASE("doctor tells what it finds, and does not fail for it", "[cli]") {
  const TemporaryFolder folder;
  const ProgramResult doctor = run_tessera({"doctor"}, folder.path("cache"));
  CHECK(doctor.exit_code == 0);
  CHECK(doctor.err.empty());
  for (const char* subject :
       {"tessera ", "loaded from ", "driver ", "nvrtc ", "cupti ", "cache ", "root "}) {
    CAPTURE(subject, doctor.out);
    CHECK(doctor.out.find(subject) != std::string::npos);
  }
  CHECK(doctor.out.find(folder.path("cache") + ": not there yet, new entries go here\n") !=
        std::string::npos);
  CHECK(doctor.out.find("sm_75") == std::string::npos);  // of NVRTC, and none of ours
  CHECK(folder.num_files() == 0);                        // it tried to make one
}

TEST_CASE("doctor fails for a bundle that is missing, and makes no folder of its name", "[cli]") {
  const TemporaryFolder folder;
  const std::string bundle = folder.path("nosuch.tsb");
  const ProgramResult doctor = run_tessera({"doctor"}, bundle);
  CHECK(doctor.exit_code == 1);
  CHECK(doctor.out.find("cache        read only\nroot         " + bundle +
                        ": MISSING, a bundle\n") != std::string::npos);
  CHECK(doctor.out.find("PROBLEM      bundle " + bundle +
                        " is not used: it cannot be opened: No such file or directory\n") !=
        std::string::npos);
  CHECK(doctor.out.find("no kernel runs on a GPU") == std::string::npos);
  CHECK(run_tessera({"doctor", "--json"}, bundle).exit_code == 1);
  const ProgramResult listed = run_tessera({"cache", "ls"}, bundle);
  CHECK(listed.exit_code == 1);
  CHECK(listed.err.find("tessera: bundle " + bundle + " cannot be used\n") == 0);
  CHECK(run_tessera({"tune", "ls"}, bundle).exit_code == 0);
  CHECK(folder.num_files() == 0);
}

TEST_CASE("doctor fails where nothing is compiled and no bundle is named", "[cli]") {
  const TemporaryFolder folder;
  for (const char* mode : {"off", "of"}) {  // a mistyped switch counts as the strictest
    const ProgramResult doctor =
        run_tessera({"doctor"}, folder.path("cache"), {"TESSERA_JIT=" + std::string(mode)});
    CAPTURE(mode, doctor.out);
    CHECK(doctor.exit_code == 1);
    CHECK(doctor.out.find("PROBLEM      nothing is compiled (TESSERA_JIT=off), and "
                          "TESSERA_CACHE_DIR names no bundle that can be used: no kernel runs on a "
                          "GPU\n") != std::string::npos);
  }
}

TEST_CASE("doctor says where new entries cannot go", "[cli]") {
  const TemporaryFolder folder;
  const ProgramResult nowhere = run_tessera({"doctor"}, "/proc/x/cache");
  CHECK(nowhere.exit_code == 0);
  CHECK(nowhere.out.find("root         /proc/x/cache: not there yet, new entries CANNOT go here: "
                         "No such file or directory\n") != std::string::npos);
  const std::string open = folder.path("open");
  std::filesystem::create_directory(open);
  std::filesystem::permissions(open, std::filesystem::perms::all);
  CHECK(run_tessera({"doctor"}, open)
            .out.find("cache        read only\nroot         " + open +
                      ": NOT trusted, new entries CANNOT go here: it is writable by group or "
                      "others (mode 0777)\n") != std::string::npos);
}

TEST_CASE("doctor shows every switch that is set, and a site key that cannot be used", "[cli]") {
  const TemporaryFolder folder;
  const ProgramResult doctor =
      run_tessera({"doctor"}, folder.path("cache"),
                  {"TESSERA_CACHE_KEY_FILE=/nowhere/key", "TESSERA_OVERRIDE_DIR=/nowhere",
                   "TESSERA_PDL=0", "TESSERA_FUZZ_FIRST=1"});
  CHECK(doctor.exit_code == 0);
  for (const char* word :
       {"site key     NOT usable", "set          TESSERA_CACHE_KEY_FILE=/nowhere/key",
        "set          TESSERA_OVERRIDE_DIR=/nowhere", "set          TESSERA_PDL=0",
        "set          TESSERA_FUZZ_FIRST=1"}) {
    CAPTURE(word, doctor.out);
    CHECK(doctor.out.find(word) != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::tests
