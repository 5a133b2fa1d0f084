// Exported C on a GPU: compiled by `cc`, called on device memory, compared with the executor bit for bit.

#include <cstring>

#include "kernels/op.h"
#include "runtime/driver/memory.h"
#include "runtime/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/exported_c.h"
#include "tools/lib/calls/op_call.h"

namespace tessera {
namespace {

void check_equal(const tools::Safetensors& got, const tools::Safetensors& wanted) {
  REQUIRE(got.tensors.size() == wanted.tensors.size());
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    const tools::StoredTensor &a = got.tensors[i], &b = wanted.tensors[i];
    CAPTURE(a.name);
    REQUIRE(a.data.size() == b.data.size());
    CHECK(std::memcmp(a.data.data(), b.data.data(), static_cast<size_t>(a.data.size())) == 0);
  }
}

TEST_CASE("exported C computes what the op computes", "[gpu][c-export]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  if (!test::has_c_compiler()) TESSERA_SKIP("no cc");
  struct Case {
    std::string op, exported, called, free;
    bool is_exact;  // the executor's bits; others are compared with Tessera's own call
  };
  const Case one =
      GENERATE(Case{"transpose", "R=64 C=128 x=bf16", "R=64 C=128 x=bf16", "", true},
               Case{"per_token_cast", "T=37 H=7168 x=bf16 format=e4m3 num_per_channels=128",
                    "T=1001 H=7168 x=bf16 format=e4m3 num_per_channels=128", "T", true},
               Case{"gemm_bf16", "M=200 N=320 K=192", "M=200 N=320 K=192", "", false},
               Case{"norm_fn_fwd", "T=13 n=4 H=1280", "T=100 n=4 H=1280", "T", false},
               Case{"mhc_pre_fwd", "", "", "", false});
  CAPTURE(one.op);
  const kernels::OpInfo& op = kernels::find_op(one.op);
  const auto example = one.called.empty() ? op.examples.at(0) : op.case_of(one.called);
  const Device device = Device::cuda(0);
  tools::CExportOptions options;
  options.case_of = one.exported;
  options.free_extent = one.free;
  options.targets = {runtime::Runtime::instance().target_on(0)};
  const test::ExportedC exported(export_c(op, options));

  tools::OpCall own(op, example, one.is_exact ? Device::cpu() : device, 1);
  own.run();
  tools::OpCall call(op, example, device, 1);
  const runtime::OwnedStream stream(0);
  const auto workspace = call.tensors().find("workspace");
  const bool has_workspace = workspace != call.tensors().end();
  const std::string error = exported(
      test::c_arguments(op, call.tensors()), has_workspace ? workspace->second.data : nullptr,
      has_workspace ? static_cast<size_t>(workspace->second.span_bytes()) : 0, stream.handle());
  CHECK(error == "");
  runtime::synchronize(0, stream.handle());
  check_equal(call.results(), own.results());
}

}  // namespace
}  // namespace tessera
