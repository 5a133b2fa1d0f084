// tessera run on a shipped op, as a user types it.

#include <sys/resource.h>

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
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

TEST_CASE("show says when there is nothing to launch", "[cli][show]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path("x"), matrix(0, 64));
  const ProgramResult shown = run_tessera({"show", "transpose", "--in", folder.path("x")});
  CHECK(shown.exit_code == 0);
  CHECK(shown.out == "// transpose for " + folder.path("x") + ": empty, nothing to launch\n");
}

}  // namespace
}  // namespace tessera::tests
