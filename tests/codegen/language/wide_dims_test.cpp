// Tile programs over flat tensors of 2^31 elements and more. Address space without memory stands behind
// most of them.

#include <sys/mman.h>

#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

/// Bytes that are zero until they are written.
class Space {
 public:
  explicit Space(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space() {
    if (is_there()) munmap(data_, bytes_);
  }
  bool is_there() const { return data_ != MAP_FAILED; }
  TensorView view() const {
    return {data_, DType::u8, Dims{static_cast<int64_t>(bytes_)}, Dims{1}, Device::cpu()};
  }
  int byte(int64_t i) const { return static_cast<const uint8_t*>(data_)[i]; }

 private:
  size_t bytes_;
  void* data_;
};

constexpr int64_t kSize = (int64_t{1} << 32) + 3 * 256 + 16;

void run(const ir::Kernel& kernel, const TensorView& view,
         std::vector<kernels::jit::Scalar> scalars = {}) {
  const kernels::jit::TrapScope traps;
  kernels::jit::run(kernel, {&view, 1}, scalars, nullptr);
}

/// y[i] += 7 for 512 elements from 256 * from on, as an optimizer walks over its parameters.
ir::Kernel step(bool in_64_bits) {
  Builder k("step");
  auto n = k.dim("n", {.multiple_of = 16, .wide = true});
  auto from = k.scalar("from", DType::i32);
  auto y = k.output("y", DType::u8, {n});
  auto at = k.launch({2}, {.threads = 16});
  const Value block = from + at.x;
  const Value first = k.let("first", in_64_bits ? i64(block) * 256 : block * 256);
  auto tile = k.fragment(DType::u8, {256}, "tile");
  k.copy(y.tile({first}, {256}), tile);
  k.parallel({256}, [&](Value i) { tile(i) = tile(i) + 7; });
  k.copy(tile, y.tile({first}, {256}));
  return k.finish();
}

}  // namespace

TEST_CASE("the last elements of a flat tensor of 2^32", "[language]") {
  const Space space(kSize);
  if (!space.is_there()) TESSERA_SKIP("no address space for 4 GiB");
  Builder k("flat");
  auto n = k.dim("n", {.wide = true});
  auto y = k.output("y", DType::u8, {n});
  auto at = k.launch({2}, {.threads = 64});
  const Value first = k.let("first", n - 128 + i64(at.x) * 64);
  y(first + k.thread()) = cast(DType::u8, at.x * 100 + k.thread() + 1);
  run(k.finish(), space.view());
  CHECK(space.byte(kSize - 1) == 164);
  CHECK(space.byte(kSize - 64) == 101);
  CHECK(space.byte(kSize - 65) == 64);
  CHECK(space.byte(kSize - 129) == 0);
  CHECK(space.byte((kSize - 1) % (int64_t{1} << 32)) == 0);
}

TEST_CASE("constant extents, rows and loops beyond 2^31", "[language]") {
  const Space space(kSize);
  if (!space.is_there()) TESSERA_SKIP("no address space for 4 GiB");
  {
    Builder k("constant");
    auto y = k.output("y", DType::u8, {kSize});
    auto at = k.launch({2}, {.threads = 32});
    y(kSize - 64 + i64(at.x) * 32 + k.thread()) = dsl::cast(DType::u8, 3);
    run(k.finish(), space.view());
    CHECK(space.byte(kSize - 1) == 3);
    CHECK(space.byte(kSize - 65) == 0);
  }
  {
    Builder k("strided");
    auto n = k.dim("n", {.wide = true});
    auto y = k.output("y", DType::u8, {n});
    auto at = k.launch({4}, {.threads = 64});
    const auto round = [&](Value i) {
      k.store(k.load(y.tile({i}, {256})) + 1, y.tile({i}, {256}));
    };
    k.serial(n - 2048 + i64(at.x) * 256, n, round, 1024);
    run(k.finish(), space.view());
    CHECK(space.byte(kSize - 1) == 4);
    CHECK(space.byte(kSize - 2048) == 1);
    CHECK(space.byte(kSize - 2049) == 0);
  }
  {
    Builder k("rows");
    auto n = k.dim("n", {.wide = true});
    auto y = k.output("y", DType::u8, {n, 2});
    auto at = k.launch({2}, {.threads = 32});
    k.if_(k.thread() < 2, [&] { y(n - 1 - i64(at.x), k.thread()) = dsl::cast(DType::u8, 9); });
    const TensorView flat = space.view();
    const TensorView rows(flat.data, DType::u8, Dims{kSize / 2, 2}, Dims{2, 1}, Device::cpu());
    run(k.finish(), rows);
    CHECK(space.byte(kSize - 4) == 9);
    CHECK(space.byte(kSize - 5) == 4);
  }
}

TEST_CASE("tiles of a flat tensor beyond 2^32 are vectors with a guard of 64 bits", "[language]") {
  const Space space(kSize);
  if (!space.is_there()) TESSERA_SKIP("no address space for 4 GiB");
  const ir::Kernel kernel = step(true);
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "store<16>(") == 1);
  CHECK(count(text, "i64 n") == 1);
  run(kernel, space.view(), {kSize / 256 - 1});  // the second block is inside for 16 elements
  CHECK(space.byte(kSize - 16 - 256) == 7);
  CHECK(space.byte(kSize - 1) == 7);
  CHECK(space.byte(kSize - 16 - 257) == 0);
  CHECK(space.byte(kSize - 16 - 256 - (int64_t{1} << 32)) == 0);
}

TEST_CASE("an index that wraps in 32 bits is caught, in 64 bits it is right", "[language][traps]") {
  const Space space(kSize);
  if (!space.is_there()) TESSERA_SKIP("no address space for 4 GiB");
  const std::string text =
      error_of([&] { run(step(false), space.view(), {int32_t{kSize / 256 - 1}}); });
  CHECK(text.find("[INDEX_OVERFLOW]") != std::string::npos);
}

TEST_CASE("only wide dims take such extents, and none beyond 2^47", "[language]") {
  const auto run_on = [](bool wide, int64_t size) {
    Builder k("sizes");
    auto n = k.dim("n", {.wide = wide});
    auto y = k.output("y", DType::u8, {n});
    k.launch({1}, {.threads = 32});
    y(k.thread()) = dsl::cast(DType::u8, 1);
    static std::byte memory[64];
    const TensorView view(memory, DType::u8, Dims{size}, Dims{1}, Device::cpu());
    return error_of([&] { kernels::jit::run(k.finish(), {&view, 1}, {}, nullptr); });
  };
  CHECK(run_on(true, 64).empty());
  CHECK(run_on(true, (int64_t{1} << 47) + 1).find("below 140737488355329") != std::string::npos);
  CHECK(run_on(false, int64_t{1} << 31).find("argument 'y' has an extent") != std::string::npos);
}
