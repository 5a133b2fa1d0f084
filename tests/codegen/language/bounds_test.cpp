// Indices that leave a fragment, a local array or a tile: the checked executor names the element in the
// author's words. The extent of `used`, n, decides how far the programs go.

#include <functional>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr auto kF32 = DType::f32;

/// Runs a program of one block, which writes y f32 [8, 64], with n elements in `used`; gives the text of
/// the trap, "" without one.
std::string trap_of(int64_t n, const std::function<void(Builder&, const Value&, const Ref&)>& body,
                    int threads = 128) {
  Builder k("outside");
  const Value extent = k.dim("n");
  k.input("used", kF32, {extent}, {.align = 4});
  const Ref y = k.output("y", kF32, {8, 64});
  k.launch({1}, {.threads = threads});
  body(k, extent, y);
  const HostTensor used(kF32, {n});
  const HostTensor out(kF32, {8, 64});
  try {
    run_kernel(k.finish(), {&used, &out});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::trap) throw;
    return error.what();
  }
  return "";
}

/// The words, if the text has them; else the text.
std::string said(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos ? words : text;
}

}  // namespace

TEST_CASE("a write outside of a fragment stops and names the element", "[language][bounds]") {
  const auto body = [](Builder& k, const Value& n, const Ref& y) {
    auto t = k.fragment(kF32, {8, 60}, "t");
    k.fill(t, 1.0f);
    k.parallel({8, 64}, [&](Value r, Value c) { k.if_(c < n, [&] { t(r, c) = 3.0f; }); });
    k.copy(t, y.tile({0, 0}, {8, 60}));
  };
  CHECK(trap_of(60, body) == "");
  const std::string text = trap_of(61, body);
  CHECK(said(text, "t[0, 60] is out of bounds: extent 60") ==
        "t[0, 60] is out of bounds: extent 60");
  CHECK(said(text, "expected  index 1 in [0, 59]") == "expected  index 1 in [0, 59]");
  CHECK(said(text, "got       60") == "got       60");
  CHECK(said(text, "[OOB]") == "[OOB]");
  CHECK(said(text, "t(r, c) = 3.0f") == "t(r, c) = 3.0f");
}

TEST_CASE("a read outside of a fragment stops and names the element", "[language][bounds]") {
  const auto body = [](Builder& k, const Value& n, const Ref& y) {
    auto t = k.fragment(kF32, {6, 64}, "t");
    k.fill(t, 1.0f);
    k.parallel({8, 64}, [&](Value r, Value c) { k.if_(r < n, [&] { y(r, c) = t(r, c); }); });
  };
  CHECK(trap_of(6, body) == "");
  CHECK(said(trap_of(7, body), "t[6, 0] is out of bounds: extent 6") ==
        "t[6, 0] is out of bounds: extent 6");
}

TEST_CASE("an index outside of a local array stops and names the element", "[language][bounds]") {
  const auto body = [](Builder& k, const Value& n, const Ref& y) {
    auto own = k.local(kF32, {2, 4}, "own");
    k.unrolled(4, [&](Value i) {
      own(0, i) = 1.0f;
      own(1, i) = 2.0f;
    });
    k.unrolled(6, [&](Value i) { k.if_(i < n, [&] { y(0, k.thread() % 64) = own(0, i); }); });
  };
  CHECK(trap_of(4, body, 32) == "");
  CHECK(said(trap_of(5, body, 32), "own[0, 4] is out of bounds: extent 4") ==
        "own[0, 4] is out of bounds: extent 4");
}

TEST_CASE("an index outside of a tile of a fragment stops", "[language][bounds]") {
  const auto body = [](Builder& k, const Value& n, const Ref& y) {
    auto f = k.fragment(kF32, {8, 64}, "f");
    k.parallel({8, 64}, [&](Value r, Value c) { f(r, c) = cast(kF32, r * 64 + c); });
    auto tile = f.tile({4, 32}, {2, 16});
    k.parallel({4, 16}, [&](Value r, Value c) { k.if_(r < n, [&] { y(r, c) = tile(r, c); }); });
  };
  CHECK(trap_of(2, body) == "");
  const std::string text = trap_of(3, body);
  CHECK(said(text, "f[6, 32] is outside of the tile that is indexed") ==
        "f[6, 32] is outside of the tile that is indexed");
  CHECK(said(text, "expected  an index of the tile in [0, 1]") ==
        "expected  an index of the tile in [0, 1]");
  CHECK(said(text, "got       2") == "got       2");
}

TEST_CASE("an index outside of a tile of shared memory stops, read or written",
          "[language][bounds]") {
  const auto body = [](bool writes) {
    return [=](Builder& k, const Value& n, const Ref& y) {
      auto s = k.shared(kF32, {8, 64}, "s");
      k.fill(s, 1.0f);
      auto tile = s.tile({0, 8}, {8, 8});
      k.parallel({8, 16}, [&](Value r, Value c) {
        k.if_(c < n, [&] {
          if (writes) {
            tile(r, c) = 2.0f;
          } else {
            y(r, c) = tile(r, c);
          }
        });
      });
      k.copy(s, y);
    };
  };
  for (const bool writes : {false, true}) {
    CHECK(trap_of(8, body(writes)) == "");
    CHECK(said(trap_of(9, body(writes)), "s[0, 16] is outside of the tile") ==
          "s[0, 16] is outside of the tile");
  }
}

TEST_CASE("a tile of a tile that leaves it stops", "[language][bounds]") {
  const auto body = [](Builder& k, const Value& n, const Ref& y) {
    auto s = k.shared(kF32, {16, 64}, "s");
    k.fill(s, 1.0f);
    auto tile = s.tile({4, 0}, {8, 64}).tile({n, 0}, {4, 64});
    k.copy(tile, y.tile({0, 0}, {4, 64}));
  };
  CHECK(trap_of(4, body) == "");
  const std::string text = trap_of(5, body);
  CHECK(said(text, "is outside of the tile that is indexed") ==
        "is outside of the tile that is indexed");
  CHECK(said(text, "in [0, 4]") == "in [0, 4]");
}

TEST_CASE("an index outside of a transposed or reshaped view stops", "[language][bounds]") {
  const auto transposed = [](Builder& k, const Value& n, const Ref& y) {
    auto s = k.shared(kF32, {16, 64}, "s");
    k.fill(s, 1.0f);
    auto view = s.tile({0, 0}, {8, 64}).transposed();
    k.parallel({8, 16}, [&](Value r, Value c) { k.if_(c < n, [&] { y(r, c) = view(r, c); }); });
  };
  CHECK(trap_of(8, transposed) == "");
  CHECK(said(trap_of(9, transposed), "s[8, 0] is outside of the tile") ==
        "s[8, 0] is outside of the tile");
  const auto reshaped = [](Builder& k, const Value& n, const Ref& y) {
    auto s = k.shared(kF32, {64}, "s");
    k.fill(s, 1.0f);
    auto view = s.reshape({8, 8});
    k.parallel({4, 16}, [&](Value r, Value c) { k.if_(c < n, [&] { y(r, c) = view(r, c); }); });
  };
  CHECK(trap_of(8, reshaped) == "");
  CHECK(said(trap_of(9, reshaped), "s[0, 8] is out of bounds: extent 8") ==
        "s[0, 8] is out of bounds: extent 8");
}

TEST_CASE("a tile that is indexed in a pipelined loop is checked in each round",
          "[language][bounds]") {
  Builder k("outside");
  auto rows = k.dim("rows");
  auto n = k.dim("n");
  auto x = k.input("x", kF32, {rows, 64});
  k.input("used", kF32, {n}, {.align = 4});
  auto y = k.output("y", kF32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(kF32, {4, 64}, "s");
  auto sum = k.var(kF32, 0.0f, "sum");
  k.pipelined(0, rows / 4, 2, [&](Value i) {
    k.copy(x.tile({i * 4, 0}, {4, 64}), s);
    auto tile = s.tile({0, 0}, {2, 64});
    sum = sum + tile(n - 1, k.thread());
    sum = sum + s(n + 1, k.thread());
  });
  y(k.thread()) = sum;
  const ir::Kernel kernel = k.finish();
  const auto text = [&](int64_t extent) -> std::string {
    const HostTensor in(kF32, {16, 64}), used(kF32, {extent}), out(kF32, {64});
    try {
      run_kernel(kernel, {&in, &used, &out});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(text(2) == "");
  CHECK(said(text(3), "outside of the tile") == "outside of the tile");
}

TEST_CASE("a tile that is copied ahead has the author's indices in a trap", "[language][bounds]") {
  Builder k("outside");
  auto rows = k.dim("rows");
  auto x = k.input("x", kF32, {rows, 64});
  auto y = k.output("y", kF32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(kF32, {4, 64}, "s");
  auto sum = k.var(kF32, 0.0f, "sum");
  k.pipelined(0, rows / 4, 2, [&](Value i) {
    k.copy(x.tile({i * 4, 0}, {4, 64}), s);
    sum = sum + s(i + 2, k.thread());
  });
  y(k.thread()) = sum;
  const HostTensor in(kF32, {16, 64}), out(kF32, {64});
  try {
    run_kernel(k.finish(), {&in, &out});
    FAIL("no trap");
  } catch (const Error& error) {
    CHECK(said(error.what(), "s[4, 0] is out of bounds: extent 4") ==
          "s[4, 0] is out of bounds: extent 4");
    CHECK(said(error.what(), "index 0 in [0, 3]") == "index 0 in [0, 3]");
  }
}

TEST_CASE("an element of a fragment that nobody wrote is named, not its register",
          "[language][bounds]") {
  const auto body = [](Builder& k, const Value&, const Ref& y) {
    auto t = k.fragment(kF32, {8, 64}, "t");
    k.parallel({8, 64},
               [&](Value r, Value c) { k.if_(!(r == 3 && c == 17), [&] { t(r, c) = 1.0f; }); });
    k.copy(t, y);
  };
  CHECK(said(trap_of(1, body), "t[3, 17] is read before it is written") ==
        "t[3, 17] is read before it is written");
}

TEST_CASE("an element of a local array that nobody wrote is named", "[language][bounds]") {
  const auto body = [](Builder& k, const Value&, const Ref& y) {
    auto own = k.local(kF32, {2, 4}, "own");
    k.unrolled(4, [&](Value i) { own(0, i) = 1.0f; });
    y(0, k.thread() % 64) = own(1, 2);
  };
  CHECK(said(trap_of(1, body, 32), "own[1, 2] is read before it is written") ==
        "own[1, 2] is read before it is written");
}

TEST_CASE("a fragment that goes through shared memory keeps the author's name in a trap",
          "[language][bounds]") {
  const auto body = [](Builder& k, const Value& n, const Ref& y) {
    auto t = k.fragment(kF32, {8, 64}, "t");
    k.fill(t, 1.0f);
    k.parallel({8, 64}, [&](Value r, Value c) { k.if_(c < n, [&] { y(r, c) = t(c, r); }); });
  };
  CHECK(trap_of(8, body) == "");
  const std::string text = trap_of(9, body);
  CHECK(said(text, "t[8, 0] is out of bounds: extent 8") == "t[8, 0] is out of bounds: extent 8");
  CHECK(text.find("staged") == std::string::npos);
}
