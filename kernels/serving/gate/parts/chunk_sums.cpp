#include "kernels/serving/gate/parts/chunk_sums.h"

namespace tessera::kernels::serving {
namespace {

constexpr int64_t kFewTokens = 64;  // up to here a block has few rows
constexpr int64_t kColumns = 64, kRows = 64, kFewRows = 16;
constexpr int kThreads = 128;

}  // namespace

int64_t chunks_of(const Call& c) {
  return (c["H"] + kLogitsChunk - 1) / kLogitsChunk;
}

LogitsKernelSpec logits_kernel_spec(const Call& c, bool is_apart) {
  return {logits_spec(c, c["T"] <= kFewTokens ? kFewRows : kRows, kColumns), is_apart ? 1 : 0,
          gemm::multiple_of(c["E"], 4)};
}

ir::Kernel build_logits(const LogitsKernelSpec& s) {
  using namespace dsl;
  const int64_t rows = s.logits.rows, columns = s.logits.columns;
  Builder k("router_logits");
  auto tokens = k.dim("tokens"), experts = k.dim("experts", {.multiple_of = s.experts_multiple});
  LogitsTile tile(k, s.logits, tokens, experts);
  const bool is_apart = s.is_apart != 0;
  auto out = is_apart ? k.output("parts", DType::f32, {k.dim("chunks"), tokens, experts})
                      : k.output("logits", DType::f32, {tokens, experts});
  auto at = k.launch(
      {ceil_div(experts, columns), ceil_div(tokens, rows), is_apart ? tile.chunks() : i32(1)},
      {.threads = kThreads});
  auto token = at.y * rows, expert = at.x * columns;
  if (is_apart) {
    k.copy(tile.sum_of_chunk(token, expert, at.z),
           out(at.z).tile({token, expert}, {rows, columns}));
  } else {
    k.copy(tile.logits(token, expert), out.tile({token, expert}, {rows, columns}));
  }
  return k.finish();
}

TensorView add_chunk_sums(const Call& c, Launches& go) {
  const TensorView& workspace = c.given("workspace");
  const TensorView parts(workspace.data, DType::f32, {chunks_of(c), c["T"], c["E"]},
                         workspace.device);
  go.add(build_logits, logits_kernel_spec(c, true), {.tensors = {{"parts", parts}}}, "chunks");
  return parts;
}

}  // namespace tessera::kernels::serving
