// The launches that `bench --launch` times as the driver's own, on a fake driver.

#include "tools/lib/bench/bare_launches.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "kernels/op.h"
#include "kernels/views/dry_call.h"
#include "tests/kernels/on_fakes.h"
#include "tests/support/catch.h"

namespace tessera::tests {
namespace {

/// A launch as the driver saw it.
struct Seen {
  unsigned grid = 0, threads = 0, shared_bytes = 0;
  std::vector<int> attributes;
  std::vector<std::string> arguments;  // bytes
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen seen(const runtime::cu::LaunchConfig& config, void** arguments,
          const kernels::jit::LaunchPlan::Launch& launch) {
  Seen one = {config.grid_x, config.block_x, config.shared_bytes, {}, {}};
  for (unsigned i = 0; i < config.num_attributes; ++i) {
    const int id = config.attributes[i].id;
    if (id != runtime::cu::kAccessPolicyWindow) one.attributes.push_back(id);
  }
  std::vector<size_t> sizes(launch.pointers.size() + launch.values.size(), sizeof(int64_t));
  sizes.insert(sizes.end(), launch.maps.size(), sizeof(runtime::TensorMap));
  if (launch.kernel->hot.cooperative) sizes.push_back(sizeof(runtime::cu::DevicePtr));
  for (size_t i = 0; i < sizes.size(); ++i) {
    one.arguments.emplace_back(static_cast<const char*>(arguments[i]), sizes[i]);
  }
  return one;
}

}  // namespace

TEST_CASE("bench --launch passes every argument of a kernel, tensor maps and barriers too",
          "[bench]") {
  const std::string name =
      GENERATE("gemm_bf16", "gemm_fp8_block", "gemm_fp8_grouped", "gemm_fp8_k_grouped",
               "gemm_fp8_masked", "topk_select", "group_count", "transpose");
  CAPTURE(name);
  OnFakes on(runtime::Options{});
  const kernels::OpInfo& op = kernels::find_op(name);
  const kernels::BenchCase& one = op.examples.front();
  kernels::Tensors tensors = kernels::placed_nowhere(
      kernels::views_with_outputs(op, kernels::views_of(one), one.params), Device::cuda(0));
  std::vector<TensorView> views;
  std::vector<void*> data;
  for (const auto& [unused, view] : tensors) {
    views.push_back(view);
    data.push_back(view.data);
  }
  const kernels::jit::LaunchPlan plan =
      kernels::jit::plan(views, [&] { op.run(tensors, one.params, nullptr); });
  REQUIRE_FALSE(plan.launches().empty());
  if (name == "gemm_bf16" || name == "gemm_fp8_grouped") {
    CHECK(plan.launches().back().maps.size() > 1);
  }
  std::vector<Seen> all;
  on.fake.state().on_launch = [&](const runtime::cu::LaunchConfig& config, void** arguments) {
    all.push_back(seen(config, arguments, plan.launches()[all.size() % plan.launches().size()]));
  };
  plan(data, nullptr);
  const std::vector<Seen> of_plan = std::move(all);
  all.clear();
  tools::BareLaunches bare(plan, data);
  bare();
  CHECK(all.size() == plan.launches().size());
  CHECK(all == of_plan);
}

TEST_CASE("a GPU kernel gets an address of a tensor without elements, and none of an absent one",
          "[bench]") {
  OnFakes on(runtime::Options{});
  dsl::Builder k("with_tail");
  auto n = k.dim("n");
  auto tail = k.input("tail", DType::f32, {n / 128}, {.optional = true});
  auto y = k.output("y", DType::f32, {n});
  k.launch({ceil_div(n, 64)}, {.threads = 64});
  k.if_present(
      tail, [&] { y(k.thread()) = 1.0f; }, [&] { y(k.thread()) = 2.0f; });
  const kernels::jit::Function run(k.finish());
  std::vector<uintptr_t> tails;
  on.fake.state().on_launch = [&](const runtime::cu::LaunchConfig&, void** arguments) {
    tails.push_back(*static_cast<const uintptr_t*>(arguments[0]));
  };
  const auto at = [](uintptr_t address, Dims shape) {
    return TensorView(reinterpret_cast<void*>(address), DType::f32, shape, Device::cuda(0));
  };
  for (const TensorView& given : {at(0, {0}), at(4096, {0}), TensorView{}}) {
    tails.clear();
    const std::vector<TensorView> views = {given, at(1 << 20, {100})};
    std::vector<void*> data = {views[0].data, views[1].data};
    run(views, {}, nullptr);
    const auto plan = kernels::jit::plan(views, [&] { run(views, {}, nullptr); });
    plan(data, nullptr);
    tools::BareLaunches bare(plan, data);
    bare();
    REQUIRE(tails.size() == 3);  // a call, its plan, and the bare launches of it
    for (const uintptr_t tail_address : tails) CHECK((tail_address != 0) == (given.rank() > 0));
  }
}

}  // namespace tessera::tests
