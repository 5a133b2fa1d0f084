// Elements and their indices: what is outside for sure, what a name means after a write, and what
// iterations do to each other. Each is refused at the author's line.

#include <functional>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

/// x and y f32 [8, 64], 64 threads, a fragment f and a shared buffer s of [8, 60].
struct Sample {
  Builder k{"sample"};
  Ref x = k.input("x", DType::f32, {8, 64});
  Ref y = k.output("y", DType::f32, {8, 64});
  dsl::BlockIndex at = k.launch({2}, {.threads = 64});
  Ref f = k.fragment(DType::f32, {8, 60}, "f");
  Ref s = k.shared(DType::f32, {8, 60}, "s");
};

/// The error without the lines of the source, which must be of this file; empty if there is none.
std::string rejected(const std::function<void(Sample&)>& fn) {
  Sample sample;
  const std::string text = error_of([&] { fn(sample); });
  if (text.empty()) return text;
  CHECK(text.find("elements_test.cpp:") != std::string::npos);
  return text.substr(0, text.find("\n  at "));
}

std::string code_of(const std::function<void(Sample&)>& fn) {
  const std::string text = rejected(fn);
  const std::string line = text.substr(0, text.find('\n'));
  const size_t begin = line.rfind('[');
  return begin == std::string::npos ? line : line.substr(begin + 1, line.rfind(']') - begin - 1);
}

}  // namespace

TEST_CASE("a write outside of a fragment by a loop that is wider than it is refused", "[dsl]") {
  const auto by_loop = [](bool fragment) {
    return rejected([&](Sample& t) {
      const Ref& part = fragment ? t.f : t.s;
      t.k.parallel({8, 64}, [&](Value r, Value c) { part(r, c) = 3.0f; });
    });
  };
  CHECK(by_loop(true) ==
        "tessera: sample: index of 'f' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 60\n"
        "  got       63 in dimension 1, where j = 63");
  CHECK(by_loop(false) ==
        "tessera: sample: index of 's' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 60\n"
        "  got       63 in dimension 1, where j = 63");
  CHECK(rejected([](Sample& t) {
          t.k.parallel({16, 60}, [&](Value r, Value c) { t.y(r, c) = t.f(r, c); });
        }) ==
        "tessera: sample: index of 'f' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 8\n"
        "  got       15 in dimension 0, where i = 15");
}

TEST_CASE("an index of several loops is refused for the iteration that leaves the buffer",
          "[dsl]") {
  CHECK(rejected([](Sample& t) {
          t.k.serial(
              0, 8,
              [&](Value i) {
                t.k.parallel({4, 15}, [&](Value r, Value c) { t.s(r, i * 8 + c) = 0.0f; });
              },
              3);
        }) ==
        "tessera: sample: index of 's' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 60\n"
        "  got       62 in dimension 1, where s = 6, j = 14");
  CHECK(rejected([](Sample& t) {
          t.k.parallel({8, 60}, [&](Value r, Value c) { t.f(r, c - 1) = 0.0f; });
        }) ==
        "tessera: sample: index of 'f' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 60\n"
        "  got       -1 in dimension 1, where j = 0");
  CHECK(rejected([](Sample& t) {
          t.k.unrolled(9, [&](Value i) { t.k.fill(t.f.tile({i, 0}, {1, 60}), 0.0f); });
        }) ==
        "tessera: sample: a tile of 'f' reaches outside [OOB_CONST]\n"
        "  expected  within 0..8\n"
        "  got       8..9 in dimension 0, where u = 8");
  CHECK(code_of([](Sample& t) { t.s(0, t.k.thread()) = 0.0f; }) == "OOB_CONST");
  CHECK(code_of([](Sample& t) {
          auto own = t.k.local(DType::f32, {4}, "own");
          t.k.unrolled(5, [&](Value i) { own(i) = 0.0f; });
        }) == "OOB_CONST");
}

TEST_CASE("an index past a tile is refused, though the buffer goes on", "[dsl]") {
  CHECK(rejected([](Sample& t) {
          const Ref tile = t.f.tile({0, 32}, {2, 16});
          t.k.parallel({3, 16}, [&](Value r, Value c) { tile(r, c) = 0.0f; });
        }) ==
        "tessera: sample: index of a tile of 'f' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 2\n"
        "  got       2 in dimension 0, where i = 2");
  CHECK(rejected([](Sample& t) {
          t.s.tile({0, 32}, {2, 16})(3, 0) = 0.0f;
        }) ==
        "tessera: sample: index of a tile of 's' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 2\n"
        "  got       3 in dimension 0");
  CHECK(code_of([](Sample& t) {
          const Ref tile = t.x.tile({0, t.at.x * 32}, {8, 32});
          t.k.parallel({8, 33}, [&](Value r, Value c) { t.y(r, c) = tile(r, c); });
        }) == "OOB_CONST");
}

TEST_CASE("an index that may be inside is left to the executor", "[dsl]") {
  Sample t;
  Builder& k = t.k;
  const Value zero = t.at.x / 2;
  k.fill(t.f, 0.0f);
  k.fill(t.s, 0.0f);
  k.parallel({8, 64}, [&](Value r, Value c) {
    k.if_(c < 60, [&] { t.f(r, c) = 3.0f; });  // a guard
    t.y(r, c) = t.s(r, c % 60) + t.f(r, min(c, 59));
  });
  k.parallel({8, 70}, [&](Value r, Value c) {  // tensors have an outside
    k.if_(t.at.x == 0, [&] { t.y(r, c) = t.x(r, c); });
  });
  k.serial(0, zero, [&](Value) { k.if_(k.thread() == 0, [&] { t.s(0, 0) = 1.0f; }); });
  k.serial(0, zero, [&](Value i) { k.parallel({8}, [&](Value r) { t.s(r, i) = 1.0f; }); });
  k.parallel({8, 8}, [&](Value r, Value c) {  // no turn of the inner loop where it would be outside
    k.serial(0, select(c < 7, 1, 0), [&](Value) { t.s(r, c + 53) = 1.0f; });
  });
  k.return_if(k.thread() >= 60);
  t.s(0, k.thread()) = 0.0f;
  k.finish();
}

TEST_CASE("a name of an element from before a store is refused after it", "[dsl]") {
  const std::string text = rejected([](Sample& t) {
    t.k.parallel({8, 60}, [&](Value r, Value c) {
      auto old = t.f(r, c);
      t.f(r, c) = 9.0f;
      t.y(r, c) = old;
    });
  });
  CHECK(text ==
        "tessera: sample: an element of 'f' is read by a name from before a write that may have "
        "changed it [STALE_ELEMENT]\n"
        "  expected  the element named where it is read, or its value kept from before the write\n"
        "  got       a Ref, which reads where it is used\n"
        "  hint      Value old = f(...) keeps the old value, f(...) in place reads the new one");
  CHECK(code_of([](Sample& t) {  // a swap
          t.k.parallel({30}, [&](Value i) {
            auto kept = t.s(0, i);
            t.s(0, i) = t.s(1, i);
            t.s(1, i) = kept;
          });
        }) == "STALE_ELEMENT");
}

TEST_CASE("a swap through copies of names is refused", "[dsl]") {
  CHECK(code_of([](Sample& t) {
          t.k.parallel({30}, [&](Value i) {
            auto a = t.s(0, i), b = t.s(1, i);
            auto kept = a;
            a = b;
            b = kept;
          });
        }) == "STALE_ELEMENT");
  CHECK(code_of([](Sample& t) {
          t.k.parallel({30}, [&](Value i) {
            auto a = t.s(0, i), b = t.s(1, i);
            Value kept = a;
            a = b;
            b = kept;
          });
        }).empty());
}

TEST_CASE("a stale element is told with the lines of the read and of the write", "[dsl]") {
  Sample t;
  int read = 0, write = 0;
  try {
    auto old = t.s(0, 0);
    write = __LINE__ + 1;
    t.k.fill(t.s, 0.0f);
    read = __LINE__ + 1;
    t.y(0, 0) = old + 1.0f;
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == "STALE_ELEMENT");
    CHECK(error.fields().loc.line == read);
    CHECK(error.fields().related.line == write);
  }
}

TEST_CASE("every kind of write makes names of its elements stale", "[dsl]") {
  using Write = std::function<void(Sample&)>;
  const std::vector<Write> writes = {
      [](Sample& t) { t.s(0, 0) = 1.0f; },
      [](Sample& t) { t.s(t.at.x, t.at.x) += 1.0f; },
      [](Sample& t) {
        t.k.copy(t.x.tile({0, 0}, {8, 60}), t.s);
      },
      [](Sample& t) {
        t.k.fill(t.s.tile({0, 0}, {1, 8}), 0.0f);
      },
      [](Sample& t) { t.k.atomic_add(t.s(0, 0), 1.0f); },
      [](Sample& t) {
        t.k.copy_async(t.x.tile({0, 0}, {8, 60}), t.s);
      },
      [](Sample& t) { t.s.reshape({480})(t.at.x) = 1.0f; },
      [](Sample& t) { t.k.scan_sum(t.s, t.s, dsl::Axis(1)); },
      [](Sample& t) { t.k.if_(t.at.x == 0, [&] { t.s(0, 0) = 1.0f; }); },
  };
  for (size_t i = 0; i < writes.size(); ++i) {
    CAPTURE(i);
    CHECK(code_of([&](Sample& t) {
            auto old = t.s(0, 0);
            writes[i](t);
            t.y(0, 0) = old;
          }) == "STALE_ELEMENT");
  }
  CHECK(code_of([](Sample& t) {
          auto from = t.k.fragment(DType::f32, {8, 60, 4}, "from");
          auto old = t.f(0, 0);
          t.k.reduce_sum(from, t.f, dsl::Axis(2));
          t.y(0, 0) = old;
        }) == "STALE_ELEMENT");
}

TEST_CASE("an element named before a loop whose iterations write it is stale in the next one",
          "[dsl]") {
  CHECK(code_of([](Sample& t) {
          auto old = t.s(0, 0);
          t.k.serial(0, 4, [&](Value i) {
            t.y(0, i) = old;
            t.s(0, 0) = 9.0f;
          });
        }) == "STALE_ELEMENT");
  CHECK(code_of([](Sample& t) {
          t.k.serial(0, 4, [&](Value i) {
            auto old = t.s(0, 0);
            t.y(0, i) = old;
            t.s(0, 0) = 9.0f;
          });
        }).empty());
}

TEST_CASE("names of elements that nothing else writes stay good", "[dsl]") {
  CHECK(code_of([](Sample& t) {
          auto sum = t.s(0, 0);
          auto next = t.s(0, 1);
          sum = 0.0f;
          next = 1.0f;
          t.k.serial(0, 4, [&](Value i) { sum += t.x(0, i) * next; });
          sum /= 2.0f;
          t.y(0, 0) = sum;
        }).empty());
  CHECK(code_of([](Sample& t) {
          t.k.parallel({8, 30}, [&](Value r, Value c) {
            auto low = t.f(r, c);
            t.f(r, c + 30) = 1.0f;
            t.s(r, c) = 0.0f;  // another buffer
            t.y(r, c) = low;
          });
        }).empty());
  CHECK(code_of([](Sample& t) {
          const Value old = t.s(0, 0);
          t.s(0, 0) = 9.0f;
          t.y(0, 0) = old;
        }).empty());
}

TEST_CASE("an index that leaves the constant extent of a tensor is refused where nothing guards it",
          "[dsl]") {
  CHECK(rejected([](Sample& t) {
          t.k.parallel({4, 64}, [&](Value r, Value c) { t.y(t.at.x * 4 + r, c + 1) = 1.0f; });
        }) ==
        "tessera: sample: index of 'y' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 64\n"
        "  got       64 in dimension 1, where j = 63\n"
        "  hint      guard it with k.if_, or choose between values with select");
  CHECK(rejected([](Sample& t) {
          t.k.parallel({8, 64}, [&](Value r, Value c) { t.y(r, c) = t.x(r, c - 1); });
        }) ==
        "tessera: sample: index of 'x' is out of range [OOB_CONST]\n"
        "  expected  0 <= index < 64\n"
        "  got       -1 in dimension 1, where j = 0\n"
        "  hint      guard it with k.if_, or choose between values with select");
  CHECK(code_of([](Sample& t) {
          t.k.parallel({64}, [&](Value c) { t.k.atomic_add(t.y(0, c + 1), 1.0f); });
        }) == "OOB_CONST");
  CHECK(code_of([](Sample& t) { t.k.serial(0, 8, [&](Value r) { t.y(r + 1, 0) = 1.0f; }); }) ==
        "OOB_CONST");
}

TEST_CASE("an element outside of a tensor that a condition, a select or a tile guards is accepted",
          "[dsl]") {
  CHECK(code_of([](Sample& t) {
          Builder& k = t.k;
          k.parallel({8, 64}, [&](Value r, Value c) {
            k.if_(c < 63, [&] { t.y(r, c + 1) = t.x(r, c + 1); });
            t.y(r, c) = select(c < 63, t.x(r, c + 1), 0.0f);
            t.y(r, min(c + 1, 63)) = 1.0f;
          });
          // Tiles at the edge.
          k.parallel({8, 24}, [&](Value r, Value c) { t.y(r, t.at.x * 48 + c) = 1.0f; });
          k.serial(0, 3, [&](Value step) {
            k.parallel({8, 24}, [&](Value r, Value c) { t.y(r, step * 24 + c) = 1.0f; });
          });
          k.parallel({9, 80}, [&](Value r, Value c) { t.y(r, c) = 1.0f; });
          k.copy(t.x.tile({0, t.at.x * 48}, {8, 24}), t.f.tile({0, 0}, {8, 24}));
        }) == "");
}

TEST_CASE("a sum into one element by all iterations of a parallel loop is refused", "[dsl]") {
  const std::string want =
      "tessera: sample: all iterations of a parallel loop change one element, s[0, 0] "
      "[ONE_ELEMENT]\n"
      "  expected  an element of its own for each iteration\n"
      "  got       one for i = 0 .. 59\n"
      "  hint      use k.reduce_sum (_max, _min) of a fragment, k.reducer or k.atomic_add";
  CHECK(rejected([](Sample& t) { t.k.parallel({60}, [&](Value c) { t.s(0, 0) += t.x(0, c); }); }) ==
        want);
  CHECK(rejected([](Sample& t) {
          t.k.parallel({60}, [&](Value c) { t.s(0, 0) = max(t.x(0, c), t.s(0, 0)); });
        }) == want);
  CHECK(code_of([](Sample& t) {
          t.k.parallel({8, 60}, [&](Value r, Value c) { t.y(r, 0) += t.x(r, c); });
        }) == "ONE_ELEMENT");
  CHECK(code_of([](Sample& t) {
          t.k.parallel({8, 60}, [&](Value r, Value c) {
            t.k.if_(c == 0, [&] { t.s(r, 0) += t.x(r, c); });  // one of them
            t.k.if_(c == 2 * r + 1, [&] { t.s(r, 0) += t.x(r, c); });
            t.s(1, t.k.thread() % 60) += 1.0f;  // each thread its own
          });
          t.k.parallel(
              {8}, [&](Value r) { t.k.serial(0, 60, [&](Value c) { t.s(r, 0) += t.x(r, c); }); });
          t.k.parallel({60}, [&](Value) { t.s(0, 0) = 1.0f; });
        }).empty());
}

TEST_CASE("a sum into one element under a condition that several iterations meet is refused",
          "[dsl]") {
  const auto under = [](const auto& condition) {
    return code_of([&](Sample& t) {
      t.k.parallel({8, 60}, [&](Value r, Value c) {
        t.k.if_(condition(r, c), [&] { t.y(r, 0) += t.x(r, c); });
      });
    });
  };
  CHECK(under([](Value, Value c) { return c % 2 == 0; }) == "ONE_ELEMENT");
  CHECK(under([](Value, Value c) { return c == 0 || c == 1; }) == "ONE_ELEMENT");
  CHECK(under([](Value r, Value) { return r == 0; }) == "ONE_ELEMENT");  // of another index
  CHECK(under([](Value r, Value c) { return c == r; }) == "");
}

TEST_CASE("a sum into one variable or a folded element by a parallel loop is refused", "[dsl]") {
  const auto message = [](const std::string& element, const std::string& iterations) {
    return "tessera: sample: all iterations of a parallel loop change one element, " + element +
           " [ONE_ELEMENT]\n"
           "  expected  an element of its own for each iteration\n"
           "  got       one for " +
           iterations +
           "\n"
           "  hint      use k.reduce_sum (_max, _min) of a fragment or k.reducer";
  };
  CHECK(rejected([](Sample& t) {
          auto sum = t.k.var(DType::f32, 0.0f, "sum");
          t.k.parallel({64}, [&](Value c) { sum += t.x(0, c); });
          t.k.if_(t.k.thread() == 0, [&] { t.y(0, 0) = sum; });
        }) == message("sum", "i = 0 .. 63"));
  CHECK(rejected([](Sample& t) {
          t.k.parallel({8, 60}, [&](Value r, Value c) { t.f(r, c / 2) += t.x(r, c); });
        }) ==
        "tessera: sample: several iterations of a parallel loop change one element, f[i, j / 2] "
        "[ONE_ELEMENT]\n"
        "  expected  an element of its own for each iteration\n"
        "  got       one for (0, 0) and (0, 1)\n"
        "  hint      use k.reduce_sum (_max, _min) of a fragment or k.reducer");
}

TEST_CASE(
    "elements of their own, variables of an iteration and sums that threads combine are not "
    "refused",
    "[dsl]") {
  CHECK(code_of([](Sample& t) {
          Builder& k = t.k;
          auto line = k.fragment(DType::f32, {1, 64}, "line");
          auto turned = k.fragment(DType::f32, {60, 8}, "turned");
          auto scratch = k.var(DType::f32, 0.0f, "scratch");
          k.fill(line, 0.0f);
          k.parallel({1, 64}, [&](Value, Value c) { line(0, c) += t.x(0, c); });
          k.parallel({8, 60}, [&](Value r, Value c) {
            turned(c, 7 - r) += 1.0f;
            auto own = k.var(DType::f32, 0.0f, "own");
            k.serial(0, 4, [&](Value i) { own += t.x(i, c); });
            scratch = t.x(r, c);
            scratch += own;
            t.y(r, c) = scratch;
            k.if_(c == 0, [&] { line(0, r) += 1.0f; });
          });
          k.parallel({8},
                     [&](Value r) { k.serial(0, 60, [&](Value c) { line(0, r) += t.x(r, c); }); });
        }) == "");
  CHECK(code_of([](Sample& t) {  // each thread its own part
          Builder& k = t.k;
          auto part = k.var(DType::f32, 0.0f, "part");
          k.parallel({8, 64}, [&](Value r, Value c) { part += t.x(r, c); });
          const Value all = k.let("all", k.warp_sum(part));
          k.if_(k.lane() == 0, [&] { t.s(0, k.warp()) = all; });
          k.if_(k.thread() == 0, [&] { t.y(0, 0) = t.s(0, 0) + t.s(0, 1); });
          for (const int mask : {16, 8, 4, 2, 1}) part = part + k.shuffle_xor(part, mask);
          k.if_(k.thread() == 0, [&] { t.y(1, 0) = part * 2.0f + all; });
        }) == "");
}
