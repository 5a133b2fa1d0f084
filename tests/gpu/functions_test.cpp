// Functions of the language on the GPU: those that promise the bits of another expression over every f32,
// and the approximated ones within the error that their declarations allow.

#include <cmath>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/elementary_functions.h"

namespace tessera {
namespace {

using namespace dsl;

constexpr int64_t kBlocks = 4096, kThreads = 256;
constexpr int64_t kPerThread = (int64_t{1} << 32) / (kBlocks * kThreads);

/// wrong(0): how many floats `function` and `definition` differ for; wrong(1): the bits of one.
template <class Function, class Definition>
ir::Kernel differences(const Function& function, const Definition& definition) {
  Builder k("differences");
  auto wrong = k.output("wrong", DType::i64, {2}, {.align = 8});
  auto at = k.launch({kBlocks}, {.threads = kThreads});
  auto first = k.let("first", i64(at.x * kThreads + k.thread()) * kPerThread);
  k.serial(0, kPerThread, [&](Value i) {
    auto bits = k.let("bits", first + i64(i));
    auto x = k.let("x", reinterpret(DType::f32, u32(bits)));
    auto got = k.let("got", function(x)), expected = k.let("expected", definition(x));
    auto same = (is_nan(got) && is_nan(expected)) ||
                reinterpret(DType::u32, got) == reinterpret(DType::u32, expected);
    k.if_(!same, [&] {
      k.atomic_add(wrong(0), i64(1));
      k.atomic_max(wrong(1), bits);
    });
  });
  return k.finish();
}

int64_t count_differences(const ir::Kernel& kernel) {
  test::HostTensor wrong(DType::i64, {2});
  wrong.fill_bytes(std::byte{0});
  const test::DeviceTensor on_device(wrong, Device::cuda(0));
  const TensorView arguments[] = {on_device.view()};
  kernels::jit::run(kernel, arguments, {}, nullptr);
  on_device.download(wrong);
  UNSCOPED_INFO("differs for f32 bits " << wrong.bits(1));
  return static_cast<int64_t>(wrong.bits(0));
}

TEST_CASE("silu is its quotient for every f32 on the GPU", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const auto function = [](const Value& x) { return silu(x); };
  CHECK(count_differences(
            differences(function, [](const Value& x) { return x / (1.0f + exp(-x)); })) == 0);
  // a product with the reciprocal, rounded once more, is another function
  CHECK(count_differences(differences(
            function, [](const Value& x) { return x * (1.0f / (1.0f + exp(-x))); })) > 1000);
}

TEST_CASE("a sigmoid is its quotient for every f32 on the GPU", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const auto function = [](const Value& x) { return 1.0f / (1.0f + exp(-x)); };
  // a divisor of unknown origin: a division
  const auto unknown = [](const Value& x) {
    return reinterpret(DType::f32, reinterpret(DType::u32, 1.0f + exp(-x)));
  };
  CHECK(count_differences(
            differences(function, [&](const Value& x) { return 1.0f / unknown(x); })) == 0);
  // another function, so that the comparison sees a last bit
  CHECK(count_differences(differences(
            function, [](const Value& x) { return 1.0f - 1.0f / (1.0f + exp(x)); })) > 1000);
}

TEST_CASE("quotients with a constant are divisions for every f32 on the GPU", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  struct Format {
    float max, amax_floor;
  };
  for (const Format format : {Format{448.0f, 1e-4f}, {6.0f, 0x1.8p-124f}, {65024.0f, 1e-4f}}) {
    CAPTURE(format.max);
    const auto clamped = [&](const Value& x) { return max(x, format.amax_floor); };
    // of its bits the compiler knows no range: a division
    const auto unknown = [&](const Value& x) {
      return reinterpret(DType::f32, reinterpret(DType::u32, clamped(x)));
    };
    CHECK(count_differences(differences([&](const Value& x) { return format.max / clamped(x); },
                                        [&](const Value& x) { return format.max / unknown(x); })) ==
          0);
    CHECK(count_differences(differences([&](const Value& x) { return clamped(x) / format.max; },
                                        [&](const Value& x) { return unknown(x) / format.max; })) ==
          0);
    // a product with the reciprocal is another function
    CHECK(count_differences(differences(
              [&](const Value& x) { return clamped(x) / format.max; },
              [&](const Value& x) { return clamped(x) * (1.0f / format.max); })) > 1000);
  }
}

TEST_CASE("elementary functions keep their error on the GPU", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  constexpr int64_t kCount = 1 << 20;
  const auto& functions = test::elementary_functions();
  const std::vector<float> inputs = test::elementary_inputs(kCount);
  test::HostTensor x(DType::f32, {static_cast<int64_t>(functions.size()), kCount});
  test::HostTensor y(DType::f32, {static_cast<int64_t>(functions.size()), kCount});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, inputs[static_cast<size_t>(i)]);
  const test::DeviceTensor x_on_device(x, Device::cuda(0)), y_on_device(y, Device::cuda(0));
  const TensorView arguments[] = {x_on_device.view(), y_on_device.view()};
  kernels::jit::run(test::elementary_kernel(kCount), arguments, {}, nullptr);
  y_on_device.download(y);
  for (size_t f = 0; f < functions.size(); ++f) {
    double largest = 0;
    float at = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const auto place = static_cast<int64_t>(f) * kCount + i;
      const float input = inputs[static_cast<size_t>(place)];
      const double error = test::error_of(functions[f], input, static_cast<float>(y.value(place)));
      if (!std::isnan(largest) && !(error <= largest)) largest = error, at = input;  // a NaN stays
    }
    UNSCOPED_INFO(functions[f].name << ": at " << at);
    CHECK(largest <= 1);
  }
}

}  // namespace
}  // namespace tessera
