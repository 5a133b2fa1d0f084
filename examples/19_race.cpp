// 19_race: a histogram that loses counts, and what the executor says about it. On a GPU such a kernel runs and is
// sometimes wrong; CPU tensors stop it at the first race, with the line.
#include <tessera/dsl/builder.h>
#include <tessera/kernels/jit/jit.h>

#include <cstdio>
#include <numeric>
#include <vector>

namespace ts = tessera;
constexpr auto kI32 = ts::DType::i32;

ts::ir::Kernel histogram(bool is_atomic) {
  ts::dsl::Builder k("histogram");
  auto n = k.dim("n", {.multiple_of = 128});
  auto ids = k.input("ids", kI32, {n});
  auto counts = k.output("counts", kI32, {16});
  k.launch({1}, {.threads = 128});
  auto bins = k.shared(kI32, {16}, "bins");
  k.fill(bins, 0);
  k.serial(0, n / 128, [&](auto step) {
    k.parallel({128}, [&](auto i) {
      auto id = ids(step * 128 + i);
      if (is_atomic) {
        k.atomic_add(bins(id), 1);
      } else {
        bins(id) = bins(id) + 1;
      }
    });
  });
  k.copy(bins, counts);
  return k.finish();
}

int main() {
  std::vector<int32_t> ids(1024), counts(16);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 16);
  const ts::TensorView tensors[] = {{ids.data(), kI32, {1024}}, {counts.data(), kI32, {16}}};
  bool is_found = false;
  try {
    ts::kernels::jit::run(histogram(false), tensors, {}, nullptr);
  } catch (const ts::Error& error) {
    std::puts(error.what());
    is_found = error.code() == "RACE";
  }
  ts::kernels::jit::run(histogram(true), tensors, {}, nullptr);
  const bool is_right = std::accumulate(counts.begin(), counts.end(), 0) == 1024 && counts[7] == 64;
  return is_found && is_right ? 0 : 1;
}
