// Roles and rings: what they compute, what their programs look like, and what is refused.

#include <algorithm>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using test::error_of;
using test::HostTensor;

constexpr auto kF32 = DType::f32;
constexpr int kRows = 32, kColumns = 64;

struct RingCase {
  int stages = 2, load_warps = 1, add_warps = 4;
  bool bulk = false;   // the copies
  bool store = false;  // the loader stores elements instead of copying
  int takers = 1;      // roles that take
};

/// sums [tiles, rows, columns], one copy for each role that takes: out[t] = x[0] + .. + x[t].
ir::Kernel running_sums(const RingCase& c) {
  Builder k("running_sums");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", kF32, {tiles, kRows, kColumns});
  std::vector<dsl::Ref> outs;
  for (int i = 0; i < c.takers; ++i) {
    outs.push_back(k.output("out" + std::to_string(i), kF32, {tiles, kRows, kColumns}));
  }
  k.launch({1}, {.threads = 32 * (c.load_warps + c.takers * c.add_warps)});
  auto ring = k.ring({.stages = c.stages});
  auto tile = ring.shared(kF32, {kRows, kColumns});
  std::vector<dsl::Role> roles;
  roles.push_back({.name = "load", .warps = c.load_warps, .body = [&] {
                     k.serial(0, tiles, [&](Value t) {
                       ring.fill([&] {
                         auto from = x.tile({t, 0, 0}, {1, kRows, kColumns});
                         if (c.store) {
                           k.parallel({kRows, kColumns},
                                      [&](Value i, Value j) { tile(i, j) = x(t, i, j) * 1.0f; });
                         } else {
                           k.copy(c.bulk ? from.bulk() : from, tile);
                         }
                       });
                     });
                   }});
  for (int i = 0; i < c.takers; ++i) {
    roles.push_back(
        {.name = "add" + std::to_string(i), .warps = c.add_warps, .body = [&, i] {
           auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
           k.fill(sum, 0.0f);
           k.serial(0, tiles, [&](Value t) {
             ring.take([&] {
               k.parallel({kRows, kColumns}, [&](Value r, Value j) { sum(r, j) += tile(r, j); });
             });
             k.copy(sum, outs[static_cast<size_t>(i)].tile({t, 0, 0}, {1, kRows, kColumns}));
           });
         }});
  }
  k.roles(roles);
  return k.finish();
}

void check_sums(const RingCase& c, int64_t tiles) {
  CAPTURE(c.stages, c.load_warps, c.add_warps, c.bulk, c.store, c.takers, tiles);
  const HostTensor x = test::iota(kF32, {tiles, kRows, kColumns});
  std::vector<HostTensor> outs(static_cast<size_t>(c.takers),
                               HostTensor(kF32, {tiles, kRows, kColumns}));
  std::vector<const HostTensor*> tensors = {&x};
  for (const HostTensor& out : outs) tensors.push_back(&out);
  test::run_kernel(running_sums(c), tensors);
  const std::vector<double> from = test::values_of(x);
  for (const HostTensor& out : outs) {
    std::vector<double> sum(kRows * kColumns, 0.0);
    const std::vector<double> got = test::values_of(out);
    bool same = true;
    for (size_t i = 0; i < got.size(); ++i) {
      sum[i % sum.size()] += from[i];
      same = same && got[i] == sum[i % sum.size()];
    }
    CHECK(same);
  }
}

}  // namespace

TEST_CASE("a ring hands each fill to the takes, whatever the stages and the engine",
          "[language][roles]") {
  for (const int64_t tiles : {1, 2, 3, 7}) {
    for (const int stages : {1, 2, 3}) {
      check_sums({.stages = stages}, tiles);
      check_sums({.stages = stages, .bulk = true}, tiles);
      check_sums({.stages = stages, .load_warps = 2, .store = true}, tiles);
    }
  }
  check_sums({.load_warps = 3}, 5);
  check_sums({.load_warps = 2, .bulk = true}, 5);
  check_sums({.stages = 3, .add_warps = 1, .takers = 2}, 5);
}

namespace {

/// out = x, row by row through a shared tile that both roles use and the turns of a ring order. With a stage more than
/// the tile has, or a use outside of manual_sync, they do not.
ir::Kernel handed_over(int stages, bool by_hand) {
  Builder k("handed_over");
  auto x = k.input("x", kF32, {4, kColumns}), out = k.output("out", kF32, {4, kColumns});
  k.launch({1}, {.threads = 128});
  auto ring = k.ring({.stages = stages});
  auto row = ring.shared(DType::i32, {1}, "row");
  auto tile = k.shared(kF32, {kColumns}, "tile");
  const auto ordered = [&](const std::function<void()>& body) {
    by_hand ? k.manual_sync(body) : body();
  };
  const auto load = [&] {
    k.serial(0, 4, [&](Value i) {
      ring.fill([&] {
        k.parallel({1}, [&](Value one) { row(one) = i; });
        k.manual_sync([&] {
          k.parallel({kColumns}, [&](Value j) { tile(kColumns - 1 - j) = x(i, kColumns - 1 - j); });
        });
      });
    });
  };
  const auto store = [&] {
    k.serial(0, 4, [&](Value) {
      ring.take([&] {
        ordered([&] { k.parallel({kColumns}, [&](Value j) { out(row(0), j) = tile(j); }); });
      });
    });
  };
  k.roles(
      {{.name = "load", .warps = 2, .body = load}, {.name = "store", .warps = 2, .body = store}});
  return k.finish();
}

std::string fate_of(const ir::Kernel& kernel) {
  const HostTensor x = test::iota(kF32, {4, kColumns}), out(kF32, {4, kColumns});
  const std::string error = error_of([&] {
    test::run_on_executor(kernel, {x.view(), out.view()});
  });
  return error.empty() && test::values_of(x) != test::values_of(out) ? "wrong values" : error;
}

}  // namespace

TEST_CASE("roles share a tile whose uses the author orders by a ring, in manual_sync",
          "[language][roles]") {
  CHECK(fate_of(handed_over(1, true)).empty());
  const HostTensor x = test::iota(kF32, {4, kColumns}), out(kF32, {4, kColumns});
  test::run_kernel(handed_over(1, true), {&x, &out});
  CHECK(test::values_of(x) == test::values_of(out));
  // A fill does not wait for the last take, so the tile is written too early.
  CHECK(fate_of(handed_over(2, true)).find("[RACE]") != std::string::npos);
  CHECK(error_of([] { codegen::lower(handed_over(1, false)); }).find("[SHARED_BETWEEN_ROLES]") !=
        std::string::npos);
}

TEST_CASE("two rings in one loop, one filled every second round, keep their own stages",
          "[language][roles]") {
  Builder k("two_rings");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", kF32, {tiles, kColumns});
  auto y = k.input("y", kF32, {tiles, kColumns});
  auto out = k.output("out", kF32, {tiles, kColumns});
  k.launch({1}, {.threads = 64});
  auto xs = k.ring({.stages = 2}), ys = k.ring({.stages = 3});
  auto x_tile = xs.shared(kF32, {kColumns}, "x_tile"),
       y_tile = ys.shared(kF32, {kColumns}, "y_tile");
  k.roles({{.name = "load",
            .warps = 1,
            .body =
                [&] {
                  k.serial(0, tiles, [&](Value t) {
                    xs.fill([&] { k.copy(x.tile({t, 0}, {1, kColumns}), x_tile); });
                    k.if_(t % 2 == 0, [&] {
                      ys.fill([&] { k.copy(y.tile({t, 0}, {1, kColumns}), y_tile); });
                    });
                  });
                }},
           {.name = "add", .warps = 1, .body = [&] {
              auto last = k.fragment(kF32, {kColumns}, "last");
              k.serial(0, tiles, [&](Value t) {
                k.if_(t % 2 == 0, [&] { ys.take([&] { k.copy(y_tile, last); }); });
                xs.take([&] {
                  k.parallel({kColumns}, [&](Value j) { out(t, j) = x_tile(j) + last(j); });
                });
              });
            }}});
  const ir::Kernel kernel = k.finish();
  for (const int64_t rows : {1, 2, 5, 8, 13}) {
    CAPTURE(rows);
    const HostTensor a = test::iota(kF32, {rows, kColumns}), b = test::iota(kF32, {rows, kColumns});
    HostTensor c(kF32, {rows, kColumns});
    test::run_kernel(kernel, {&a, &b, &c});
    bool same = true;
    for (int64_t i = 0; i < rows * kColumns; ++i) {
      const int64_t row = i / kColumns / 2 * 2;
      same = same && c.value(i) == static_cast<double>(i + row * kColumns + i % kColumns);
    }
    CHECK(same);
  }
}

TEST_CASE("a persistent loop fills and takes over several tiles", "[language][roles]") {
  // Steps that are no multiple of the stages: the counters go on from tile to tile.
  for (const int steps : {1, 2, 3, 5, 7}) {
    for (const int stages : {2, 3, 4}) {
      Builder k("persistent_roles");
      auto tiles = k.dim("tiles");
      auto x = k.input("x", kF32, {tiles, steps, kColumns});
      auto out = k.output("out", kF32, {tiles, kColumns});
      k.launch({2}, {.threads = 64});
      auto ring = k.ring({.stages = stages});
      auto tile = ring.shared(kF32, {kColumns});
      k.roles({{.name = "load",
                .warps = 1,
                .body =
                    [&] {
                      k.persistent({tiles}, [&](Value t) {
                        k.serial(0, steps, [&](Value s) {
                          ring.fill([&] { k.copy(x.tile({t, s, 0}, {1, 1, kColumns}), tile); });
                        });
                      });
                    }},
               {.name = "add", .warps = 1, .body = [&] {
                  auto sum = k.fragment(kF32, {kColumns}, "sum");
                  k.persistent({tiles}, [&](Value t) {
                    k.fill(sum, 0.0f);
                    k.serial(0, steps, [&](Value) {
                      ring.take(
                          [&] { k.parallel({kColumns}, [&](Value j) { sum(j) += tile(j); }); });
                    });
                    k.copy(sum, out.tile({t, 0}, {1, kColumns}));
                  });
                }}});
      const int64_t rows = 5;
      const HostTensor a = test::iota(kF32, {rows, steps, kColumns});
      HostTensor c(kF32, {rows, kColumns});
      test::run_kernel(k.finish(), {&a, &c});
      bool same = true;
      for (int64_t i = 0; i < rows * kColumns; ++i) {
        double sum = 0;
        for (int64_t s = 0; s < steps; ++s) {
          sum += a.value((i / kColumns * steps + s) * kColumns + i % kColumns);
        }
        same = same && c.value(i) == sum;
      }
      CAPTURE(steps, stages);
      CHECK(same);
    }
  }
}

TEST_CASE("a barrier inside a role is one of its threads", "[language][roles]") {
  Builder k("exchange");
  auto x = k.input("x", kF32, {256});
  auto out = k.output("out", kF32, {256});
  k.launch({1}, {.threads = 288});
  auto tile = k.shared(kF32, {256});
  k.roles({{.name = "turn",
            .warpgroups = 2,
            .body =
                [&] {
                  tile(k.thread()) = x(k.thread());
                  out(k.thread()) = tile(255 - k.thread());
                }},
           {.name = "idle", .warps = 1, .body = [&] { k.assume(k.thread() < 32); }}});
  const ir::Kernel kernel = k.finish();
  const std::string text = test::cuda_text(kernel);
  CHECK(test::count(text, "named_barrier<1, 256>()") == 1);
  CHECK(test::count(text, "__syncthreads") == 1);  // before the roles
  const HostTensor a = test::iota(kF32, {256});
  HostTensor c(kF32, {256});
  test::run_kernel(kernel, {&a, &c});
  for (int64_t i = 0; i < 256; ++i) CHECK(c.value(i) == static_cast<double>(255 - i));
}

TEST_CASE("registers of roles are set on sm_90a, by all warps of their groups",
          "[language][roles]") {
  Builder k("registers");
  auto out = k.output("out", kF32, {256});
  k.launch({1}, {.threads = 384});
  k.roles({{.name = "idle", .warps = 1, .registers = 40, .body = [&] { k.assume(k.warp() == 0); }},
           {.name = "write", .warpgroups = 2, .registers = 232, .body = [&] {
              out(k.thread()) = cast(kF32, k.thread());
            }}});
  const ir::Kernel kernel = k.finish();
  const std::string text =
      codegen::cuda::emit_kernel_text(codegen::lower(kernel, parse_target("sm_90a").value()));
  INFO(text);
  CHECK(test::count(text, "__launch_bounds__(384, 1)") == 1);
  CHECK(test::count(text, "set_registers<232, 168>();") == 1);
  CHECK(test::count(text, "warp >= 8 && warp < 12") == 1);
  HostTensor c(kF32, {256});
  test::run_kernel(kernel, {&c});
  for (int64_t i = 0; i < 256; ++i) CHECK(c.value(i) == static_cast<double>(i));
}

}  // namespace tessera
