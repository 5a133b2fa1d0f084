// Misuse of the language: each is reported at the builder call, with the author's line.

#include "dsl/builder.h"

#include <functional>
#include <regex>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

/// A builder with one input x [8, 16] f32, one output y [8, 16] f32 and 64 threads.
struct Sample {
  Builder k{"sample"};
  Ref x = k.input("x", DType::f32, {8, 16});
  Ref y = k.output("y", DType::f32, {8, 16});
  dsl::BlockIndex at = k.launch({1}, {.threads = 64});
};

/// The rendered error without the lines that quote the source.
template <class Fn>
std::string rejected(const Fn& fn) {
  Sample sample;
  std::string text = error_of([&] { fn(sample.k, sample.x, sample.y); });
  const size_t at = text.find("\n  at ");
  CHECK(text.find("builder_test.cpp:") != std::string::npos);
  return text.substr(0, at);
}

}  // namespace

TEST_CASE("an error shows the author's line", "[dsl]") {
  Sample sample;
  int line = 0;
  try {
    line = __LINE__ + 1;
    sample.y(0, 0) = sample.x(0, 0) + 1.5;
    sample.k.finish();
  } catch (const Error& error) {
    FAIL(error.what());
  }
  try {
    Sample other;
    line = __LINE__ + 1;
    other.y(0, 0) = Value(other.x(0, 0)) + sample.k.let("late", 1);
  } catch (const Error& error) {
    CHECK(error.loc().line == line);
    CHECK(std::string(error.what()).find("other.y(0, 0) = Value(other.x(0, 0))") !=
          std::string::npos);
  }
}

TEST_CASE("k.wait_until waits for the value of an element as for any other", "[dsl]") {
  const auto text = [](const auto& wait) {
    Builder k("waits");
    auto wanted = k.input("wanted", DType::i32, {8});
    auto cells = k.output("cells", DType::i32, {8});
    auto at = k.launch({8}, {.threads = 64});
    wait(k, cells(0), wanted(at.x));
    k.signal(cells(1), 1);
    std::string printed = ir::to_string(k.finish());
    return printed.substr(printed.find("launch"));
  };
  const auto for_element = [](Builder& k, const Ref& cell, const Ref& element) {
    k.wait_until(cell, element);
  };
  const std::string waits = text(for_element);
  CHECK(waits.find("until cells_now == wanted_value") != std::string::npos);
  const auto places = [](std::string line_numbers) {
    return std::regex_replace(line_numbers, std::regex(" *# .*"), "");
  };
  CHECK(places(waits) == places(text([](Builder& k, const Ref& cell, const Ref& element) {
          const Value now = element;
          k.wait_until(cell, now);
        })));
}

TEST_CASE("dtypes are never mixed silently", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref& x, Ref& y) { y(0, 0) = x(0, 0) + k.thread(); }) ==
        "tessera: sample: operands of '+' have different dtypes [DTYPE]\n"
        "  expected  f32\n"
        "  got       i32\n"
        "  hint      convert one of them with cast(dtype, value)");
  CHECK(rejected([](Builder& k, Ref&, Ref& y) { y(0, 0) = k.thread(); }) ==
        "tessera: sample: a value has the wrong dtype [DTYPE]\n"
        "  expected  f32\n"
        "  got       i32\n"
        "  hint      convert it with cast(DType::f32, value)");
  CHECK(rejected([](Builder&, Ref& x, Ref& y) { y(0, 0) = x(0, 0) * 0.1; }) ==
        "tessera: sample: a literal is no value of f32 [LITERAL]\n"
        "  expected  f32\n"
        "  got       the double 0.1\n"
        "  hint      write it with the suffix f: 0.1f");
  CHECK(rejected([](Builder&, Ref& x, Ref& y) {
          y(0, 0) = cast(DType::e4m3, x(0, 0)) + cast(DType::e4m3, x(0, 1));
        }) ==
        "tessera: sample: operand of '+' has the wrong dtype [DTYPE]\n"
        "  expected  an integer, f64, f32, f16 or bf16\n"
        "  got       e4m3\n"
        "  hint      convert it with f32(value)");
  CHECK(rejected([](Builder&, Ref& x, Ref& y) { y(x(0, 0), 0) = 1.0f; }) ==
        "tessera: sample: an index must be an integer [INDEX_DTYPE]\n"
        "  expected  i32, u32 or i64\n"
        "  got       f32");
  CHECK(rejected([](Builder&, Ref& x, Ref& y) { y(0, 0) = reinterpret(DType::bf16, x(0, 0)); }) ==
        "tessera: sample: reinterpret needs a dtype of the same width [DTYPE]\n"
        "  expected  32 bits\n"
        "  got       bf16 (16 bits)");
}

TEST_CASE("a literal that does not fit is told as it was written, with what to write", "[dsl]") {
  CHECK(rejected(
            [](Builder&, Ref& x, Ref& y) { y(0, 0) = f32(cast(DType::bf16, x(0, 0)) * 0.1f); }) ==
        "tessera: sample: a literal is no value of bf16 [LITERAL]\n"
        "  expected  bf16\n"
        "  got       the float 0.1f\n"
        "  hint      compute in f32: f32(value) and 0.1f; dsl::cast(DType::bf16, 0.1f) rounds");
  CHECK(rejected([](Builder& k, Ref&, Ref& y) { y(0, 0) = f32(k.thread() / 2.0f); }) ==
        "tessera: sample: a literal is no value of i32 [LITERAL]\n"
        "  expected  i32\n"
        "  got       the float 2.0f\n"
        "  hint      write 2, or compute in f32: f32(value) and 2.0f");
  CHECK(rejected([](Builder& k, Ref&, Ref&) { k.let("e", 0.1); }) ==
        "tessera: a literal is not exact in f32 [LITERAL]\n"
        "  expected  an f32 value\n"
        "  got       the double 0.1\n"
        "  hint      write it with the suffix f: 0.1f");
  CHECK(rejected([](Builder& k, Ref&, Ref& y) {
          k.if_(1, [&] { y(0, 0) = 1.0f; });
        }).find("got       the integer 1\n  hint      write a comparison: value != 0") !=
        std::string::npos);
}

TEST_CASE("a cast of a literal rounds it", "[dsl]") {
  Builder k("rounded");
  auto y = k.output("y", DType::f32, {3});
  k.launch({1}, {.threads = 1});
  y(0) = dsl::f32(dsl::cast(DType::bf16, 0.1f));
  y(1) = dsl::f32(dsl::cast(DType::i32, 2.5f));
  y(2) = dsl::f32(dsl::cast(DType::f16, 2049));
  const HostTensor out(DType::f32, {3});
  run_kernel(k.finish(), {&out});
  CHECK(values_of(out) == std::vector<double>{0.10009765625, 2, 2048});
}

TEST_CASE("a fragment that needs more registers than there are is refused", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.fragment(DType::f32, {1024, 1024}, "large");
        }) ==
        "tessera: sample: fragment 'large' does not fit into the registers of the block "
        "[REGISTERS]\n"
        "  expected  at most 255 registers in each of 64 threads\n"
        "  got       f32[1024, 1024], 16384 registers each\n"
        "  hint      take a smaller tile, more threads, or k.shared");
  Builder early("early");
  early.fragment(DType::bf16, {64, 1024}, "large");
  CHECK(error_of([&] { early.launch({1}, {.threads = 128}); }).find("256 registers each") !=
        std::string::npos);
  Sample sample;
  sample.k.fragment(DType::f32, {64, 255}, "fits");
}

TEST_CASE("a kernel that does nothing anybody can see is refused", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) { k.finish(); }) ==
        "tessera: sample: nobody can see what the kernel does [NO_EFFECT]\n"
        "  expected  a statement that writes a tensor, prints, asserts or calls a function\n"
        "  got       no statements");
  CHECK(rejected([](Builder& k, Ref& x, Ref&) {
          auto tile = k.shared(DType::f32, {8, 16}, "tile");
          k.copy(x, tile);
          k.finish();
        }) ==
        "tessera: sample: nobody can see what the kernel does [NO_EFFECT]\n"
        "  expected  a statement that writes a tensor, prints, asserts or calls a function\n"
        "  got       none that does");
  Sample sample;
  sample.k.print("here");
  sample.k.finish();
}

TEST_CASE("a Ref that is assigned to another buffer does not silently copy", "[dsl]") {
  CHECK(rejected([](Builder&, Ref& x, Ref& y) {
          Ref a = x;
          a = y;
        }) ==
        "tessera: sample: 'y' is assigned to 'x', which does not rename it [NOT_AN_ELEMENT]\n"
        "  expected  one element on both sides\n"
        "  got       buffers, or parts of them\n"
        "  hint      a Ref names its buffer for good: begin another one, keep a std::vector<Ref>, "
        "or copy with k.copy");
}

TEST_CASE("a reduction tells what it was given instead of a fragment", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.fragment(DType::f32, {8, 16}, "tile");
          auto sum = k.fragment(DType::f32, {8}, "sum");
          k.reduce_sum(tile(3, 2), sum, Axis(0));
        }) ==
        "tessera: sample: reduce works on fragments, 'tile' is not one [REDUCE]\n"
        "  expected  a fragment or a part of one\n"
        "  got       one element, fragment");
  CHECK(rejected([](Builder& k, Ref& x, Ref&) {
          auto sum = k.fragment(DType::f32, {8}, "sum");
          k.reduce_sum(x, sum, Axis(1));
        }) ==
        "tessera: sample: reduce works on fragments, 'x' is not one [REDUCE]\n"
        "  expected  a fragment or a part of one\n"
        "  got       global\n"
        "  hint      copy it into k.fragment(...) first");
}

namespace {

template <class Body>
concept SerialTakes = requires(Builder& k, const Body& body) {
  k.serial(0, 4, body);
};
template <class Body>
concept UnrolledTakes = requires(Builder& k, const Body& body) {
  k.unrolled(4, body);
};
template <class Body>
concept VectorizedTakes = requires(Builder& k, const Body& body) {
  k.vectorized(4, body);
};
template <class Body>
concept PipelinedTakes = requires(Builder& k, const Body& body) {
  k.pipelined(0, 4, 3, body);
};
template <class Body>
constexpr int kNumTaking =
    SerialTakes<Body> + UnrolledTakes<Body> + VectorizedTakes<Body> + PipelinedTakes<Body>;
template <class Body>
concept ParallelTakes = requires(Builder& k, const Body& body) {
  k.parallel({4}, body);
};

}  // namespace

TEST_CASE("a loop body of another number of indices does not compile at the author's call",
          "[dsl]") {
  const auto none = [] {};
  const auto one = [](Value) {};
  const auto two = [](Value, Value) {};
  const auto five = [](Value, Value, Value, Value, Value) {};
  STATIC_REQUIRE(kNumTaking<decltype(one)> == 4);
  STATIC_REQUIRE(kNumTaking<decltype(none)> == 0);
  STATIC_REQUIRE(kNumTaking<decltype(two)> == 0);
  STATIC_REQUIRE(ParallelTakes<decltype(two)>);
  STATIC_REQUIRE_FALSE(ParallelTakes<decltype(none)>);
  STATIC_REQUIRE_FALSE(ParallelTakes<decltype(five)>);
}

TEST_CASE("an error names the path as it was compiled", "[dsl]") {
  Sample sample;
  const std::string text = error_of([&] { sample.k.launch({1}); });
  CHECK(text.find("\n  at        " + std::string(__FILE__) + ":") != std::string::npos);
}

TEST_CASE("conditions are joined and negated", "[dsl]") {
  Builder k("conditions");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  auto at = k.launch({n});
  CHECK(ir::to_string((n < 5 && at.x > 2).expr()) == "n < 5 && 2 < block_x");
  CHECK(ir::to_string((n < 5 || at.x > 2).expr()) == "n < 5 || 2 < block_x");
  CHECK(ir::to_string((!(n < 5)).expr()) == "!(n < 5)");
}

TEST_CASE("ranks, shapes and regions are checked at the call", "[dsl]") {
  CHECK(rejected([](Builder&, Ref& x, Ref&) { x(0, 0, 0); }) ==
        "tessera: sample: 'x' is indexed with too many values [RANK]\n"
        "  expected  at most 2\n"
        "  got       3");
  CHECK(rejected([](Builder&, Ref& x, Ref& y) { y(0, 0) = x(1); }) ==
        "tessera: sample: 'x' is used as a value but is not one element [NOT_AN_ELEMENT]\n"
        "  expected  2 indices\n"
        "  got       1 dimensions left free");
  CHECK(rejected([](Builder& k, Ref& x, Ref&) {
          auto tile = k.fragment(DType::f32, {8, 8}, "tile");
          k.copy(x, tile);
        }) ==
        "tessera: sample: copy from 'x' to 'tile' between different shapes [SHAPE]\n"
        "  expected  [8, 8]\n"
        "  got       [8, 16]");
  CHECK(rejected([](Builder& k, Ref& x, Ref&) {
          auto tile = k.fragment(DType::f32, {8, 16}, "tile");
          k.copy(tile, x);
        }) ==
        "tessera: sample: copy writes the input tensor 'x' [WRITE_READ_ONLY]\n"
        "  expected  a tensor declared with k.output\n"
        "  got       k.input");
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.fragment(DType::f32, {8, 16}, "tile");
          tile.reshape({8, 8, 3});
        }) ==
        "tessera: sample: reshape of 'tile' changes the number of elements [RESHAPE]\n"
        "  expected  128\n"
        "  got       192");
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.fragment(DType::f32, {8, 16}, "tile");
          auto sum = k.fragment(DType::f32, {16}, "sum");
          k.reduce_sum(tile, sum, Axis(1));
        }) ==
        "tessera: sample: the result 'sum' of a reduction has the wrong shape [SHAPE]\n"
        "  expected  [8]\n"
        "  got       [16]");
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.fragment(DType::f32, {8, 16}, "tile");
          auto sum = k.fragment(DType::i32, {8}, "sum");
          k.reduce_sum(tile, sum, Axis(1));
        }) ==
        "tessera: sample: the result 'sum' of a reduction of 'tile' has the wrong dtype [DTYPE]\n"
        "  expected  f32 or f32\n"
        "  got       i32");
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.parallel({4, 4}, [](Value) {});
        }) ==
        "tessera: sample: the loop body takes another number of indices than there are extents "
        "[RANK]\n"
        "  expected  1 extents\n"
        "  got       2");
}

TEST_CASE("a reduction into its own fragment is refused", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.fragment(DType::f32, {64, 1}, "tile");
          k.reduce_sum(tile, tile.reshape({64}), Axis(1));
        }) ==
        "tessera: sample: a reduction of 'tile' writes what it reads [REDUCE]\n"
        "  expected  another fragment\n"
        "  got       a view of it");
}

TEST_CASE("a copy onto what it reads is refused", "[dsl]") {
  const std::string text =
      "tessera: sample: a copy within 'tile' writes what it reads [COPY_OVERLAP]\n"
      "  hint      copy it into a fragment first";
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.shared(DType::f32, {65}, "tile");
          k.copy(tile.tile({0}, {64}), tile.tile({1}, {64}));
        }) == text);
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.shared(DType::f32, {16, 16}, "tile");
          k.copy(tile.transposed(), tile);
        }) == text);
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.shared(DType::f32, {4, 16}, "tile");
          k.copy(tile.reshape({16, 4}).transposed(), tile);
        }) == text);
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          auto tile = k.shared(DType::f32, {3, 65}, "tile");
          k.copy(tile(k.thread() % 3).tile({1}, {64}), tile(k.thread() % 3).tile({0}, {64}));
        }) == text);
  // Other rows, rows that nobody can compare, and the same place.
  Sample sample;
  auto tile = sample.k.shared(DType::f32, {4, 16}, "tile");
  sample.k.copy(tile.tile({0, 0}, {2, 16}), tile.tile({2, 0}, {2, 16}));
  sample.k.copy(tile(sample.at.x), tile(sample.at.x + 1));
  sample.k.copy(tile, tile);
}

TEST_CASE("a value may not leave its loop or branch", "[dsl]") {
  const std::string text = rejected([](Builder& k, Ref& x, Ref& y) {
    Value kept;
    k.serial(0, 4, [&](Value i) { kept = x(i, 0); });
    y(0, 0) = kept;
  });
  CHECK(text ==
        "tessera: sample: value 'x_value' is used outside the loop or branch it belongs to "
        "[VALUE_ESCAPED]\n"
        "  hint      carry it in a variable: k.var(dtype, initial value)");
  CHECK(rejected([](Builder& k, Ref&, Ref& y) {
          Value kept;
          k.serial(0, 4, [&](Value i) { kept = i; });
          k.fill(y.tile({kept, 0}, {1, 16}), 0.0f);
        }).find("value 's' is used outside the loop") != std::string::npos);
}

TEST_CASE("what belongs to another kernel is refused", "[dsl]") {
  Builder other("other");
  auto m = other.dim("m");
  auto ours = other.input("ours", DType::f32, {8, 16});
  other.launch({1}, {.threads = 64});
  auto tile = other.shared(DType::f32, {8, 16}, "tile");
  CHECK(rejected([&](Builder& k, Ref&, Ref&) { k.let("rows", m); }) ==
        "tessera: sample: value 'm' belongs to another kernel [OTHER_KERNEL]");
  CHECK(rejected([&](Builder& k, Ref&, Ref& y) { k.copy(ours, y); }) ==
        "tessera: sample: 'ours' belongs to another kernel [OTHER_KERNEL]");
  CHECK(rejected([&](Builder& k, Ref& x, Ref&) { k.copy(x, tile); }) ==
        "tessera: sample: 'tile' belongs to another kernel [OTHER_KERNEL]");
  Builder k("shapes");
  CHECK(error_of([&] { k.input("x", DType::f32, {m}); }).find("[OTHER_KERNEL]") !=
        std::string::npos);
  CHECK(error_of([&] { k.launch({m}, {.threads = 64}); }).find("[OTHER_KERNEL]") !=
        std::string::npos);
}

TEST_CASE("a tile operation under a condition of the thread is refused", "[dsl]") {
  const auto refused = [](const std::function<void(Builder&, Ref&, Ref&)>& body) {
    const std::string text = rejected(body);
    CAPTURE(text);
    CHECK(text.find("a tile operation under a condition that uses the thread index "
                    "[SYNC_DIVERGENT]") != std::string::npos);
  };
  refused([](Builder& k, Ref& x, Ref& y) { k.if_(k.thread() < 10, [&] { k.copy(x, y); }); });
  refused([](Builder& k, Ref&, Ref& y) {
    const Value warp = k.let("warp", k.warp());
    k.if_else(
        warp == 0, [&] { y(0, 0) = 1.0f; }, [&] { k.fill(y, 0.0f); });
  });
  refused([](Builder& k, Ref&, Ref& y) {
    k.serial(k.thread(), 8, [&](Value r) { k.parallel({16}, [&](Value c) { y(r, c) = 1.0f; }); });
  });
  Sample sample;  // elements are each thread's own business, and a parallel loop may ask for it
  sample.k.if_(sample.k.thread() < 8, [&] { sample.y(sample.k.thread(), 0) = 1.0f; });
  sample.k.parallel({8, 16}, [&](Value r, Value c) {
    sample.k.if_(sample.k.thread() < 32, [&] { sample.y(r, c) = sample.x(r, c); });
  });
  sample.k.if_(sample.at.x == 0, [&] { sample.k.copy(sample.x, sample.y); });
}

TEST_CASE("an alignment that no tensor has is refused", "[dsl]") {
  for (const int64_t align : {-16, 2, 12}) {
    CAPTURE(align);
    Builder k("alignments");
    const std::string text = error_of([&] { k.input("x", DType::f32, {64}, {.align = align}); });
    CHECK(text.find("the alignment of 'x' is impossible [ALIGN]") != std::string::npos);
    CHECK(text.find("a power of two from 4 on") != std::string::npos);
  }
  Builder k("alignments");
  k.input("x", DType::e2m1, {64}, {.align = 1});
  k.input("z", DType::f32, {64}, {.align = 128});
}

TEST_CASE("sizes beyond what an i32 counts are refused", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.shared(DType::f32, {1 << 24, 1 << 24, 1 << 16}, "tile");
        }) ==
        "tessera: sample: 'tile' has too many elements [SHAPE]\n"
        "  expected  at most 2^31 - 1\n"
        "  got       [16777216, 16777216, 65536]");
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.shared(DType::f32, {64}, "tile").reshape({-8, -8});
        }).find("'tile' has an impossible extent [SHAPE]") != std::string::npos);
}

TEST_CASE("a tile larger than its shared buffer is refused", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.shared(DType::f32, {64}, "tile").tile({k.thread()}, {100});
        }) ==
        "tessera: sample: a tile of 'tile' is larger than it [OOB_CONST]\n"
        "  expected  at most 64\n"
        "  got       100 in dimension 0");
}

TEST_CASE("threads do not leave the kernel in a parallel loop", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.parallel({64}, [&](Value i) { k.return_if(i == 0); });
        }) ==
        "tessera: sample: return_if() for one iteration of a parallel loop [RETURN_IN_PARALLEL]\n"
        "  hint      put what the iteration does into k.if_");
}

TEST_CASE("declarations, launch and statements come in order", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) { k.launch({1}); }) ==
        "tessera: sample: launch() is called twice [ORDER]");
  CHECK(rejected([](Builder& k, Ref&, Ref&) { k.input("z", DType::f32, {4}); }) ==
        "tessera: sample: tensor 'z' is declared after launch() [ORDER]");
  CHECK(rejected([](Builder& k, Ref&, Ref&) { k.device_blocks(); }) ==
        "tessera: sample: device_blocks() after launch() [ORDER]\n"
        "  expected  before launch()");
  CHECK(rejected([](Builder& k, Ref&, Ref& y) {
          y(0, 0) = 1.0f;
          k.finish();
          y(0, 0) = 1.0f;
        }) == "tessera: sample: a statement after finish() [SPENT_BUILDER]");
  Builder k("early");
  CHECK(error_of([&] { k.sync(); }).find("[NO_LAUNCH]") != std::string::npos);
  CHECK(error_of([&] { k.device_blocks(33); }).find("1 .. 32") != std::string::npos);
  CHECK(error_of([&] { k.dim("two words"); }).find("[NAME]") != std::string::npos);
  CHECK(error_of([&] { k.launch({1}, {.threads = 2000}); }).find("1 .. 1024 threads") !=
        std::string::npos);
}

TEST_CASE("parameters have different names and possible multiples", "[dsl]") {
  const auto told = [](const std::function<void(Builder&)>& declare) {
    Builder k("early");
    k.dim("n");
    k.scalar("alpha", DType::f32);
    const std::string text = error_of([&] { declare(k); });
    return text.substr(0, text.find("\n  at "));
  };
  CHECK(told([](Builder& k) { k.dim("n"); }) ==
        "tessera: early: two parameters are called 'n' [NAME]");
  CHECK(told([](Builder& k) { k.stride("alpha"); }) ==
        "tessera: early: two parameters are called 'alpha' [NAME]");
  CHECK(told([](Builder& k) { k.scalar("n", DType::i32); }) ==
        "tessera: early: two parameters are called 'n' [NAME]");
  for (const int64_t multiple : {0, -8}) {
    CAPTURE(multiple);
    const std::string expected =
        "tessera: early: 'm' is a multiple of something impossible [SHAPE]\n"
        "  expected  1 or more\n"
        "  got       " +
        std::to_string(multiple);
    CHECK(told([&](Builder& k) { k.dim("m", {.multiple_of = multiple}); }) == expected);
    CHECK(told([&](Builder& k) { k.stride("m", {.multiple_of = multiple}); }) == expected);
  }
  CHECK(told([](Builder& k) { k.input("n", DType::f32, {k.dim("m")}); }).empty());
}

TEST_CASE("warp collectives need whole warps and good widths", "[dsl]") {
  Builder k("partial");
  k.launch({1}, {.threads = 48});
  CHECK(error_of([&] { k.warp_sum(k.thread()); }).find("[PARTIAL_WARP]") != std::string::npos);
  CHECK(rejected([](Builder& b, Ref&, Ref&) { b.shuffle_xor(b.thread(), 1, 12); }) ==
        "tessera: sample: the width of shuffle_xor must be a power of two [SHUFFLE_WIDTH]\n"
        "  expected  1, 2, 4, 8, 16 or 32\n"
        "  got       12");
}

TEST_CASE("constant division by zero and odd loops are rejected", "[dsl]") {
  CHECK(rejected([](Builder& k, Ref&, Ref&) { k.thread() / 0; }) ==
        "tessera: sample: '/' by the constant 0 [DIV_BY_ZERO]");
  CHECK(rejected([](Builder& k, Ref&, Ref&) {
          k.serial(
              0, 4, [](Value) {}, 0);
        }).find("tessera: sample: the step of a loop is 0 [LOOP_STEP]") == 0);
}

TEST_CASE("a kernel prints as the author wrote it", "[dsl]") {
  Sample sample;
  auto tile = sample.k.fragment(DType::f32, {8, 16}, "tile");
  sample.k.copy(sample.x, tile);
  sample.k.parallel({8, 16}, [&](Value i, Value j) { tile(i, j) = max(tile(i, j), 0.0f); });
  sample.k.copy(tile, sample.y.tile({0, 0}, {8, 16}));
  const std::string text = ir::to_string(sample.k.finish());
  CHECK(text.find("copy x[0 +: 8, 0 +: 16] -> tile[0 +: 8, 0 +: 16]") != std::string::npos);
  CHECK(text.find("parallel (i, j) in [8, 16]") != std::string::npos);
  CHECK(text.find("tile[i, j] = max(tile_value, 0)") != std::string::npos);
}
