// Tile programs about warps: reductions, votes and matches of 32- and 64-bit values.

#include <set>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

TEST_CASE("warp reductions of every wide dtype", "[language]") {
  const DType dtype = GENERATE(DType::i32, DType::u32, DType::i64, DType::u64, DType::f32);
  CAPTURE(name(dtype));
  const bool integer = dtype != DType::f32;
  Builder k("warp_reductions");
  auto x = k.input("x", dtype, {64});
  auto y = k.output("y", dtype, {5, 64});
  k.launch({1}, {.threads = 64});
  auto t = k.thread();
  const Value value = x(t);
  y(0, t) = k.warp_sum(value);
  y(1, t) = k.warp_max(value);
  y(2, t) = k.warp_min(value);
  if (integer) y(3, t) = k.warp_and(value);
  if (integer) y(4, t) = k.warp_or(value);
  const ir::Kernel kernel = k.finish();
  // One instruction each on 32 bits, five shuffles on more.
  const bool redux = integer && bits(dtype) == 32;
  CHECK(count(cuda_text(kernel), "__reduce_") == (redux ? 5 : 0));
  HostTensor in(dtype, {64});
  for (int64_t i = 0; i < 64; ++i) in.set_value(i, static_cast<double>(i * 29 % 64 + 8));
  HostTensor out(dtype, {5, 64});
  for (int64_t i = 0; i < out.size(); ++i) out.set_value(i, 0);
  run_kernel(kernel, {&in, &out});
  for (int64_t warp = 0; warp < 2; ++warp) {
    double sum = 0, most = 0, least = 1e9;
    int64_t both = -1, any = 0;
    for (int64_t i = 32 * warp; i < 32 * warp + 32; ++i) {
      const double v = in.value(i);
      sum += v;
      most = std::max(most, v);
      least = std::min(least, v);
      both &= static_cast<int64_t>(v);
      any |= static_cast<int64_t>(v);
    }
    for (int64_t i = 32 * warp; i < 32 * warp + 32; i += 31) {
      CHECK(out.value(i) == sum);
      CHECK(out.value(64 + i) == most);
      CHECK(out.value(128 + i) == least);
      if (integer) CHECK(out.value(192 + i) == static_cast<double>(both));
      if (integer) CHECK(out.value(256 + i) == static_cast<double>(any));
    }
  }
}

TEST_CASE("64-bit shuffles and matches see all bits", "[language]") {
  const DType dtype = GENERATE(DType::i64, DType::u64);
  Builder k("wide_lanes");
  auto x = k.input("x", dtype, {32});
  auto y = k.output("y", dtype, {32});
  auto equal = k.output("equal", DType::u32, {32});
  k.launch({1}, {.threads = 32});
  auto t = k.thread();
  const Value value = x(t) << 32;  // the low half says nothing
  y(t) = k.shuffle_xor(value, 1) >> 32;
  equal(t) = k.match_any(value);
  const HostTensor in = tensor_by(dtype, {32}, [](int64_t i) { return i / 4 % 3; });
  const HostTensor out(dtype, {32});
  const HostTensor masks(DType::u32, {32});
  run_kernel(k.finish(), {&in, &out, &masks});
  CHECK_THAT(out, HasValues([&](int64_t i) { return in.value(i ^ 1); }));
  CHECK_THAT(masks, HasValues([&](int64_t i) {
               uint32_t mask = 0;
               for (int64_t j = 0; j < 32; ++j) {
                 if (in.value(i) == in.value(j)) mask |= 1u << j;
               }
               return mask;
             }));
}

TEST_CASE("bitwise warp reductions take integers only", "[language]") {
  Builder k("bits");
  k.launch({1}, {.threads = 32});
  CHECK(error_of([&] {
          k.warp_and(f32(k.thread()));
        }).find("operand of 'warp_and' has the wrong dtype") != std::string::npos);
  CHECK(error_of([&] {
          k.warp_or(f32(k.thread()));
        }).find("operand of 'warp_or' has the wrong dtype") != std::string::npos);
}
