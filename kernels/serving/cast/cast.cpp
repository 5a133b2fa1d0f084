// cast: converts a tensor to another float format, to nearest or stochastically.
//
// Dtypes   f32|bf16|f16|e4m3 to f32|bf16|f16|e4m3; stochastic f32 to bf16, f32|bf16 to e4m3
// Method   eight elements per thread, in vectors of up to 16 bytes. The tensor is rows of 2048 elements,
//          one per block, and a rest, whose block moves single elements. Every byte moves once; the bound
//          is bytes / copy bandwidth.
// Maths    to nearest, ties to even; e4m3 saturates; NaN becomes the format's own. Stochastic rounding:
//          random_round.h
// Measured one H200, 58720256 elements of f32: to bf16 84 us, all of the copy's rate, stochastically too; to e4m3
//          stochastically 78, 92 %, where integer operations bind as well.
// Lost     a shift for whole part and fraction each, code by code 104; 64-bit shifts and bytes by selects 84.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/cast/parts/random_round.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

struct Spec {
  DType in, out;
  bool stochastic;
  bool has_rows, has_rest;
  int8_t width, out_width;  // elements per access
  uint8_t unused = 0;
};

constexpr int64_t kRun = 8, kThreads = 256, kRow = kRun * kThreads;

/// Converts a run of `given`, whose first four elements are quad `quad` of the tensor.
void convert(dsl::Builder& k, const Spec& s, const dsl::Ref& given, const dsl::Ref& converted,
             const dsl::Value& quad, const dsl::Value& seed) {
  using namespace dsl;
  if (!s.stochastic) {
    k.unrolled(kRun, [&](Value j) {
      auto value = k.let("value", f32(given(j)));
      // A conversion to f32 is exact and keeps the bits of a NaN.
      converted(j) = s.out == DType::f32
                         ? select(is_nan(value), reinterpret(DType::f32, u32(0x7FFFFFFF)), value)
                         : cast(s.out, value);
    });
    return;
  }
  for (int64_t part = 0; part < kRun / 4; ++part) {
    auto four = k.local(DType::f32, {4}, "four");
    k.unrolled(4, [&](Value j) { four(j) = f32(given(part * 4 + j)); });
    const serving::RandomBits bits(k, four, quad + part, seed);
    std::optional<Value> codes;
    if (s.out == DType::e4m3) codes = bits.to_e4m3(four);
    for (int64_t j = 0; j < 4; ++j) {
      const auto byte = [&] { return reinterpret(s.out, cast(DType::u8, *codes >> (8 * j))); };
      converted(part * 4 + j) = codes ? byte() : cast(s.out, bits.to_bf16(four(j), j));
    }
  }
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  Builder k("cast");
  std::optional<Ref> x, out, x_rest, out_rest;
  Value rows = i32(0), rest;
  if (s.has_rows) {
    rows = k.dim("rows");
    x = k.input("x", s.in, {rows, kRow}, {.align = int64_t{bytes(s.in)} * s.width});
    out = k.output("out", s.out, {rows, kRow}, {.align = int64_t{bytes(s.out)} * s.out_width});
  }
  if (s.has_rest) {
    rest = k.dim("rest");
    x_rest = k.input("x_rest", s.in, {rest}, {.align = bytes(s.in)});
    out_rest = k.output("out_rest", s.out, {rest}, {.align = bytes(s.out)});
  }
  const Value seed = s.stochastic ? k.scalar("seed", DType::u32) : Value();
  auto at = k.launch({s.has_rest ? rows + 1 : rows}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto first = k.let("first", k.thread() * kRun);
  auto quad = k.let("quad", i64(at.x) * (kRow / 4) + i64(k.thread() * (kRun / 4)));
  auto given = k.local(s.in, {kRun}, "given"), converted = k.local(s.out, {kRun}, "converted");
  k.wait_for_previous_kernel();
  const auto whole = [&] {
    k.unrolled(kRun / s.width, [&](Value piece) {
      k.vectorized(s.width, [&](Value i) {
        auto j = piece * s.width + i;
        given(j) = (*x)(at.x, first + j).unchecked();
      });
    });
    convert(k, s, given, converted, quad, seed);
    k.unrolled(kRun / s.out_width, [&](Value piece) {
      k.vectorized(s.out_width, [&](Value i) {
        auto j = piece * s.out_width + i;
        (*out)(at.x, first + j).unchecked() = converted(j);
      });
    });
  };
  const auto remaining = [&] {
    k.unrolled(kRun, [&](Value j) { given(j) = (*x_rest)(first + j); });
    convert(k, s, given, converted, quad, seed);
    k.unrolled(kRun, [&](Value j) { (*out_rest)(first + j) = converted(j); });
  };
  if (s.has_rows && s.has_rest) {
    k.if_else(at.x < rows, whole, remaining);
  } else if (s.has_rows) {
    whole();
  } else {
    remaining();
  }
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const int64_t rows = c["T"] / kRow, rest = c["T"] % kRow;
  Spec s{};
  s.in = c.dtype("x");
  s.out = c.dtype("out_dtype");
  s.stochastic = c.flag("stochastic");
  s.has_rows = rows > 0;
  s.has_rest = rest > 0;
  Args args;
  const auto bind = [&](const char* name, const char* rest_name) {
    TensorView view = c.given(name);
    const int64_t size = bytes(view.dtype), most = std::min<int64_t>(kRun, 16 / size);
    view.shape = Dims{rows, kRow};
    view.strides = Dims{kRow, 1};
    TensorView tail = view;
    tail.shape = Dims{rest};
    tail.strides = Dims{1};
    tail.data = static_cast<std::byte*>(view.data) + rows * kRow * size;
    if (rows > 0) args.tensors.push_back({name, view});
    if (rest > 0) args.tensors.push_back({rest_name, tail});
    return static_cast<int8_t>(common_vector(view, most));
  };
  s.width = bind("x", "x_rest");
  s.out_width = bind("out", "out_rest");
  if (s.stochastic) args.scalars.push_back({"seed", c["seed"]});
  go.add(build, s, args);
}

void check(const Call& c) {
  if (!c.flag("stochastic")) return;
  const DType in = c.dtype("x"), out = c.dtype("out_dtype");
  const bool is_known = out == DType::e4m3 ? in == DType::f32 || in == DType::bf16
                                           : out == DType::bf16 && in == DType::f32;
  c.need(is_known, "stochastic", "parameter 'stochastic' does not go with the dtypes",
         "f32 to bf16, or f32 or bf16 to e4m3",
         std::string(name(in)) + " to " + std::string(name(out)));
}

}  // namespace

const Op cast_op{
    .name = "cast",
    .family = "serving",
    .purpose = "converts a tensor to another float format, to nearest or stochastically",
    .signature = R"(
      x       f32/bf16/f16/e4m3 [..]
      -> out  out_dtype [..]
      param  out_dtype {f32, bf16, f16, e4m3}
      param  stochastic bool = false
      param  seed int = 0
      need   T % 4 = 0 if stochastic on x "the number of elements is no multiple of 4"
      need   0 <= seed <= 4294967295
      limit  T <= 4363686770688   # rows are i32
    )",
    .launches = launches,
    .check = check,
    .examples = R"(
      T=5000 x=f32 out_dtype=bf16; T=4004 x=f32 out_dtype=bf16 stochastic=true seed=7; T=3 x=e4m3 out_dtype=f32
      T=2048 x=bf16 out_dtype=e4m3 stochastic=true; T=77 x=f16 out_dtype=e4m3)",
    .bench = R"(
      T=7168 x=f32 out_dtype=bf16; T=58720256 x=f32 out_dtype=bf16
      T=58720256 x=f32 out_dtype=bf16 stochastic=true; T=58720256 x=f32 out_dtype=e4m3 stochastic=true)"};

}  // namespace tessera::kernels
