// 16_stream_k: c = a * b^T in bf16, f32 sums, by as many blocks as run at once, whatever the number of tiles. Each
// block takes an equal run of the steps of all tiles. A tile that several blocks share is finished by the one
// that began it, which waits for the sums of the others and adds them in their order: always the same bits.
//
//   example_16_stream_k                               256 x 256 x 512 by 5 blocks on the CPU, checked
//   example_16_stream_k 2048 2048 8192 264 cuda:0     m, n, depth, blocks on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16, kF32 = ts::DType::f32, kI32 = ts::DType::i32;
constexpr int kRows = 128, kColumns = 128, kStep = 32;
using ts::dsl::Value;

ts::ir::Kernel stream_k() {
  ts::dsl::Builder k("stream_k");
  auto m = k.dim("m", {.multiple_of = kRows}), n = k.dim("n", {.multiple_of = kColumns});
  auto depth = k.dim("depth", {.multiple_of = kStep}), blocks = k.dim("blocks");
  auto a = k.input("a", kBf16, {m, depth}), b = k.input("b", kBf16, {n, depth});
  auto c = k.output("c", kF32, {m, n});
  auto parts = k.output("parts", kF32, {blocks, kRows, kColumns});  // of tiles that others began
  auto ready = k.output("ready", kI32, {blocks});                   // zeros, before and after
  auto at = k.launch({blocks}, {.threads = 128});
  auto a_tile = k.shared(kBf16, {kRows, kStep}, "a_tile");
  auto b_tile = k.shared(kBf16, {kColumns, kStep}, "b_tile");
  auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
  const Value steps = k.let("steps", depth / kStep), columns = n / kColumns;
  const Value work = k.let("work", m / kRows * columns * steps);
  // The first step of a block, counted through all tiles.
  const auto first_of = [&](const Value& block) {
    return block * (work / blocks) + min(block, work % blocks);
  };
  const Value begin = k.let("begin", first_of(at.x)), end = k.let("end", first_of(at.x + 1));
  k.serial(begin / steps, (end + steps - 1) / steps, [&](Value tile) {
    const Value row = k.let("row", tile / columns * kRows);
    const Value column = k.let("column", tile % columns * kColumns);
    const Value first = k.let("first", max(begin - tile * steps, 0));
    const Value last = k.let("last", min(end - tile * steps, steps));
    k.fill(sum, 0.0f);
    k.pipelined(first, last, 4, [&](Value s) {
      k.copy(a.tile({row, s * kStep}), a_tile);
      k.copy(b.tile({column, s * kStep}), b_tile);
      k.gemm(a_tile, b_tile.transposed(), sum);
    });
    const auto hand_over = [&] {
      k.copy(sum, parts(at.x));
      k.signal(ready(at.x), 1);
    };
    const auto finish = [&] {
      k.serial(at.x + 1, blocks, [&](Value other) {
        k.break_if(first_of(other) >= (tile + 1) * steps);
        k.wait_until(ready(other), 1);
        k.parallel({kRows, kColumns}, [&](Value i, Value j) { sum(i, j) += parts(other, i, j); });
        k.if_(k.thread() == 0, [&] { ready(other) = 0; });  // for the next call
      });
      k.copy(sum, c.tile({row, column}));
    };
    k.if_else(first > 0, hand_over, finish);
  });
  return k.finish();
}

int main(int argc, char** argv) try {
  const auto extent = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const int64_t m = extent(1, 256), n = extent(2, 256), depth = extent(3, 512);
  const int64_t blocks = extent(4, 5);
  std::vector<ts::tools::TrialTensor> t = {
      {kBf16, {m, depth}},
      {kBf16, {n, depth}},
      {kF32, {m, n}, true},
      {kF32, {blocks, kRows, kColumns}, true},
      {kI32, {blocks}, false, std::vector<double>(static_cast<size_t>(blocks), 0)}};
  ts::tools::run(stream_k(), t, argc > 5 ? argv[5] : "cpu",
                 2.0 * static_cast<double>(m * n) * static_cast<double>(depth));
  const auto value = [&](size_t tensor, int64_t i) {
    return t[tensor].values[static_cast<size_t>(i)];
  };
  const int64_t step = m * n > 65536 ? 9973 : 7;
  const bool is_right = compare("c", t[2], 1e-5, step, [&](int64_t i, double& scale) {
    double want = 0;
    scale = 0;
    for (int64_t d = 0; d < depth; ++d) {
      const double product = value(0, i / n * depth + d) * value(1, i % n * depth + d);
      want += product;
      scale += std::fabs(product);
    }
    return want;
  });
  bool is_clear = true;
  for (const double cell : t[4].values) is_clear = is_clear && cell == 0;
  return is_right && is_clear ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
