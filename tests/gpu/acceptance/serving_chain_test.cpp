// The gain of fusing: compress_store and compress_decode_store beside a chain of launches that a user would
// write without them. Both leave the same bytes; times and the bound of bytes are printed.

#include <fmt/format.h>

#include <map>
#include <string>

#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "kernels/quant/parts/scale_factor.h"
#include "runtime/driver/device_timer.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/bench_inputs.h"

using namespace tessera;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

constexpr int64_t kChannels = 512, kRotated = 64, kBlock = 64;  // tokens of a block of the cache
constexpr int64_t kToken = 576, kBlockBytes = (584 * kBlock + kToken - 1) / kToken * kToken;
constexpr int kThreads = 128;
constexpr float kEps = 1e-6f;
constexpr int64_t kMostBytes = int64_t{1} << 29;
constexpr double kBytesPerMicrosecond = 4.2e6;  // of an H200

/// y = x / rms(x) * weight; sums in the order of the ops.
ir::Kernel norm_rows(DType weight_dtype) {
  using namespace dsl;
  Builder k("norm_rows");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, kChannels});
  auto weight = k.input("weight", weight_dtype, {kChannels});
  auto y = k.output("y", DType::f32, {rows, kChannels});
  auto at = k.launch({rows}, {.threads = kThreads});
  auto sums = k.shared(DType::f32, {4}, "sums");
  auto first = k.let("first", k.thread() * 4);
  auto values = k.local(DType::f32, {4}, "values");
  k.vectorized(4, [&](Value i) { values(i) = x(at.x, first + i); });
  auto sum = k.var(DType::f32, 0.0f, "sum");
  k.unrolled(4, [&](Value i) { sum = fma(values(i), values(i), sum); });
  for (const int distance : {1, 2, 4, 8, 16}) sum += k.shuffle_xor(sum, distance);
  k.if_(k.lane() == 0, [&] { sums(k.warp()) = sum; });
  auto total = k.var(DType::f32, 0.0f, "total");
  for (int warp = 0; warp < 4; ++warp) total += sums(warp);
  auto inverse = k.let("inverse", 1.0f / sqrt(total / static_cast<float>(kChannels) + kEps));
  k.vectorized(4,
               [&](Value i) { y(at.x, first + i) = values(i) * inverse * f32(weight(first + i)); });
  return k.finish();
}

/// Rotates the last channels of entries that are stored by the angle of their first token.
ir::Kernel rotate_rows(int ratio) {
  using namespace dsl;
  Builder k("rotate_rows");
  auto rows = k.dim("rows"), positions = k.dim("positions");
  auto plan = k.input("plan", DType::i32, {rows, 8});
  auto cos_sin = k.input("cos_sin", DType::f32, {positions, kRotated});
  auto y = k.output("y", DType::f32, {rows, kChannels});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = kThreads});
  auto row = k.let("row", at.x * 4 + k.warp());
  k.if_(row < rows, [&] {
    auto location = k.let("location", plan(row, 5));
    k.if_(location >= 0, [&] {
      auto position = k.let("position", plan(row, 1) / ratio * ratio);
      auto column = k.let("column", kChannels - kRotated + k.lane() * 2);
      auto a = k.let("a", y(row, column)), b = k.let("b", y(row, column + 1));
      auto cos = k.let("cos", cos_sin(position, k.lane() * 2));
      auto sin = k.let("sin", cos_sin(position, k.lane() * 2 + 1));
      y(row, column) = fma(a, cos, -(b * sin));
      y(row, column + 1) = fma(a, sin, b * cos);
    });
  });
  return k.finish();
}

/// Quantises entries to v4_fp8 and stores them.
ir::Kernel store_rows() {
  using namespace dsl;
  Builder k("store_rows");
  auto rows = k.dim("rows"), blocks = k.dim("blocks");
  auto y = k.input("y", DType::f32, {rows, kChannels});
  auto plan = k.input("plan", DType::i32, {rows, 8});
  const auto view = [&](const char* name, DType dtype) {
    return k.output(name, dtype, {blocks, kBlockBytes / bytes(dtype)}, {.may_alias = true});
  };
  auto codes = view("codes", DType::e4m3), rotated = view("rotated", DType::bf16);
  auto scales = view("scales", DType::u8);
  auto at = k.launch({rows}, {.threads = kThreads});
  auto location = k.let("location", plan(at.x, 5));
  k.if_(location >= 0, [&] {
    auto block = k.let("block", location / kBlock), offset = k.let("offset", location % kBlock);
    auto first = k.let("first", k.thread() * 4);
    auto rounded = k.local(DType::bf16, {4}, "rounded");
    auto largest = k.var(DType::f32, 0.0f, "largest");
    k.vectorized(4, [&](Value i) { rounded(i) = cast(DType::bf16, y(at.x, first + i)); });
    k.unrolled(4, [&](Value i) { largest = max(largest, abs(f32(rounded(i)))); });
    for (const int distance : {1, 2, 4, 8}) {
      auto other = k.let("other", k.shuffle_xor(largest, distance));
      largest = max(largest, other);
    }
    const kernels::ScaleFactor scale =
        kernels::scale_factor(k, kernels::kE4m3, k.let("group_largest", largest), true);
    auto inverse = k.let("inverse", scale.inverse);
    k.if_else(
        first < kChannels - kRotated,
        [&] {
          k.vectorized(4, [&](Value i) {
            codes(block, offset * kToken + first + i) =
                cast(DType::e4m3, f32(rounded(i)) * inverse);
          });
        },
        [&] {
          const int64_t before = (kChannels - kRotated) / 2;  // codes take half the bytes
          k.vectorized(4, [&](Value i) {
            rotated(block, offset * (kToken / 2) + (first - before) + i) = rounded(i);
          });
        });
    k.if_(k.thread() % 16 == 0, [&] {
      auto group = k.let("group", k.thread() / 16);
      scales(block, kToken * kBlock + 8 * offset + group) =
          cast(DType::u8, select(group < 7, scale.exponent, cast(DType::u32, 0)));
    });
  });
  return k.finish();
}

/// The cache with elements of another dtype.
TensorView seen_as(const TensorView& cache, DType dtype) {
  return {cache.data, dtype, Dims{cache.shape[0], cache.shape[1] / bytes(dtype)},
          Dims{cache.strides[0] / bytes(dtype), 1}, cache.device};
}

/// One measured case of a fused op, and the chain.
class FusedAndChain {
 public:
  FusedAndChain(const kernels::BenchCase& measured, bool is_decode, Device device)
      : fused_(kernels::find_op(is_decode ? "compress_decode_store" : "compress_store")),
        plain_(kernels::find_op(is_decode ? "compress_decode" : "compress_fwd")),
        case_(case_of(measured)),
        params_(kernels::check_params(fused_, case_.params)),
        plain_params_(kernels::check_params(plain_, {{"ratio", params_.at("ratio")}})),
        norm_(norm_rows(case_.inputs.at("norm_weight").dtype())),
        rotate_(rotate_rows(static_cast<int>(std::get<int64_t>(params_.at("ratio"))))),
        store_(store_rows()) {
    const int64_t rows = case_.inputs.at("plan").shape()[0];
    for (const char* name : {"out", "y", "workspace"}) {
      case_.inputs[name] = HostTensor(DType::f32, {rows, kChannels});
    }
    case_.inputs["fused_cache"] = case_.inputs.at("cache");
    case_.inputs["fused_state"] = case_.inputs.at("state");
    for (const auto& [name, tensor] : case_.inputs) place(name, tensor, device);
  }

  void fused() const {
    kernels::Tensors tensors = of(fused_);
    tensors.erase("out");
    tensors["cache"] = views_.at("fused_cache");
    tensors["state"] = views_.at("fused_state");
    if (plain_params_.at("ratio") == kernels::ParamValue(int64_t{128})) {
      tensors["workspace"] = views_.at("workspace");
    }
    fused_.run(tensors, params_, nullptr);
  }

  void chain() const {
    plain_.run(of(plain_), plain_params_, nullptr);
    const TensorView &y = views_.at("y"), &plan = views_.at("plan"), &cache = views_.at("cache");
    const TensorView normed[] = {views_.at("out"), views_.at("norm_weight"), y};
    norm_(normed, {}, nullptr);
    const TensorView rotated[] = {plan, views_.at("cos_sin"), y};
    rotate_(rotated, {}, nullptr);
    const TensorView stored[] = {y, plan, seen_as(cache, DType::e4m3), seen_as(cache, DType::bf16),
                                 cache};
    store_(stored, {}, nullptr);
  }

  void check_equal() {
    for (const char* name : {"cache", "state"}) {
      HostTensor want = case_.inputs.at(name), got = want;
      fetch(std::string("fused_") + name, want);
      fetch(name, got);
      CAPTURE(name);
      CHECK(compare_bits(got.view(), want.view()).ok);
    }
  }

 private:
  void place(const std::string& name, const HostTensor& tensor, Device device) {
    if (device.is_cuda()) {
      memory_.try_emplace(name, tensor, device);
      views_[name] = memory_.at(name).view();
    } else {
      views_[name] = tensor.view();
    }
  }
  void fetch(const std::string& name, HostTensor& to) const {
    const auto found = memory_.find(name);
    if (found != memory_.end()) {
      found->second.download(to);
    } else {
      to = case_.inputs.at(name);
    }
  }
  kernels::Tensors of(const kernels::OpInfo& op) const {
    kernels::Tensors own;
    for (const kernels::TensorInfo& info : op.tensors) {
      const auto found = views_.find(info.name);
      if (found != views_.end()) own[info.name] = found->second;
    }
    return own;
  }

  const kernels::OpInfo &fused_, &plain_;
  OpCase case_;
  const kernels::Params params_, plain_params_;
  const jit::Function norm_, rotate_, store_;
  std::map<std::string, DeviceTensor> memory_;
  kernels::Tensors views_;
};

void check_cases(bool is_decode) {
  runtime::DeviceTimer timer(0);
  const std::string op = is_decode ? "compress_decode_store" : "compress_store";
  for (const kernels::BenchCase& measured : kernels::find_op(op).bench) {
    if (std::get<std::string>(measured.params.at("format")) != "v4_fp8") continue;
    if (measured.bytes > kMostBytes) continue;  // random rows for it take a minute
    FusedAndChain both(measured, is_decode, Device::cuda(0));
    both.fused();
    both.chain();
    both.check_equal();
    const double fused = timer.measure([&] { both.fused(); }).us;
    const double chain = timer.measure([&] { both.chain(); }).us;
    const auto bytes = static_cast<double>(measured.bytes);
    WARN(
        fmt::format("{} {}: fused {:.2f} us, chain of 4 launches {:.2f} us, {:.2f} times; {:.2f} "
                    "MB, bound {:.2f} us",
                    op, measured.label, fused, chain, chain / fused, bytes / 1e6,
                    bytes / kBytesPerMicrosecond));
  }
}

}  // namespace

TEST_CASE("compress_store beside a chain of launches", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  check_cases(false);
}

TEST_CASE("compress_decode_store beside a chain of launches", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  check_cases(true);
}
