// tools/check_prose on planted comments, in each language that it reads.

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

test::ChildResult check(const std::string& file) {
  return test::run_program({"python3", test::in_source("tools/check_prose"), file}, {});
}

TEST_CASE("a comment that begins with What, Of or Who is refused in every language", "[prose]") {
  struct Planted {
    const char* file;
    const char* text;
    int line;  // of the refused comment
  };
  const Planted all[] = {
      {"a.cpp", "int f();\n// What f returns.\n", 2},
      {"b.h", "#pragma once\n/// Of a launch.\nint f();\n", 2},
      {"c.cpp", "int count = 0;  // Who counts it.\n", 1},
      {"d.cpp", "// The launch.\n//\n// What it takes.\n", 3},
      {"e.py", "def f():\n    \"\"\"What f returns.\"\"\"\n", 2},
      {"f.py", "x = 1  # Of a launch.\n", 1},
      {"g.sh", "set -e\n# What is installed.\n", 2},
      {"h", "#!/usr/bin/env bash\n# Who calls this.\n", 2},
      {"i.cmake", "# Of a room.\n", 1},
      {"CMakeLists.txt", "project(x)\n# What all share.\n", 2},
  };
  const TemporaryFolder folder;
  for (const Planted& planted : all) {
    CAPTURE(planted.file);
    const std::string path = folder.path(planted.file);
    write_text(path, planted.text);
    const test::ChildResult result = check(path);
    CHECK(result.exit_code == 1);
    CHECK(result.output.find(path + ":" + std::to_string(planted.line) +
                             ": begin with the subject: ") == 0);
    CHECK(result.output.find("1 files, 1 comments refused\n") != std::string::npos);
  }
}

TEST_CASE("the words What, Of and Who may stand inside of comments, strings and device functions",
          "[prose]") {
  const char* const texts[] = {
      "// The launch and all that it\n// Of course needs.\nint f();\n",  // a line that goes on
      "int f();  // the launch, as it\n          // What f returns.\n",
      "const char* text = \"// What f returns.\";\n",
      "const char* text = R\"(\n// What f returns.\n)\";\n",
      "// Offsets and Whole numbers.\n",
  };
  const TemporaryFolder folder;
  for (const char* text : texts) {
    CAPTURE(text);
    write_text(folder.path("a.cpp"), text);
    const test::ChildResult result = check(folder.path("a.cpp"));
    CHECK(result.output == "1 files, 0 comments refused\n");
    CHECK(result.exit_code == 0);
  }
}

}  // namespace
}  // namespace tessera::tests
