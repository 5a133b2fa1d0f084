#include "tools/lib/calls/op_call.h"

#include <cstring>

#include "dsl/base/error.h"
#include "kernels/jit/count_scope.h"
#include "kernels/signature/param_grammar.h"
#include "tests/support/catch.h"
#include "tests/tools/fake_op.h"
#include "tools/lib/calls/random_tensor.h"

namespace tessera::tools {
namespace {

using kernels::OpInfo;
using tests::fake_op;

StoredTensor bytes_tensor(const std::string& name, Dims shape, int first) {
  StoredTensor tensor{name, DType::u8, shape, HostBuffer(num_elements(shape))};
  for (int64_t i = 0; i < tensor.data.size(); ++i) {
    tensor.data.data()[i] = static_cast<std::byte>(first + i);
  }
  return tensor;
}

Safetensors file_with_x(Dims shape) {
  Safetensors file;
  file.tensors.push_back(bytes_tensor("x", shape, 1));
  return file;
}

Safetensors run(const Safetensors& inputs, const std::vector<std::string>& params) {
  const OpInfo op = fake_op();
  OpCall call(op, kernels::parse_params(op, params), inputs, Device::cpu());
  call.run();
  return call.results();
}

std::string message(const Safetensors& inputs) {
  try {
    run(inputs, {"amount=1"});
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

template <class T>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  std::vector<T> result(static_cast<size_t>(tensor->data.size()) / sizeof(T));
  std::memcpy(result.data(), tensor->data.data(), result.size() * sizeof(T));
  return result;
}

TEST_CASE("an op runs on the tensors of a file", "[op_call]") {
  const Safetensors results = run(file_with_x({2, 3}), {"amount=2"});
  CHECK(results.tensors.size() == 2);
  CHECK(values<uint8_t>(results, "out") == std::vector<uint8_t>{3, 4, 5, 6, 7, 8});
  CHECK(values<float>(results, "out_sf") == std::vector<float>{0, 1});
  CHECK(results.metadata.empty());
}

TEST_CASE("strides of inputs and outputs travel in the metadata", "[op_call]") {
  Safetensors inputs = file_with_x({3, 2});
  inputs.metadata["strides.x"] = "5,1";
  const Safetensors results = run(inputs, {"amount=0", "sf_layout=col_major_tma"});
  CHECK(values<uint8_t>(results, "out") == std::vector<uint8_t>{1, 2, 3, 4, 5, 6});
  CHECK(values<float>(results, "out_sf") == std::vector<float>{0, 1, 2});
  CHECK(results.metadata == std::map<std::string, std::string>{{"strides.out_sf", "1,4"}});
}

TEST_CASE("optional and in-place tensors", "[op_call]") {
  Safetensors inputs = file_with_x({2, 3});
  inputs.tensors.push_back(bytes_tensor("bias", {1}, 10));
  StoredTensor total{"total", DType::i64, {1}, HostBuffer(8)};
  total.data.data()[0] = std::byte{100};
  inputs.tensors.push_back(std::move(total));
  const Safetensors results = run(inputs, {"amount=0"});
  CHECK(values<uint8_t>(results, "out") == std::vector<uint8_t>{11, 12, 13, 14, 15, 16});
  CHECK(values<int64_t>(results, "total") == std::vector<int64_t>{106});
  CHECK(values<int64_t>(inputs, "total") == std::vector<int64_t>{100});
}

TEST_CASE("a call goes on with its tensors elsewhere", "[op_call]") {
  Safetensors inputs = file_with_x({2, 3});
  StoredTensor total{"total", DType::i64, {1}, HostBuffer(8)};
  total.data.data()[0] = std::byte{100};
  inputs.tensors.push_back(std::move(total));
  const OpInfo op = fake_op();
  const std::vector<std::string> params = {"amount=1"};
  OpCall call(op, kernels::parse_params(op, params), inputs, Device::cpu());
  call.run();
  const kernels::Tensors before = call.tensors();
  call.move_elsewhere();
  REQUIRE(call.tensors().size() == before.size());
  for (const auto& [name, view] : call.tensors()) {
    CAPTURE(name);
    CHECK(view.data != before.at(name).data);
  }
  CHECK(values<uint8_t>(call.results(), "out") == std::vector<uint8_t>{2, 3, 4, 5, 6, 7});
  call.run();
  CHECK(values<uint8_t>(call.results(), "out") == std::vector<uint8_t>{2, 3, 4, 5, 6, 7});
  CHECK(values<int64_t>(call.results(), "total") == std::vector<int64_t>{112});
}

TEST_CASE("empty tensors are ordinary", "[op_call]") {
  const Safetensors results = run(file_with_x({0, 3}), {"amount=1", "sf_layout=col_major_tma"});
  CHECK(results.find("out")->shape == Dims{0, 3});
  CHECK(results.find("out_sf")->shape == Dims{0, 1});
  CHECK(results.metadata.empty());
}

TEST_CASE("outputs are as long as the data made them", "[op_call]") {
  Safetensors file;
  file.tensors.push_back({"topk_idx", DType::i64, {2, 2}, HostBuffer(32)});
  const int64_t ids[] = {1, -1, 1, 0};
  std::memcpy(file.tensors.front().data.data(), ids, sizeof(ids));
  const OpInfo& op = kernels::find_op("get_fused_mapping");
  const auto pairs = [&](const std::vector<std::string>& params) {
    OpCall call(op, kernels::parse_params(op, params), file, Device::cpu());
    call.run();
    return values<int32_t>(call.results(), "pos_to_token_topk");
  };
  CHECK(pairs({"num_experts=2", "alignment=2"}) == std::vector<int32_t>{3, -1, 0, 2});
  CHECK(pairs({"num_experts=2", "alignment=2", "num_expanded_tokens=5"}) ==
        std::vector<int32_t>{3, -1, 0, 2, -1});
}

TEST_CASE("the bytes of results are those of outputs and in-place tensors", "[op_call]") {
  Safetensors inputs = file_with_x({3, 2});
  inputs.tensors.push_back({"total", DType::i64, {1}, HostBuffer(8)});
  const OpInfo op = fake_op();
  const std::vector<std::string> params = {"amount=0", "sf_layout=col_major_tma"};
  const OpCall call(op, kernels::parse_params(op, params), inputs, Device::cpu());
  CHECK(call.result_bytes() == 3 * 2 + 4 * 3 + 8);  // out, out_sf without its padding, total
}

TEST_CASE("the bytes of results are those that the data called for", "[op_call]") {
  Safetensors file;
  file.tensors.push_back({"topk_idx", DType::i64, {2, 2}, HostBuffer(32)});
  const OpInfo& op = kernels::find_op("get_fused_mapping");
  const std::vector<std::string> params = {"num_experts=2", "alignment=8"};
  OpCall call(op, kernels::parse_params(op, params), file, Device::cpu());
  call.run();
  // 8 positions in three maps, 4 pairs, 2 experts in three lists
  CHECK(call.result_bytes() == 4 * (3 * 8 + 4 + 3 * 2));
}

TEST_CASE("values are checked without a run", "[op_call]") {
  const OpInfo& op = kernels::find_op("get_fused_mapping");
  const std::vector<std::string> params = {"num_experts=3", "alignment=4"};
  const auto told = [&](int64_t id) -> std::string {
    Safetensors file;
    file.tensors.push_back({"topk_idx", DType::i64, {1, 1}, HostBuffer(8)});
    std::memcpy(file.tensors.front().data.data(), &id, sizeof(id));
    try {
      const kernels::jit::CountScope scope;
      check_values(op, kernels::parse_params(op, params), file);
      CHECK(scope.kernels().empty());  // nothing ran
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(told(-1) == "no error");
  CHECK(told(2) == "no error");
  CHECK(told(3) ==
        "tessera: get_fused_mapping: argument 'topk_idx' has a value out of range\n"
        "  expected  -1 .. 2\n"
        "  got       3 at [0, 0]");
}

TEST_CASE("tensors that do not belong are refused", "[op_call]") {
  Safetensors unknown = file_with_x({2, 3});
  unknown.tensors.push_back(bytes_tensor("bais", {1}, 0));
  CHECK(message(unknown) ==
        "tessera: fake_add: unknown tensor 'bais'\n"
        "  expected  x, bias, out, out_sf, total\n"
        "  got       bais\n"
        "  hint      did you mean 'bias'?");
  Safetensors output = file_with_x({2, 3});
  output.tensors.push_back(bytes_tensor("out", {2, 3}, 0));
  CHECK(message(output) ==
        "tessera: fake_add: tensor 'out' is an output\n"
        "  expected  inputs and in-place tensors only\n"
        "  got       out");
  CHECK(message(Safetensors()) ==
        "tessera: fake_add: argument 'x' is missing\n"
        "  expected  a tensor named x\n"
        "  got       no tensors");
  CHECK(message(file_with_x({6})) ==
        "tessera: fake_add: argument 'x' has the wrong rank\n"
        "  expected  u8[T, H]\n"
        "  got       u8[6] on cpu");
}

TEST_CASE("a listed case runs on random inputs, the same for the same seed", "[op_call]") {
  const OpInfo op = fake_op();
  OpCall first(op, op.examples.front(), Device::cpu(), 7);
  OpCall second(op, op.examples.front(), Device::cpu(), 7);
  OpCall other(op, op.examples.front(), Device::cpu(), 8);
  first.run();
  second.run();
  other.run();
  CHECK(first.tensors().at("x").strides == Dims{8, 1});
  CHECK(values<uint8_t>(first.results(), "out") == values<uint8_t>(second.results(), "out"));
  CHECK(values<uint8_t>(first.results(), "out") != values<uint8_t>(other.results(), "out"));
  CHECK(first.bytes() == 15 + 15 + 3 * 4);
}

TEST_CASE("random floats are finite and of moderate size", "[random]") {
  const HostBuffer f32 = random_tensor(DType::f32, 1'000'010, 3);
  int negative = 0, outside = 0;
  for (int64_t i = 0; i < 1'000'010; ++i) {
    float value = 0;
    std::memcpy(&value, f32.data() + i * 4, 4);
    const float magnitude = value < 0 ? -value : value;
    outside += magnitude >= 0.125F && magnitude < 4.0F ? 0 : 1;
    negative += value < 0 ? 1 : 0;
  }
  CHECK(outside == 0);
  CHECK(negative > 490'000);
  CHECK(negative < 510'000);
  const HostBuffer e4m3 = random_tensor(DType::e4m3, 1000, 3);
  for (const std::byte code : e4m3.bytes()) CHECK((code & std::byte{0x7F}) != std::byte{0x7F});
  const HostBuffer flags = random_tensor(DType::boolean, 1000, 3);
  for (const std::byte flag : flags.bytes()) CHECK(flag <= std::byte{1});
}

TEST_CASE("device words", "[device]") {
  CHECK(parse_device("cpu") == Device::cpu());
  CHECK(describe(Device::cpu()) == "cpu");
  for (const char* word : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "CPU"}) {
    CAPTURE(word);
    try {
      parse_device(word);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(std::string(e.what()) == "tessera: unknown device '" + std::string(word) +
                                         "'\n  expected  auto, cpu or cuda:N" +
                                         (*word == '\0' ? "" : "\n  got       ") + word);
    }
  }
  CHECK_THROWS_AS(parse_device("cuda:99"), Error);
}

}  // namespace
}  // namespace tessera::tools
