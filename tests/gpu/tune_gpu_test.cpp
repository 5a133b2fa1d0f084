// The tuner on a GPU (U47): two runs in a row store the same choice, and all candidates give the same bits.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "runtime/cache/tuned.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/device_tensor.h"
#include "tests/support/places.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/tune/tuner.h"

namespace tessera {

TEST_CASE("two runs of the tuner choose the same tile sizes (U47)", "[gpu][tune]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const kernels::OpInfo& op = kernels::find_op("post_fwd");
  for (const tools::ChosenCase& chosen :
       tools::cases_of({&op}, {"T=4096 n=4 H=7168", "T=128 n=4 H=7168"})) {
    const auto tune = [&] {
      return tools::tune_case(op, chosen.one, Device::cuda(0), {.store = false});
    };
    const kernels::jit::TuneReport first = tune();
    const kernels::jit::TuneReport second = tune();
    REQUIRE(first.entries.size() == 1);
    REQUIRE(second.entries.size() == 1);
    CHECK(first.entries[0].choice == second.entries[0].choice);
    CHECK(first.differing.empty());
    CHECK(first.entries[0].us <= first.entries[0].standard_us);
    CHECK(first.entries[0].candidates.size() == 6);
    CHECK(first.entries[0].key.num_sms > 0);
  }
}

namespace {

struct Spec {
  int32_t rows;
};

/// y += x. Blocks of two rows add one more: a planted mistake.
ir::Kernel build(const Spec& s) {
  dsl::Builder k("planted_sum");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 1024});
  auto y = k.output("y", DType::f32, {rows, 1024});
  auto at = k.launch({ceil_div(rows, s.rows)}, {.threads = 128});
  auto tile = k.fragment(DType::f32, {s.rows, 1024});
  auto sum = k.fragment(DType::f32, {s.rows, 1024});
  k.copy(x.tile({at.x * s.rows, 0}, {s.rows, 1024}), tile);
  k.copy(y.tile({at.x * s.rows, 0}, {s.rows, 1024}), sum);
  const float more = s.rows == 2 ? 1.0f : 0.0f;
  k.parallel({s.rows, 1024}, [&](auto r, auto c) { sum(r, c) = sum(r, c) + tile(r, c) + more; });
  k.copy(sum, y.tile({at.x * s.rows, 0}, {s.rows, 1024}));
  return k.finish();
}

}  // namespace

TEST_CASE("the tuner finds a planted candidate of a user's kernel, and leaves its tensors (U47)",
          "[gpu][tune]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const kernels::jit::TuneSpace space = {
      .fields = {{"rows", {1, 2, 4}}},
      .standard = [](const auto&) { return kernels::jit::TuneChoice{4}; },
      .is_legal = [](const auto&, const auto&) { return true; }};
  constexpr int64_t kRows = 512, kBytes = kRows * 1024 * 4;
  const std::vector<float> ones(kRows * 1024, 1.0f);
  runtime::DeviceBuffer x(0, kBytes), y(0, kBytes);
  x.upload(ones.data(), kBytes);
  y.upload(ones.data(), kBytes);
  const TensorView tensors[] = {{x.data(), DType::f32, {kRows, 1024}, Device::cuda(0)},
                                {y.data(), DType::f32, {kRows, 1024}, Device::cuda(0)}};
  const auto call = [&] {
    const kernels::jit::TuneChoice choice =
        kernels::jit::choose("planted_sum", space, {}, Device::cuda(0));
    kernels::jit::run("planted_sum", Spec{static_cast<int32_t>(choice.at(0))}, build, tensors, {},
                      nullptr);
  };
  const kernels::jit::TuneReport report =
      kernels::jit::tune::run(call, {.budget_s = 5, .store = false});
  CHECK(report.differing == std::vector<std::string>{"planted_sum: rows=2"});
  REQUIRE(report.entries.size() == 1);
  CHECK(report.entries[0].candidates.size() == 3);
  CHECK(report.entries[0].us > 0);
  std::vector<float> after(ones.size());
  y.download(after.data(), kBytes);
  CHECK(after == ones);
  call();
  y.download(after.data(), kBytes);
  CHECK(after == std::vector<float>(ones.size(), 2.0f));
}

TEST_CASE("tessera tune fails if a candidate changes a result (U47)", "[gpu][tune]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const test::ScratchFolder scratch;
  const auto tune = [&](const std::string& folder_switch) {
    return test::run_program(
        {test::in_build("tools/tessera"), "tune", "post_fwd", "--case-of", "T=128 n=4 H=7168",
         "--budget", "1", "--no-prune", "--out", scratch / "found.json"},
        {"TESSERA_CACHE=off", folder_switch});
  };
  const test::ChildResult right = tune("TESSERA_DUMP_DIR=" + scratch / "dump");
  CAPTURE(right.output);
  REQUIRE(right.exit_code == 0);
  // One of the candidates, whichever, leaves its first block out.
  std::string name, text;
  for (const auto& file : std::filesystem::directory_iterator(scratch / "dump")) {
    if (file.path().extension() != ".cu") continue;
    name = file.path().filename().string();
    std::ifstream in(file.path());
    text = std::string(std::istreambuf_iterator<char>(in), {});
    break;
  }
  const size_t kernel = text.find("extern \"C\" __global__");
  REQUIRE(kernel != std::string::npos);
  text.insert(text.find("{\n", kernel) + 2, "  if (blockIdx.x == 0) return;\n");
  std::filesystem::create_directory(scratch / "wrong");
  std::filesystem::permissions(scratch / "wrong", std::filesystem::perms::owner_all);
  std::ofstream(scratch / ("wrong/" + name)) << text;
  const test::ChildResult wrong = tune("TESSERA_OVERRIDE_DIR=" + scratch / "wrong");
  CAPTURE(wrong.output);
  CHECK(wrong.exit_code == 1);
  CHECK(wrong.output.find("its results differ from the standard choice's") != std::string::npos);
}

TEST_CASE("shipped tile sizes are never slower than the standard ones (U47)", "[gpu][tune][slow]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const runtime::DeviceInfo& device = runtime::device_info(0);
  const runtime::TunedFile shipped = runtime::shipped_tuned(device.name, device.num_sms);
  if (shipped.entries.empty()) TESSERA_SKIP("no tile sizes are shipped for an " + device.name);
  std::set<std::string> names;
  for (const runtime::TunedEntry& entry : shipped.entries) names.insert(entry.key.op);
  for (const std::string& name : names) {
    const kernels::OpInfo& op = kernels::find_op(name);
    for (const kernels::BenchCase& one : op.bench) {
      const kernels::jit::TuneReport report =
          tools::tune_case(op, one, Device::cuda(0), {.budget_s = 10, .store = false});
      for (const runtime::TunedEntry& entry : report.entries) {
        for (const runtime::TunedEntry& stored : shipped.entries) {
          if (!(stored.key == entry.key)) continue;
          const std::string choice = runtime::to_string(stored.choice);
          INFO(name << " " << one.label << ": " << choice);
          const auto found = std::find_if(
              entry.candidates.begin(), entry.candidates.end(),
              [&](const runtime::TunedCandidate& candidate) { return candidate.choice == choice; });
          REQUIRE(found != entry.candidates.end());
          CHECK(found->us > 0);
          CHECK(found->us <= std::max(1.02 * entry.standard_us, entry.standard_us + 0.15));
        }
      }
    }
  }
}

}  // namespace tessera
