// compress_state_write: stores rows of new tokens to their slots in the state.
//
// Dtypes   x and state f32|bf16
// Method   one block per row, in vectors of up to 16 bytes. The bound is bytes / copy bandwidth; a call
//          has few rows, so mostly the latency of two dependent loads.
// Maths    none; bf16 is widened to f32

#include <algorithm>
#include <numeric>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/window_cases.h"
#include "kernels/serving/parts/window_values.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

struct WriteSpec {
  int32_t length;
  DType x, state;
  uint8_t width;  // elements of an access
  uint8_t reserved = 0;
};

ir::Kernel build(const WriteSpec& s) {
  using namespace dsl;
  const int64_t vectors = s.length / s.width, threads = std::min<int64_t>(vectors, 256);
  Builder k("compress_state_write");
  auto writes = k.dim("writes"), rows = k.dim("x_rows"), slots = k.dim("slots");
  const DimOptions apart{.multiple_of = s.width};
  auto x = k.input("x", s.x, {rows, s.length},
                   {.strides = {k.stride("x_stride", apart), 1}, .align = s.width * bytes(s.x)});
  auto state = k.output(
      "state", s.state, {slots, s.length},
      {.strides = {k.stride("state_stride", apart), 1}, .align = s.width * bytes(s.state)});
  auto plan = k.input("write_plan", DType::i32, {writes, 2}, {.align = 4});
  auto at = k.launch({writes}, {.threads = static_cast<int>(threads)});
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  auto row = k.let("row", plan(at.x, 0)), slot = k.let("slot", plan(at.x, 1));
  auto fits = k.let("fits", row >= 0 && row < rows && slot >= 0 && slot < slots);
  k.report_unless(fits || (row == -1 && slot == -1), out_of_range("write_plan"));
  k.if_(fits, [&] {
    k.unrolled((vectors + threads - 1) / threads, [&](Value turn) {
      auto column = k.let("column", (turn * threads + k.thread()) * s.width);
      k.if_(column < s.length, [&] {
        k.vectorized(s.width, [&](Value i) {
          state(slot, column + i).unchecked() = cast(s.state, x(row, column + i).unchecked());
        });
      });
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["N"] == 0) return;
  if (c["Y"] == 0) return;
  const auto width = [&](const char* name) {
    const TensorView& view = c.given(name);
    return common_vector(view, 16 / bytes(view.dtype));
  };
  const int64_t common = std::gcd(std::min(width("x"), width("state")), c["L"]);
  go.add(build, WriteSpec{c.i32("L"), c.dtype("x"), c.dtype("state"),
                          static_cast<uint8_t>(std::min<int64_t>(common, 8))});
}

}  // namespace

const Op compress_state_write_op{
    .name = "compress_state_write",
    .family = "serving",
    .purpose = "rows of new tokens to their slots in the state of the KV compressor",
    .signature = R"(
      x                f32/bf16 [N, L] rows
      write_plan       i32 [Y, 2]                # of compress_plan
      -> inout state   f32/bf16 [slots, L] rows
      param  ratio {4, 128}
      need   slots >= 1 on state "argument 'state' has no rows"
      need   L >= 1 on x "argument 'x' has no columns"
      need   L % 512 = 0 if ratio = 4 on x "argument 'x' has the wrong shape"
      need   L % 256 = 0 if ratio = 128 on x "argument 'x' has the wrong shape"
    )",
    .launches = launches,
    .check = serving::require_state,
    .check_values = serving::require_planned_writes,
    .examples = R"(
      N=20 Y=8 D=512 ratio=4 x=bf16 state=bf16 slots=8; N=130 Y=128 D=128 ratio=128 x=bf16 state=f32 slots=128
      N=9 Y=3 D=256 ratio=4 x=f32 state=f32 slots=8)",
    .bench = R"(
      N=4096 Y=8 D=512 ratio=4 x=bf16 state=bf16 slots=512; N=32768 Y=512 D=512 ratio=4 x=bf16 state=bf16 slots=512
      N=32768 Y=8192 D=512 ratio=128 x=bf16 state=bf16 slots=8192)",
    .case_words = {{"D", nullptr}, {"L", serving::row_length}},
    .values = {{"write_plan", serving::planned_write}},
    .bytes = serving::write_bytes};

}  // namespace tessera::kernels
