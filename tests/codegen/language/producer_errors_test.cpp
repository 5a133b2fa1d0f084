// Pipelined loops that cannot have a producer: what is refused, with the statement in the way.

#include <functional>
#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::PipelineOptions;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr auto kI32 = DType::i32;
constexpr int64_t kColumns = 64;
constexpr PipelineOptions kProducer = {.stages = 2, .producer = true};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

struct Parts {
  Builder k{"refused"};
  Value rows = k.dim("rows");
  Ref x = k.input("x", kI32, {rows, kColumns}), y = k.output("y", kI32, {rows, kColumns});
  dsl::BlockIndex at;
  Ref tile, place;

  explicit Parts(int threads = 64, int cluster = 1)
      : at(k.launch({2}, {.threads = threads, .cluster = cluster})),
        tile(k.shared(kI32, {kColumns}, "tile")),
        place(k.shared(kI32, {1}, "place")) {}

  /// A row that one thread puts into shared memory.
  Value computed() {
    k.if_(k.thread() == 0, [&] { place(0) = 1; });
    return k.uniform(place(0));
  }
  void sum(
      const Value& row, PipelineOptions options = kProducer,
      const std::function<void()>& last = [] {}) {
    k.pipelined(0, 2, options, [&](Value) {
      k.copy(x(row), tile);
      k.parallel({kColumns}, [&](Value c) { y(at.x, c) = tile(c); });
      last();
    });
  }
};

/// The error of the kernel, by the time it is lowered.
std::string refusal(const std::function<void(Parts&)>& build, int threads = 64, int cluster = 1) {
  return error_of([&] {
    Parts parts(threads, cluster);
    build(parts);
    codegen::lower(parts.k.finish());
  });
}

/// PRODUCER, with `what` and the lines of two statements of this file.
void check(const std::string& error, const std::string& what, const std::string& got,
           int lines = 2) {
  CAPTURE(error, what, got);
  CHECK(has(error, what + " [PRODUCER]"));
  CHECK(has(error, got));
  CHECK(count(error, "producer_errors_test.cpp:") == lines);
}

}  // namespace

TEST_CASE("a producer has two stages or more, and does not go across", "[language][producer]") {
  for (const int stages : {0, 1}) {
    const std::string error =
        refusal([&](Parts& p) { p.sum(p.at.x, {.stages = stages, .producer = true}); });
    CHECK(has(error, "the stages of a ring are out of range [RING_STAGES]"));
    CHECK(has(error, "2 .. 8 of a pipelined loop with `producer`"));
    CHECK(has(error, std::to_string(stages)));
  }
  CHECK(has(refusal([](Parts& p) { p.sum(p.at.x, {.stages = 9, .producer = true}); }),
            "[PIPELINE_STAGES]"));
  check(refusal([](Parts& p) { p.sum(p.at.x, {.stages = 2, .across = true, .producer = true}); }),
        "a pipelined loop with `across` and `producer`", "leave out `across`", 1);
}

TEST_CASE("a load role makes no copy from a place that threads compute (W43)",
          "[language][producer]") {
  check(refusal([](Parts& p) { p.sum(p.computed()); }),
        "a load role cannot know where it copies from",
        "shared 'place' holds what the threads compute");
  // In the iteration: the row of the next copy is in the tile of the last one.
  check(refusal([](Parts& p) {
          Ref row = p.k.var(kI32, 0, "row");
          p.k.pipelined(0, 2, kProducer, [&](Value) {
            const Value from = row;
            p.k.copy(p.x(from), p.tile);
            p.k.parallel({kColumns}, [&](Value c) { p.y(p.at.x, c) = p.tile(c); });
            row = p.k.uniform(p.tile(0));
          });
        }),
        "a load role cannot know where it copies from", "'row' holds what the threads compute");
  check(refusal([](Parts& p) {
          const Value row = p.k.uniform(p.k.shuffle(p.at.x, 0));
          p.sum(row);
        }),
        "a load role cannot know where it copies from", "the threads compute '");
  check(refusal([](Parts& p) {
          const Value row = p.k.uniform(p.k.thread() / 64);
          p.sum(row);
        }),
        "a load role cannot know where it copies from", "it depends on the index of the thread");
  check(refusal([](Parts& p) {
          const Value row = p.k.let("row", p.y(0, 0));
          p.sum(p.k.uniform(row));
        }),
        "a load role cannot know where it copies from", "the kernel writes 'y'");
  check(
      refusal([](Parts& p) {
        const Value some = p.k.uniform(p.computed() > 0);
        p.k.pipelined(0, 2, kProducer, [&](Value) {
          p.k.if_(some, [&] { p.k.copy(p.x(p.at.x), p.tile); });
          p.k.if_(some,
                  [&] { p.k.parallel({kColumns}, [&](Value c) { p.y(p.at.x, c) = p.tile(c); }); });
        });
      }),
      "a load role cannot know whether it copies", "shared 'place' holds what the threads compute");
}

TEST_CASE("a load role knows the loops and conditions around it", "[language][producer]") {
  check(refusal([](Parts& p) {
          const Value end = p.computed();
          p.k.serial(0, end, [&](Value) { p.sum(p.at.x); });
        }),
        "a load role cannot know the bounds of a loop",
        "shared 'place' holds what the threads compute");
  check(refusal([](Parts& p) {
          const Value end = p.computed();
          p.k.pipelined(0, end, kProducer, [&](Value i) {
            p.k.copy(p.x(i), p.tile);
            p.k.parallel({kColumns}, [&](Value c) { p.y(p.at.x, c) = p.tile(c); });
          });
        }),
        "a load role cannot know the bounds of a loop",
        "shared 'place' holds what the threads compute");
  check(refusal([](Parts& p) {
          const Value some = p.computed();
          p.k.if_(some > 0, [&] { p.sum(p.at.x); });
        }),
        "a load role cannot know a condition", "shared 'place' holds what the threads compute");
  check(refusal([](Parts& p) {
          p.k.pipelined(0, 4, kProducer, [&](Value i) {
            p.k.copy(p.x(i), p.tile);
            p.k.parallel({kColumns}, [&](Value c) { p.y(p.at.x, c) = p.tile(c); });
            p.k.break_if(i == 2);
          });
        }),
        "a load role cannot know when a loop ends", "k.break_if");
  check(refusal([](Parts& p) {
          p.k.persistent({p.rows}, [&](Value t) {
            p.sum(t);
            p.k.break_if(t == 2);
          });
        }),
        "a load role cannot know when a loop ends", "k.break_if");
}

TEST_CASE("no statement of all threads of the block stands beside a load role",
          "[language][producer]") {
  check(refusal([](Parts& p) {
          p.sum(p.at.x);
          p.k.sync_grid();
        }),
        "k.sync_grid in a kernel with a load role", "one of all threads of the block");
  check(refusal([](Parts& p) { p.sum(p.at.x, kProducer, [&] { p.k.sync_cluster(); }); }, 64, 2),
        "k.sync_cluster in a kernel with a load role", "one of all threads of the block");
  check(refusal([](Parts& p) {
          p.k.return_if(p.at.x >= p.rows);
          p.sum(p.at.x);
        }),
        "k.return_if in a kernel with a load role", "one of all threads of the block");
  check(refusal([](Parts& p) { p.k.manual_sync([&] { p.sum(p.at.x); }); }),
        "a load role in k.manual_sync", "those of the author alone", 1);
  check(refusal([](Parts& p) {
          p.sum(p.at.x, kProducer, [&] { p.k.manual_sync([&] { p.k.sync(); }); });
        }),
        "a load role in k.manual_sync", "those of the author alone", 1);
  const auto with_roles = [](bool inside) {
    return [inside](Parts& p) {
      const auto nothing = [] {};
      const auto sums = [&] { p.sum(p.at.x); };
      if (!inside) p.sum(p.at.x);
      p.k.roles(
          {{.name = "one", .warps = 1, .body = inside ? std::function<void()>(sums) : nothing},
           {.name = "two", .warps = 1, .body = nothing}});
    };
  };
  for (const bool inside : {false, true}) {
    check(refusal(with_roles(inside)),
          "a pipelined loop with a load role, in a kernel that has roles", "k.roles");
  }
}

TEST_CASE("a load role comes to the wait for the kernel before", "[language][producer]") {
  const auto refused = [](const std::function<void(Parts&)>& build) {
    check(refusal(build), "a load role does not come to a wait", "another place");
  };
  refused([](Parts& p) {
    p.k.if_(p.rows > 1, [&] { p.k.wait_for_previous_kernel(); });
    p.sum(p.at.x);
  });
  refused([](Parts& p) { p.sum(p.at.x, kProducer, [&] { p.k.wait_for_previous_kernel(); }); });
}

TEST_CASE("a load role needs a warp and a copy", "[language][producer]") {
  check(refusal([](Parts& p) { p.sum(p.at.x); }, 48), "the load role needs a warp of its own",
        "48 threads", 1);
  check(refusal([](Parts& p) { p.sum(p.at.x); }, 1024), "the load role needs a warp of its own",
        "1024", 1);
  check(refusal([](Parts& p) {
          p.sum(p.at.x);
          p.k.fill(p.tile, 0);
        }),
        "no copy of a pipelined loop can go to a load role",
        "copy x -> tile: not ahead: 'tile' is used outside the loop", 2);
  check(refusal([](Parts& p) {
          p.k.pipelined(0, 2, kProducer, [&](Value i) {
            p.k.copy(p.y(i), p.tile);
            p.k.parallel({kColumns}, [&](Value c) { p.y(p.at.x, c) = p.tile(c); });
          });
        }),
        "no copy of a pipelined loop can go to a load role",
        "copy y -> tile: not ahead: the kernel writes 'y'", 2);
  check(refusal([](Parts& p) {
          p.k.pipelined(0, 2, kProducer, [&](Value i) {
            p.k.parallel({kColumns}, [&](Value c) { p.y(p.at.x, c) = p.x(i, c); });
          });
        }),
        "no copy of a pipelined loop can go to a load role", "none", 1);
  // Written after the loop, by another block perhaps while this one copies.
  check(refusal([](Parts& p) {
          p.k.persistent({p.rows}, [&](Value t) {
            p.k.pipelined(0, 2, kProducer, [&](Value) {
              p.k.copy(p.y(t), p.tile);
              p.k.parallel({kColumns}, [&](Value c) { p.k.assume(p.tile(c) == 0); });
            });
            p.k.fill(p.y(t), 0);
          });
        }),
        "no copy of a pipelined loop can go to a load role", "the kernel writes 'y'", 2);
}

TEST_CASE("a pipelined loop with a producer issues its own copies", "[language][producer]") {
  const std::string error = refusal([](Parts& p) {
    auto other = p.k.shared(kI32, {kColumns}, "other");
    p.sum(p.at.x, kProducer, [&] { p.k.wait(p.k.copy_async(p.x(0), other)); });
  });
  CHECK(has(error, "an asynchronous copy or a wait inside a pipelined loop [ASYNC_IN_PIPELINE]"));
  CHECK(has(refusal([](Parts& p) { p.k.pipelined(0, 2, 2, [&](Value) { p.sum(p.at.x); }); }),
            "a pipelined loop inside a pipelined loop [ASYNC_IN_PIPELINE]"));
}
