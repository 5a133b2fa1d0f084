// Random kernels of a role that loads and roles that take, under several schedules of the executor: the results
// are those of a loop, whatever goes on first.

#include <random>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/host_tensor.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using test::HostTensor;

constexpr auto kF32 = DType::f32;
constexpr int kRows = 4, kColumns = 32;
constexpr int64_t kElements = int64_t{kRows} * kColumns;

enum class Engine : uint8_t { pieces, bulk, stores, mixed };

struct RandomRing {
  int stages = 1, period = 1;  // filled in every period-th round
  Engine engine = Engine::pieces;
};

/// out [takers, rounds, rows, columns]: each role that takes adds up what the rings hand it, and writes the
/// sum of each round.
struct RandomKernel {
  explicit RandomKernel(uint32_t seed) : random(seed) {
    rings.resize(static_cast<size_t>(below(3)) + 1);
    for (RandomRing& ring : rings) {
      ring = {1 + below(4), 1 + below(3), static_cast<Engine>(below(4))};
    }
    load_warps = 1 << below(3);
    takers = 1 + below(2);
    take_warps = 1 + below(4);
    rounds = below(9);
    takes_backwards = below(2) == 1;
  }

  int below(int end) { return static_cast<int>(random() % static_cast<uint32_t>(end)); }

  ir::Kernel kernel() const {
    Builder k("random_roles");
    auto n = k.scalar("n", DType::i32);
    std::vector<dsl::Ref> xs, tiles;
    for (size_t i = 0; i < rings.size(); ++i) {
      xs.push_back(k.input("x" + std::to_string(i), kF32, {9, kRows, kColumns}));
    }
    auto out = k.output("out", kF32, {takers, 9, kRows, kColumns});
    k.launch({1}, {.threads = 32 * (load_warps + takers * take_warps)});
    std::vector<dsl::Ring> made;
    for (const RandomRing& ring : rings) {
      made.push_back(k.ring({.stages = ring.stages}));
      tiles.push_back(made.back().shared(kF32, {kRows, kColumns}));
    }
    const auto each = [&](const Value& round, size_t i, const std::function<void()>& body) {
      if (rings[i].period == 1) return body();
      k.if_(round % rings[i].period == 0, body);
    };
    std::vector<dsl::Role> roles;
    const auto load = [&] {
      k.serial(0, n, [&](Value round) {
        for (size_t i = 0; i < rings.size(); ++i) {
          each(round, i, [&] { made[i].fill([&] { fill(k, rings[i], xs[i], tiles[i], round); }); });
        }
      });
    };
    roles.push_back({.name = "load", .warps = load_warps, .body = load});
    for (int taker = 0; taker < takers; ++taker) {
      const auto take = [&, taker] {
        auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
        k.fill(sum, 0.0f);
        k.serial(0, n, [&](Value round) {
          for (size_t step = 0; step < rings.size(); ++step) {
            const size_t i = takes_backwards ? rings.size() - 1 - step : step;
            each(round, i, [&] {
              made[i].take([&] {
                k.parallel({kRows, kColumns},
                           [&](Value r, Value c) { sum(r, c) += tiles[i](r, c); });
              });
            });
          }
          k.copy(sum, out.tile({taker, round, 0, 0}, {1, 1, kRows, kColumns}));
        });
      };
      roles.push_back({.name = "take" + std::to_string(taker), .warps = take_warps, .body = take});
    }
    k.roles(roles);
    return k.finish();
  }

  static void fill(Builder& k, const RandomRing& ring, const dsl::Ref& x, const dsl::Ref& tile,
                   const Value& round) {
    const auto rows = [&](int first, int count) {
      return x.tile({round, first, 0}, {1, count, kColumns});
    };
    switch (ring.engine) {
      case Engine::pieces:
        return k.copy(rows(0, kRows), tile);
      case Engine::bulk:
        return k.copy(rows(0, kRows).bulk(), tile);
      case Engine::stores:
        return k.parallel({kRows, kColumns},
                          [&](Value r, Value c) { tile(r, c) = x(round, r, c) + 0.0f; });
      case Engine::mixed:
        k.copy(rows(0, 1).bulk(), tile.tile({0, 0}, {1, kColumns}));
        k.copy(rows(1, 1), tile.tile({1, 0}, {1, kColumns}));
        return k.parallel({kRows - 2, kColumns},
                          [&](Value r, Value c) { tile(r + 2, c) = x(round, r + 2, c) + 0.0f; });
    }
  }

  std::mt19937 random;
  std::vector<RandomRing> rings;
  int load_warps = 1, takers = 1, take_warps = 1, rounds = 0;
  bool takes_backwards = false;
};

}  // namespace

TEST_CASE("random kernels with roles compute the same under every schedule",
          "[language][roles][slow]") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const RandomKernel made(seed);
    const codegen::Program program = codegen::lower(made.kernel());
    std::vector<HostTensor> xs;
    std::vector<codegen::cpu::Argument> arguments;
    for (size_t i = 0; i < made.rings.size(); ++i) {
      xs.emplace_back(kF32, Dims{9, kRows, kColumns});
      for (int64_t e = 0; e < xs.back().size(); ++e) {
        xs.back().set_value(e, static_cast<double>(e * 7 % 101 + static_cast<int64_t>(i)));
      }
      arguments.push_back({.tensor = xs.back().view()});
    }
    HostTensor out(kF32, {made.takers, 9, kRows, kColumns});
    arguments.push_back({.tensor = out.view()});
    arguments.push_back({.integer = made.rounds});
    for (uint32_t schedule = 0; schedule < 4; ++schedule) {
      CAPTURE(schedule);
      codegen::cpu::Options options;
      options.traps = true;
      options.schedule = schedule;
      codegen::cpu::Executable(program).run(arguments, options);
      bool same = true;
      for (int taker = 0; taker < made.takers; ++taker) {
        std::vector<double> sum(static_cast<size_t>(kElements));
        for (int64_t round = 0; round < made.rounds; ++round) {
          for (int64_t e = 0; e < kElements; ++e) {
            for (size_t i = 0; i < made.rings.size(); ++i) {
              if (round % made.rings[i].period != 0) continue;
              sum[static_cast<size_t>(e)] += xs[i].value(round * kElements + e);
            }
            same = same &&
                   out.value((taker * 9 + round) * kElements + e) == sum[static_cast<size_t>(e)];
          }
        }
      }
      CHECK(same);
    }
  }
}

}  // namespace tessera
