// Tensor copies from tensors at run-time addresses, by maps that the kernel writes.

#include "codegen/cuda/emit.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kStep = 32, kSide = 64, kWords = 16;

struct Options {
  bool by_roles = true;
  bool reuses_places = false;  // one place for the maps of all groups
  bool is_before_roles = false;
  bool has_map = true;
  ir::Engine engine = ir::Engine::tensor;
};

/// out [g] = a_g [depth_g, 64] transposed * b_g [depth_g, 64], of matrices at the addresses of a table.
ir::Kernel k_grouped(const Options& o = {}) {
  Builder k("k_grouped");
  auto groups = k.dim("groups"), places = k.dim("places");
  auto a_at = k.input("a_at", DType::u64, {groups}), b_at = k.input("b_at", DType::u64, {groups});
  auto depths = k.input("depths", DType::i32, {groups});
  auto maps = k.output("maps", DType::u64, {places, kWords}, {.align = 128});
  auto out = k.output("out", DType::f32, {groups, kSide, kSide});
  k.launch({1}, {.threads = 256});
  auto ring = k.ring({.stages = 3});
  auto a_tile = ring.shared(DType::bf16, {kStep, kSide}, "a_tile");
  auto b_tile = ring.shared(DType::bf16, {kStep, kSide}, "b_tile");
  const auto matrix = [&](const Ref& table, const Value& group, int32_t which, const char* name) {
    Value depth = depths(group), place = group * 2 + which;
    if (o.reuses_places) place = dsl::i32(which);
    dsl::PointerOptions options = {.align = 16};
    if (o.has_map) options.map = maps.tile({place, 0}, {1, kWords});
    return k.tensor_at(table(group), DType::bf16, {depth, kSide}, options, name);
  };
  std::optional<Ref> outer;
  if (o.is_before_roles) outer = matrix(a_at, dsl::i32(0), 0, "outer");
  const auto steps = [&](const Value& group) {
    Value depth = depths(group);
    return ceil_div(depth, static_cast<int32_t>(kStep));
  };
  const auto load = [&] {
    k.serial(0, groups, [&](Value group) {
      const Ref a = outer ? *outer : matrix(a_at, group, 0, "a"), b = matrix(b_at, group, 1, "b");
      k.serial(0, steps(group), [&](Value step) {
        ring.fill([&] {
          auto row = step * static_cast<int32_t>(kStep);
          k.copy(a.tile({row, 0}, {kStep, kSide}), a_tile, {.engine = o.engine});
          k.copy(b.tile({row, 0}, {kStep, kSide}), b_tile, {.engine = o.engine});
        });
      });
    });
  };
  const auto multiply = [&] {
    auto sums = k.fragment(DType::f32, {kSide, kSide}, "sums");
    k.serial(0, groups, [&](Value group) {
      k.fill(sums, 0.0f);
      k.serial(0, steps(group),
               [&](Value) { ring.take([&] { k.gemm(a_tile.transposed(), b_tile, sums); }); });
      k.copy(sums, out.tile({group, 0, 0}, {1, kSide, kSide}));
    });
  };
  k.roles({{.name = "load", .warps = 4, .body = load},
           {.name = "multiply", .warps = 4, .body = multiply}});
  return k.finish();
}

/// Integers from -3 to 3, so that sums are exact.
double value_at(int64_t i, int64_t which, int64_t group) {
  return static_cast<double>((i * 7 + which * 3 + group * 5) % 7 - 3);
}

/// Groups of the depths, of which 0 has no row. Rows behind a matrix are NaN: only its map knows where it ends.
struct Call {
  std::vector<int64_t> depths = {96, 0, 33, 7};
  std::vector<HostTensor> a, b;

  Call() {
    for (size_t g = 0; g < depths.size(); ++g) {
      for (int64_t which : {0, 1}) {
        HostTensor x(DType::bf16, {depths[g] + kStep, kSide});
        for (int64_t i = 0; i < x.size(); ++i) {
          const bool is_inside = i < depths[g] * kSide;
          x.set_value(i, is_inside ? value_at(i, which, static_cast<int64_t>(g)) : NAN);
        }
        (which == 0 ? a : b).push_back(std::move(x));
      }
    }
  }
  int64_t groups() const { return static_cast<int64_t>(depths.size()); }
  double want(int64_t i) const {
    const int64_t group = i / (kSide * kSide), row = i / kSide % kSide, column = i % kSide;
    double sum = 0;
    for (int64_t d = 0; d < depths[static_cast<size_t>(group)]; ++d) {
      sum += value_at(d * kSide + row, 0, group) * value_at(d * kSide + column, 1, group);
    }
    return sum;
  }
  template <class Tensor>
  static HostTensor addresses(const std::vector<Tensor>& tensors) {
    HostTensor result(DType::u64, {static_cast<int64_t>(tensors.size())});
    for (size_t i = 0; i < tensors.size(); ++i) {
      result.set_bits(static_cast<int64_t>(i), reinterpret_cast<uintptr_t>(tensors[i].view().data));
    }
    return result;
  }
  HostTensor list() const {
    HostTensor result(DType::i32, {groups()});
    for (int64_t g = 0; g < groups(); ++g) {
      result.set_value(g, static_cast<double>(depths[static_cast<size_t>(g)]));
    }
    return result;
  }
  HostTensor run(const ir::Kernel& kernel, Target target, uint32_t schedule = 0) const {
    return run(codegen::lower(kernel, target), target, schedule);
  }
  HostTensor run(const codegen::Program& program, Target target, uint32_t schedule = 0) const {
    const HostTensor a_at = addresses(a), b_at = addresses(b), counts = list();
    HostTensor maps(DType::u64, {2 * groups(), kWords}), out(DType::f32, {groups(), kSide, kSide});
    const codegen::cpu::Argument arguments[] = {
        {.tensor = a_at.view()},   {.tensor = b_at.view()}, {.tensor = counts.view()},
        {.tensor = maps.view()},   {.tensor = out.view()},  {.integer = groups()},
        {.integer = 2 * groups()},
    };
    codegen::cpu::Executable(program).run(arguments, all_traps(target, schedule));
    CHECK(maps.damage().empty());
    return out;
  }
};

/// The program without the statements of one kind.
template <class Node>
void remove(codegen::Body& body) {
  std::erase_if(body,
                [](const codegen::Stmt& stmt) { return std::holds_alternative<Node>(stmt.node); });
  for (codegen::Stmt& stmt : body) {
    codegen::for_each_body(stmt, [](codegen::Body& inner) { remove<Node>(inner); });
  }
}
template <class Node>
codegen::Program without(codegen::Program program) {
  remove<Node>(program.body);
  return program;
}

}  // namespace

TEST_CASE(
    "matrices at the addresses of a table are multiplied by groups, one of them empty (W57)") {
  const Call call;
  const ir::Kernel kernel = k_grouped();
  CHECK(count_in<codegen::WriteMap>(kernel) == 2);
  CHECK(count_in<codegen::TensorCopy>(kernel) > 0);
  for (const uint32_t schedule : {0U, 1U, 2U, 3U}) {
    CHECK_THAT(call.run(kernel, kSm90a, schedule),
               HasValues([&](int64_t i) { return call.want(i); }));
  }
}

TEST_CASE("targets that cannot write tensor maps copy pieces, with the same result") {
  const Call call;
  const ir::Kernel kernel = k_grouped({.engine = ir::Engine::tensor});
  for (const Target target : {kSm80, kSm90, kSm120a}) {
    const bool writes = target == kSm120a;
    CHECK(count_in<codegen::WriteMap>(kernel, target) == (writes ? 2 : 0));
    CHECK((count_in<codegen::TensorCopy>(kernel, target) > 0) == writes);
    CHECK_THAT(call.run(kernel, target), HasValues([&](int64_t i) { return call.want(i); }));
  }
  CHECK(copies_of(kernel, kSm90).find("pieces: the target writes no tensor maps") !=
        std::string::npos);
  CHECK(copies_of(kernel).find("tensor copies of 32 x 64") != std::string::npos);
}

TEST_CASE("a tensor map that nothing wrote traps (W57)") {
  const Call call;
  codegen::Program program = codegen::lower(k_grouped(), kSm90a);
  const auto trap_of = [&](const codegen::Program& p) {
    return error_of([&] { call.run(p, kSm90a); });
  };
  const std::string trap = trap_of(without<codegen::WriteMap>(program));
  CHECK(trap.find("a tensor copy of 'a' by a map that nothing has written") != std::string::npos);
  CHECK(trap.find("[TENSOR_MAP]") != std::string::npos);
}

TEST_CASE("a tensor map that is written while a copy by it is on its way traps") {
  const Call call;
  const std::string text = error_of([&] { call.run(k_grouped({.reuses_places = true}), kSm90a); });
  CHECK(text.find("the map of 'a' is written while a tensor copy by the one before it is on its "
                  "way") != std::string::npos);
  CHECK(text.find("another place, or a wait for the copy") != std::string::npos);
}

TEST_CASE("a tensor copy from an address needs a map of the threads that copy") {
  const auto refusal = [](const Options& o) {
    return error_of([&] { codegen::lower(k_grouped(o), kSm90a); });
  };
  const std::string no_map = refusal({.has_map = false});
  CHECK(no_map.find("'a' cannot be copied to 'a_tile' by tensor copies") != std::string::npos);
  CHECK(no_map.find("a tensor of the call, or memory for its map") != std::string::npos);
  CHECK(refusal({.is_before_roles = true}).find("tensor_at before the roles") != std::string::npos);
  // Without a demand the copies are of pieces.
  for (const Options& o : {Options{.has_map = false, .engine = ir::Engine::automatic},
                           Options{.engine = ir::Engine::automatic}}) {
    const Call call;
    const ir::Kernel kernel = k_grouped(o);
    CHECK(count_in<codegen::WriteMap>(kernel) == 0);
    CHECK_THAT(call.run(kernel, kSm90a), HasValues([&](int64_t i) { return call.want(i); }));
  }
}

TEST_CASE("a pipelined loop copies boxes of a tensor at an address") {
  const HostTensor x = tensor_by(DType::f32, {5, 20, 24}, [](int64_t i) { return i + 1; });
  HostTensor table(DType::u64, {1});
  table.set_bits(0, reinterpret_cast<uintptr_t>(x.view().data));
  enum class By { map, pieces, rows };
  for (const By by : {By::map, By::pieces, By::rows}) {
    Builder k("boxes");
    auto at = k.input("at", DType::u64, {1});
    auto maps = k.output("maps", DType::u64, {1, kWords}, {.align = 128});
    auto y = k.output("y", DType::f32, {5, 16, 16});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::f32, {16, 16}, "tile");
    dsl::PointerOptions options = {.align = 16};
    if (by == By::map) options.map = maps.tile({0, 0}, {1, kWords});
    const Ref pointee = k.tensor_at(at(0), DType::f32, {5, 20, 24}, options, "x");
    k.pipelined(0, 5, 4, [&](Value i) {
      const Ref box = pointee.tile({i, 4, 8}, {1, 16, 16});
      const ir::Engine engine = by == By::map ? ir::Engine::tensor : ir::Engine::automatic;
      k.copy(by == By::rows ? box.bulk() : box, tile, {.engine = engine});
      k.copy(tile, y.tile({i, 0, 0}, {1, 16, 16}));
    });
    const ir::Kernel kernel = k.finish();
    CHECK((count_in<codegen::TensorCopy>(kernel) > 0) == (by == By::map));
    CHECK((count_in<codegen::BulkCopy>(kernel) > 0) == (by == By::rows));
    for (const Target target : {kSm90a, kSm80}) {
      HostTensor places(DType::u64, {1, kWords}), out(DType::f32, {5, 16, 16});
      run_lowered(kernel,
                  {{.tensor = table.view()}, {.tensor = places.view()}, {.tensor = out.view()}},
                  target);
      CHECK_THAT(out, HasValues([](int64_t i) {
                   const int64_t row = 4 + i / 16 % 16, column = 8 + i % 16;
                   return (i / 256 * 20 + row) * 24 + column + 1;
                 }));
    }
  }
}

TEST_CASE("one place holds one tensor map") {
  Builder k("two_maps");
  auto at = k.input("at", DType::u64, {1});
  auto maps = k.output("maps", DType::u64, {1, kWords}, {.align = 128});
  auto y = k.output("y", DType::f32, {4, 16, 16});
  k.launch({1}, {.threads = 64});
  auto low = k.shared(DType::f32, {8, 16}, "low"), high = k.shared(DType::f32, {16, 16}, "high");
  const Ref x = k.tensor_at(at(0), DType::f32, {64, 16},
                            {.align = 16, .map = maps.tile({0, 0}, {1, kWords})}, "x");
  k.pipelined(0, 4, 3, [&](Value i) {
    k.copy(x.tile({i * 8, 0}, {8, 16}), low, {.engine = ir::Engine::tensor});
    k.copy(x.tile({i * 16, 0}, {16, 16}), high, {.engine = ir::Engine::tensor});
    k.copy(low, y.tile({i, 0, 0}, {1, 8, 16}));
    k.copy(high, y.tile({i, 0, 0}, {1, 16, 16}));
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { codegen::lower(kernel, kSm90a); });
  CAPTURE(text);
  CHECK(text.find("the place of the map of 'x' holds one map") != std::string::npos);
  CHECK(text.find("begin it twice, with a place for each map") != std::string::npos);
  CHECK(text.find("[COPY_ENGINE]") != std::string::npos);
}

TEST_CASE("the memory of a tensor map is a row of an output") {
  Builder k("places");
  auto rows = k.dim("rows");
  auto table = k.input("table", DType::u64, {rows});
  auto maps = k.output("maps", DType::u64, {rows, kWords}, {.align = 128});
  auto wide = k.output("wide", DType::u64, {rows, 32}, {.align = 128});
  auto loose = k.output("loose", DType::u64, {rows, kWords}, {.align = 16});
  auto words = k.output("words", DType::u32, {rows, kWords}, {.align = 128});
  auto given = k.input("given", DType::u64, {rows, kWords}, {.align = 128});
  k.launch({1}, {.threads = 32});
  const auto begin = [&](const Ref& map) {
    k.tensor_at(table(0), DType::bf16, {64, 64}, {.align = 16, .map = map}, "x");
  };
  for (const dsl::Ref& wrong : std::initializer_list<dsl::Ref>{
           maps, maps.tile({0, 0}, {2, kWords}), maps.tile({0, 0}, {1, 8}),
           wide.tile({0, 0}, {1, kWords}), loose.tile({0, 0}, {1, kWords}),
           words.tile({0, 0}, {1, kWords}), given.tile({0, 0}, {1, kWords})}) {
    const std::string text = error_of([&] { begin(wrong); });
    CAPTURE(text);
    CHECK(text.find("the map of 'x' has no place in '") != std::string::npos);
    CHECK(text.find("a row of an output u64 [rows, 16] with align 128") != std::string::npos);
    CHECK(text.find("[MAP_PLACE]") != std::string::npos);
  }
  begin(maps.tile({rows - 1, 0}, {1, kWords}));
}

TEST_CASE("kernels that write tensor maps compile without warnings") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    CAPTURE(target);
    const std::string text =
        codegen::cuda::emit(codegen::lower(k_grouped(), parse_target(target).value())).text;
    const bool writes = target.back() == 'a';
    CHECK((text.find("begin_map(") != std::string::npos) == writes);
    const Compiled compiled = nvrtc->compile(text, target);
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
  }
}

TEST_CASE("a GPU multiplies the matrices at the addresses of a table (W57)") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const Call call;
  const Device device = Device::cuda(0);
  std::vector<DeviceTensor> a, b;
  for (const HostTensor& x : call.a) a.emplace_back(x, device);
  for (const HostTensor& x : call.b) b.emplace_back(x, device);
  const DeviceTensor a_at(Call::addresses(a), device), b_at(Call::addresses(b), device);
  const DeviceTensor depths(call.list(), device);
  const DeviceTensor maps(HostTensor(DType::u64, {2 * call.groups(), kWords}), device);
  HostTensor result(DType::f32, {call.groups(), kSide, kSide});
  const DeviceTensor out(result, device);
  const TensorView views[] = {a_at.view(), b_at.view(), depths.view(), maps.view(), out.view()};
  for (int round = 0; round < 3; ++round) kernels::jit::run(k_grouped(), views, {}, nullptr);
  out.download(result);
  CHECK_THAT(result, HasValues([&](int64_t i) { return call.want(i); }));
}
