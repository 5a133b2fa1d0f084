// The program with a user's own kernels (tests/programs/own_kernels_program.cpp), as he types it.

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/safetensors.h"

namespace tessera::tests {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("list names a user's own kernel", "[cli][own]") {
  const ProgramResult listed = run_own_program({"list", "--family", "own"});
  CHECK(listed.exit_code == 0);
  CHECK(has(listed.out, "gather (own): own_kernels_program.cpp:"));
  CHECK(has(listed.out, "in     table: f32 [rows, 8] strides [pitch, 1]"));
  CHECK(has(run_own_program({"list"}).out, "transpose (transpose): "));
  const auto json = nlohmann::json::parse(run_own_program({"list", "--json"}).out);
  CHECK(json.at("ops").back().at("name") == "wild");
  CHECK(has(run_own_program({"show", "gathr"}).err, "did you mean 'gather'?"));
}

TEST_CASE("show prints every stage of a user's own kernel", "[cli][own]") {
  for (const auto& [stage, part] : {std::pair{"ir", "kernel gather"},
                                    {"layout", "no fragments\n"},
                                    {"thread", "program gather: grid [n], 32 threads"},
                                    {"cuda", "tessera_gather(const float* __restrict__ table"},
                                    {"explain", "layout"}}) {
    CAPTURE(stage);
    const ProgramResult shown = run_own_program({"show", "gather", "--stage", stage});
    CHECK(shown.exit_code == 0);
    CHECK(shown.out.find("// gather for example n=40 rows=9 pitch=12 scale=0.5 ids=0..8, stage " +
                         std::string(stage)) == 0);
    CHECK(has(shown.out, part));
  }
  const ProgramResult ptx = run_own_program({"show", "gather", "--stage", "ptx"});
  if (has(ptx.err, "libnvrtc")) TESSERA_SKIP(ptx.err);
  CHECK(has(ptx.out, ".entry tessera_gather("));
}

TEST_CASE("check runs a user's own kernel", "[cli][own]") {
  const TemporaryFolder folder;
  const ProgramResult good =
      run_own_program({"check", "gather", "--json", folder.path("counts.json")});
  CHECK(good.exit_code == 0);
  CHECK(good.err.empty());
  CHECK(has(good.out, "bias=none"));
  const auto json = nlohmann::json::parse(read_text(folder.path("counts.json")));
  CHECK(json.at("checks").size() == 2);
  CHECK(json.at("checks")[0].at("kernels")[0].at("moved_bytes") > 0);
  const ProgramResult lines = run_own_program({"check", "gather", "--lines"});
  CHECK(has(lines.out, "own_kernels_program.cpp:"));
  CHECK(has(lines.out, "f32 table"));
  const ProgramResult some = run_own_program({"check", "own", "--case", "ids=0.."});
  CHECK(some.exit_code == 0);  // not the one that traps
  CHECK(has(some.out, "ids=0..15"));
  CHECK(!has(some.out, "ids=300"));
  const ProgramResult none = run_own_program({"check", "own", "--case", "ids=4"});
  CHECK(none.exit_code == 2);
  CHECK(none.err ==
        "tessera: argument 'case' is in the label of no case\n"
        "  expected  a part of a label, as the table shows it\n"
        "  got       'ids=4'\n");
  const ProgramResult bad = run_own_program({"check", "own"});
  CHECK(bad.exit_code == 1);
  CHECK(has(bad.err, "bins[300] is out of bounds: extent 16"));
  CHECK(has(bad.err, "own_kernels_program.cpp:"));
}

TEST_CASE("run calls a user's own kernel", "[cli][own]") {
  const TemporaryFolder folder;
  tools::Safetensors file;
  const auto add = [&](const char* name, DType dtype, Dims shape, const auto& data) {
    tools::StoredTensor tensor{name, dtype, shape,
                               tools::HostBuffer(num_elements(shape) * bytes(dtype))};
    std::memcpy(tensor.data.data(), data.data(), static_cast<size_t>(tensor.data.size()));
    file.tensors.push_back(std::move(tensor));
  };
  std::vector<float> table(3 * 8);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  add("table", DType::f32, {3, 8}, table);
  add("ids", DType::i32, {2}, std::vector<int32_t>{2, 0});
  tools::write_safetensors(folder.path("in"), file);
  const ProgramResult ran =
      run_own_program({"run", "gather", "-p", "scale=2", "--in", folder.path("in"), "--out",
                       folder.path("out"), "--device", "cpu"});
  CAPTURE(ran.err);
  REQUIRE(ran.exit_code == 0);
  const tools::Safetensors results = tools::read_safetensors(folder.path("out"));
  const tools::StoredTensor* y = results.find("y");
  const tools::StoredTensor* taken = results.find("taken");
  REQUIRE(y != nullptr);
  REQUIRE(taken != nullptr);
  CHECK(y->shape == Dims{2, 8});
  std::vector<float> got(16);
  std::memcpy(got.data(), y->data.data(), sizeof(float) * got.size());
  for (size_t c = 0; c < 8; ++c) {
    CHECK(got[c] == 2 * table[16 + c]);
    CHECK(got[8 + c] == 2 * table[c]);
  }
  std::vector<int32_t> counts(3);
  std::memcpy(counts.data(), taken->data.data(), sizeof(int32_t) * counts.size());
  CHECK(counts == std::vector<int32_t>{1, 0, 1});

  const ProgramResult without =
      run_own_program({"run", "gather", "--in", folder.path("in"), "--out", folder.path("out")});
  CHECK(without.exit_code == 2);
  CHECK(without.err.find("tessera: gather: parameter 'scale' is missing") == 0);
}

TEST_CASE("bench and compile take a user's own kernel", "[cli][own]") {
  const ProgramResult bench = run_own_program({"bench", "gather", "--skip-without-gpu"});
  CHECK(bench.exit_code == 0);
  const bool measured = has(bench.out, "n=40 rows=9");
  CHECK((measured || bench.out.find("SKIPPED: no CUDA device (") == 0));

  const TemporaryFolder folder;
  const ProgramResult compiled =
      run_own_program({"compile", "gather", "--out", folder.path("gather.tsb")});
  if (has(compiled.err, "libnvrtc")) TESSERA_SKIP(compiled.err);
  CHECK(compiled.exit_code == 0);
  CHECK(has(compiled.out, "gather.tsb: 1 kernels for 1 target"));
}

TEST_CASE("a registration that is wrong ends every command with its line", "[cli][own]") {
  const ProgramResult result = run_own_program({"list"}, "", {"OWN_KERNELS_BREAK=1"});
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK(result.err.find("tessera: transpose: two ops have one name\n") == 0);
  CHECK(has(result.err, "own_kernels_program.cpp:"));
}

}  // namespace
}  // namespace tessera::tests
