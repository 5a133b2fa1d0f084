// Exported C makes the launches that Tessera makes, on a driver made of plain functions: kernel, grid, block, shared
// memory, attributes and every byte of every parameter. The library that the C opens is made here; it hands out the
// functions of FakeCuda.

#include "tools/lib/c_export/c_export.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "dsl/builder.h"
#include "kernels/jit/dry_launch.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/buckets.h"
#include "kernels/signature/table.h"
#include "kernels/views/dry_call.h"
#include "tests/kernels/on_fakes.h"
#include "tests/support/catch.h"
#include "tests/support/ops/exported_c.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/calls/kernel_op.h"

namespace tessera::tests {
namespace {

using kernels::OpInfo;

constexpr runtime::Target kSm90a{9, 0, 'a'};
void* const kStream = reinterpret_cast<void*>(uintptr_t{0x1230});

using test::CTensorArgument;
using Replacement = test::ExportedC::Replacement;

/// The library that exported C opens in place of libcuda.so.1. It hands out the functions of FakeCuda.
class FakeLibrary {
 public:
  explicit FakeLibrary(const test::FakeCuda& fake) : path_(folder_.path("libcuda.so.1")) {
    const std::string source = folder_.path("driver.c");
    write_text(source,
               "#include <stdint.h>\n"
               "int (*real)(const char *, void **, int, uint64_t, int *);\n"
               "int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);\n"
               "int cuGetProcAddress_v2(const char *name, void **function, int version,\n"
               "                        uint64_t flags, int *status) {\n"
               "  return real(name, function, version, flags, status);\n}\n");
    library_ = test::compile_c(source, path_, folder_.path(""));
    const runtime::LibraryLoader loader = fake.loader();
    std::string error;
    void* const get = loader.symbol(loader.open("libcuda.so.1", error), "cuGetProcAddress_v2");
    std::memcpy(dlsym(library_, "real"), &get, sizeof(get));
  }
  ~FakeLibrary() { dlclose(library_); }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;

  Replacement opened() const { return {"\"libcuda.so.1\"", "\"" + path_ + "\""}; }

 private:
  const TemporaryFolder folder_;
  const std::string path_;
  void* library_ = nullptr;
};

/// An exported call on a fake driver.
class Exported {
 public:
  Exported(const OpInfo& op, const tools::CExportOptions& options, const test::FakeCuda& fake,
           const std::string& scalars = "", std::vector<Replacement> mistakes = {})
      : library_(fake), call_(export_c(op, options), scalars, with(std::move(mistakes))) {}

  std::string operator()(const std::vector<CTensorArgument>& tensors, void* workspace = nullptr,
                         size_t bytes = 0, void* stream = kStream) const {
    return call_(tensors, workspace, bytes, stream);
  }
  template <class Function>
  Function symbol(const char* name) const {
    return reinterpret_cast<Function>(call_.symbol(name));
  }

 private:
  std::vector<Replacement> with(std::vector<Replacement> replacements) const {
    replacements.push_back(library_.opened());
    return replacements;
  }

  const FakeLibrary library_;
  const test::ExportedC call_;
};

/// The tensors of a case, without memory; the workspace lies at the largest address.
kernels::Tensors tensors_of(const OpInfo& op, const kernels::BenchCase& one) {
  return kernels::placed_nowhere(
      kernels::views_with_outputs(op, kernels::views_of(one), one.params), Device::cuda(0));
}

/// Launches as the driver saw them, as texts.
class Seen {
 public:
  Seen(test::FakeState& state, const std::vector<kernels::jit::DryLaunch>& expected,
       runtime::Target target)
      : state_(state) {
    state.on_launch = [this, &expected, target](const runtime::cu::LaunchConfig& config,
                                                void** arguments) {
      const auto image = runtime::Runtime::instance().image(
          expected.at(all_.size() % expected.size()).request, target);
      const std::string code(static_cast<const char*>(state_.launched), image->cubin.size());
      std::string text =
          fmt::format("{} grid ({}, {}, {}) block ({}, {}, {}) shared {} stream {}",
                      code == image->cubin ? image->entry : "another kernel", config.grid_x,
                      config.grid_y, config.grid_z, config.block_x, config.block_y, config.block_z,
                      config.shared_bytes, fmt::ptr(config.stream));
      for (unsigned i = 0; i < config.num_attributes; ++i) {
        const auto& attribute = config.attributes[i];
        text += fmt::format(" attribute {}: {:02x}", attribute.id,
                            fmt::join(attribute.value, attribute.value + 12, ""));
      }
      for (size_t p = 0; p < image->params.size(); ++p) {
        const KernelParam& param = image->params[p];
        const size_t size = param.map          ? 128
                            : param.is_pointer ? sizeof(void*)
                                               : static_cast<size_t>(bytes(param.dtype));
        const auto* value = static_cast<const uint8_t*>(arguments[p]);
        text += fmt::format(" {}={:02x}", param.name, fmt::join(value, value + size, ""));
      }
      all_.push_back(text);
    };
  }
  ~Seen() { state_.on_launch = nullptr; }

  /// Returns launches and tensor maps since the last call.
  std::vector<std::string> take() {
    std::vector<std::string> taken = std::exchange(all_, {});
    taken.insert(taken.end(), state_.tensor_maps.begin(), state_.tensor_maps.end());
    state_.tensor_maps.clear();
    return taken;
  }

 private:
  test::FakeState& state_;
  std::vector<std::string> all_;
};

struct Both {
  std::vector<std::string> got, wanted;  // of the exported call, of Tessera's
};

/// Makes both calls with the tensors of `called`, an own case or that of the export, on a device of `target`.
Both launches_of_both(const OpInfo& op, const tools::CExportOptions& options,
                      const kernels::BenchCase& called, const std::string& scalars = "",
                      const std::vector<Replacement>& mistakes = {},
                      runtime::Target target = kSm90a) {
  OnFakes on(runtime::Options{});
  on.fake.state().major = target.major;
  const Exported exported(op, options, on.fake, scalars, mistakes);
  const kernels::Tensors tensors = tensors_of(op, called);
  const kernels::Params params = kernels::check_params(op, called.params);
  const kernels::jit::TargetScope scope(target);
  const auto launches = kernels::jit::launches_needed([&] { op.run(tensors, params, kStream); });
  REQUIRE_FALSE(launches.empty());
  Seen seen(on.fake.state(), launches, target);
  op.run(tensors, params, kStream);
  Both both;
  both.wanted = seen.take();
  CHECK(both.wanted.size() >= launches.size());
  const auto workspace = tensors.find("workspace");
  void* const scratch = workspace == tensors.end() ? reinterpret_cast<void*>(uintptr_t{1} << 50)
                                                   : workspace->second.data;
  CHECK(exported(test::c_arguments(op, tensors), scratch, size_t{1} << 40) == "");
  both.got = seen.take();
  // The table of prepared kernels outlives the fakes, and its kernels call their driver.
  [[maybe_unused]] const runtime::Driver* const kept = on.process.driver.release();
  return both;
}

void compare(const OpInfo& op, const tools::CExportOptions& options,
             const kernels::BenchCase& called, const std::string& scalars = "") {
  const Both both = launches_of_both(op, options, called, scalars);
  CHECK(both.got == both.wanted);
}

tools::CExportOptions options_for(const std::string& case_of = "", const std::string& free = "") {
  tools::CExportOptions options;
  options.case_of = case_of;
  options.free_extent = free;
  options.targets = {kSm90a};
  return options;
}

std::string error_of(const std::function<void()>& action) {
  return test::error_of(action);
}

/// y[rows, :] = x[rows, :] * scale (+ bias), in place of a part of a row; rows are pitch apart.
ir::Kernel strided_kernel() {
  dsl::Builder k("c_strided");
  auto rows = k.dim("rows", {.multiple_of = 2});
  auto pitch = k.stride("pitch", {.multiple_of = 4});
  auto x = k.input("x", DType::f32, {rows, 8}, {.strides = {pitch, 1}});
  auto bias = k.input("bias", DType::f32, {8}, {.optional = true});
  auto y = k.output("y", DType::f32, {rows * 2, 8});
  auto scale = k.scalar("scale", DType::f32);
  auto shift = k.scalar("shift", DType::i32);
  auto at = k.launch({ceil_div(rows, 2), 2}, {.threads = 32});
  k.parallel({8}, [&](auto c) { y(at.x * 2 + at.y, c) = x(at.x, c) * scale + f32(shift); });
  k.if_present(bias, [&] { k.parallel({8}, [&](auto c) { y(at.x, c) = bias(c); }); });
  return k.finish();
}

ir::Kernel meeting_kernel() {
  dsl::Builder k("c_meeting");
  auto n = k.dim("n");
  auto x = k.output("x", DType::i32, {n});
  k.launch({ceil_div(n, 64)}, {.threads = 64});
  k.parallel({1}, [&](auto i) { x(i) = 1; });
  k.sync_grid();
  k.persistent({ceil_div(n, 64)},
               [&](dsl::Value tile) { k.parallel({1}, [&](auto i) { x(tile + i) = 2; }); });
  return k.finish();
}

/// given = box by tensor copies; each name is one that the generated C could want.
ir::Kernel borrowing_kernel() {
  dsl::Builder k("c_borrowing");
  auto shape = k.dim("shape");
  auto depth = k.dim("strides", {.multiple_of = 64});
  auto box = k.input("box", DType::bf16, {shape, depth});
  auto views = k.input("barrier", DType::bf16, {shape, depth});
  auto given = k.output("given", DType::bf16, {shape, depth});
  auto at = k.launch({ceil_div(shape, 64), ceil_div(depth, 64)}, {.threads = 128});
  auto tile = k.shared(DType::bf16, {64, 64}, "tile");
  for (const auto& from : {box, views}) {
    k.copy(from.tile({at.x * 64, at.y * 64}, {64, 64}), tile);
    k.copy(tile, given.tile({at.x * 64, at.y * 64}, {64, 64}), {.engine = ir::Engine::tensor});
  }
  return k.finish();
}

ir::Kernel borrowing_meeting_kernel() {
  dsl::Builder k("c_borrowing_meeting");
  auto n = k.dim("shape");
  auto x = k.output("barrier", DType::i32, {n});
  k.launch({ceil_div(n, 64)}, {.threads = 64});
  k.parallel({1}, [&](auto i) { x(i) = 1; });
  k.sync_grid();
  k.parallel({1}, [&](auto i) { x(i) = 2; });
  return k.finish();
}

/// The last extent is a product that may leave 64 bits.
ir::Kernel product_kernel() {
  dsl::Builder k("c_product");
  auto n = k.dim("n");
  auto m = k.dim("m");
  auto a = k.input("a", DType::u8, {n});
  auto y = k.output("y", DType::u8, {m});
  auto x = k.input("x", DType::u8, {n * m * 16});
  auto at = k.launch({ceil_div(m, 1024)}, {.threads = 32});
  k.parallel({1}, [&](auto i) { y(at.x + i) = a(at.x + i) + x(at.x + i); });
  return k.finish();
}

}  // namespace

TEST_CASE("exported C makes the launches of an op", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  // One of each kind: elements, tensor maps, a cluster, early begin, a chain, several targets of pointers.
  const std::string name =
      GENERATE("transpose", "per_block_cast", "gemm_bf16", "gemm_fp8_grouped", "topk_select",
               "norm_fn_fwd", "engram_fwd", "mhc_pre_bwd", "moe_plan");
  CAPTURE(name);
  const OpInfo& op = kernels::find_op(name);
  compare(op, options_for(), op.examples.at(0));
}

TEST_CASE("a mistake in exported C is seen in its launches", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  const Replacement mistake =
      GENERATE(Replacement{"config.block_x = kernel->threads", "config.block_x = 32"},
               Replacement{"config.shared_bytes = kernel->shared_bytes", "config.shared_bytes = 0"},
               Replacement{"swizzle, 3, 0)", "swizzle + 1, 3, 0)"},
               Replacement{"extents[i] = (uint64_t)extent", "extents[i] = 1"},
               Replacement{"&m, &n,", "&n, &m,"},
               Replacement{"ts_pointer(&call->views[1], 0)", "ts_pointer(&call->views[0], 0)"});
  CAPTURE(mistake.from);
  const OpInfo& op = kernels::find_op("gemm_bf16");
  const Both both = launches_of_both(op, options_for(), op.examples.at(0), "", {mistake});
  CHECK(both.got != both.wanted);
}

TEST_CASE("exported C takes the kernel of the device's target", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  // The table of prepared kernels outlives the fakes: a kernel of its own per device.
  const bool is_old = GENERATE(false, true);
  const runtime::Target target = is_old ? runtime::Target{8, 0, 0} : kSm90a;
  const OpInfo op = tools::op_of(is_old ? "c_on_80" : "c_on_90", strided_kernel(),
                                 {"rows=4 pitch=8 scale=0.5 shift=1"});
  tools::CExportOptions options = options_for();
  options.targets = {{8, 0, 0}, kSm90a};
  const Both both = launches_of_both(op, options, op.examples.at(0), "0.5f, 1", {}, target);
  CHECK(both.got == both.wanted);
}

TEST_CASE("exported C makes the launches of every op", "[.][c-export-all]") {
  for (const OpInfo& op : kernels::ops()) {
    if (op.trim) continue;
    CAPTURE(op.name);
    compare(op, options_for(), op.examples.at(0));
  }
}

TEST_CASE("exported C takes any number of tokens of every op that can have it free",
          "[.][c-export-all]") {
  int num_free = 0;
  for (const kernels::Op* one : kernels::all_ops()) {
    const OpInfo& op = kernels::find_op(std::string(one->name));
    const std::string text = op.examples.at(0).label;
    CAPTURE(op.name, text);
    const auto bucket = [&] {
      try {
        OnFakes on(runtime::Options{});
        export_c(op, options_for("", "T"));
        return kernels::bucket_of(kernels::parsed(*one), text, "T");
      } catch (const Error&) {
        return std::optional<kernels::TokenBucket>();
      }
    }();
    if (!bucket) continue;
    ++num_free;
    for (const int64_t tokens : {bucket->first, std::min<int64_t>(bucket->last, 777)}) {
      CAPTURE(tokens);
      compare(op, options_for("", "T"), op.case_of(kernels::case_with(text, "T", tokens)));
    }
  }
  CHECK(num_free > 40);
}

TEST_CASE("exported C takes any number of tokens of a free extent", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  const auto [name, text, other] = GENERATE(table<std::string, std::string, std::string>(
      {{"per_token_cast", "T=37 H=256 x=bf16 format=e4m3 num_per_channels=128",
        "T=4099 H=256 x=bf16 format=e4m3 num_per_channels=128"},
       {"norm_fn_fwd", "T=13 n=4 H=1280", "T=77 n=4 H=1280"},
       {"topk_gate", "T=5 E=64 num_topk=4", "T=1000 E=64 num_topk=4"}}));
  CAPTURE(name);
  const OpInfo& op = kernels::find_op(name);
  compare(op, options_for(text, "T"), op.case_of(other));
}

TEST_CASE("exported C of an own kernel takes any extents", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  SECTION("strides, scalars, an optional tensor") {
    const OpInfo op =
        tools::op_of("c_strided", strided_kernel(), {"rows=4 pitch=8 scale=0.5 shift=1"});
    const std::string present = GENERATE("", " bias=none");
    compare(op, options_for(), op.case_of("rows=30 pitch=12 scale=2.5 shift=-7" + present),
            "2.5f, -7");
  }
  SECTION("a barrier of the grid") {
    const OpInfo op = tools::op_of("c_meeting", meeting_kernel(), {"n=64"});
    compare(op, options_for(), op.case_of("n=250"));
  }
}

TEST_CASE("exported C passes the wrong tensor where a kernel has the names of its locals",
          "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  SECTION("tensor maps") {
    const OpInfo op = tools::op_of("c_borrowing", borrowing_kernel(), {"shape=64 strides=64"});
    compare(op, options_for(), op.case_of("shape=200 strides=192"));
  }
  SECTION("a barrier") {
    const OpInfo op = tools::op_of("c_borrowing_meeting", borrowing_meeting_kernel(), {"shape=64"});
    compare(op, options_for(), op.case_of("shape=250"));
  }
}

TEST_CASE("exported C launches though an extent overflows", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  OnFakes on(runtime::Options{});
  const OpInfo op = tools::op_of("c_product", product_kernel(), {"n=4 m=4"});
  const Exported call(op, options_for(), on.fake);
  const auto bytes_at = [](uintptr_t address, int64_t extent) {
    return CTensorArgument{reinterpret_cast<void*>(address), 1, {extent}, {}};
  };
  constexpr int64_t kMost = 2130706431;
  const CTensorArgument a = bytes_at(uintptr_t{1} << 40, kMost);
  const CTensorArgument y = bytes_at(uintptr_t{1} << 41, kMost);
  CHECK(call({a, y, bytes_at(uintptr_t{1} << 42, 0)}) ==
        "tessera: c_product: argument 'x' has an extent out of range\n"
        "  expected  at most 2130706431 in dimension 0 = n * m * 16\n"
        "  got       more");
  CHECK(on.fake.state().num_launches == 0);
}

TEST_CASE("exported C explains what is wrong with an argument", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  OnFakes on(runtime::Options{});
  const OpInfo op =
      tools::op_of("c_strided", strided_kernel(), {"rows=4 pitch=8 scale=0.5 shift=1"});
  const Exported call(op, options_for(), on.fake, "2.0f, 3");
  const auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  const CTensorArgument x{at(0x10000), 2, {6, 8}, {12, 1}};
  const CTensorArgument none{};
  const CTensorArgument y{at(0x20000), 2, {12, 8}, {}};
  CHECK(call({x, none, y}) == "");
  CHECK(call({none, none, y}) ==
        "tessera: c_strided: argument 'x' is missing\n"
        "  expected  f32[rows, 8]\n"
        "  got       a null pointer");
  const auto with = [](CTensorArgument tensor, const auto& change) {
    change(tensor);
    return tensor;
  };
  CHECK(call({with(x, [](auto& t) { t.data = nullptr; }), none, y}) ==
        "tessera: c_strided: argument 'x' has no data\n"
        "  expected  f32[rows, 8]\n"
        "  got       a null pointer");
  CHECK(call({with(x, [&](auto& t) { t.data = at(0x10004); }), none, y}) ==
        "tessera: c_strided: argument 'x' is not aligned\n"
        "  expected  an address that is a multiple of 16 bytes\n"
        "  got       0x10004");
  CHECK(call({with(x, [](auto& t) { t.rank = 3; }), none, y}) ==
        "tessera: c_strided: argument 'x' has the wrong rank\n"
        "  expected  f32[rows, 8], rank 2\n"
        "  got       rank 3");
  CHECK(call({with(x, [](auto& t) { t.shape[1] = 7; }), none, y}) ==
        "tessera: c_strided: argument 'x' has the wrong shape\n"
        "  expected  extent 8 in dimension 1\n"
        "  got       7");
  CHECK(call({x, none, with(y, [](auto& t) { t.shape[0] = 11; })}) ==
        "tessera: c_strided: argument 'y' has the wrong shape\n"
        "  expected  extent 12 in dimension 0 = rows * 2\n"
        "  got       11");
  CHECK(call({x, none, with(y, [](auto& t) { t.strides[0] = 9, t.strides[1] = 1; })}) ==
        "tessera: c_strided: argument 'y' has the wrong strides\n"
        "  expected  stride 8 in dimension 0\n"
        "  got       9");
  CHECK(call({with(x, [](auto& t) { t.shape[0] = 5; }), none,
              with(y, [](auto& t) { t.shape[0] = 10; })}) ==
        "tessera: c_strided: argument 'x' has an extent 5 that the kernel does not take\n"
        "  expected  rows (dimension 0) a multiple of 2 from 1 to 1065353215\n"
        "  got       5");
  CHECK(call({with(x, [](auto& t) { t.shape[0] = -2; }), none, y}) ==
        "tessera: c_strided: argument 'x' is no possible view\n"
        "  expected  an extent and a stride from 0 on in dimension 0\n"
        "  got       extent -2, stride 12");
  CHECK(call({with(x, [](auto& t) { t.shape[0] = int64_t{1} << 40; }), none, y}) ==
        "tessera: c_strided: argument 'x' has an extent or stride out of range\n"
        "  expected  rows at most 2147483647\n"
        "  got       1099511627776");
  CHECK(call({with(x, [](auto& t) { t.strides[0] = 8; }), none,
              with(y, [&](auto& t) { t.data = at(0x10080); })}) ==
        "tessera: c_strided: argument 'y' shares memory with 'x'\n"
        "  expected  an output with memory of its own\n"
        "  got       384 bytes at 0x10080, 192 bytes at 0x10000");
  // Nothing to write: no error of what is not read.
  CHECK(call({with(x, [](auto& t) { t.shape[0] = 0, t.data = nullptr; }), none,
              with(y, [](auto& t) { t.shape[0] = 0, t.data = nullptr; })}) == "");

  CHECK(call({x, none, y}, nullptr, 0, nullptr) ==
        "tessera: c_strided: no CUDA context is current\n"
        "  expected  a stream, or cuCtxSetCurrent before the call\n"
        "  got       none");
  on.fake.state().major = 8;
  CHECK(call({x, none, y}) ==
        "tessera: c_strided: no kernel of this file runs on the device\n"
        "  expected  a device for sm_90a\n"
        "  got       compute capability 8.0");
  on.fake.state().major = 9;
  on.fake.state().launch_result = 1;
  CHECK(call({x, none, y}) ==
        "tessera: c_strided: cuLaunchKernelEx failed\n"
        "  got       CUDA_ERROR_FAKE (1): a fake failure");
}

TEST_CASE("exported C names the missing driver, and the part that it lacks", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  OnFakes on(runtime::Options{});
  const OpInfo op =
      tools::op_of("c_strided", strided_kernel(), {"rows=4 pitch=8 scale=0.5 shift=1"});
  const CTensorArgument x{reinterpret_cast<void*>(uintptr_t{0x10000}), 2, {6, 8}, {12, 1}};
  const CTensorArgument y{reinterpret_cast<void*>(uintptr_t{0x20000}), 2, {12, 8}, {}};
  const test::ExportedC without(export_c(op, options_for()), "2.0f, 3",
                                {{"\"libcuda.so.1\"", "\"/nowhere/libcuda.so.1\""}});
  CHECK(without({x, {}, y}, nullptr, 0, kStream)
            .starts_with("tessera: c_strided: no CUDA driver on this machine\n"
                         "  expected  libcuda.so.1 of CUDA 12.4 or newer\n"
                         "  got       /nowhere/libcuda.so.1: cannot open"));
  on.fake.state().missing_function = "cuFuncLoad";
  const Exported old(op, options_for(), on.fake, "2.0f, 3");
  CHECK(old({x, {}, y}) ==
        "tessera: c_strided: the CUDA driver lacks cuFuncLoad\n"
        "  expected  CUDA 12.4 or newer\n"
        "  got       a driver without it");
}

TEST_CASE("exported C has workspace and range of its case", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  OnFakes on(runtime::Options{});
  const OpInfo& op = kernels::find_op("norm_fn_fwd");
  const Exported call(op, options_for("T=13 n=4 H=1280", "T"), on.fake);
  const auto one = op.case_of("T=128 n=4 H=1280");
  kernels::Tensors tensors = tensors_of(op, one);
  const int64_t bytes = tensors.at("workspace").span_bytes();
  CHECK(call.symbol<size_t (*)(int64_t)>("norm_fn_fwd_workspace_bytes")(128) ==
        static_cast<size_t>(bytes));
  for (const int64_t tokens : {int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
    CHECK(call.symbol<size_t (*)(int64_t)>("norm_fn_fwd_workspace_bytes")(tokens) ==
          std::numeric_limits<size_t>::max());
  }
  void* const memory = reinterpret_cast<void*>(uintptr_t{1} << 50);
  CHECK(call(test::c_arguments(op, tensors), memory, static_cast<size_t>(bytes) - 1) ==
        fmt::format("tessera: norm_fn_fwd: argument 'workspace' is too small or not aligned\n"
                    "  expected  {} bytes at a multiple of 256\n"
                    "  got       {} bytes at 0x4000000000000",
                    bytes, bytes - 1));
  tensors = tensors_of(op, op.case_of("T=129 n=4 H=1280"));
  CHECK(call(test::c_arguments(op, tensors), memory, size_t{1} << 40)
            .find("has an extent 129 that the kernel does not take\n"
                  "  expected  T (dimension 0) a multiple of 1 from 1 to 128\n") !=
        std::string::npos);
}

TEST_CASE("exported C loads its kernels without a launch", "[c-export]") {
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  OnFakes on(runtime::Options{});
  const OpInfo& op = kernels::find_op("gemm_bf16");
  const Exported call(op, options_for(), on.fake);
  const auto load = call.symbol<int (*)(void*)>("gemm_bf16_load");
  CHECK(load(nullptr) == 1);  // no context is current
  CHECK(on.fake.state().num_loads == 0);
  on.fake.state().current_device = 0;
  CHECK(load(nullptr) == 0);
  on.fake.state().current_device = 0;
  CHECK(load(nullptr) == 0);
  CHECK(on.fake.state().num_loads == 1);
  CHECK(on.fake.state().num_functions_loaded == 1);
  CHECK(on.fake.state().num_launches == 0);
  REQUIRE(on.fake.state().attributes.size() == 1);
  CHECK(on.fake.state().attributes[0].first == runtime::cu::kMaxDynamicSharedBytes);
  CHECK(on.fake.state().attributes[0].second > 48 * 1024);
}

TEST_CASE("what cannot be exported as C is an error", "[c-export]") {
  OnFakes on(runtime::Options{});
  const auto error = [](const std::string& op, const tools::CExportOptions& options) {
    return error_of([&] { export_c(kernels::find_op(op), options); });
  };
  CHECK(error("get_fused_mapping", options_for()) ==
        "tessera: get_fused_mapping: the op cannot be exported as C\n"
        "  expected  an op whose launches and outputs depend on extents alone\n"
        "  got       outputs with an extent that the host reads from the device\n"
        "  hint      call it through Tessera, and export the ops after it");
  CHECK(error("transpose", options_for("R=64 C=128 x=bf16", "T")) ==
        "tessera: transpose: the extent 'T' cannot be free\n"
        "  expected  T or P, where the op's inputs have it as their number of tokens\n"
        "  got       'T'");
  CHECK(error("mqa_topk", options_for("", "T")) ==
        "tessera: mqa_topk: the extent 'T' cannot be free\n"
        "  expected  the kernels of T = 1\n"
        "  got       others for T = 4");
  CHECK(error("norm_fwd", options_for("T=4000 H=2048 x=bf16 weight=given norm_eps=1e-6", "T"))
            .find("numbers of the form a * ceil(T / b) + c\n"
                  "  got       'tiles_per_block' of a kernel") != std::string::npos);
  tools::CExportOptions named = options_for();
  named.name = "long";
  CHECK(error("transpose", named) ==
        "tessera: transpose: the function has a name that C does not take\n"
        "  expected  letters, digits and _, a letter first, at most 64, no keyword\n"
        "  got       'long'");
  const OpInfo own =
      tools::op_of("c_strided", strided_kernel(), {"rows=4 pitch=8 scale=0.5 shift=1"});
  CHECK(error_of([&] { export_c(own, options_for("", "rows")); }) ==
        "tessera: c_strided: every dim of a kernel of one's own is free\n"
        "  expected  no word\n"
        "  got       'rows'");
}

TEST_CASE("no op but that with counts of the host is refused", "[c-export]") {
  std::vector<std::string> refused;
  for (const OpInfo& op : kernels::ops()) {
    if (op.trim) refused.push_back(op.name);
  }
  CHECK(refused == std::vector<std::string>{"get_fused_mapping"});
}

}  // namespace tessera::tests
