// Tile programs about optional tensors and tensors at run-time addresses.

#include <cstring>
#include <optional>

#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

/// y = x + bias where there is a bias, else x.
ir::Kernel with_bias() {
  Builder k("with_bias");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto bias = k.input("bias", DType::f32, {n}, {.optional = true});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({ceil_div(n, 64)}, {.threads = 64});
  auto i = k.let("i", at.x * 64 + k.thread());
  k.if_present(
      bias, [&] { y(i) = x(i) + bias(i); }, [&] { y(i) = x(i); });
  return k.finish();
}

/// Sums the rows that a table of addresses names, into y.
ir::Kernel sum_of_rows(int64_t align) {
  Builder k("sum_of_rows");
  auto layers = k.dim("layers");
  auto table = k.input("table", DType::u64, {layers});
  auto y = k.output("y", DType::f32, {256});
  k.launch({1}, {.threads = 64});
  auto sum = k.fragment(DType::f32, {256}, "sum");
  auto part = k.fragment(DType::f32, {256}, "part");
  k.fill(sum, 0);
  k.serial(0, layers, [&](Value layer) {
    auto row = k.tensor_at(table(layer), DType::f32, {256}, {.align = align}, "row");
    k.copy(row, part);
    k.parallel({256}, [&](Value i) { sum(i) += part(i); });
  });
  k.copy(sum, y);
  return k.finish();
}

}  // namespace

TEST_CASE("an optional tensor is used where it is given", "[language]") {
  const HostTensor in = iota(DType::f32, {100});
  const HostTensor ones = tensor_of(DType::f32, {100}, std::vector<double>(100, 1));
  const HostTensor out(DType::f32, {100});
  const ir::Kernel kernel = with_bias();
  CHECK(count(cuda_text(kernel), "bias != nullptr") == 1);
  run_kernel(kernel, {&in, &ones, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i + 1; }));

  const TensorView views[] = {in.view(), TensorView{}, out.view()};
  {
    const kernels::jit::TrapScope traps;
    kernels::jit::run(kernel, views, {}, nullptr);
  }
  CHECK(values_of(out) == values_of(in));
  if (!why_no_gpu().empty()) return;
  const DeviceTensor x(in, Device::cuda(0)), y(out, Device::cuda(0));
  const TensorView on_device[] = {x.view(), TensorView{}, y.view()};
  kernels::jit::run(kernel, on_device, {}, nullptr);
  HostTensor result = out;
  y.download(result);
  CHECK(values_of(result) == values_of(in));
}

TEST_CASE("an optional tensor without elements is given, though its address is null",
          "[language]") {
  Builder k("with_tail");
  auto n = k.dim("n");
  auto tail = k.input("tail", DType::f32, {n / 128}, {.optional = true});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({ceil_div(n, 64)}, {.threads = 64});
  auto i = k.let("i", at.x * 64 + k.thread());
  k.if_present(
      tail, [&] { y(i) = 1.0f; }, [&] { y(i) = 2.0f; });
  const ir::Kernel kernel = k.finish();
  const HostTensor out(DType::f32, {100});
  const auto result = [&](const TensorView& given) {
    const TensorView views[] = {given, out.view()};
    kernels::jit::run(kernel, views, {}, nullptr);
    return values_of(out);
  };
  const float element = 0;
  CHECK(result(TensorView(nullptr, DType::f32, {0})) == std::vector<double>(100, 1));
  CHECK(result(TensorView(&element, DType::f32, {0})) == std::vector<double>(100, 1));
  CHECK(result(TensorView{}) == std::vector<double>(100, 2));
}

TEST_CASE("an optional tensor outside of its condition is refused", "[language]") {
  Builder k("careless");
  auto x = k.output("x", DType::f32, {64}, {.optional = true});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {64}, "tile");
  const auto refused = [&](const std::function<void()>& body) {
    const std::string text = error_of(body);
    CAPTURE(text);
    CHECK(text.find("the optional tensor 'x' may be absent here") != std::string::npos);
    CHECK(text.find("k.if_present(x, [&] { ... }) around it") != std::string::npos);
  };
  refused([&] { k.let("value", x(0)); });
  refused([&] { x(0) = 1.0f; });
  refused([&] { k.copy(x, tile); });
  refused([&] { k.copy(tile, x); });
  refused([&] { k.fill(x, 0); });
  refused([&] { k.atomic_add(x(0), 1); });
  k.if_present(x, [&] { k.copy(x, tile); });
  refused([&] { k.copy(x, tile); });  // the condition has ended
}

TEST_CASE("of a tensor that is always given only the first branch remains", "[language]") {
  Builder k("given");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  k.if_present(
      x, [&] { y(k.thread()) = x(k.thread()); }, [&] { y(k.thread()) = 0.0f; });
  CHECK(count(cuda_text(k.finish()), "if (") == 0);
}

TEST_CASE("a tensor at an address is accessed as its alignment allows (V05)", "[language]") {
  std::vector<HostTensor> rows;
  for (int64_t layer = 0; layer < 3; ++layer) {
    rows.push_back(tensor_by(DType::f32, {256}, [&](int64_t i) { return i * layer + 1; }));
  }
  const int64_t align = GENERATE(0, 4, 8, 16);
  CAPTURE(align);
  const ir::Kernel kernel = sum_of_rows(align);
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "const float* const row = reinterpret_cast<const float*>(") == 1);
  CHECK(count(text, "load<4>") == (align == 16 ? 1 : 0));
  CHECK(count(text, "load<2>") == (align == 8 ? 1 : 0));

  HostTensor table(DType::u64, {3});
  const HostTensor out(DType::f32, {256});
  for (size_t i = 0; i < 3; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(rows[i].view().data);
    std::memcpy(static_cast<std::byte*>(table.view().data) + 8 * i, &address, 8);
  }
  const TensorView views[] = {table.view(), out.view()};
  {
    const kernels::jit::TrapScope traps;
    kernels::jit::run(kernel, views, {}, nullptr);
  }
  CHECK_THAT(out, HasValues([](int64_t i) { return 3 * i + 3; }));

  if (!why_no_gpu().empty()) return;
  std::vector<DeviceTensor> on_device;
  for (size_t i = 0; i < 3; ++i) {
    on_device.emplace_back(rows[i], Device::cuda(0));
    const auto address = reinterpret_cast<uintptr_t>(on_device.back().view().data);
    std::memcpy(static_cast<std::byte*>(table.view().data) + 8 * i, &address, 8);
  }
  const DeviceTensor device_table(table, Device::cuda(0)), y(out, Device::cuda(0));
  const TensorView device_views[] = {device_table.view(), y.view()};
  kernels::jit::run(kernel, device_views, {}, nullptr);
  HostTensor result(DType::f32, {256});
  y.download(result);
  CHECK(values_of(result) == values_of(out));
}

TEST_CASE("an address is checked where the tensor begins", "[language][traps]") {
  const auto trap_of = [](uint64_t address) {
    HostTensor table(DType::u64, {1});
    std::memcpy(table.view().data, &address, 8);
    const HostTensor out(DType::f32, {256});
    const TensorView views[] = {table.view(), out.view()};
    return error_of([&] { kernels::jit::run(sum_of_rows(16), views, {}, nullptr); });
  };
  CHECK(trap_of(0).find("row begins at a null address") != std::string::npos);
  CHECK(trap_of(4096 + 4).find("row begins at an address with another alignment than declared") !=
        std::string::npos);
}

TEST_CASE("wrong addresses are refused where they are written", "[language]") {
  Builder k("addresses");
  auto t = k.input("t", DType::i32, {4});
  auto table = k.input("table", DType::u64, {4});
  k.launch({1}, {.threads = 32});
  CHECK(error_of([&] { k.tensor_at(t(0), DType::f32, {4}); }).find("[DTYPE]") != std::string::npos);
  CHECK(error_of([&] { k.tensor_at(table(0), DType::e2m1, {4}); }).find("[DTYPE]") !=
        std::string::npos);
  CHECK(error_of([&] {
          k.tensor_at(table(0), DType::f32, {4}, {.align = 2});
        }).find("the alignment of 'pointee' is impossible") != std::string::npos);
  std::optional<Ref> row;  // at an address that ends with its branch
  k.if_(k.thread() == 0, [&] { row.emplace(k.tensor_at(table(0), DType::f32, {4})); });
  CHECK(error_of([&] { k.let("value", (*row)(0)); }).find("value 'table_value' is used outside") !=
        std::string::npos);
}

TEST_CASE("a view that begins in a branch is refused behind it", "[language]") {
  Builder k("escaping_views");
  auto n = k.dim("n");
  auto address = k.scalar("address", DType::u64);
  auto y = k.output("y", DType::f32, {64});
  k.launch({2}, {.threads = 64, .cluster = 2});
  auto tile = k.shared(DType::f32, {64}, "tile");
  std::optional<Ref> pointee, other;
  k.if_(n > 3, [&] {
    pointee.emplace(k.tensor_at(address, DType::f32, {64}));
    other.emplace(k.of_block(tile, 1));
    k.copy(*pointee, tile);
  });
  for (const auto& view : {pointee, other}) {
    const std::string text = error_of([&] { k.copy(*view, y); });
    CHECK(text.find("is used outside the loop or branch it begins in [VALUE_ESCAPED]") !=
          std::string::npos);
    CHECK(text.find("begin it before the loop or branch") != std::string::npos);
  }
}
