// Flat tensors of more than 2^32 elements on the GPU.

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "runtime/driver/memory.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"

namespace tessera {
namespace {

using namespace dsl;

constexpr int64_t kTile = 4096;
// Not a whole number of tiles: the last one reaches beyond the end.
constexpr int64_t kSize = (int64_t{1} << 32) + 3 * kTile + 16;

/// The byte of element `i`, other beyond 2^32 than below.
Value byte_of(const Value& i) {
  return cast(DType::u8, i % 251 + i / (int64_t{1} << 32));
}

/// Fills a flat tensor, tile by tile.
ir::Kernel filled() {
  Builder k("filled");
  auto n = k.dim("n", {.multiple_of = 16, .wide = true});
  auto y = k.output("y", DType::u8, {n});
  auto at = k.launch({ceil_div(n, kTile)}, {.threads = 256});
  const Value first = k.let("first", i64(at.x) * kTile);
  auto tile = k.fragment(DType::u8, {kTile}, "tile");
  k.parallel({kTile}, [&](Value i) { tile(i) = byte_of(first + i64(i)); });
  k.copy(tile, y.tile({first}, {kTile}));
  return k.finish();
}

/// wrong(0) += the elements that have another byte; wrong(1) += all.
ir::Kernel compared() {
  Builder k("compared");
  auto n = k.dim("n", {.multiple_of = 16, .wide = true});
  auto y = k.input("y", DType::u8, {n});
  auto wrong = k.output("wrong", DType::i64, {2}, {.align = 8});
  auto at = k.launch({ceil_div(n, kTile)}, {.threads = 256});
  auto bad = k.reducer(ReduceOp::sum, DType::i32), all = k.reducer(ReduceOp::sum, DType::i32);
  bad.init();
  all.init();
  const Value first = k.let("first", i64(at.x) * kTile);
  k.parallel({kTile}, [&](Value i) {
    const Value at_i = first + i64(i);
    const Value is_inside = at_i < n;
    bad.update(i32(is_inside && y(at_i) != byte_of(at_i)));
    all.update(i32(is_inside));
  });
  const Value of_block = bad.finalize(), seen = all.finalize();
  k.if_(k.thread() == 0, [&] {
    k.atomic_add(wrong(0), i64(of_block));
    k.atomic_add(wrong(1), i64(seen));
  });
  return k.finish();
}

}  // namespace

TEST_CASE("every element of a flat tensor beyond 2^32 is reached once", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const runtime::DeviceBuffer memory(0, kSize);
  const TensorView flat(memory.data(), DType::u8, Dims{kSize}, Dims{1}, Device::cuda(0));
  kernels::jit::run(filled(), {&flat, 1}, {}, nullptr);
  test::HostTensor wrong(DType::i64, {2});
  wrong.fill_bytes(std::byte{0});
  const test::DeviceTensor counts(wrong, Device::cuda(0));
  const TensorView views[] = {flat, counts.view()};
  kernels::jit::run(compared(), views, {}, nullptr);
  counts.download(wrong);
  CHECK(wrong.value(0) == 0);
  CHECK(wrong.value(1) == static_cast<double>(kSize));
}

}  // namespace tessera
