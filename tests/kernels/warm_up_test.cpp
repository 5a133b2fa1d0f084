// Kernels ahead of the first call, and those that a recording gets, on a fake driver.

#include "kernels/warm_up.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/jit/prepare.h"
#include "kernels/signature/case.h"
#include "kernels/signature/table.h"
#include "kernels/views/dry_call.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

// The table of prepared kernels outlives the fakes: no two tests take the same kernel.

namespace tessera::kernels {
namespace {

using test::error_of;

/// The process's runtime is this one while it lives.
struct OnFakes {
  explicit OnFakes(runtime::Options options) : process(fake, std::move(options)) {
    runtime::Runtime::replace_instance(process.runtime.get());
  }
  ~OnFakes() { runtime::Runtime::replace_instance(nullptr); }
  test::FakeCuda fake;
  test::Process process;
};

runtime::Options with_jit(runtime::JitMode mode) {
  runtime::Options options;
  options.jit = mode;
  return options;
}

runtime::Options with_recording(const std::string& path) {
  runtime::Options options;
  options.record = path;
  return options;
}

const Device kDevice = Device::cuda(0);

/// A call whose first input lies `offset` bytes behind an aligned address.
void call(const std::string& op, const std::string& text, int offset = 0) {
  const OpInfo& info = find_op(op);
  const BenchCase one = info.case_of(text);
  Tensors tensors = placed_nowhere(views_with_outputs(info, views_of(one), one.params), kDevice);
  TensorView& first = tensors.at(info.tensors.front().name);
  first.data = static_cast<char*>(first.data) + offset;
  info.run(tensors, one.params, nullptr);
}

int count_lines(const std::string& path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

TEST_CASE("after warm_up and seal no number of tokens compiles", "[warm_up]") {
  const auto [op, rest] = GENERATE(table<std::string, std::string>(
      {{"norm_fn_fwd", " n=4 H=1280"},
       {"reduce_fused", " K=6 H=7168 x=bf16 topk_weights=given"},
       {"get_fused_mapping", " K=6 num_experts=9 alignment=16"},
       {"group_count", " K=8 num_groups=9"},
       {"per_token_cast", " H=7168 x=bf16 format=e4m3 num_per_channels=128"}}));
  OnFakes on(with_jit(runtime::JitMode::error));
  warm_up(op, "T=13" + rest, kDevice);
  CHECK(on.fake.state().num_launches == 0);
  const int compiles = on.fake.state().num_compiles, loads = on.fake.state().num_loads;
  CHECK(compiles > 0);
  CHECK(loads == compiles);
  on.process.runtime->seal();
  for (int64_t tokens = 0; tokens <= int64_t{1} << 20; tokens = tokens * 3 / 2 + 1) {
    CAPTURE(op, tokens);
    call(op, "T=" + std::to_string(tokens) + rest);
  }
  CHECK(on.fake.state().num_launches > 0);
  CHECK(on.fake.state().num_compiles == compiles);
  CHECK(on.fake.state().num_loads == loads);
}

TEST_CASE("warm_up takes many cases and compiles side by side", "[warm_up]") {
  OnFakes on(runtime::Options{});
  on.fake.state().num_to_meet = 2;
  warm_up("post_fwd", "T=1 n=4 H=512; T=1 n=4 H=1024\nT=9 n=4 H=1024", kDevice, {.jobs = 3});
  CHECK(on.fake.state().num_compiles == 2);
  CHECK(on.fake.state().most_at_once == 2);
}

TEST_CASE("warm_up names what is wrong with op, case and device", "[warm_up]") {
  OnFakes on(runtime::Options{});
  const std::string good = "T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128";
  const auto said = [](const std::string& op, const std::string& cases, Device device = kDevice) {
    return error_of([&] { warm_up(op, cases, device); });
  };
  const std::string unknown = said("per_token_caste", good);
  CHECK(unknown.find("tessera: unknown op 'per_token_caste'\n") == 0);
  CHECK(unknown.find("did you mean 'per_token_cast'?") != std::string::npos);
  CHECK(said("per_token_cast", good + "; T=1 HH=7168 num_per_channels=128")
            .find("tessera: per_token_cast: unknown word 'HH' in a case\n") == 0);
  CHECK(said("per_token_cast", "T=1 x=bf16 format=e4m3 num_per_channels=128")
            .find("tessera: per_token_cast: the case says nothing of 'H'\n") == 0);
  CHECK(said("per_token_cast", "T=1 H=7168 x=bf16 format=e4m3 num_per_channels=48")
            .find("tessera: per_token_cast: parameter 'num_per_channels' is out of range\n") == 0);
  CHECK(said("norm_fn_fwd", "T=1 n=4 H=100")
            .find("tessera: norm_fn_fwd: argument 'residual': a row has the wrong number") == 0);
  CHECK(said("group_count", " \n ;") ==
        "tessera: group_count: there is no case to warm up\n"
        "  expected  T=65 K=8 num_groups=9\n"
        "  got       an empty text");
  CHECK(on.fake.state().num_compiles == 0);
}

TEST_CASE("a server warms up on a laptop too: cases are checked, nothing is compiled",
          "[warm_up]") {
  OnFakes on(runtime::Options{});
  const std::string good = "T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128";
  warm_up("per_token_cast", good, Device::cpu());
  CHECK(on.fake.state().num_compiles == 0);
  CHECK(error_of([&] {
          warm_up("per_token_cast", good + "; T=1 H=7168", Device::cpu());
        }).find("tessera: per_token_cast:") == 0);
  CHECK(on.fake.state().num_compiles == 0);
}

TEST_CASE("a recording gets the kernels of all buckets of a call", "[warm_up]") {
  const test::ScratchFolder scratch;
  const std::string path = scratch / "specs.jsonl";
  OnFakes on(with_recording(path));
  call("aux_fi", "T=65 K=8 num_experts=9 num_aux_topk=8");
  const int recorded = count_lines(path);
  CHECK(recorded == 4);  // one block; two kernels from 4097 pairs on; one for no pairs
  CHECK(on.fake.state().num_loads == 1);
  for (const char* tokens : {"T=66", "T=512", "T=513", "T=100000"}) {
    call("aux_fi", std::string(tokens) + " K=8 num_experts=9 num_aux_topk=8");
  }
  CHECK(count_lines(path) == recorded);
  CHECK(on.fake.state().num_compiles == recorded);
  call("aux_fi", "T=65 K=8 num_experts=10 num_aux_topk=8");  // another Spec
  CHECK(count_lines(path) > recorded);
  CHECK(on.process.lines.empty());
}

TEST_CASE("after a recorded call no number of tokens adds a kernel", "[warm_up]") {
  const auto [op, rest, offset] = GENERATE(table<std::string, std::string, int>(
      {{"pre_big_fuse", " n=4 H=256 norm_weight=given", 0},
       {"norm_fn_fwd", " n=2 H=384 n_splits=3", 0},
       {"mhc_head_fwd", " n=4 H=512 R=24 save_for_backward=false", 0},
       {"mhc_pre_fwd", " n=4 H=256", 0},
       {"engram_gate_bwd", " D=4096 num_persistent_blocks=2 k.strides=20480,4096,1", 0},
       {"reduce_fused", " K=6 P=5000 H=768 x=f32 sf=given format=e4m3", 0},
       {"reduce_fused", " K=6 P=5000 H=768 x=f32 x_sf=given", 4},
       {"get_fused_mapping", " K=2 num_experts=4 alignment=128", 0},
       {"group_count", " K=2 num_groups=9000", 0},
       {"swiglu_forward_and_per_token_cast", " H=1280 x=bf16 num_per_channels=128", 0}}));
  const std::string count = op.starts_with("swiglu") ? "P=" : "T=";
  const test::ScratchFolder scratch;
  const std::string path = scratch / "specs.jsonl";
  OnFakes on(with_recording(path));
  call(op, count + "37" + rest, offset);
  const int recorded = count_lines(path), compiles = on.fake.state().num_compiles;
  CHECK(recorded == compiles);
  for (int64_t tokens = 0; tokens <= int64_t{1} << 20; tokens = tokens * 3 / 2 + 1) {
    CAPTURE(op, tokens);
    call(op, count + std::to_string(tokens) + rest, offset);
  }
  CHECK(count_lines(path) == recorded);
  CHECK(on.fake.state().num_compiles == compiles);
  CHECK(on.process.lines.empty());
}

TEST_CASE("a recording that cannot have all buckets fails no call", "[warm_up]") {
  const test::ScratchFolder scratch;
  runtime::Options options = with_recording(scratch / "specs.jsonl");
  options.jit = runtime::JitMode::error;
  options.on_compile = [](const runtime::StepEvent& step) {
    if (step.ended) runtime::Runtime::instance().seal();
  };
  OnFakes on(options);
  call("group_count", "T=65 K=8 num_groups=77");
  CHECK(on.fake.state().num_launches == 1);
  REQUIRE(on.process.lines.size() == 1);
  CHECK(on.process.lines[0].find("group_count: kernels for other numbers of tokens are not in the "
                                 "recording (TESSERA_RECORD): tessera: group_count: ") == 0);
}

TEST_CASE("without a recording a call compiles its own kernels only", "[warm_up]") {
  OnFakes on(runtime::Options{});
  call("group_count", "T=65 K=8 num_groups=78");
  CHECK(on.fake.state().num_compiles == 1);
}

TEST_CASE("a chain of ops is prepared on a CPU before the first has written what the second reads",
          "[warm_up]") {
  std::array<int64_t, 4> ids = {0, 3, 99, 1};  // of four groups
  std::array<int32_t, 4> counts{};
  const Tensors tensors = {{"group_idx", {ids.data(), DType::i64, {4, 1}, Device::cpu()}},
                           {"out", {counts.data(), DType::i32, {4}, Device::cpu()}},
                           {"workspace", {counts.data(), DType::i32, {0}, Device::cpu()}}};
  const auto run = [&] {
    find_op("group_count").run(tensors, {{"num_groups", int64_t{4}}}, nullptr);
  };
  CHECK_THROWS_WITH(run(), Catch::Contains("'group_idx' has a value out of range"));
  CHECK_NOTHROW(jit::prepare(run));
}

}  // namespace
}  // namespace tessera::kernels
