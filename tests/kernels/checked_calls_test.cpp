// Every op's C++ function goes through call_op, which makes the second call of one kind cheap.

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "kernels/op.h"
#include "tests/support/catch.h"

using namespace tessera;

namespace {

/// The ops of all call_op(name_op(), ...) in the sources of the kernels.
std::set<std::string> remembered_ops() {
  std::set<std::string> names;
  const std::regex call(R"rx(call_op\(\s*(\w+)_op\(\))rx");
  const std::filesystem::path folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "kernels";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cpp") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator it(source.begin(), source.end(), call), end; it != end; ++it) {
      names.insert((*it)[1]);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("the C++ function of every op remembers its calls", "[kernels][call]") {
  const std::set<std::string> remembered = remembered_ops();
  for (const kernels::OpInfo& op : kernels::ops()) {
    CAPTURE(op.name);
    CHECK(remembered.contains(op.name));
  }
  CHECK(remembered.size() == kernels::ops().size());
}
