// Every statement that takes a Ref, on parts, transposed and reshaped views of what it takes: it does
// what it would do for a buffer of that shape, or is refused at the author's line.

#include <functional>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::ReduceOp;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kBase = 16;  // the base is [16, 16], each view of it [8, 8]
constexpr int64_t kView = 8;

struct View {
  const char* name;
  std::function<Ref(const Ref& base, const Value& zero)> of;
  /// The row-major number in the base of element (i, j) of the view.
  std::function<int64_t(int64_t i, int64_t j)> element;
};

const std::vector<View>& views() {
  static const std::vector<View> all = {
      {"tile",
       [](const Ref& b, const Value&) {
         return b.tile({4, 2}, {8, 8});
       },
       [](int64_t i, int64_t j) { return (4 + i) * kBase + 2 + j; }},
      {"tile at a run-time offset",
       [](const Ref& b, const Value& zero) {
         return b.tile({zero + 4, zero + 8}, {8, 8});
       },
       [](int64_t i, int64_t j) { return (4 + i) * kBase + 8 + j; }},
      {"tile of a tile",
       [](const Ref& b, const Value& zero) {
         return b.tile({zero + 2, 4}, {12, 12}).tile({2, zero + 4}, {8, 8});
       },
       [](int64_t i, int64_t j) { return (4 + i) * kBase + 8 + j; }},
      {"transposed tile",
       [](const Ref& b, const Value&) {
         return b.tile({4, 2}, {8, 8}).transposed();
       },
       [](int64_t i, int64_t j) { return (4 + j) * kBase + 2 + i; }},
      {"tile of a transposed view",
       [](const Ref& b, const Value&) {
         return b.transposed().tile({4, 2}, {8, 8});
       },
       [](int64_t i, int64_t j) { return (2 + j) * kBase + 4 + i; }},
      {"tile of a reshaped view",
       [](const Ref& b, const Value&) {
         return b.reshape({32, 8}).tile({3, 0}, {8, 8});
       },
       [](int64_t i, int64_t j) { return (3 + i) * 8 + j; }},
      {"plane of a reshaped view",
       [](const Ref& b, const Value& zero) {
         return b.reshape({4, 8, 8})(zero + 2);
       },
       [](int64_t i, int64_t j) { return 128 + i * 8 + j; }},
      {"transposed plane of a reshaped view",
       [](const Ref& b, const Value&) {
         return b.reshape({4, 8, 8})(2).transposed();
       },
       [](int64_t i, int64_t j) { return 128 + j * 8 + i; }},
  };
  return all;
}

constexpr int kViews = 8;
bool is_reshaped(const View& view) {
  return &view - views().data() >= 5;
}

int64_t input_value(int64_t i) {
  return (i * 37 + i / 7) % 101 - 50;
}

enum class Memory { global, shared, fragment };

/// x and y i32 [16, 16], one block, y filled with 1000 + number before.
struct Sample {
  Builder k{"views"};
  Ref x = k.input("x", DType::i32, {kBase, kBase});
  Ref y = k.output("y", DType::i32, {kBase, kBase});
  Value zero = k.launch({1}, {.threads = 64}).x;

  Ref buffer(Memory memory, const char* name) {
    return memory == Memory::shared ? k.shared(DType::i32, {kBase, kBase}, name)
                                    : k.fragment(DType::i32, {kBase, kBase}, name);
  }
  HostTensor run() {
    const HostTensor in = tensor_by(DType::i32, {kBase, kBase}, input_value);
    HostTensor out = tensor_by(DType::i32, {kBase, kBase}, [](int64_t i) { return 1000 + i; });
    run_kernel(k.finish(), {&in, &out});
    return out;
  }
};

/// The contents of y when the elements of `view` are as `value` says and the others 1000 + number.
std::vector<int64_t> changed(const View& view,
                             const std::function<int64_t(int64_t i, int64_t j)>& value) {
  std::vector<int64_t> want;
  for (int64_t i = 0; i < kBase * kBase; ++i) want.push_back(1000 + i);
  for (int64_t i = 0; i < kView; ++i) {
    for (int64_t j = 0; j < kView; ++j) {
      want[static_cast<size_t>(view.element(i, j))] = value(i, j);
    }
  }
  return want;
}

void check_values(const HostTensor& got, const std::vector<int64_t>& want) {
  CHECK_THAT(got, HasValues([&](int64_t i) { return want[static_cast<size_t>(i)]; }));
}

int64_t folded(ReduceOp op, const std::vector<int64_t>& values) {
  int64_t result = values[0];
  if (op == ReduceOp::absmax) result = std::abs(result);
  for (size_t i = 1; i < values.size(); ++i) {
    const int64_t v = values[i];
    result = op == ReduceOp::sum   ? result + v
             : op == ReduceOp::max ? std::max(result, v)
             : op == ReduceOp::min ? std::min(result, v)
                                   : std::max(result, std::abs(v));
  }
  return result;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

TEST_CASE("a reduction of a part or of a transposed view folds just its elements",
          "[language][slow]") {
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  CAPTURE(view.name);
  constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::absmax};
  Sample s;
  const Ref base = s.buffer(Memory::fragment, "base");
  s.k.copy(s.x, base);
  for (int n = 0; n < 8; ++n) {  // every op along both axes
    const Ref result = s.k.fragment(DType::i32, {kView}, "result");
    const Ref from = view.of(base, s.zero);
    const Axis axis{n % 2};
    if (n / 2 == 0) s.k.reduce_sum(from, result, axis);
    if (n / 2 == 1) s.k.reduce_max(from, result, axis);
    if (n / 2 == 2) s.k.reduce_min(from, result, axis);
    if (n / 2 == 3) s.k.reduce_absmax(from, result, axis);
    s.k.copy(result, s.y(n).tile({0}, {kView}));
  }
  const HostTensor out = s.run();
  for (int64_t n = 0; n < 8; ++n) {
    for (int64_t kept = 0; kept < kView; ++kept) {
      std::vector<int64_t> values;
      for (int64_t i = 0; i < kView; ++i) {
        values.push_back(input_value(n % 2 == 0 ? view.element(i, kept) : view.element(kept, i)));
      }
      CAPTURE(n, kept);
      CHECK(static_cast<int64_t>(out.value(n * kBase + kept)) == folded(kOps[n / 2], values));
    }
  }
}

TEST_CASE("a reduction of all of a transposed square fragment folds the other axis", "[language]") {
  Sample s;
  const Ref base = s.buffer(Memory::fragment, "base");
  const Ref result = s.k.fragment(DType::i32, {kBase}, "result");
  s.k.copy(s.x, base);
  s.k.reduce_sum(base.transposed(), result, Axis(1));
  s.k.copy(result, s.y(0));
  const HostTensor out = s.run();
  for (int64_t column = 0; column < kBase; ++column) {
    int64_t want = 0;
    for (int64_t row = 0; row < kBase; ++row) want += input_value(row * kBase + column);
    CHECK(static_cast<int64_t>(out.value(column)) == want);
  }
}

TEST_CASE("a reduction writes just the part or the transposed view that it is given",
          "[language][slow]") {
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  CAPTURE(view.name);
  Builder k("into_views");
  auto x = k.input("x", DType::i32, {kView, 4, kView});
  auto y = k.output("y", DType::i32, {kBase, kBase});
  const Value zero = k.launch({1}, {.threads = 64}).x;
  auto from = k.fragment(DType::i32, {kView, 4, kView}, "from");
  auto base = k.fragment(DType::i32, {kBase, kBase}, "base");
  k.copy(x, from);
  k.copy(y, base);
  k.reduce_sum(from, view.of(base, zero), Axis(1));
  k.copy(base, y);
  const HostTensor in = tensor_by(DType::i32, {kView, 4, kView}, input_value);
  HostTensor out = tensor_by(DType::i32, {kBase, kBase}, [](int64_t i) { return 1000 + i; });
  run_kernel(k.finish(), {&in, &out});
  check_values(out, changed(view, [](int64_t i, int64_t j) {
                 int64_t sum = 0;
                 for (int64_t l = 0; l < 4; ++l) sum += input_value((i * 4 + l) * kView + j);
                 return sum;
               }));
}

TEST_CASE("a reducer closes into just the part or the transposed view that it is given",
          "[language][slow]") {
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  CAPTURE(view.name);
  Sample s;
  const Ref base = s.buffer(Memory::fragment, "base");
  s.k.copy(s.y, base);
  const auto total = s.k.reducer(ReduceOp::sum, DType::i32, {kView, kView});
  total.init();
  s.k.parallel({kView, kView}, [&](Value i, Value j) { total.update(i, j, s.x(i, j)); });
  total.finalize(view.of(base, s.zero));
  s.k.copy(base, s.y);
  check_values(s.run(),
               changed(view, [&](int64_t i, int64_t j) { return input_value(i * kBase + j); }));
}

TEST_CASE("a copy between two views moves element by element", "[language][slow]") {
  const Memory from = GENERATE(Memory::global, Memory::shared, Memory::fragment);
  const Memory to = GENERATE(Memory::global, Memory::shared, Memory::fragment);
  const int n = GENERATE(range(0, kViews));
  const View& source = views()[static_cast<size_t>(n)];
  const View& target = views()[static_cast<size_t>(kViews - 1 - n)];
  if (from == Memory::global && is_reshaped(source)) return;  // no tensor is reshaped
  if (to == Memory::global && is_reshaped(target)) return;
  CAPTURE(static_cast<int>(from), static_cast<int>(to), source.name, target.name);
  Sample s;
  const auto held = [&](Memory memory, const Ref& tensor, const char* name) {
    if (memory == Memory::global) return Ref(tensor);
    const Ref buffer = s.buffer(memory, name);
    s.k.copy(tensor, buffer);
    return buffer;
  };
  const Ref a = held(from, s.x, "a");
  const Ref b = held(to, s.y, "b");
  s.k.copy(source.of(a, s.zero), target.of(b, s.zero));
  if (to != Memory::global) s.k.copy(b, s.y);
  check_values(s.run(), changed(target, [&](int64_t i, int64_t j) {
                 return input_value(source.element(i, j));
               }));
}

TEST_CASE("an asynchronous copy into a view lands in its elements", "[language][slow]") {
  const int n = GENERATE(range(0, kViews));
  const View& source = views()[static_cast<size_t>(n % 5)];
  const View& target = views()[static_cast<size_t>(n)];
  CAPTURE(source.name, target.name);
  Sample s;
  const Ref base = s.buffer(Memory::shared, "base");
  s.k.copy(s.y, base);
  const auto copied = s.k.copy_async(source.of(s.x, s.zero), target.of(base, s.zero));
  s.k.wait(copied);
  s.k.copy(base, s.y);
  check_values(s.run(), changed(target, [&](int64_t i, int64_t j) {
                 return input_value(source.element(i, j));
               }));
}

TEST_CASE("rows of a view are copied by bulk where they are aligned pieces", "[language]") {
  const auto run = [](const std::function<Ref(const Sample&)>& from) {
    Sample s;
    const Ref tile = s.k.shared(DType::i32, {kView, kView}, "tile");
    const auto copied = s.k.copy_async(from(s).bulk(), tile);
    s.k.wait(copied);
    s.k.copy(tile, s.y.tile({0, 0}, {kView, kView}));
    return s.run();
  };
  const HostTensor out = run([](const Sample& s) { return s.x.tile({4, 4}, {kView, kView}); });
  for (int64_t i = 0; i < kView * kView; ++i) {
    const int64_t row = i / kView, col = i % kView;
    CHECK(static_cast<int64_t>(out.value(row * kBase + col)) ==
          input_value((4 + row) * kBase + 4 + col));
  }
  // Not aligned, at offsets that are not known to be, or in pieces.
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, 5)))];
  CAPTURE(view.name);
  const std::string refused =
      error_of([&] { run([&](const Sample& s) { return view.of(s.x, s.zero); }); });
  CHECK(refused.find("[CPASYNC_ROWS]") != std::string::npos);
  CHECK(refused.find("views_test.cpp:") != std::string::npos);
}

TEST_CASE("a fill changes just the view", "[language][slow]") {
  const Memory memory = GENERATE(Memory::global, Memory::shared, Memory::fragment);
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  if (memory == Memory::global && is_reshaped(view)) return;  // no tensor is reshaped
  CAPTURE(static_cast<int>(memory), view.name);
  Sample s;
  if (memory == Memory::global) {
    s.k.fill(view.of(s.y, s.zero), 7);
  } else {
    const Ref base = s.buffer(memory, "base");
    s.k.copy(s.y, base);
    s.k.fill(view.of(base, s.zero), 7);
    s.k.copy(base, s.y);
  }
  check_values(s.run(), changed(view, [](int64_t, int64_t) { return 7; }));
}

TEST_CASE("elements of views are read, written and added to", "[language][slow]") {
  const Memory memory = GENERATE(Memory::global, Memory::shared, Memory::fragment);
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  if (memory == Memory::global && is_reshaped(view)) return;  // no tensor is reshaped
  CAPTURE(static_cast<int>(memory), view.name);
  Sample s;
  const auto change = [&](const Ref& base) {
    const Ref part = view.of(base, s.zero);
    s.k.parallel({kView, kView}, [&](Value i, Value j) { part(i, j) = part(i, j) * 2 + i; });
    s.k.parallel({kView, kView}, [&](Value i, Value j) { part(i, j) += j * 100; });
  };
  if (memory == Memory::global) {
    const Ref part = view.of(s.y, s.zero);
    s.k.parallel({kView, kView}, [&](Value i, Value j) {
      part(i, j) = part(i, j) * 2 + i;
      part(i, j) += j * 100;
    });
  } else {
    const Ref base = s.buffer(memory, "base");
    s.k.copy(s.y, base);
    change(base);
    s.k.copy(base, s.y);
  }
  check_values(s.run(), changed(view, [&](int64_t i, int64_t j) {
                 return (1000 + view.element(i, j)) * 2 + i + j * 100;
               }));
}

TEST_CASE("vectors of elements of views hold the elements of the view, or are refused",
          "[language]") {
  const Memory memory = GENERATE(Memory::global, Memory::shared);
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  if (memory == Memory::global && is_reshaped(view)) return;  // no tensor is reshaped
  CAPTURE(static_cast<int>(memory), view.name);
  Sample s;
  const std::string refused = error_of([&] {
    Ref base = s.x;
    const Ref held = s.buffer(Memory::shared, "held");
    if (memory == Memory::shared) s.k.copy(s.x, held);
    const Ref part = view.of(memory == Memory::shared ? held : s.x, s.zero);
    s.k.parallel({kView, kView / 2}, [&](Value i, Value j) {
      s.k.vectorized(2, [&](Value v) { s.y(i, j * 2 + v) = part(i, j * 2 + v); });
    });
    const HostTensor out = s.run();
    for (int64_t i = 0; i < kView * kView; ++i) {
      CHECK(static_cast<int64_t>(out.value(i / kView * kBase + i % kView)) ==
            input_value(view.element(i / kView, i % kView)));
    }
  });
  // Others begin anywhere, or go across rows.
  const std::string name = view.name;
  const bool is_taken =
      name == "tile" || name == "tile of a reshaped view" || name == "plane of a reshaped view";
  CHECK(refused.empty() == is_taken);
  if (!is_taken) CHECK(refused.find("[VEC_NOT_CONTIGUOUS]") != std::string::npos);
}

TEST_CASE("atomics on elements of views change these elements", "[language][slow]") {
  const Memory memory = GENERATE(Memory::global, Memory::shared);
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  if (memory == Memory::global && is_reshaped(view)) return;  // no tensor is reshaped
  CAPTURE(static_cast<int>(memory), view.name);
  Sample s;
  const Ref base = s.buffer(Memory::shared, "base");
  if (memory == Memory::shared) s.k.copy(s.y, base);
  const Ref part = view.of(memory == Memory::shared ? base : s.y, s.zero);
  s.k.parallel({4, kView, kView},
               [&](Value l, Value i, Value j) { s.k.atomic_add(part(i, j), l + i); });
  if (memory == Memory::shared) s.k.copy(base, s.y);
  check_values(s.run(), changed(view, [&](int64_t i, int64_t j) {
                 return 1000 + view.element(i, j) + 6 + 4 * i;
               }));
}

TEST_CASE("views of another block's shared memory are its elements", "[language][slow]") {
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  CAPTURE(view.name);
  Builder k("other_block");
  auto y = k.output("y", DType::i32, {2, kView, kView});
  auto at = k.launch({2}, {.threads = 64, .cluster = 2});
  auto base = k.shared(DType::i32, {kBase, kBase}, "base");
  k.parallel({kBase, kBase}, [&](Value i, Value j) { base(i, j) = at.x * 1000 + i * kBase + j; });
  k.sync_cluster();
  k.copy(k.of_block(view.of(base, at.y), 1 - at.x), y(at.x));
  HostTensor out(DType::i32, {2, kView, kView});
  run_kernel(k.finish(), {&out});
  CHECK_THAT(out, HasValues([&](int64_t n) {
               const int64_t block = n / (kView * kView);
               return (1 - block) * 1000 + view.element(n / kView % kView, n % kView);
             }));
}

TEST_CASE("a scan takes reshaped views and refuses parts and transposed ones", "[language]") {
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  const bool of_source = GENERATE(false, true);
  CAPTURE(view.name, of_source);
  Sample s;
  const Ref base = s.buffer(GENERATE(Memory::shared, Memory::fragment), "base");
  const Ref other = s.k.shared(DType::i32, {kView, kView}, "other");
  const Ref part = view.of(base, s.zero);
  const std::string text =
      error_of([&] { s.k.scan_sum(of_source ? part : other, of_source ? other : part, Axis(0)); });
  CHECK(first_line(text) == "tessera: views: a scan does not take 'base' [SCAN]");
  CHECK(text.find("views_test.cpp:") != std::string::npos);

  Sample whole;
  const Ref line = whole.buffer(Memory::shared, "line");
  whole.k.copy(whole.x, line);
  whole.k.scan_sum(line.reshape({256}), line.reshape({256}), Axis(0));
  whole.k.copy(line, whole.y);
  int64_t sum = 0;
  std::vector<int64_t> want;
  for (int64_t i = 0; i < kBase * kBase; ++i) want.push_back(sum += input_value(i));
  check_values(whole.run(), want);
}

TEST_CASE("only whole buffers are reshaped", "[language]") {
  const View& view = views()[static_cast<size_t>(GENERATE(range(0, kViews)))];
  CAPTURE(view.name);
  Sample s;
  const Ref base = s.buffer(GENERATE(Memory::shared, Memory::fragment), "base");
  const std::string text = error_of([&] { view.of(base, s.zero).reshape({4, 16}); });
  CHECK(first_line(text) ==
        "tessera: views: only a whole fragment, shared or local buffer can be reshaped, 'base' is "
        "not [RESHAPE]");
}

TEST_CASE("a matrix product reads views of shared memory and tiles of fragments",
          "[language][slow]") {
  constexpr int64_t kSide = 64;
  struct Operand {
    const char* name;
    std::function<Ref(const Ref& base, const Value& zero)> of;  // [16, 16] of [64, 64]
    std::function<int64_t(int64_t i, int64_t j)> element;
    const char* refusal = "of a gemm is in the wrong memory [GEMM]";  // of a fragment; empty: none
  };
  static const std::vector<Operand> operands = {
      {"tile",
       [](const Ref& b, const Value&) {
         return b.tile({16, 32}, {16, 16});
       },
       [](int64_t i, int64_t j) { return (16 + i) * kSide + 32 + j; }, ""},
      {"tile at a run-time offset",
       [](const Ref& b, const Value& zero) {
         return b.tile({zero + 3, zero + 8}, {16, 16});
       },
       [](int64_t i, int64_t j) { return (3 + i) * kSide + 8 + j; },
       "of a gemm begins inside of a matrix instruction [GEMM]"},
      {"transposed tile",
       [](const Ref& b, const Value&) {
         return b.tile({16, 32}, {16, 16}).transposed();
       },
       [](int64_t i, int64_t j) { return (16 + j) * kSide + 32 + i; }},
      {"plane of a reshaped view",
       [](const Ref& b, const Value&) {
         return b.reshape({16, 16, 16})(5);
       },
       [](int64_t i, int64_t j) { return 5 * 256 + i * 16 + j; }},
  };
  const auto& operand = operands[static_cast<size_t>(GENERATE(0, 1, 2, 3))];
  const bool left = GENERATE(true, false);
  CAPTURE(operand.name, left);
  const auto kernel = [&](Memory memory, bool product) {
    Builder k("products");
    auto x = k.input("x", DType::f16, {kSide, kSide});
    auto y = k.output("y", DType::f32, {16, 16});
    const Value zero = k.launch({1}, {.threads = 32}).x;
    const Ref base = memory == Memory::shared ? k.shared(DType::f16, {kSide, kSide}, "base")
                                              : k.fragment(DType::f16, {kSide, kSide}, "base");
    const Ref plain = k.shared(DType::f16, {16, 16}, "plain");
    const Ref large = k.fragment(DType::f32, {kSide, kSide}, "large");
    const Ref sum = k.fragment(DType::f32, {16, 16}, "sum");
    k.copy(x, base);
    k.copy(x.tile({0, 0}, {16, 16}), plain);
    k.fill(sum, 0.0f);
    const Ref part = operand.of(base, zero);
    if (product) {
      k.gemm(plain, plain, operand.of(large, zero));
    } else {
      k.gemm(left ? part : plain, left ? plain : part, sum);
    }
    k.copy(sum, y);
    return k.finish();
  };
  const HostTensor in = tensor_by(DType::f16, {kSide, kSide}, [](int64_t i) { return i % 7 - 3; });
  const std::string expected = operand.refusal;
  for (const Memory memory : {Memory::shared, Memory::fragment}) {
    if (memory == Memory::fragment && !expected.empty()) continue;
    const HostTensor out(DType::f32, {16, 16});
    run_kernel(kernel(memory, false), {&in, &out});
    CHECK_THAT(out, HasValues([&](int64_t n) {
                 double sum = 0;
                 for (int64_t l = 0; l < 16; ++l) {
                   const auto value = [&](bool view, int64_t i, int64_t j) {
                     return in.value(view ? operand.element(i, j) : i * kSide + j);
                   };
                   sum += value(left, n / 16, l) * value(!left, l, n % 16);
                 }
                 return sum;
               }));
  }
  for (const bool product : {false, true}) {
    if (expected.empty()) continue;
    const std::string text = error_of([&] { kernel(Memory::fragment, product); });
    CAPTURE(text);
    CHECK(text.find(expected) != std::string::npos);
    CHECK(text.find("views_test.cpp:") != std::string::npos);
  }
}

TEST_CASE("a tile that has the extents of its fragment but a place of run time is refused",
          "[language]") {
  Builder k("moved");
  k.launch({1}, {.threads = 32});
  const Ref a = k.fragment(DType::f16, {16, 16}, "a");
  const Ref b = k.shared(DType::f16, {16, 16}, "b");
  const Ref sum = k.fragment(DType::f32, {16, 16}, "sum");
  k.serial(0, 1, [&](Value i) {
    const std::string text = error_of([&] { k.gemm(a.tile({i, 0}, {16, 16}), b, sum); });
    CHECK(text.find("the left operand of a gemm begins inside of a matrix instruction [GEMM]") !=
          std::string::npos);
  });
}
