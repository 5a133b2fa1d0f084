// The program on a terminal and in a shell: completion, examples, colour, progress, JSON.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

const std::string& program() {
  static const std::string path = test::in_build("tools/tessera");
  return path;
}

bool is_installed(const std::string& shell) {
  return test::run_program({"sh", "-c", "command -v " + shell}, {}).exit_code == 0;
}

/// The words that bash would offer for the last of these.
std::vector<std::string> offered(const std::string& words) {
  const test::ChildResult result = test::run_program(
      {"bash", "-c",
       "source <(\"$0\" completion bash); COMP_WORDS=(" + words +
           "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tessera; printf '%s\\n' \"${COMPREPLY[@]}\"",
       program()},
      {});
  CAPTURE(words, result.output);
  CHECK(result.exit_code == 0);
  std::vector<std::string> lines;
  std::istringstream text(result.output);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// The program's output to a terminal.
std::string on_terminal(const std::string& words, const std::string& no_colour = "") {
  std::vector<std::string> all = {"NO_COLOR=" + no_colour};
  all.emplace_back("TESSERA_CACHE=off");
  all.emplace_back("TERM=xterm");
  return test::run_program({"script", "-qec", program() + " " + words, "/dev/null"}, all).output;
}

TEST_CASE("bash completes commands, ops, options and their values", "[cli][completion]") {
  CHECK(offered("tessera do") == std::vector<std::string>{"doctor", "docs"});
  CHECK(offered("tessera show per_token_cast_to") ==
        std::vector<std::string>{"per_token_cast_to_e5m6"});
  CHECK(offered("tessera show transpose --sta") == std::vector<std::string>{"--stage"});
  CHECK(offered("tessera show transpose --stage c") == std::vector<std::string>{"cuda"});
  CHECK(offered("tessera cache cl") == std::vector<std::string>{"clear"});
  CHECK(offered("tessera cache clear --dr") == std::vector<std::string>{"--dry-run"});
  CHECK(offered("tessera completion f") == std::vector<std::string>{"fish"});
}

TEST_CASE("zsh and fish understand their completion scripts", "[cli][completion]") {
  const TemporaryFolder folder;
  for (const char* shell : {"zsh", "fish"}) {
    const ProgramResult script = run_tessera({"completion", shell});
    CHECK(script.exit_code == 0);
    for (const char* word : {"doctor", "per_token_cast", "stage", "dry-run"}) {
      CAPTURE(shell, word);
      CHECK(script.out.find(word) != std::string::npos);
    }
    if (!is_installed(shell)) continue;
    write_text(folder.path(shell), script.out);
    const test::ChildResult parsed = test::run_program({shell, "-n", folder.path(shell)}, {});
    CAPTURE(shell, parsed.output);
    CHECK(parsed.exit_code == 0);
  }
  CHECK(run_tessera({"completion", "tcsh"}).exit_code == 2);
}

TEST_CASE("the help of every command ends with examples of options that it has", "[cli]") {
  static const std::regex option(" (--?[a-z][a-z-]*)");
  for (const char* command : {"list", "run", "show", "check", "bench", "tune", "report", "compile",
                              "cache", "doctor", "docs", "completion"}) {
    std::string help = run_tessera({command, "--help"}).out;
    CAPTURE(command, help);
    const size_t at = help.find("Examples:\n  ");
    REQUIRE(at != std::string::npos);
    const std::string examples = help.substr(at);
    help.resize(at);
    if (std::string(command) == "cache") {
      help += run_tessera({"cache", "ls", "--help"}).out +
              run_tessera({"cache", "clear", "--help"}).out;
    }
    CHECK(examples.find(std::string("tessera ") + command) != std::string::npos);
    for (std::sregex_iterator one(examples.begin(), examples.end(), option), end; one != end;
         ++one) {
      CAPTURE((*one)[1].str());
      CHECK(help.find((*one)[1].str()) != std::string::npos);
    }
  }
}

TEST_CASE("errors and doctor have colour on a terminal alone, and none with NO_COLOR", "[cli]") {
  CHECK(on_terminal("lsit").find("\x1b[1;31mtessera:\x1b[0m unknown command") != std::string::npos);
  CHECK(on_terminal("lsit").find("\x1b[1;36mhint\x1b[0m ") != std::string::npos);
  CHECK(on_terminal("doctor").find("\x1b[1mtessera\x1b[0m") != std::string::npos);
  for (const char* words : {"lsit", "doctor"}) {
    CHECK(on_terminal(words, "1").find('\x1b') == std::string::npos);
    const ProgramResult piped = run_tessera({words});
    CHECK((piped.out + piped.err).find('\x1b') == std::string::npos);
  }
}

TEST_CASE("check shows its progress on a terminal alone", "[cli]") {
  CHECK(on_terminal("check transpose").find("1 of ") != std::string::npos);
  const ProgramResult piped = run_tessera({"check", "transpose"});
  CHECK(piped.exit_code == 0);
  CHECK(piped.err.empty());
  CHECK(piped.out.find("1 of ") == std::string::npos);
}

TEST_CASE("doctor tells machines what it tells people", "[cli]") {
  const ProgramResult text = run_tessera({"doctor"});
  const auto facts = nlohmann::json::parse(run_tessera({"doctor", "--json"}).out);
  REQUIRE(facts.size() >= 8);
  for (const auto& fact : facts) {
    const auto subject = fact.at("subject").get<std::string>();
    const auto first = fact.at("text").get<std::string>();
    CAPTURE(subject);
    CHECK(text.out.find(subject + " ") != std::string::npos);
    CHECK(text.out.find(first.substr(0, first.find('\n'))) != std::string::npos);
  }
}

TEST_CASE("an empty cache is an empty list", "[cli][cache]") {
  const TemporaryFolder folder;
  for (const char* command : {"ls", "du"}) {
    const ProgramResult list = run_tessera({"cache", command, "--json"}, folder.path("cache"));
    CHECK(list.exit_code == 0);
    CHECK(list.out == "[]\n");
  }
  const ProgramResult verify = run_tessera({"cache", "verify", "--json"}, folder.path("cache"));
  CHECK(nlohmann::json::parse(verify.out) ==
        nlohmann::json{{"whole", 0}, {"damaged", nlohmann::json::array()}});
}

}  // namespace
}  // namespace tessera::tests
