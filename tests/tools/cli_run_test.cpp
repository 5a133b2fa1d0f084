// tessera run, show, check and bench on a shipped op, as a user types them.

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "tests/support/child_process.h"
#include "tests/support/each_family.h"
#include "tests/support/places.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/safetensors.h"

namespace tessera::tests {
namespace {

using tools::HostBuffer;
using tools::read_safetensors;
using tools::Safetensors;
using tools::StoredTensor;
using tools::write_safetensors;

/// x[r][c] = r * cols + c, as u16 bits.
Safetensors matrix(int64_t rows, int64_t cols) {
  StoredTensor x{"x", DType::u16, {rows, cols}, HostBuffer(rows * cols * 2)};
  for (int64_t i = 0; i < rows * cols; ++i) {
    x.data.data()[2 * i] = static_cast<std::byte>(i);
    x.data.data()[2 * i + 1] = static_cast<std::byte>(i >> 8);
  }
  Safetensors file;
  file.tensors.push_back(std::move(x));
  return file;
}

TEST_CASE("a result that cannot be printed is a failure", "[cli][run]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(64, 128));
  const std::string command = "exec \"$0\" run transpose --device cpu --in " + folder.path("x") +
                              " --out " + folder.path("y") + " > /dev/full";
  CHECK(test::run_program({"sh", "-c", command, test::in_build("tools/tessera")}, {}).exit_code ==
        1);
}

TEST_CASE("run transposes a file on the CPU", "[cli][run]") {
  const TemporaryFolder folder;
  Safetensors input = matrix(64, 128);
  const bool strided = GENERATE(false, true);
  if (strided) input.metadata["strides.x"] = "256,1";
  write_safetensors(folder.path("x"), input);
  const ProgramResult result = run_tessera(
      {"run", "transpose", "--in", folder.path("x"), "--out", folder.path("y"), "--device", "cpu"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out.find("transpose on cpu: ") == 0);
  CHECK(result.out.find("32768 bytes") != std::string::npos);
  const Safetensors output = read_safetensors(folder.path("y"));
  REQUIRE(output.tensors.size() == 1);
  const StoredTensor& out = output.tensors.front();
  CHECK(out.name == "out");
  CHECK(out.dtype == DType::u16);
  CHECK(out.shape == Dims{128, 64});
  CHECK(output.metadata.empty());
  int64_t wrong = 0;
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t c = 0; c < 128; ++c) {
      for (int64_t byte = 0; byte < 2; ++byte) {
        wrong += out.data.data()[2 * (c * 64 + r) + byte] !=
                 input.tensors.front().data.data()[2 * (r * 128 + c) + byte];
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("run exits 2 for what is written wrongly and 1 for what cannot be done", "[cli][run]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(64, 64));
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--out", folder.path("y"), "--device", "cpu"});
    return run_tessera(words);
  };
  const std::string x = folder.path("x");

  const ProgramResult op = run({"run", "transpsoe", "--in", x});
  CHECK(op.exit_code == 2);
  CHECK(op.err.find("tessera: unknown op 'transpsoe'\n") == 0);
  CHECK(op.err.find("  hint      did you mean 'transpose'?\n") != std::string::npos);

  const ProgramResult param = run({"run", "transpose", "-p", "block=3", "--in", x});
  CHECK(param.exit_code == 2);
  CHECK(param.err ==
        "tessera: transpose: unknown parameter 'block'\n"
        "  expected  no parameters\n"
        "  got       block=3\n");

  const ProgramResult value = run({"run", "topk_gate", "-p", "num_topk=many", "--in", x});
  CHECK(value.exit_code == 2);
  CHECK(value.err ==
        "tessera: topk_gate: parameter 'num_topk' cannot be read\n"
        "  expected  an int, such as 128\n"
        "  got       'many'\n");

  const ProgramResult file = run({"run", "transpose", "--in", folder.path("none")});
  CHECK(file.exit_code == 2);
  CHECK(file.err == "tessera: " + folder.path("none") +
                        ": cannot be opened\n"
                        "  expected  a readable file\n"
                        "  got       No such file or directory\n");

  const ProgramResult device =
      run_tessera({"run", "transpose", "--in", x, "--out", folder.path("y"), "--device", "tpu"});
  CHECK(device.exit_code == 2);
  CHECK(device.err.find("tessera: unknown device 'tpu'\n") == 0);

  const ProgramResult tensor = run({"run", "topk_gate", "-p", "num_topk=2", "--in", x});
  CHECK(tensor.exit_code == 1);
  CHECK(tensor.err.find("tessera: topk_gate: unknown tensor 'x'\n") == 0);

  Safetensors contradiction = matrix(64, 64);
  contradiction.metadata["strides.x"] = "1,1";
  write_safetensors(folder.path("bad"), contradiction);
  const ProgramResult strides = run({"run", "transpose", "--in", folder.path("bad")});
  CHECK(strides.exit_code == 1);
  CHECK(strides.err.find("tessera: transpose: argument 'x' has the wrong strides\n") == 0);

  const ProgramResult no_gpu = run_tessera(
      {"run", "transpose", "--in", x, "--out", folder.path("y"), "--device", "cuda:77"});
  CHECK(no_gpu.exit_code == 1);
  CHECK(no_gpu.err.find("tessera: there is no device cuda:77\n") == 0);

  CHECK_FALSE(std::filesystem::exists(folder.path("y")));
}

TEST_CASE("a value that the tensors or other parameters forbid is wrong usage", "[cli][run]") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& op, DType x, std::vector<std::string> params) {
    Safetensors file;
    file.tensors.push_back({"x", x, {4, 256}, HostBuffer(4 * 256 * bytes(x))});
    if (x == DType::e4m3) {
      file.tensors.push_back({"x_sf", DType::f32, {4, 2}, HostBuffer(4 * 2 * 4)});
    }
    if (op == "topk_gate") file.tensors.front().name = "scores";
    write_safetensors(folder.path("x"), file);
    std::vector<std::string> words = {
        "run", op, "--in", folder.path("x"), "--out", folder.path("y"), "--device", "cpu"};
    for (const std::string& param : params) words.insert(words.end(), {"-p", param});
    return run_tessera(words);
  };
  const std::vector<std::string> cast = {"format=e4m3", "num_per_channels=128"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), cast.begin(), cast.end());
    return more;
  };
  CHECK(run("per_token_cast", DType::bf16, cast).exit_code == 0);
  CHECK(run("per_token_cast", DType::e4m3, with({"x_block_size=1,128"})).exit_code == 0);
  // not with the other parameters
  const ProgramResult layout = run("per_token_cast", DType::bf16, with({"sf_layout=packed_ue8m0"}));
  CHECK(layout.exit_code == 2);
  CHECK(layout.err ==
        "tessera: per_token_cast: argument 'sf_layout': packed_ue8m0 scales are powers of two\n"
        "  expected  round_sf where sf_layout = packed_ue8m0\n"
        "  got       round_sf = false, sf_layout = packed_ue8m0\n");
  // not at all
  for (const char* block : {"x_block_size=0,128", "x_block_size=1,100", "x_block_size=1"}) {
    CAPTURE(block);
    CHECK(run("per_token_cast", DType::e4m3, with({block})).exit_code == 2);
  }
  // not with these tensors
  CHECK(run("per_token_cast", DType::bf16, with({"x_block_size=1,128"})).exit_code == 2);
  CHECK(run("topk_gate", DType::f32, {"num_topk=257"}).exit_code == 2);
  // the tensors are what is wrong
  CHECK(run("per_token_cast", DType::f16, cast).exit_code == 1);
  CHECK(run("per_token_cast", DType::e4m3, with({"x_block_size=128,128"})).exit_code == 1);
}

TEST_CASE("a few bytes of strides take no gigabytes before the op refuses them", "[cli][run]") {
  const TemporaryFolder folder;
  Safetensors file;
  const auto add = [&](const char* name, Dims shape) {
    file.tensors.push_back({name, DType::f32, shape, HostBuffer(num_elements(shape) * 4)});
  };
  add("input_mixes", {1, 24});
  add("scale", {3});
  add("base", {24});
  file.metadata["strides.scale"] = "536870912";  // 4 GB from the first element to the last
  write_safetensors(folder.path("x"), file);
  const std::string command =
      "ulimit -v 2000000; exec \"$0\" run pre_split_mixes_fwd --device cpu --in " +
      folder.path("x") + " --out " + folder.path("y");
  const test::ChildResult result = test::run_program(
      {"sh", "-c", command, test::in_build("tools/tessera")}, {"TESSERA_CACHE=off"});
  CHECK(result.exit_code == 1);
  CHECK(result.output.find(
            "tessera: pre_split_mixes_fwd: argument 'scale' has the wrong strides\n") == 0);
}

TEST_CASE("gaps between rows cost no memory on the CPU", "[cli][run]") {
  const TemporaryFolder folder;
  Safetensors file = matrix(4, 128);
  file.metadata["strides.x"] = "100000000,1";  // 600 MB, nearly all of them gaps
  write_safetensors(folder.path("x"), file);
  struct rusage before {
  }, after{};
  ::getrusage(RUSAGE_CHILDREN, &before);
  CHECK(run_tessera({"run", "transpose", "--device", "cpu", "--in", folder.path("x"), "--out",
                     folder.path("y")})
            .exit_code == 0);
  ::getrusage(RUSAGE_CHILDREN, &after);
  CHECK(after.ru_maxrss < std::max(before.ru_maxrss + 1, 300'000L));  // KB
}

TEST_CASE("a result beyond the file size limit is a failure, not the end of the process",
          "[cli][run]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(64, 64));
  const std::string command = "ulimit -f 0; exec \"$0\" run transpose --device cpu --in " +
                              folder.path("x") + " --out " + folder.path("y");
  const test::ChildResult result = test::run_program(
      {"sh", "-c", command, test::in_build("tools/tessera")}, {"TESSERA_CACHE=off"});
  CHECK(result.exit_code == 1);
  CHECK(result.output ==
        "tessera: cannot write '" + folder.path("y") + "'\n  got       File too large\n");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("strides of a tensor that is not in the file are refused", "[cli][run]") {
  const TemporaryFolder folder;
  Safetensors file = matrix(64, 64);
  file.metadata["strides.X"] = "128,1";
  write_safetensors(folder.path("x"), file);
  const std::string refusal =
      "tessera: transpose: metadata 'strides.X' belongs to no tensor of the file\n"
      "  expected  strides of x\n"
      "  got       strides.X\n";
  const ProgramResult run = run_tessera(
      {"run", "transpose", "--device", "cpu", "--in", folder.path("x"), "--out", folder.path("y")});
  CHECK(run.exit_code == 1);
  CHECK(run.err.find(refusal) == 0);
  const ProgramResult show = run_tessera({"show", "transpose", "--in", folder.path("x")});
  CHECK(show.exit_code == 1);
  CHECK(show.err.find(refusal) == 0);
}

TEST_CASE("an output that cannot be written is told before the work", "[cli][run]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(64, 64));
  write_text(folder.path("bench"),
             R"({"machine": {"device": "d", "driver": "1", "nvrtc": "1", "method": "m"},
    "cases": [], "launch": []})");
  const std::string nowhere = folder.path("no/such/file");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"check", "transpose", "--json", nowhere},
           {"bench", "transpose", "--compile", "--json", nowhere},
           {"bench", "transpose", "--cold", "--json", nowhere},
           {"compile", "transpose", "--out", nowhere},
           {"report", folder.path("bench"), "--out", nowhere},
           {"run", "transpose", "--device", "cpu", "--in", folder.path("x"), "--out", nowhere}}) {
    CAPTURE(words[0], words[2]);
    // A compiler that is not there would be missed first if the work came first.
    const ProgramResult result = run_tessera(words, "", {"TESSERA_NVRTC=/nowhere"});
    CHECK(result.exit_code == 1);
    CHECK(result.out.empty());
    CHECK(result.err ==
          "tessera: cannot create '" + nowhere + "'\n  got       No such file or directory\n");
  }
}

TEST_CASE("an output that cannot be written is a failure that leaves nothing", "[cli][run]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(64, 64));
  const ProgramResult result = run_tessera({"run", "transpose", "--in", folder.path("x"), "--out",
                                            folder.path("no/such/y"), "--device", "cpu"});
  CHECK(result.exit_code == 1);
  CHECK(result.err.find("tessera: cannot create ") == 0);
  CHECK(folder.num_files() == 1);
}

TEST_CASE("extents and strides of absurd size are explained, never overflow", "[cli][run]") {
  const TemporaryFolder folder;
  const auto run = [&](const Safetensors& input) {
    write_safetensors(folder.path("x"), input);
    return run_tessera({"run", "transpose", "--in", folder.path("x"), "--out", folder.path("y"),
                        "--device", "cpu"});
  };
  const auto empty = [](Dims shape) {
    Safetensors file;
    file.tensors.push_back({"x", DType::u16, shape, HostBuffer(0)});
    return file;
  };
  for (const Dims& shape : {Dims{0, INT64_MAX}, Dims{INT64_MAX, 0}, Dims{0, 0}}) {
    const ProgramResult result = run(empty(shape));
    CAPTURE(to_string(shape), result.err);
    CHECK(result.exit_code == 0);
    CHECK(read_safetensors(folder.path("y")).tensors.at(0).shape == Dims{shape[1], shape[0]});
  }
  const ProgramResult rank = run(empty({INT64_MAX, INT64_MAX, 0}));
  CHECK(rank.exit_code == 1);
  CHECK(rank.err.find("tessera: transpose: argument 'x' has the wrong rank\n") == 0);

  Safetensors wide = matrix(64, 64);
  wide.metadata["strides.x"] = "10000000000000,1";
  const ProgramResult memory = run(wide);
  CHECK(memory.exit_code == 1);
  CHECK(memory.err ==
        "tessera: transpose: argument 'x' needs more memory than there is\n"
        "  expected  a tensor that fits into memory\n"
        "  got       630000000000064 elements of u16, gaps between rows included\n");
}

TEST_CASE("an output without a name is refused", "[cli][run]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(64, 64));
  const ProgramResult result =
      run_tessera({"run", "transpose", "--in", folder.path("x"), "--out", "", "--device", "cpu"});
  CHECK(result.exit_code == 1);
  CHECK(result.err ==
        "tessera: the name of the file to write is empty\n"
        "  expected  a file name\n"
        "  got       ''\n");
}

void show_family(const std::string& family) {
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family != family) continue;
    for (const char* stage : {"ir", "layout", "thread", "cuda", "explain"}) {
      CAPTURE(op.name, stage);
      const ProgramResult shown = run_tessera({"show", op.name, "--stage", stage});
      CAPTURE(shown.err);
      CHECK(shown.exit_code == 0);
      CHECK(shown.err.empty());
      CHECK(shown.out.find(std::string(", stage ") + stage + "\n") != std::string::npos);
      CHECK(shown.out.size() > 60);
    }
    const ProgramResult cuda = run_tessera({"show", op.name});
    CHECK(cuda.out.find("__global__") != std::string::npos);
  }
}

TESSERA_TEST_EACH_FAMILY("show prints each stage of an op's kernels", "[cli][show][slow]",
                         show_family)

TEST_CASE("show refuses unknown targets", "[cli][show]") {
  const ProgramResult arch = run_tessera({"show", "transpose", "--stage", "ptx", "--arch", "sm9"});
  CHECK(arch.exit_code == 2);
  CHECK(arch.err ==
        "tessera: unknown target 'sm9'\n"
        "  expected  sm_80, sm_89, sm_90a, ...\n"
        "  got       sm9\n");
  CHECK(run_tessera({"show", "transpose", "--stage", "cuda", "--arch", "sm9"}).exit_code == 2);
}

TEST_CASE("show --full prints a text that needs no other", "[cli][show]") {
  const ProgramResult part = run_tessera({"show", "per_token_cast"});
  const ProgramResult full = run_tessera({"show", "per_token_cast", "--full"});
  CHECK(full.exit_code == 0);
  CHECK(full.out.size() > part.out.size());
  CHECK(full.out.find("__device__") != std::string::npos);
  CHECK(part.out.find("__device__") == std::string::npos);
}

TEST_CASE("show compiles for TESSERA_ARCH without a device", "[cli][show]") {
  if (run_tessera({"doctor"}).out.find("targets ") == std::string::npos) TESSERA_SKIP("no NVRTC");
  const ProgramResult ptx = run_tessera({"show", "transpose", "--stage", "ptx"}, "",
                                        {"CUDA_VISIBLE_DEVICES=", "TESSERA_ARCH=sm_80"});
  CHECK(ptx.exit_code == 0);
  CHECK(ptx.out.find("\n.target sm_80\n") != std::string::npos);
}

TEST_CASE("show says when there is nothing to launch", "[cli][show]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(0, 64));
  const ProgramResult shown = run_tessera({"show", "transpose", "--in", folder.path("x")});
  CHECK(shown.exit_code == 0);
  CHECK(shown.out == "// transpose for " + folder.path("x") + ": empty, nothing to launch\n");
}

TEST_CASE("check runs the examples with every trap and counts", "[cli][check][slow]") {
  const TemporaryFolder folder;
  const ProgramResult result = run_tessera({"check", "all", "--json", folder.path("counts")});
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto json = nlohmann::json::parse(read_text(folder.path("counts")));
  size_t examples = 0;
  for (const kernels::OpInfo& op : kernels::ops()) examples += op.examples.size();
  REQUIRE(json.at("checks").size() == examples);
  for (const auto& check : json.at("checks")) {
    CAPTURE(check.dump());
    CHECK(check.at("error").is_null());
    CHECK_FALSE(check.at("kernels").empty());
    CHECK(check.at("kernels").at(0).at("global_store_bytes").get<int64_t>() > 0);
    for (const auto& kernel : check.at("kernels")) {
      int64_t sectors = 0, wavefronts = 0;
      for (const auto& access : kernel.at("accesses")) {
        sectors += access.at("sectors").get<int64_t>();
        wavefronts += access.at("wavefronts").get<int64_t>();
      }
      CHECK(32 * sectors == kernel.at("moved_bytes").get<int64_t>());
      CHECK(wavefronts == kernel.at("shared_wavefronts").get<int64_t>());
    }
  }
}

TEST_CASE("check counts the same with and without the compiler", "[cli][check]") {
  const TemporaryFolder folder;
  const ProgramResult plain = run_tessera({"check", "topk_gate", "--json", folder.path("counts")});
  CAPTURE(plain.err, plain.out);
  REQUIRE(plain.exit_code == 0);
  CHECK(plain.out.find("  moved/least  sectors/request  load sectors/least  ") !=
        std::string::npos);
  CHECK(plain.out.find("registers") == std::string::npos);
  const auto counts = nlohmann::json::parse(read_text(folder.path("counts")));
  const auto& first = counts.at("checks").at(0).at("kernels").at(0);
  CHECK(first.at("kernel") == "topk_gate");
  CHECK(first.at("moved_bytes") == 32 * (first.at("global_load_sectors").get<int64_t>() +
                                         first.at("global_store_sectors").get<int64_t>()));
  CHECK(first.at("sectors_over_least") == 0);
  CHECK(first.at("live_registers") > 0);
  CHECK_FALSE(first.contains("registers"));

  const ProgramResult lines = run_tessera({"check", "batched_transpose", "--lines"});
  CHECK(lines.exit_code == 0);
  CHECK(lines.out.find("  sectors over least  wavefronts over ideal\n") != std::string::npos);
  CHECK(lines.out.find("  batched_transpose.cpp:") != std::string::npos);
  CHECK(lines.out.find("  store 16 x u8 out ") != std::string::npos);

  const ProgramResult wrong = run_tessera({"check", "topk_gate", "--arch", "hopper"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("hopper") != std::string::npos);

  const ProgramResult compiled =
      run_tessera({"check", "topk_gate", "--arch", "sm_90a", "--json", folder.path("compiled")});
  if (compiled.err.find("libnvrtc") != std::string::npos) TESSERA_SKIP(compiled.err);
  CAPTURE(compiled.err, compiled.out);
  REQUIRE(compiled.exit_code == 0);
  CHECK(compiled.out.find("  registers  spilled  shared\n") != std::string::npos);
  auto with = nlohmann::json::parse(read_text(folder.path("compiled")));
  for (auto& check : with.at("checks")) {
    for (auto& kernel : check.at("kernels")) {
      CHECK(kernel.at("registers") > 0);
      CHECK(kernel.at("spill_bytes") == 0);
      for (const char* name : {"registers", "spill_bytes", "shared_bytes"}) kernel.erase(name);
    }
  }
  CHECK(with == counts);
}

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
  CHECK(run_tessera({"tune", "ls", "--json"}, "", {"TESSERA_TUNE_DIR=/nowhere/tuned"}).out ==
        "[]\n");
}

TEST_CASE("bench says what it needs", "[cli][bench]") {
  const ProgramResult skipped =
      run_tessera({"bench", "transpose", "--skip-without-gpu"}, "", {"CUDA_VISIBLE_DEVICES="});
  CHECK(skipped.exit_code == 0);
  CHECK(skipped.out.find("SKIPPED: no CUDA device (") == 0);
  const ProgramResult failed = run_tessera({"bench", "transpose"}, "", {"CUDA_VISIBLE_DEVICES="});
  CHECK(failed.exit_code == 1);
  CHECK(failed.err.find("tessera: bench needs a GPU\n  expected  a CUDA device\n  got       ") ==
        0);
  const ProgramResult peer = run_tessera({"bench", "--peer", "/no/such/file"});
  CHECK(peer.exit_code == 2);
  CHECK(peer.err.find("tessera: /no/such/file: cannot be opened\n") == 0);
  const ProgramResult no_case = run_tessera({"bench", "transpose", "--case", "no such"});
  CHECK(no_case.exit_code == 2);
  CHECK(no_case.err ==
        "tessera: argument 'case' is in the label of no case\n"
        "  expected  a part of a label, as the table shows it\n"
        "  got       'no such'\n");
  CHECK(run_tessera({"bench", "transpose", "--case", "bf16", "--launch"}).exit_code == 2);
  const ProgramResult limit = run_tessera({"bench", "transpose", "--fail-at", "2"});
  CHECK(limit.exit_code == 2);
  CHECK(limit.err.find("--fail-at requires --compile") != std::string::npos);
  for (const char* value : {"nan", "-1", "many"}) {
    CHECK(run_tessera({"bench", "--compile", "--fail-at", value}).exit_code == 2);
  }
  CHECK(run_tessera({"bench", "--compile", "--fail-at", "nan"}).err ==
        "tessera: argument 'fail-at' has a wrong value\n"
        "  expected  a number above 0: times the limit\n"
        "  got       nan\n");
}

TEST_CASE("doctor says which compiler built the program", "[cli]") {
  const std::string text = run_tessera({"doctor"}).out;
  const bool named = text.find(" ops, compiled by GCC ") != std::string::npos ||
                     text.find("Clang 1") != std::string::npos;
  CAPTURE(text);
  CHECK(named);
}

TEST_CASE("bench --compile prints CPU times and enforces a limit", "[cli][bench][slow]") {
  const ProgramResult doctor = run_tessera({"doctor"});
  if (doctor.out.find("targets ") == std::string::npos) TESSERA_SKIP("no NVRTC");
  const ProgramResult table = run_tessera({"bench", "transpose", "--compile"});
  CAPTURE(table.err);
  CHECK(table.exit_code == 0);
  CHECK(table.out.find("NVRTC ms") != std::string::npos);
  const ProgramResult slow = run_tessera({"bench", "transpose", "--compile", "--fail-at", "0.001"});
  CHECK(slow.exit_code == 1);
  CHECK(slow.err.find(" kernels take more than 0.001 times their limit\n") != std::string::npos);
}

}  // namespace
}  // namespace tessera::tests
