// Words that the threads of a role share out among themselves: each gives in a role what it gives in a block.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Arg;
using dsl::Axis;
using dsl::Builder;
using dsl::ReduceOp;
using dsl::ReducerKind;
using dsl::Ref;
using dsl::Tile;
using dsl::Value;
using test::error_of;
using test::HostTensor;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr int64_t kRows = 16, kColumns = 64, kElements = kRows * kColumns;

int64_t input_at(int64_t row, int64_t column) {
  return (row * kColumns + column) * 37 % 101;
}

/// One word: what it stores to y [16, 64], and what y has then.
struct Word {
  std::string name;
  std::function<void(Builder&, const Ref& x, const Ref& y)> store;
  std::function<int64_t(int64_t row, int64_t column)> want;
};

/// fn folded over `count` numbers from fn(0) on.
template <class Fn>
int64_t sum(int64_t count, const Fn& fn) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += fn(i);
  return total;
}
template <class Fn>
int64_t largest(int64_t count, const Fn& fn) {
  int64_t result = fn(0);
  for (int64_t i = 1; i < count; ++i) result = std::max<int64_t>(result, fn(i));
  return result;
}

int64_t row_sum(int64_t row) {
  return sum(kColumns, [&](int64_t c) { return input_at(row, c); });
}
int64_t row_max(int64_t row) {
  return largest(kColumns, [&](int64_t c) { return input_at(row, c); });
}

Word scan(int axis, bool is_max, bool in_fragment) {
  return {fmt::format("scan_{} along {} of a {}", is_max ? "max" : "sum", axis,
                      in_fragment ? "fragment" : "shared tile"),
          [=](Builder& k, const Ref& x, const Ref& y) {
            const Ref t = in_fragment ? k.fragment(kI32, {kRows, kColumns}, "t")
                                      : k.shared(kI32, {kRows, kColumns}, "t");
            k.copy(x, t);
            is_max ? k.scan_max(t, t, Axis(axis)) : k.scan_sum(t, t, Axis(axis));
            k.copy(t, y);
          },
          [=](int64_t r, int64_t c) {
            const auto along = [&](int64_t i) {
              return axis == 0 ? input_at(i, c) : input_at(r, i);
            };
            const int64_t count = (axis == 0 ? r : c) + 1;
            return is_max ? largest(count, along) : sum(count, along);
          }};
}

Word line_scan(bool from_end) {
  return {fmt::format("exclusive scan_sum of one line{}", from_end ? " from the end" : ""),
          [=](Builder& k, const Ref& x, const Ref& y) {
            const Ref t = k.shared(kI32, {kElements}, "t");
            k.parallel({kRows, kColumns}, [&](Value r, Value c) { t(r * kColumns + c) = x(r, c); });
            k.scan_sum(t, t, Axis(0), {.exclusive = true, .from_end = from_end});
            k.parallel({kRows, kColumns}, [&](Value r, Value c) { y(r, c) = t(r * kColumns + c); });
          },
          [=](int64_t r, int64_t c) {
            const int64_t at = r * kColumns + c;
            return sum(kElements, [&](int64_t i) {
              return (from_end ? i > at : i < at) ? input_at(i / kColumns, i % kColumns) : 0;
            });
          }};
}

std::vector<Word> scans() {
  std::vector<Word> words = {line_scan(false), line_scan(true)};
  for (const int axis : {0, 1}) {
    for (const bool in_fragment : {false, true})
      words.push_back(scan(axis, axis == 1, in_fragment));
  }
  return words;
}

Word reducer(ReducerKind kind, int64_t elements) {
  const bool is_wide = kind == ReducerKind::wide;
  return {fmt::format("{} reducer of {}", is_wide ? "wide" : "narrow", elements),
          [=](Builder& k, const Ref& x, const Ref& y) {
            auto total = k.reducer(ReduceOp::sum, kI32, {elements}, {.kind = kind});
            const Ref sums = k.fragment(kI32, {elements}, "sums");
            total.init();
            k.parallel({kRows, kColumns}, [&](Value r, Value c) {
              const Arg element = is_wide         ? Arg((r + c) % elements)
                                  : elements == 1 ? Arg(0)
                                                  : Arg(r / (kRows / elements));
              total.update(element, x(r, c));
            });
            total.finalize(sums);
            k.parallel({kRows, kColumns}, [&](Value r, Value c) { y(r, c) = sums(r % elements); });
          },
          [=](int64_t row, int64_t) {
            const int64_t element = row % elements;
            return sum(kElements, [&](int64_t i) {
              const int64_t r = i / kColumns, c = i % kColumns;
              const int64_t to = is_wide ? (r + c) % elements : r / (kRows / elements);
              return to == element ? input_at(r, c) : 0;
            });
          }};
}

Word reduce(int axis) {
  return {
      fmt::format("reduce_sum along {}", axis),
      [=](Builder& k, const Ref& x, const Ref& y) {
        const Ref t = k.fragment(kI32, {kRows, kColumns}, "t");
        const Ref sums = k.fragment(kI32, {axis == 0 ? kColumns : kRows}, "sums");
        k.copy(x, t);
        k.reduce_sum(t, sums, Axis(axis));
        k.parallel({kRows, kColumns}, [&](Value r, Value c) { y(r, c) = sums(axis == 0 ? c : r); });
      },
      [=](int64_t r, int64_t c) {
        return axis == 1 ? row_sum(r) : sum(kRows, [&](int64_t i) { return input_at(i, c); });
      }};
}

std::vector<Word> reductions() {
  std::vector<Word> words = {reducer(ReducerKind::narrow, 4), reducer(ReducerKind::wide, 4),
                             reducer(ReducerKind::narrow, 1), reduce(0), reduce(1)};
  words.push_back({"reduce_sum of reduce_max",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     const Tile all = k.reduce_sum(k.reduce_max(k.load(x), Axis(1)), Axis(0));
                     k.store(all + Tile(x) * 0, y);
                   },
                   [](int64_t, int64_t) { return sum(kRows, row_max); }});
  words.push_back({"argmax",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     k.store(k.argmax(k.load(x)).index + Tile(x) * 0, y);
                   },
                   [](int64_t r, int64_t) {
                     int64_t best = 0;
                     while (input_at(r, best) != row_max(r)) ++best;
                     return best;
                   }});
  return words;
}

std::vector<Word> moves() {
  std::vector<Word> words;
  words.push_back({"gather and scatter",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     const Ref index = k.shared(kI32, {kRows}, "index");
                     k.parallel({kRows}, [&](Value r) { index(r) = (r * 5 + 3) % kRows; });
                     const Ref t = k.fragment(kI32, {kRows, kColumns}, "t");
                     k.copy(x.rows(index), t);
                     k.parallel({kRows, kColumns}, [&](Value r, Value c) { t(r, c) += r; });
                     k.copy(t, y.rows(index));
                   },
                   [](int64_t r, int64_t c) {
                     int64_t from = 0;
                     while ((from * 5 + 3) % kRows != r) ++from;
                     return input_at(r, c) + from;
                   }});
  words.push_back({"a fragment in another layout",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     const Ref t = k.fragment(kI32, {kRows, kColumns}, "t");
                     k.copy(x, t);
                     const Ref turned = k.fragment(kI32, {kColumns, kRows}, "turned");
                     k.copy(t.transposed(), turned);
                     k.parallel({kRows, kColumns},
                                [&](Value r, Value c) { y(r, c) = turned(c, kRows - 1 - r); });
                   },
                   [](int64_t r, int64_t c) { return input_at(kRows - 1 - r, c); }});
  words.push_back({"copy_async and wait",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     const Ref t = k.shared(kI32, {kRows, kColumns}, "t");
                     k.wait(k.copy_async(x, t));
                     k.parallel({kRows, kColumns}, [&](Value r, Value c) { y(r, c) = t(r, c); });
                   },
                   input_at});
  words.push_back({"an atomic per iteration",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     const Ref counts = k.shared(kI32, {kRows}, "counts");
                     k.fill(counts, 0);
                     k.parallel({kRows, kColumns}, [&](Value r, Value c) {
                       k.atomic_add(counts(x(r, c) % kRows), 1);
                     });
                     k.parallel({kRows, kColumns}, [&](Value r, Value c) { y(r, c) = counts(r); });
                   },
                   [](int64_t row, int64_t) {
                     return sum(kElements, [&](int64_t i) {
                       return input_at(i / kColumns, i % kColumns) % kRows == row ? 1 : 0;
                     });
                   }});
  words.push_back({"warp_sum, shuffle and ballot",
                   [](Builder& k, const Ref& x, const Ref& y) {
                     const Value mine = x(0, k.lane());
                     const Value all = k.warp_sum(mine) + k.shuffle(mine, 5);
                     const Value odd = cast(kI32, k.ballot(k.lane() % 2 == 1) & 0xff);
                     k.parallel({kRows, kColumns}, [&](Value r, Value c) { y(r, c) = all + odd; });
                   },
                   [](int64_t, int64_t) {
                     return sum(32, [](int64_t c) { return input_at(0, c); }) + input_at(0, 5) +
                            0xaa;
                   }});
  return words;
}

/// Two roles of these many warps do the words, each into its own part of y [2, words, 16, 64].
void check(const std::vector<Word>& words, int warps_of_a, int warps_of_b) {
  CAPTURE(warps_of_a, warps_of_b);
  const auto count = static_cast<int64_t>(words.size());
  Builder k("words_in_roles");
  auto x = k.input("x", kI32, {kRows, kColumns});
  auto y = k.output("y", kI32, {2, count, kRows, kColumns});
  k.launch({1}, {.threads = 32 * (warps_of_a + warps_of_b)});
  const auto role = [&](int number) {
    return [&, number] {
      for (int64_t w = 0; w < count; ++w) {
        words[static_cast<size_t>(w)].store(k, x, y(number, w));
      }
    };
  };
  k.roles({{.name = "a", .warps = warps_of_a, .body = role(0)},
           {.name = "b", .warps = warps_of_b, .body = role(1)}});
  HostTensor in(kI32, {kRows, kColumns});
  for (int64_t i = 0; i < kElements; ++i) {
    in.set_value(i, static_cast<double>(input_at(i / kColumns, i % kColumns)));
  }
  HostTensor out(kI32, {2, count, kRows, kColumns});
  for (int64_t i = 0; i < out.size(); ++i) out.set_value(i, -1);
  test::run_kernel(k.finish(), {&in, &out});
  for (int64_t i = 0; i < 2 * count; ++i) {
    const Word& word = words[static_cast<size_t>(i % count)];
    int64_t wrong = 0;
    for (int64_t e = 0; e < kElements; ++e) {
      const double want = static_cast<double>(word.want(e / kColumns, e % kColumns));
      wrong += out.value(i * kElements + e) != want ? 1 : 0;
    }
    INFO("role " << i / count << ": " << word.name);
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("a scan in a role covers the whole line", "[language][roles]") {
  check(scans(), 1, 3);
  check(scans(), 2, 1);
}

TEST_CASE("reducers and reductions in a role count each element once", "[language][roles]") {
  check(reductions(), 1, 2);
  check(reductions(), 4, 1);
}

TEST_CASE("gathers, atomics, layout changes and warp words in a role are of its threads",
          "[language][roles]") {
  check(moves(), 1, 3);
  check(moves(), 2, 1);
}

TEST_CASE("a wide reducer that is declared before the roles belongs to the role that uses it",
          "[language][roles]") {
  Builder k("early_reducer");
  auto x = k.input("x", kI32, {kElements});
  auto y = k.output("y", kI32, {4});
  auto n = k.output("n", kI32, {1});
  k.launch({1}, {.threads = 128});
  auto total = k.reducer(ReduceOp::sum, kI32, {4}, {.kind = ReducerKind::wide});
  k.roles(
      {{.name = "other", .warps = 3, .body = [&] { k.if_(k.thread() == 0, [&] { n(0) = 1; }); }},
       {.name = "sum", .warps = 1, .body = [&] {
          auto sums = k.fragment(kI32, {4}, "sums");
          total.init();
          k.parallel({kElements}, [&](Value i) { total.update(x(i) % 4, x(i)); });
          total.finalize(sums);
          k.copy(sums, y);
        }}});
  const HostTensor in = test::iota(kI32, {kElements});
  const HostTensor out(kI32, {4}), flag(kI32, {1});
  test::run_kernel(k.finish(), {&in, &out, &flag});
  CHECK(test::values_of(out) == std::vector<double>{130560, 130816, 131072, 131328});
}

TEST_CASE("a fragment from before the roles is measured by the role that uses it",
          "[language][roles]") {
  const auto refusal = [](const std::function<Ref(Builder&)>& declare) {
    return error_of([&] {
      Builder k("early_fragment");
      auto y = k.output("y", kF32, {128, 64});
      k.launch({1}, {.threads = 128});
      const Ref early = declare(k);
      k.roles({{.name = "idle", .warps = 3, .body = [] {}},
               {.name = "fill", .warps = 1, .body = [&] {
                  k.fill(early, 1.0f);
                  k.if_(k.thread() == 0, [&] { y(0, 0) = 1.0f; });
                }}});
      codegen::lower(k.finish());
    });
  };
  CHECK(
      refusal([](Builder& k) { return k.fragment(kF32, layout::replicated({4}, 128), "early"); })
          .starts_with("tessera: early_fragment: the layout of fragment 'early' needs more threads "
                       "than role 'fill' has [LAYOUT_THREADS]\n"
                       "  expected  at most 32\n"
                       "  got       128\n"));
  CHECK(refusal([](Builder& k) {
          return k.fragment(kF32, {128, 64}, "early");
        })
            .starts_with(
                "tessera: early_fragment: fragment 'early' does not fit into the registers of "
                "role 'fill' [REGISTERS]\n"
                "  expected  at most 255 registers in each of 32 threads\n"
                "  got       f32[128, 64], 256 registers each\n"
                "  hint      take a smaller tile, more threads, or k.shared\n"));
}

TEST_CASE("a scan that only some threads of the block would make is refused", "[language]") {
  const auto refusal = [](const std::function<void(Builder&, const Ref&)>& build) {
    return error_of([&] {
      Builder k("part");
      k.launch({1}, {.threads = 128});
      auto s = k.shared(kI32, {8, 64}, "s");
      k.fill(s, 1);
      build(k, s);
    });
  };
  CHECK(refusal([](Builder& k, const Ref& s) {
          k.if_(k.thread() < 64, [&] { k.scan_sum(s, s, Axis(1)); });
        }).find("a tile operation under a condition that uses the thread index [SYNC_DIVERGENT]") !=
        std::string::npos);
  CHECK(refusal([](Builder& k, const Ref& s) {
          k.parallel({8}, [&](Value) { k.scan_sum(s, s, Axis(1)); });
        }).find("a scan inside a parallel loop [NESTED_PARALLEL]") != std::string::npos);
}

}  // namespace tessera
