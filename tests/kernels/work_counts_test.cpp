// The work of every shipped kernel on its examples against the approved numbers in work_counts.txt:
// traffic, bank conflicts, synchronisation, registers. The compilations for sm_90a that registers are read from also show
// that kernels compile in time, spill no more than is known and make the assembler warn of nothing. TESSERA_APPROVE=1
// rewrites the file.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "dsl/base/error.h"
#include "tests/kernels/shipped_kernels.h"
#include "tests/support/each_family.h"
#include "tests/support/places.h"
#include "tools/lib/calls/op_check.h"

namespace tessera {
namespace {

const std::string kPath = test::in_source("tests/kernels/work_counts.txt");
constexpr const char* kTarget = "sm_90a";

/// The columns, as `tessera check --json` names them. The last ones come from NVRTC.
constexpr std::array<const char*, 15> kColumns = {"least_bytes",
                                                  "moved_bytes",
                                                  "global_load_requests",
                                                  "global_store_requests",
                                                  "bank_conflicts",
                                                  "sectors_over_least",
                                                  "barriers",
                                                  "warp_barriers",
                                                  "shuffles",
                                                  "guards",
                                                  "atomics",
                                                  "live_registers",
                                                  "registers",
                                                  "spill_bytes",
                                                  "shared_bytes"};
constexpr size_t kFirstOfCompiler = 12;

using Key = std::array<std::string, 3>;  // op, case, kernel
using Numbers = std::array<int64_t, kColumns.size()>;

struct Table {
  std::string compiler;  // "NVRTC 13.0"; empty = the columns of the compiler are unknown
  std::map<Key, Numbers> rows;
};

Table table_of(const std::vector<tools::CheckResult>& results, const std::string& compiler) {
  Table table{compiler, {}};
  const auto json = nlohmann::json::parse(tools::check_json(results));
  for (const auto& check : json.at("checks")) {
    CAPTURE(check["op"], check["case"]);
    REQUIRE(check["error"].is_null());
    for (const auto& kernel : check["kernels"]) {
      Numbers numbers{};
      for (size_t i = 0; i < kColumns.size(); ++i) {
        if (i >= kFirstOfCompiler && compiler.empty()) break;
        numbers[i] = (i == 0 ? check : kernel).at(kColumns[i]).get<int64_t>();
      }
      const std::string name = kernel["kernel"];
      Key key = {check["op"], check["case"], name};
      // An op may run a kernel twice.
      for (int run = 2; table.rows.contains(key); ++run) key[2] = fmt::format("{}.{}", name, run);
      table.rows.emplace(key, numbers);
    }
  }
  return table;
}

/// Columns of fixed width: a change of one kernel changes one line.
std::string to_text(const Table& table) {
  std::string text = fmt::format(
      "# What every kernel does on its examples (`tessera check all --arch {}`), approved.\n"
      "# Compiler: {}\n",
      kTarget, table.compiler);
  const auto add_key = [&](const Key& key) {
    text += fmt::format("{:<34} | {:<64} | {:<34}", key[0], key[1], key[2]);
  };
  add_key({"op", "case", "kernel"});
  for (const char* column : kColumns) text += fmt::format(" | {}", column);
  text += "\n";
  for (const auto& [key, numbers] : table.rows) {
    add_key(key);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      text += fmt::format(" | {:>{}}", numbers[i], std::string(kColumns[i]).size());
    }
    text += "\n";
  }
  return text;
}

Table parse(const std::string& text) {
  Table table;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const std::string label = "# Compiler: ";
  REQUIRE(line.rfind(label, 0) == 0);
  table.compiler = line.substr(label.size());
  std::getline(lines, line);  // titles
  while (std::getline(lines, line)) {
    CAPTURE(line);
    std::vector<std::string> cells;
    for (std::istringstream rest(line); std::getline(rest, line, '|');) {
      line.erase(0, line.find_first_not_of(' '));
      line.erase(line.find_last_not_of(' ') + 1);
      cells.push_back(line);
    }
    REQUIRE(cells.size() == 3 + kColumns.size());
    Numbers& numbers = table.rows[{cells[0], cells[1], cells[2]}];
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::stoll(cells[3 + i]);
  }
  return table;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct Differences {
  std::vector<std::string> worse;  // or new, gone, or of another case
  std::vector<std::string> better;
};

Differences compare(const Table& approved, const Table& now) {
  Differences differences;
  const auto text = [](const Key& key) {
    return fmt::format("{}, {}, kernel {}", key[0], key[1], key[2]);
  };
  const bool same_compiler = approved.compiler == now.compiler;
  for (const auto& [key, numbers] : now.rows) {
    const auto found = approved.rows.find(key);
    if (found == approved.rows.end()) {
      differences.worse.push_back(text(key) + ": not in the file");
      continue;
    }
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (i >= kFirstOfCompiler && !same_compiler) break;
      const int64_t was = found->second[i], is = numbers[i];
      if (was == is) continue;
      auto& list = is > was || i == 0 ? differences.worse : differences.better;
      list.push_back(fmt::format("{}: {} was {}, is {}", text(key), kColumns[i], was, is));
    }
  }
  for (const auto& [key, numbers] : approved.rows) {
    if (!now.rows.contains(key))
      differences.worse.push_back(text(key) + ": no such kernel any more");
  }
  return differences;
}

/// The rows of a family's ops.
Table only(Table table, const std::string& family) {
  std::erase_if(table.rows, [&](const auto& row) {
    const auto is_op = [&](const kernels::OpInfo& op) { return op.name == row.first[0]; };
    const auto op = std::find_if(kernels::ops().begin(), kernels::ops().end(), is_op);
    return op == kernels::ops().end() ? family != "moe" : op->family != family;  // gone: seen once
  });
  return table;
}

void check_family(const std::string& family) {
  std::string compiler, why;
  const runtime::Nvrtc* const nvrtc = test::nvrtc_here(why);
  std::optional<test::ShippedKernels> shipped;
  if (nvrtc != nullptr) {
    shipped.emplace(*nvrtc);
    compiler = fmt::format("NVRTC {}.{}", nvrtc->version / 1000, nvrtc->version % 1000 / 10);
  } else {
    WARN("registers, spills and shared memory are not compared: " << why);
  }
  std::vector<tools::CheckResult> results;
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family != family) continue;
    REQUIRE(op.examples.size() >= 2);
    for (const kernels::BenchCase& example : op.examples) {
      results.push_back(tools::check_example(op, example, 1));
      if (!shipped) continue;
      const auto image_of = [&](const ir::Kernel& kernel) {
        return shipped->image(op, example, kernel, runtime::parse_target(kTarget).value(),
                              test::CompileTime::limited);
      };
      tools::add_resources(results.back(), op, example, image_of);
    }
  }
  const Table now = table_of(results, compiler);
  REQUIRE(now.rows.size() >= 2);
  if (std::getenv("TESSERA_APPROVE") != nullptr) {
    REQUIRE(nvrtc != nullptr);
    Table all = parse(read_file(kPath));
    all.compiler = compiler;
    for (const auto& [key, numbers] : only(all, family).rows) all.rows.erase(key);
    all.rows.insert(now.rows.begin(), now.rows.end());
    std::ofstream(kPath, std::ios::binary) << to_text(all);
  }
  const Table approved = only(parse(read_file(kPath)), family);
  if (!compiler.empty() && compiler != approved.compiler) {
    WARN("registers, spills and shared memory are not compared: approved with "
         << approved.compiler << ", here is " << compiler);
  }
  const Differences differences = compare(approved, now);
  for (const std::string& line : differences.better) {
    WARN("better than approved, TESSERA_APPROVE=1 keeps it so: " << line);
  }
  for (const std::string& line : differences.worse) FAIL_CHECK(line);
}

}  // namespace

TESSERA_TEST_EACH_FAMILY(
    "no work count of a shipped kernel is worse than approved, nor its compile time (R22.12, C06)",
    "[kernels][work][slow]", check_family)

TEST_CASE("counts are compared by kernel and column", "[kernels][work]") {
  Table approved{"NVRTC 13.0", {}};
  approved.rows[{"op", "T=1", "copy"}] = {64, 96, 3};
  CHECK(parse(to_text(approved)).rows == approved.rows);
  CHECK(parse(to_text(approved)).compiler == "NVRTC 13.0");

  Table now = approved;
  CHECK(compare(approved, now).worse.empty());
  CHECK(compare(approved, now).better.empty());

  Numbers& numbers = now.rows.begin()->second;
  numbers[1] = 128;
  numbers[2] = 2;
  numbers[kFirstOfCompiler] = 40;
  Differences differences = compare(approved, now);
  CHECK(differences.worse ==
        std::vector<std::string>{"op, T=1, kernel copy: moved_bytes was 96, is 128",
                                 "op, T=1, kernel copy: registers was 0, is 40"});
  CHECK(differences.better ==
        std::vector<std::string>{"op, T=1, kernel copy: global_load_requests was 3, is 2"});

  now.compiler = "NVRTC 12.9";  // another compiler, other registers
  CHECK(compare(approved, now).worse.size() == 1);

  now = {"NVRTC 13.0", {{{"op", "T=2", "copy"}, {}}}};
  CHECK(compare(approved, now).worse ==
        std::vector<std::string>{"op, T=2, kernel copy: not in the file",
                                 "op, T=1, kernel copy: no such kernel any more"});
}

}  // namespace tessera
