// per_token_cast_and_cast_back: rounds rows to the values that a quantised format would hold, in place.
//
// Dtypes   x bf16|f32
// Method   eight columns per thread; threads of a group find its largest magnitude by shuffles. Every byte
//          moves once in each direction; the bound is bytes / copy bandwidth.
// Maths    code = cast(x * inverse), x = round(code * scale); scale and inverse as in scale_factor.h, or a
//          scale that is an e4m3 itself: scale = e4m3(max(amax, max * 2^-9) / max), inverse = 1 / scale
// Measured one H200, bf16, 8192 x 7168: e4m3 57.5 us, 98 % of copy, e2m1 64, 88 %, with e4m3 scales 65.
// Lost     conversions of e4m3 one by one 59.2; of e2m1 in pairs 64.5 and 67.3.

#include <functional>
#include <limits>

#include "kernels/quant/parts/scale_factor.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

struct Spec {
  DType dtype, format;
  bool round_sf, e4m3_sf;
  int16_t width, group;  // columns per access and of a scale
  int32_t hidden;
};

constexpr int64_t kRun = 8, kThreads = 256;

ScaleFactor scale_of(dsl::Builder& k, const Spec& s, const dsl::Value& amax) {
  using namespace dsl;
  const QuantFormat& format = quant_format(s.format);
  if (!s.e4m3_sf) return scale_factor(k, format, amax, s.round_sf);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  auto clamped = max(amax, format.max * 0x1p-9f);
  auto scale = k.let("e4m3_scale", select(amax == kInfinity, kInfinity,
                                          f32(cast(DType::e4m3, clamped / format.max))));
  return {scale, 1.0f / scale, {}};
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t runs = s.hidden / kRun;
  Builder k("per_token_cast_and_cast_back");
  auto tokens = k.dim("tokens");
  auto stride = k.stride("x_stride", {.multiple_of = s.width});
  auto x = k.output("x", s.dtype, {tokens, s.hidden},
                    {.strides = {stride, 1}, .align = int64_t{bytes(s.dtype)} * s.width});
  auto per_row = k.launch({ceil_div(tokens * runs, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto item = k.let("item", per_row.x * kThreads + k.thread());
  auto token = k.let("token", item / runs), column = k.let("column", item % runs * kRun);
  auto inside = k.let("inside", token < tokens);
  auto held = k.local(s.dtype, {kRun}, "held");
  k.unrolled(kRun, [&](Value i) { held(i) = cast(s.dtype, 0.0f); });
  k.wait_for_previous_kernel();
  const auto each = [&](const std::function<void(const Value&)>& body) {
    k.if_(inside, [&] {
      k.unrolled(kRun / s.width, [&](Value piece) {
        k.vectorized(s.width, [&](Value i) { body(piece * s.width + i); });
      });
    });
  };
  each([&](const Value& i) { held(i) = x(token, column + i).unchecked(); });
  auto amax = k.var(DType::f32, 0.0f, "amax");
  k.unrolled(kRun, [&](Value i) { amax = max(amax, abs(f32(held(i)))); });
  for (int distance = 1; distance < s.group / kRun; distance *= 2) {
    const Value other = k.shuffle_xor(amax, distance);
    amax = max(amax, other);
  }
  const ScaleFactor scale = scale_of(k, s, amax);
  auto factor = k.let("factor", scale.scale), inverse = k.let("inverse", scale.inverse);
  const auto rounded = [&](const Value& i, const Value& code) {
    auto value = f32(code) * factor;
    held(i) = s.dtype == DType::f32
                  ? select(is_nan(value), reinterpret(DType::f32, u32(0x7FFFFFFF)), value)
                  : cast(s.dtype, value);
  };
  if (s.format == DType::e4m3) {  // conversions in pairs, which e2m1 loses by
    auto codes = k.local(s.format, {kRun}, "codes");
    k.vectorized(kRun, [&](Value i) { codes(i) = cast(s.format, f32(held(i)) * inverse); });
    k.vectorized(kRun, [&](Value i) { rounded(i, codes(i)); });
  } else {
    k.unrolled(kRun, [&](Value i) { rounded(i, cast(s.format, f32(held(i)) * inverse)); });
  }
  each([&](const Value& i) { x(token, column + i).unchecked() = held(i); });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const TensorView x = c.tensor("x");
  Spec s{};
  s.dtype = x.dtype;
  s.format = c.dtype("format");
  s.round_sf = c.flag("round_sf");
  s.e4m3_sf = c.flag("e4m3_sf");
  s.width = static_cast<int16_t>(common_vector(x, 16 / bytes(x.dtype)));
  s.group = static_cast<int16_t>(c["num_per_channels"]);
  s.hidden = c.i32("H");
  go.add(build, s);
}

}  // namespace

const Op per_token_cast_and_cast_back_op{
    .name = "per_token_cast_and_cast_back",
    .family = "serving",
    .purpose =
        "rounds rows to the values of 8-bit or 4-bit floats with one scale per group, in place",
    .signature = R"(
      -> inout x  bf16/f32 [T, H] rows
      param  format {e4m3, e2m1}
      param  num_per_channels {16, 32, 64, 128}
      param  round_sf bool = false
      param  e4m3_sf bool = false         # scales are e4m3 themselves
      need   H >= 1 on x "argument 'x' has no columns"
      need   H % 64 = 0 and H % num_per_channels = 0 on x "a row has the wrong number of columns"
      need   not (round_sf and e4m3_sf) on e4m3_sf "parameter 'e4m3_sf' does not go with 'round_sf'"
      limit  T * H <= 17045651448 on x "so many elements are not supported"
    )",
    .launches = launches,
    .examples = R"(
      T=37 H=7168 x=bf16 format=e4m3 num_per_channels=128; T=9 H=576 x=f32 format=e2m1 num_per_channels=32 round_sf=true
      T=5 H=192 x=bf16 format=e2m1 num_per_channels=16 e4m3_sf=true; T=3 H=128 x=f32 format=e4m3 num_per_channels=64 x.strides=256,1)",
    .bench = R"(
      T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128; T=8192 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=8192 H=7168 x=bf16 format=e2m1 num_per_channels=32 round_sf=true
      T=8192 H=7168 x=bf16 format=e2m1 num_per_channels=16 e4m3_sf=true)",
    .bytes = [](const Case& c) {  // in and out
      return 2 * c["T"] * c["H"] * (c.dtype_word("x") == "f32" ? 4 : 2);
    }};

}  // namespace tessera::kernels
