// Marks: which events each warp notes, that they change nothing when nobody asks, and what is refused.

#include <set>
#include <stdexcept>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/nvrtc.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using codegen::cpu::WarpMarks;
using dsl::Builder;
using dsl::PipelineOptions;
using dsl::Value;
using test::error_of;
using test::HostTensor;
using test::kSm80;
using test::kSm90a;

constexpr auto kF32 = DType::f32;
constexpr int kSteps = 4;

/// k.mark, or its body alone.
struct Marker {
  Builder& k;
  bool on = true;

  void operator()(const char* name, const std::function<void()>& body,
                  SourceLoc loc = SourceLoc::here()) const {
    if (on) {
      k.mark(name, body, loc);
    } else {
      body();
    }
  }
};

/// y = the sum of four tiles of x, by one warp of the launch.
ir::Kernel pipelined_sum(PipelineOptions options, bool has_marks = true) {
  Builder k("pipelined_sum");
  auto x = k.input("x", kF32, {4, 16 * kSteps});
  auto y = k.output("y", kF32, {4, 16});
  k.launch({1}, {.threads = 32});
  const Marker mark{k, has_marks};
  auto tile = k.shared(kF32, {4, 16}, "tile");
  auto sum = k.fragment(kF32, {4, 16}, "sum");
  mark("sum", [&] {
    mark("fill", [&] { k.fill(sum, 0.0f); });
    k.pipelined(0, kSteps, options, [&](Value step) {
      mark("load", [&] { k.copy(x.tile({0, step * 16}, {4, 16}), tile); });
      mark("add", [&] { k.parallel({4, 16}, [&](Value r, Value c) { sum(r, c) += tile(r, c); }); });
    });
  });
  mark("store", [&] { k.copy(sum, y); });
  return k.finish();
}

/// The same by two roles: a warp that loads and two that add.
ir::Kernel sum_by_roles(bool has_marks = true) {
  Builder k("sum_by_roles");
  auto x = k.input("x", kF32, {4, 16 * kSteps});
  auto y = k.output("y", kF32, {4, 16});
  k.launch({1}, {.threads = 96});
  const Marker mark{k, has_marks};
  auto ring = k.ring({.stages = 2});
  auto tile = ring.shared(kF32, {4, 16});
  auto load = [&] {
    k.serial(0, kSteps, [&](Value step) {
      ring.fill([&] { mark("load", [&] { k.copy(x.tile({0, step * 16}, {4, 16}), tile); }); });
    });
  };
  auto add = [&] {
    auto sum = k.fragment(kF32, {4, 16}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, kSteps, [&](Value) {
      ring.take([&] {
        mark("add", [&] {
          k.parallel({4, 16}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
        });
      });
    });
    mark("store", [&] { k.copy(sum, y); });
  };
  k.roles({{.name = "load", .warps = 1, .body = load}, {.name = "add", .warps = 2, .body = add}});
  return k.finish();
}

/// c = a * b^T by a pipelined loop, whose products the compiler awaits later than the loop that starts them.
ir::Kernel marked_product(PipelineOptions options, bool has_marks = true) {
  Builder k("marked_product");
  auto a = k.input("a", DType::bf16, {128, 64 * kSteps}),
       b = k.input("b", DType::bf16, {64, 64 * kSteps});
  auto c = k.output("c", kF32, {128, 64});
  k.launch({1}, {.threads = 128});
  const Marker mark{k, has_marks};
  auto a_tile = k.shared(DType::bf16, {128, 64}, "a_tile"),
       b_tile = k.shared(DType::bf16, {64, 64}, "b_tile");
  auto sum = k.fragment(kF32, {128, 64}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, kSteps, options, [&](Value s) {
    mark("load", [&] {
      k.copy(a.tile({0, s * 64}, {128, 64}), a_tile);
      k.copy(b.tile({0, s * 64}, {64, 64}), b_tile);
    });
    mark("multiply", [&] { k.gemm(a_tile, b_tile.transposed(), sum); });
  });
  mark("store", [&] { k.copy(sum, c); });
  return k.finish();
}

/// Two sums by one block, which issues the first copies of the second one behind the first one's loop.
ir::Kernel sums_across() {
  Builder k("sums_across");
  auto x = k.input("x", kF32, {8, 16 * kSteps});
  auto y = k.output("y", kF32, {8, 16});
  k.launch({1}, {.threads = 32});
  auto tile = k.shared(kF32, {4, 16}, "tile");
  k.persistent({2}, [&](Value row) {
    auto sum = k.fragment(kF32, {4, 16}, "sum");
    k.fill(sum, 0.0f);
    k.pipelined(0, kSteps, {.stages = 3, .across = true}, [&](Value step) {
      k.mark("load", [&] { k.copy(x.tile({row * 4, step * 16}, {4, 16}), tile); });
      k.mark("add", [&] {
        k.parallel({4, 16}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
      });
    });
    k.mark("store", [&] { k.copy(sum, y.tile({row * 4, 0}, {4, 16})); });
  });
  return k.finish();
}

struct Noted {
  std::vector<WarpMarks> warps;
  std::vector<std::string> names;

  /// "sum(fill load) store": the marks of a warp, those inside others in brackets.
  std::string text(size_t warp) const {
    std::string result;
    for (const WarpMarks::Mark& mark : warps.at(warp).marks) {
      if (mark.event % 2 != 0) {
        result += ")";
        continue;
      }
      if (!result.empty() && result.back() != '(') result += " ";
      result += names.at(static_cast<size_t>(mark.event / 2)) + "(";
    }
    for (size_t at; (at = result.find("()")) != std::string::npos;) result.erase(at, 2);
    return result;
  }
};

Noted run(ir::Kernel kernel, Target target, uint32_t schedule = 0) {
  kernel.marked_block = 0;
  const codegen::cpu::Executable executable(codegen::lower(kernel, target));
  std::vector<HostTensor> tensors;
  std::vector<codegen::cpu::Argument> arguments;
  for (const ir::BufferRef& tensor : kernel.tensors) {
    Dims shape;
    for (const ir::Expr& extent : tensor->shape) shape.push_back(extent->integer);
    tensors.push_back(test::iota(tensor->dtype, shape));
    arguments.push_back({.tensor = tensors.back().view()});
  }
  Noted noted;
  codegen::cpu::Options options = test::all_traps(target, schedule);
  options.marks = &noted.warps;
  executable.run(arguments, options);
  noted.names = executable.program().marks;
  for (const WarpMarks& warp : noted.warps) {
    CHECK(std::is_sorted(warp.marks.begin(), warp.marks.end(),
                         [](const auto& a, const auto& b) { return a.step < b.step; }));
  }
  return noted;
}

const PipelineOptions kAhead{.stages = 3}, kInPlace{.stages = 2, .in_place = true},
    kProducer{.stages = 2, .producer = true};

}  // namespace

TEST_CASE("a warp notes its marks in the order of its program", "[language][marks]") {
  for (const Target target : {kSm80, kSm90a}) {
    CAPTURE(to_string(target));
    // Copies take their marks along; the first ones are issued before the loop.
    CHECK(run(pipelined_sum(kAhead), target).text(0) ==
          "sum(fill load load load add load add add add) store");
    CHECK(run(pipelined_sum(kInPlace), target).text(0) ==
          "sum(fill load load add load add load add add) store");
    CHECK(run(pipelined_sum({.stages = 1}), target).text(0) ==
          "sum(fill load add load add load add load add) store");
    CHECK(run(sums_across(), target).text(0) ==
          "load load load add load add add add load load store "
          "load add load add add add store");
    const Noted product = run(marked_product(kAhead), target);
    CHECK(product.text(0) == product.text(3));
    CHECK(product.text(0) ==
          (target == kSm80 ? "load load load multiply load multiply multiply multiply store"
                           : "load multiply load multiply load multiply load multiply store"));
  }
}

TEST_CASE("each role notes its own marks and its waits for stages of rings", "[language][marks]") {
  for (const Target target : {kSm80, kSm90a}) {
    CAPTURE(to_string(target));
    const Noted roles = run(sum_by_roles(), target);
    CHECK(roles.text(0) == "wait load wait load wait load wait load");
    CHECK(roles.text(1) == "wait add wait add wait add wait add store");
    CHECK(roles.text(2) == roles.text(1));
    const Noted producer = run(pipelined_sum(kProducer), target);
    CHECK(producer.text(0) == "sum(fill wait add wait add wait add wait add) store");
    CHECK(producer.text(1) == "wait load wait load wait load wait load");
    const Noted product = run(marked_product(kProducer), target);
    CHECK(product.text(0) == "wait multiply wait multiply wait multiply wait multiply store");
    CHECK(product.text(4) == "wait load wait load wait load wait load");
  }
}

TEST_CASE("steps of a warp do not depend on the order in which roles take turns",
          "[language][marks]") {
  const auto steps = [](const Noted& noted) {
    std::vector<int64_t> all;
    for (const WarpMarks& warp : noted.warps) {
      for (const WarpMarks::Mark& mark : warp.marks) all.push_back(mark.step);
    }
    return all;
  };
  for (const ir::Kernel& kernel : {sum_by_roles(), marked_product(kProducer)}) {
    const std::vector<int64_t> first = steps(run(kernel, kSm90a));
    CHECK(std::set<int64_t>(first.begin(), first.end()).size() > 8);
    for (const uint32_t schedule : {1u, 2u, 3u})
      CHECK(steps(run(kernel, kSm90a, schedule)) == first);
  }
  // The warp that loads is two stages ahead, then waits until one is free.
  const Noted product = run(marked_product(kProducer), kSm90a);
  const auto& load = product.warps[4].marks;
  CHECK(load[1].step - load[0].step == 1);
  CHECK(load[9].step - load[8].step > 5);
}

TEST_CASE("warps go on at the step of the last one to come", "[language][marks]") {
  const auto waits = [](bool of_cluster) {
    Builder k("meeting");
    auto y = k.output("y", DType::i32, {2, 64, 20});
    auto at = k.launch({2}, {.threads = 64, .cluster = of_cluster ? 2 : 1});
    const Value is_late = of_cluster ? at.x == 1 : k.warp() == 1;
    k.if_(is_late, [&] { k.serial(0, 20, [&](Value i) { y(at.x, k.thread(), i) = i; }); });
    k.mark("meet", [&] { of_cluster ? k.sync_cluster() : k.sync(); });
    return run(k.finish(), kSm90a).warps;
  };
  for (const bool of_cluster : {false, true}) {
    const std::vector<WarpMarks> warps = waits(of_cluster);
    CAPTURE(of_cluster);
    CHECK(warps[0].marks[0].step == 0);
    CHECK(warps[0].marks[1].step >= 20);
    CHECK(warps[0].marks[1].step == warps[1].marks[1].step);
    CHECK(warps[1].marks[0].step == (of_cluster ? 0 : 20));
  }
}

TEST_CASE("marks that nobody asks for change nothing", "[language][marks]") {
  for (const Target target : {kSm80, kSm90a}) {
    for (const auto& build : std::vector<std::function<ir::Kernel(bool)>>{
             [](bool on) { return pipelined_sum(kAhead, on); },
             [](bool on) { return pipelined_sum(kProducer, on); },
             [](bool on) { return sum_by_roles(on); },
             [](bool on) { return marked_product(kAhead, on); },
             [](bool on) { return marked_product(kProducer, on); }}) {
      const codegen::Program with = codegen::lower(build(true), target);
      const codegen::Program without = codegen::lower(build(false), target);
      CHECK(codegen::to_string(with) == codegen::to_string(without));
      CHECK(codegen::cuda::emit(with).text == codegen::cuda::emit(without).text);
    }
  }
}

TEST_CASE("marks leave the waits for products where they are", "[language][marks]") {
  const auto waits = [](ir::Kernel kernel) {
    std::string text = codegen::to_string(codegen::lower(kernel));
    std::string result;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string line = text.substr(at, end - at);
      if (line.find("mark begin") == std::string::npos &&
          line.find("mark end") == std::string::npos) {
        result += line + "\n";
      }
    }
    return result;
  };
  for (const PipelineOptions& options : {kAhead, kProducer}) {
    ir::Kernel kernel = marked_product(options);
    const std::string without = waits(kernel);
    kernel.marked_block = 0;
    CHECK(waits(kernel) == without);
  }
}

TEST_CASE("a kernel with marks compiles for every target", "[language][marks]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  for (ir::Kernel kernel : {sum_by_roles(), marked_product(kProducer)}) {
    kernel.marked_block = 0;
    for (const std::string& target : test::kTargets) {
      if (!nvrtc->supports(target)) continue;
      const std::string text =
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
      CHECK(text.find("u64* next_mark = marks_of_warp(0);") != std::string::npos);
      CHECK(text.find("note_mark(next_mark, 1);") != std::string::npos);
      const test::Compiled compiled = nvrtc->compile(text, target);
      CAPTURE(kernel.name, target, compiled.log);
      CHECK(compiled.ok);
      CHECK(compiled.log.empty());
    }
  }
}

TEST_CASE("a warp notes 1023 begins and ends, and counts the others", "[language][marks]") {
  Builder k("many");
  auto y = k.output("y", DType::i32, {64});
  k.launch({2}, {.threads = 64});
  k.serial(0, 600, [&](Value) { k.mark("round", [&] {}); });
  k.if_(k.warp() == 1, [&] { k.mark("late", [&] { y(k.thread()) = 1; }); });
  ir::Kernel kernel = k.finish();
  kernel.marked_block = 1;
  const HostTensor y_there(DType::i32, {64});
  const codegen::cpu::Argument arguments[] = {{.tensor = y_there.view()}};
  std::vector<WarpMarks> marks;
  codegen::cpu::Options options;
  options.marks = &marks;
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, options);
  REQUIRE(marks.size() == 2);
  CHECK(marks[0].marks.size() == WarpMarks::kMost);
  CHECK(marks[0].dropped == 1200 - 1023);
  CHECK(marks[1].dropped == 1202 - 1023);
  kernel.marked_block = 2;  // there is none
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, options);
  CHECK(marks[0].marks.empty());
}

TEST_CASE("a mark that does not end, or stands where warps are not together, is refused",
          "[language][marks]") {
  const auto refused = [](const std::function<void(Builder&, dsl::Ref)>& body) {
    return error_of([&] {
      Builder k("sample");
      auto y = k.output("y", kF32, {64});
      k.launch({1}, {.threads = 64});
      body(k, y);
      k.finish();
    });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text, part);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refused([](Builder& k, dsl::Ref) {
        CHECK_THROWS(k.mark("lost", [] { throw std::runtime_error("of the author"); }));
      }),
      "tessera: sample: mark \"lost\" begins and does not end [MARK]\n");
  has(refused([](Builder& k, dsl::Ref) {
        k.serial(0, 4, [&](Value i) { k.mark("half", [&] { k.break_if(i == 2); }); });
      }),
      "tessera: sample: mark \"half\" begins and does not end [MARK]\n");
  has(refused([](Builder& k, dsl::Ref) { k.mark("half", [&] { k.return_if(k.thread() > 3); }); }),
      "  expected  a body that stays in the kernel\n  got       k.return_if in it\n");
  has(refused([](Builder& k, dsl::Ref y) {
        k.parallel({64}, [&](Value i) { k.mark("one", [&] { y(i) = 1.0f; }); });
      }),
      "mark \"one\" in a parallel loop [MARK]\n");
  has(refused([](Builder& k, dsl::Ref) { k.mark("", [&] {}); }), "a mark without a name [MARK]\n");
  has(refused([](Builder& k, dsl::Ref) {
        for (int i = 0; i <= 100; ++i) k.mark("m" + std::to_string(i), [&] {});
      }),
      "a kernel has too many marks [MARK]\n");
  has(refused([](Builder& k, dsl::Ref) { k.mark("all", [&] {}); }), "[NO_EFFECT]");
  // A loop that ends early may stand in a mark.
  CHECK(refused([](Builder& k, dsl::Ref y) {
          k.mark("search", [&] { k.serial(0, 4, [&](Value i) { k.break_if(i == 2); }); });
          y(k.thread()) = 1.0f;
        }).empty());
}

}  // namespace tessera
