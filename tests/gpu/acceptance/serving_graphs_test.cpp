// Serving ops in CUDA graphs: a step is captured once; then positions, lengths, slots and pages change in
// device memory, and replays give the bits of fresh calls on the GPU and on the executor.

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/checks/value_check.h"
#include "kernels/jit/prepare.h"
#include "kernels/op.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "tests/gpu/acceptance/graphs.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
namespace jit = kernels::jit;

namespace {

constexpr int64_t kBatch = 200;  // enough that blocks of ratio 128 take several tokens
constexpr int64_t kMostTokens = 512, kPage = 256, kOutPage = 16;

/// Ops in their order. A tensor that an op writes is the input of that name of later ones.
struct Step {
  struct Part {
    std::string op;
    Params params;
  };
  std::vector<Part> parts;
  HostTensors tensors;  // as they are before the step, or after it

  kernels::Tensors of(const Part& part, const kernels::Tensors& all) const {
    kernels::Tensors own;
    for (const kernels::TensorInfo& info : kernels::find_op(part.op).tensors) {
      const auto found = all.find(info.name);
      if (found != all.end()) own[info.name] = found->second;
    }
    return own;
  }

  /// Fresh calls.
  void run(Device device) {
    for (const Part& part : parts) {
      const kernels::OpInfo& op = kernels::find_op(part.op);
      HostTensors in;
      for (const kernels::TensorInfo& info : op.tensors) {
        const auto found = tensors.find(info.name);
        if (found != tensors.end() && info.role != kernels::Role::out)
          in[info.name] = found->second;
      }
      for (auto& [name, tensor] : run_op(op, in, part.params, device)) tensors[name] = tensor;
    }
  }
};

/// The step in memory of the GPU, captured.
class CapturedStep {
 public:
  explicit CapturedStep(const Step& step) : step_(step), stream_(0) {
    for (const auto& [name, tensor] : step.tensors) {
      memory_[name] = runtime::DeviceBuffer(0, std::ssize(tensor.raw()));
      views_[name] = tensor.view();
      views_[name].data = static_cast<std::byte*>(memory_[name].data()) + kGuardBytes;
      views_[name].device = Device::cuda(0);
    }
    upload(step.tensors);
    for (const Step::Part& part : step.parts) allocate_workspace(part);
    jit::prepare([&] { call(); });
    graph_ = graphs_.captured(stream_.handle(), [&] { call(); });
  }
  ~CapturedStep() { CHECK(graphs_.destroy_exec(graph_) == 0); }
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  HostTensors replay(const HostTensors& before) {
    upload(before);
    REQUIRE(graphs_.launch(graph_, stream_.handle()) == 0);
    runtime::synchronize(0, stream_.handle());
    HostTensors after = before;
    for (auto& [name, tensor] : after) {
      memory_.at(name).download(tensor.raw().data(), std::ssize(tensor.raw()));
      CHECK(tensor.damage().empty());
    }
    return after;
  }

 private:
  void upload(const HostTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      memory_.at(name).upload(tensor.raw().data(), std::ssize(tensor.raw()));
    }
    runtime::synchronize(0);
  }
  void allocate_workspace(const Step::Part& part) {
    const kernels::OpInfo& op = kernels::find_op(part.op);
    const kernels::Params params = kernels::check_params(op, part.params);
    for (const kernels::OutputInfo& info : op.outputs(step_.of(part, views_), params)) {
      if (!info.workspace) continue;
      const HostTensor unset(info.dtype, info.shape);
      workspaces_.try_emplace(part.op, unset, Device::cuda(0));
    }
  }
  void call() {
    for (const Step::Part& part : step_.parts) {
      const kernels::OpInfo& op = kernels::find_op(part.op);
      kernels::Tensors tensors = step_.of(part, views_);
      const auto workspace = workspaces_.find(part.op);
      if (workspace != workspaces_.end()) tensors["workspace"] = workspace->second.view();
      op.run(tensors, kernels::check_params(op, part.params), stream_.handle());
    }
  }

  const Step step_;
  const Graphs graphs_;
  const runtime::ContextScope context_{0};
  const runtime::OwnedStream stream_;
  std::map<std::string, runtime::DeviceBuffer> memory_;
  std::map<std::string, DeviceTensor> workspaces_;  // of the ops that have one
  kernels::Tensors views_;
  Graphs::Handle graph_ = nullptr;
};

/// Replays with other contents each round, from what the round before left.
void check_rounds(Step step, int rounds, const std::function<void(HostTensors&, int)>& change) {
  CapturedStep captured(step);
  HostTensors before = step.tensors;
  for (int round = 0; round < rounds; ++round) {
    change(before, round);
    const HostTensors replayed = captured.replay(before);
    for (const Device device : {Device::cuda(0), Device::cpu()}) {
      step.tensors = before;
      step.run(device);
      for (const auto& [name, want] : step.tensors) {
        CAPTURE(round, name, device.is_cuda());
        const Comparison equal = compare_bits(replayed.at(name).view(), want.view());
        CHECK(equal.ok);
      }
    }
    before = replayed;
  }
}

/// Numbers 0 .. in any order; every seventh is -1 with holes.
HostTensor pages(Dims shape, Random& random, bool holes) {
  std::vector<int64_t> numbers(static_cast<size_t>(num_elements(shape)));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (size_t i = numbers.size() - 1; i > 0; --i) {
    const auto other = static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1));
    std::swap(numbers[i], numbers[other]);
  }
  return tensor_by(DType::i32, shape, [&](int64_t i) {
    return holes && i % 7 == 3 ? -1 : numbers[static_cast<size_t>(i)];
  });
}

/// Scores are multiples of 256, so that exponentials are 1 or 0 and the executor has the bits of the GPU.
HostTensor rows_of_tokens(int64_t rows, int64_t length, Random& random) {
  HostTensor x = random_tensor(DType::bf16, {rows, length}, Values::normal, random.next());
  for (int64_t i = 0; i < x.size(); ++i) {
    if (i % length >= length / 2) x.set_value(i, random.below(3) == 0 ? 0.0 : -512.0);
  }
  return x;
}

HostTensor zeros(DType dtype, Dims shape) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_bits(i, 0);
  return tensor;
}

/// Positions and tables of a decode step: half of the tokens end a window, some requests are padding.
void change_decode(HostTensors& tensors, int64_t ratio, int round) {
  Random random(static_cast<uint64_t>(round) * 10 + 1);
  tensors["positions"] = tensor_by(DType::i32, {kBatch}, [&](int64_t b) {
    const int64_t window = random.below(kMostTokens / ratio) * ratio;
    if ((b + round) % 9 == 0) return int64_t{-1};
    return b % 2 == 0 ? window + ratio - 1 : window + random.below(ratio);
  });
  const auto& state_pages = tensors.at("state_pages").shape();
  tensors["state_pages"] = pages(state_pages, random, false);
  tensors["page_table"] = pages(tensors.at("page_table").shape(), random, round > 0);
  const int64_t length = tensors.at("x").shape()[1];
  tensors["x"] = rows_of_tokens(kBatch, length, random);
}

Step decode_step(int64_t ratio, bool stores) {
  const int64_t channels = 128, slots = ratio == 4 ? 8 : ratio;
  const int64_t length = channels * (ratio == 4 ? 4 : 2), table = kMostTokens / kPage;
  const int64_t out_table = kMostTokens / ratio / kOutPage + 1;
  Random random(static_cast<uint64_t>(ratio));
  Step step;
  HostTensors& t = step.tensors;
  t["positions"] = zeros(DType::i32, {kBatch});
  t["state_pages"] = pages({kBatch, table}, random, false);
  t["page_table"] = pages({kBatch, out_table}, random, false);
  t["plan"] = zeros(DType::i32, {kBatch, 8});
  t["x"] = rows_of_tokens(kBatch, length, random);
  t["ape"] =
      tensor_by(DType::f32, {slots, channels}, [](int64_t i) { return i % 3 == 0 ? 256 : 0; });
  t["state"] = rows_of_tokens(kBatch * table * slots, length, random);
  t["out"] = zeros(DType::f32, {kBatch, channels});
  step.parts.push_back(
      {"compress_plan_decode",
       {{"ratio", ratio}, {"ring", slots}, {"state_page_size", kPage}, {"page_size", kOutPage}}});
  if (!stores) {
    step.parts.push_back({"compress_decode", {{"ratio", ratio}}});
    return step;
  }
  t["norm_weight"] = random_tensor(DType::f32, {channels}, Values::normal, 5);
  t["cos_sin"] = random_tensor(DType::f32, {kMostTokens, 64}, Values::normal, 6);
  t["cache"] = zeros(DType::u8, {kBatch * out_table, 132 * kOutPage});
  step.parts.push_back({"compress_decode_store",
                        {{"ratio", ratio},
                         {"format", std::string("index_fp8")},
                         {"page_size", kOutPage},
                         {"hadamard", true},
                         {"save_out", true}}});
  return step;
}

}  // namespace

TEST_CASE("a captured decode step of the compressor replays on other positions and pages",
          "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const kernels::UncheckedValues as_on_a_gpu;
  const int64_t ratio = GENERATE(4, 128);
  const bool stores = GENERATE(false, true);
  CAPTURE(ratio, stores);
  check_rounds(decode_step(ratio, stores), 3,
               [&](HostTensors& tensors, int round) { change_decode(tensors, ratio, round); });
}

TEST_CASE("a captured topk_select with its plan replays on other lengths and pages", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  constexpr int64_t kRows = 6, kColumns = 70000, kTopk = 512, kPages = 1100;
  Step step;
  HostTensors& t = step.tensors;
  t["scores"] = random_tensor(DType::f32, {kRows, kColumns}, Values::normal, 1);
  t["lengths"] = zeros(DType::i32, {kRows});
  t["page_table"] = zeros(DType::i32, {kRows, kPages});
  t["plan"] = zeros(DType::i32, {kRows + 1, 2});
  t["indices"] = zeros(DType::i32, {kRows, kTopk});
  step.parts = {{"topk_plan", {{"topk", kTopk}, {"max_length", kColumns}}},
                {"topk_select", {{"topk", kTopk}}}};
  check_rounds(step, 4, [&](HostTensors& tensors, int round) {
    Random random(static_cast<uint64_t>(round) + 40);
    tensors["lengths"] = tensor_by(DType::i32, {kRows}, [&](int64_t b) {
      const int64_t lengths[] = {0, 100, kTopk, 33000 + round, kColumns, random.below(kColumns)};
      return lengths[(b + round) % kRows];
    });
    tensors["page_table"] = pages({kRows, kPages}, random, true);
    tensors["scores"] = random_tensor(DType::f32, {kRows, kColumns}, Values::normal, random.next());
  });
}
