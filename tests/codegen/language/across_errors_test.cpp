// Pipelined loops whose first copies cannot go across the rounds of the loop around them.

#include <functional>
#include <optional>
#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::PipelineOptions;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kColumns = 64;
constexpr PipelineOptions kAcross = {.stages = 2, .across = true};

/// How the lowering of `body` in a persistent loop over 8 tiles is refused.
std::string refusal_of(const std::function<void(Builder&, Value t, const Ref& x, const Ref& y,
                                                const Ref& tile)>& body) {
  return error_of([&] {
    Builder k("refused");
    auto x = k.input("x", DType::i32, {8, kColumns});
    auto y = k.output("y", DType::i32, {8, kColumns});
    k.launch({2}, {.threads = 64});
    auto tile = k.shared(DType::i32, {kColumns}, "tile");
    k.persistent({8}, [&](Value t) { body(k, t, x, y, tile); });
    codegen::lower(k.finish());
  });
}

}  // namespace

TEST_CASE("copies that cannot go across the loop around are refused", "[language][pipeline]") {
  const auto check = [](const std::string& error, const std::string& why) {
    CAPTURE(error, why);
    CHECK(error.find("[PIPELINE_ACROSS]") != std::string::npos);
    CHECK(error.find(why) != std::string::npos);
    CHECK(error.find("across_errors_test.cpp:") != std::string::npos);
  };
  const auto sum = [](Builder& k, const Ref& from, const Ref& y, const Ref& tile, Value t,
                      PipelineOptions options = kAcross) {
    k.pipelined(0, 2, options, [&](Value) {
      k.copy(from, tile);
      k.parallel({kColumns}, [&](Value c) { y(t, c) = tile(c); });
    });
  };
  check(error_of([&] {
          Builder k("alone");
          auto x = k.input("x", DType::i32, {8, kColumns});
          auto y = k.output("y", DType::i32, {8, kColumns});
          auto at = k.launch({2}, {.threads = 64});
          auto tile = k.shared(DType::i32, {kColumns}, "tile");
          sum(k, x(at.x), y, tile, at.x);
          codegen::lower(k.finish());
        }),
        "it stands not directly in a serial or persistent loop");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          k.unrolled(2, [&](Value) { sum(k, x(t), y, tile, t); });
        }),
        "it stands not directly in a serial or persistent loop");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          k.manual_sync([&] { sum(k, x(t), y, tile, t); });
        }),
        "it stands in manual_sync");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          sum(k, x(t), y, tile, t, {.stages = 1, .across = true});
        }),
        "it has no copies that go ahead");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          sum(k, x(t), y, tile, t);
          k.fill(tile, 0);
        }),
        "not ahead: 'tile' is used outside the loop");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          auto place = k.shared(DType::i32, {1}, "place");
          k.if_(k.thread() == 0, [&] { place(0) = 7 - t; });
          const Value row = k.uniform(place(0));
          sum(k, x(row), y, tile, t);
        }),
        "they depend on 'place_value', which is not known before its round");
  check(refusal_of([&](Builder& k, Value t, const Ref&, const Ref& y, const Ref& tile) {
          k.pipelined(0, 2, kAcross, [&](Value) {
            k.copy(y(7 - t), tile);
            k.parallel({kColumns}, [&](Value c) { k.assume(tile(c) == 0); });
          });
          k.parallel({kColumns}, [&](Value c) { y(t, c) = 1; });
        }),
        "the loop around writes 'y', which they read");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref&) {
          auto index = k.shared(DType::i32, {1}, "index");
          auto row = k.shared(DType::i32, {1, kColumns}, "row");
          k.if_(k.thread() == 0, [&] { index(0) = t; });
          k.pipelined(0, 2, kAcross, [&](Value) {
            k.copy(x.rows(index), row);
            k.parallel({kColumns}, [&](Value c) { y(t, c) = row(0, c); });
          });
        }),
        "the loop around writes 'index', which they read");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          k.wait_for_previous_kernel();
          sum(k, x(t), y, tile, t);
        }),
        "the loop around waits for the kernel before this one");
  check(refusal_of([&](Builder& k, Value t, const Ref& x, const Ref& y, const Ref& tile) {
          sum(k, x(t), y, tile, t);
          k.return_if(t == 3);
        }),
        "threads leave the kernel in the loop around");
  for (const bool by_rows : {false, true}) {
    check(error_of([&] {
            Builder k("early");
            auto x = k.input("x", DType::i32, {8, kColumns});
            auto rows = k.input("rows", DType::i32, {8});
            auto y = k.output("y", DType::i32, {8, kColumns});
            k.launch({2}, {.threads = 64});
            auto tile = k.shared(DType::i32, {1, kColumns}, "tile");
            k.loop([&](Value t) {
              std::optional<Value> row;
              if (!by_rows) row = k.let("row", rows(t));
              k.pipelined(0, 2, kAcross, [&](Value) {
                if (by_rows) {
                  k.copy(x.rows(rows.tile({t}, {1})), tile);
                } else {
                  k.copy(x(*row), tile);
                }
                k.parallel({kColumns}, [&](Value c) { y(t, c) = tile(0, c); });
              });
              k.break_if(t == 7);
            });
            codegen::lower(k.finish());
          }),
          "in a round that may never come");
  }
  check(error_of([&] {
          Builder k("late");
          auto parts = k.output("parts", DType::i32, {8, kColumns});
          auto cells = k.output("cells", DType::i32, {8});
          auto y = k.output("y", DType::i32, {8, kColumns});
          k.launch({2}, {.threads = 64});
          auto tile = k.shared(DType::i32, {kColumns}, "tile");
          k.persistent({8}, [&](Value t) {
            k.wait_until(cells(t), 1);
            sum(k, parts(t), y, tile, t);
          });
          codegen::lower(k.finish());
        }),
        "other blocks may write 'parts' until the loop around meets them");
  check(error_of([&] {
          Builder k("by_address");
          auto table = k.input("table", DType::u64, {8});
          auto y = k.output("y", DType::i32, {8, kColumns});
          k.launch({2}, {.threads = 64});
          auto tile = k.shared(DType::i32, {kColumns}, "tile");
          k.persistent({8}, [&](Value t) {
            sum(k, k.tensor_at(table(t), DType::i32, {kColumns}, {.align = 16}, "row"), y, tile, t);
          });
          codegen::lower(k.finish());
        }),
        "the loop around computes the address of 'row'");
}
