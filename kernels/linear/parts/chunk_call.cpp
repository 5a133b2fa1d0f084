// The kernels of a call, and the workspace between them: see chunk_kernel.cpp.

#include "kernels/linear/parts/chunk_call.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/jit/target.h"
#include "kernels/linear/parts/chunk_kernel.h"
#include "kernels/linear/parts/delta_call.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::linear {
namespace {

constexpr int64_t kC = kChunk, kHalf = 2, kSingle = 4;  // tokens; bytes of elements
constexpr int64_t kWidest = 8;                          // elements of 16 bytes

bool is_packed(const Call& c) {
  return c.op().name == "gated_delta_varlen_fwd";
}
int64_t tokens_of(const Call& c) {
  return is_packed(c) ? c["T"] : c["S"];
}
/// Requests of the tensors of tokens, and places of chunks of each (chunk_tensors.h).
int64_t batch_of(const Call& c) {
  return is_packed(c) ? 1 : c["B"];
}
int64_t places_of(const Call& c) {
  return is_packed(c) ? c["T"] / kC + std::max<int64_t>(c["B"], 1) : (c["S"] + kC - 1) / kC;
}
TensorView dense(const Call& c, const char* name) {
  return is_packed(c) ? attention::one_request(c.given(name)) : c.given(name);
}

/// The first kernel leaves A and P, normed q and k, and decays for the second. In elements of f32.
struct Workspace {
  explicit Workspace(const Call& c)
      : places(batch_of(c) * places_of(c) * c["hv"]),
        triangle(places * kC * kC * kHalf / kSingle),
        normed(c.flag("qk_norm")
                   ? batch_of(c) * places_of(c) * kC * c["h"] * c["dk"] * kHalf / kSingle
                   : 0),
        decays(places * 2 * kC) {}
  int64_t places, triangle, normed, decays;
};

/// Bytes of a block that holds `stages` chunks.
int64_t bytes_of(const ChunkSpec& s, int64_t stages) {
  constexpr int64_t kSmall = 2048;  // of barriers
  const int64_t values = s.groups * kC * kColumns * kHalf;
  const int64_t chunk = (2 * kC * s.dk + 2 * kC * kC) * kHalf + values + 2 * kC * kSingle;
  return stages * chunk + values + kSmall;
}

}  // namespace

int64_t chunk_elements(const Call& c) {
  const Workspace w(c);
  return 2 * w.triangle + 2 * w.normed + w.decays;
}

void add_chunks(const Call& c, Launches& go) {
  const bool has_final = c.flag("output_final_state");
  ChunkSpec s{};
  s.has_tokens = tokens_of(c) > 0;
  s.has_pool = c.has("pool");
  const bool has_requests = c["B"] > 0;  // else packed tokens are all zeros
  s.reads_state = has_requests && (s.has_pool || c.has("initial_state"));
  s.writes_state = has_requests && (s.has_pool || has_final);
  const bool has_work = s.has_tokens || s.writes_state;
  if (batch_of(c) == 0 || c["hv"] == 0 || !has_work) return;
  s.dtype = c.dtype("q");
  s.state_dtype = s.has_pool ? c.dtype("pool") : DType::f32;
  s.has_read_slots = has_requests && c.has("read_slots");
  s.has_write_slots = has_requests && c.has("write_slots");
  s.dk = c.i32("dk"), s.dv = c.i32("dv"), s.groups = 1;
  if (!s.has_tokens) return go.add(build_chunks, s, {}, "states");
  s.has_norm = c.flag("qk_norm"), s.is_packed = is_packed(c);
  s.has_lengths = !s.is_packed && c.has("lengths");
  const Workspace w(c);
  int64_t begin = 0;
  const auto work = [&](DType dtype, const Dims& shape, int64_t elements) {
    // As an integer: a dry call has a workspace without memory.
    const auto address = reinterpret_cast<uintptr_t>(c.given("workspace").data);
    void* data = reinterpret_cast<void*>(address + static_cast<uintptr_t>(begin * kSingle));
    begin += elements;
    return TensorView{data, dtype, shape, c.device()};
  };
  const TensorView a = work(s.dtype, {w.places, kC, kC}, w.triangle);
  const TensorView p = work(s.dtype, {w.places, kC, kC}, w.triangle);
  const Dims of_normed = {batch_of(c), places_of(c) * kC, c["h"], c["dk"]};
  const TensorView q_normed = work(s.dtype, of_normed, w.normed);
  const TensorView k_normed = work(s.dtype, of_normed, w.normed);
  const TensorView decays = work(DType::f32, {w.places, 2 * kC}, w.decays);
  const TensorView q = dense(c, "q"), k = dense(c, "k"), v = dense(c, "v"), out = dense(c, "out");
  const int64_t of_keys = std::gcd(common_vector(q, kWidest), common_vector(k, kWidest));
  PrepareSpec first{};
  first.dtype = s.dtype, first.beta_dtype = c.dtype("beta");
  first.has_norm = s.has_norm, first.has_lengths = s.has_lengths;
  first.is_packed = s.is_packed;
  first.row_width = static_cast<uint8_t>(of_keys), first.dk = s.dk;
  first.blocks = jit::has_wgmma(c.device()) ? 5 : 3;  // with more mma.sync spills
  Args prepared{.tensors = {{"a", a},
                            {"p", p},
                            {"decays", decays},
                            {"q", q},
                            {"k", k},
                            {"g", dense(c, "g")},
                            {"beta", dense(c, "beta")}},
                .scalars = {{"scale", attention::scale_of(c)}}};
  if (s.has_norm) {
    prepared.tensors.push_back({"q_normed", q_normed});
    prepared.tensors.push_back({"k_normed", k_normed});
  }
  if (has_requests) go.add(build_prepare, first, prepared, "prepare");
  const int64_t of_rows = s.has_norm ? kWidest : of_keys;
  s.row_width = static_cast<uint8_t>(std::gcd(of_rows, common_vector(v, kWidest)));
  s.out_width = static_cast<uint8_t>(common_vector(out, kWidest));
  s.by_roles = jit::has_wgmma(c.device()) && s.row_width == kWidest && s.out_width == kWidest;
  // Blocks of 64 columns load q, k, A and P of a head twice, those of 128 leave multiprocessors idle.
  const bool is_large = 2 * c["B"] * c["hv"] > jit::num_sms(c.device());
  if (s.by_roles && s.dv == 128 && is_large) s.groups = 2;
  // On an H200, us, with two stages and with three: 32 heads of one request 863, 822; 4 x 32 heads 564, 574.
  const int64_t most = s.by_roles && s.groups == 1 ? 3 : 2;
  for (int64_t stages = most; s.stages == 0; --stages) {
    const bool fits = bytes_of(s, stages) <= jit::shared_memory_limit(c.device());
    if (fits || stages == 1) s.stages = static_cast<uint8_t>(stages);
  }
  Args args{.tensors = {{"a", a}, {"p", p}, {"decays", decays}},
            .scalars = {{"scale", attention::scale_of(c)}}};
  args.tensors.push_back({"q", s.has_norm ? q_normed : q});
  args.tensors.push_back({"k", s.has_norm ? k_normed : k});
  const Dims parts = {batch_of(c), tokens_of(c), c["hv"], s.dv / kColumns, kColumns};
  args.tensors.push_back({"v", reshaped(v, parts)});
  args.tensors.push_back({"out", reshaped(out, parts)});
  go.add(build_chunks, s, args, "chunks");
}

void require_chunks(const Call& c) {
  require_scale(c);
  c.need(c["segment"] == 0, "segment", "parameter 'segment' is not supported", "0",
         std::to_string(c["segment"]), ErrorKind::unsupported);
}

}  // namespace tessera::kernels::linear
