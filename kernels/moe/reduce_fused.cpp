// reduce_fused: the rows of each token's positions, weighted and summed.
//
// Shapes   x [positions, hidden], x_sf [positions], topk_weights and token_topk_to_pos
//          [tokens, num_topk], sf [1], out [tokens, hidden]
// Dtypes   x f32|bf16, factors f32, positions i32, out as x or e4m3
// Method   one 16-byte vector of columns per thread and every slot, the loads of up to 8 slots
//          before the first product; no shared memory. Rows are read once, so the bound is bytes /
//          copy bandwidth.
// Maths    acc = fma(x, weight * x_sf, acc) in the order of the slots from +0, then acc * sf
// Tuned    H200; see pick_row_tile. Columns are independent, so few tokens still fill the SMs.

#include "kernels/moe/reduce_fused.h"

#include <numeric>

#include "dsl/builder.h"
#include "kernels/arg_check.h"
#include "kernels/jit/call_memo.h"
#include "kernels/jit/jit.h"
#include "kernels/moe/even_mapping.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  DType in, out;
  bool has_x_sf, has_weights, has_sf;
  uint8_t vector;  // columns per thread
  uint8_t align;   // bytes of x and out, at most 16
  uint8_t unused = 0;
  int32_t hidden, num_topk;  // num_topk 0: there are no positions
};

constexpr int64_t kSlots = 8;  // rows in flight per thread

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  // 128 to 256 threads along a row where they divide it (7168 = 4 x 224 x 8)
  const int64_t vectors = s.hidden / s.vector;
  int64_t threads = 256;
  while (threads > 128 && vectors % threads != 0) threads -= 32;
  const int64_t chunks = (vectors + threads - 1) / threads;

  Builder k("reduce_fused");
  auto tokens = k.dim("tokens");
  auto out = k.output("out", s.out, {tokens, s.hidden}, {.align = s.align});
  std::vector<Ref> x, slots_of, x_sf, weights, sf;  // one or none
  Value positions;
  if (s.num_topk > 0) {
    positions = k.dim("positions");
    x.push_back(k.input("x", s.in, {positions, s.hidden}, {.align = s.align}));
    slots_of.push_back(
        k.input("token_topk_to_pos", DType::i32, {tokens, s.num_topk}, {.align = 4}));
  }
  if (s.has_x_sf) x_sf.push_back(k.input("x_sf", DType::f32, {positions}, {.align = 4}));
  if (s.has_weights) {
    weights.push_back(k.input("topk_weights", DType::f32, {tokens, s.num_topk}, {.align = 4}));
  }
  if (s.has_sf) sf.push_back(k.input("sf", DType::f32, {1}, {.align = 4}));
  auto at = k.launch({tokens * chunks}, {.threads = static_cast<int>(threads)});
  auto token = k.let("token", at.x / chunks);
  k.assume(token < tokens);
  auto col = k.let("col", (at.x % chunks * threads + k.thread()) * s.vector);

  k.if_(col < s.hidden, [&] {
    auto acc = k.local(DType::f32, {s.vector}, "acc");
    k.unrolled(s.vector, [&](Value i) { acc(i) = 0.0f; });
    auto add_slots = [&](const Value& first, int64_t slots) {
      auto rows = k.local(s.in, {slots, s.vector}, "rows");
      auto factors = k.local(DType::f32, {slots}, "factors");
      auto valid = k.local(DType::boolean, {slots}, "valid");
      // load
      k.unrolled(slots, [&](Value i) {
        auto position = k.let("position", slots_of[0](token, first + i));
        valid(i) = position >= 0 && position < positions;
        Value factor = cast(DType::f32, 1);
        for (const Ref& w : weights) factor = w(token, first + i);
        for (const Ref& scale : x_sf) {
          factor = s.has_weights ? factor * scale(position) : Value(scale(position));
        }
        factors(i) = factor;
        k.if_(position >= 0 && position < positions, [&] {
          k.vectorized(s.vector, [&](Value j) { rows(i, j) = x[0](position, col + j); });
        });
      });
      // sum
      k.unrolled(slots, [&](Value i) {
        k.if_(valid(i), [&] {
          k.unrolled(s.vector, [&](Value j) { acc(j) = fma(f32(rows(i, j)), factors(i), acc(j)); });
        });
      });
    };
    const int64_t whole = s.num_topk / kSlots, rest = s.num_topk % kSlots;
    if (whole == 1) add_slots(i32(0), kSlots);
    if (whole > 1) {
      k.serial(0, whole, [&](Value i) { add_slots(i * kSlots, kSlots); });
    }
    if (rest > 0) add_slots(i32(whole * kSlots), rest);
    // scale and store
    k.vectorized(s.vector, [&](Value j) {
      Value sum = acc(j);
      for (const Ref& scale : sf) sum = sum * scale(0);
      out(token, col + j) = cast(s.out, sum);
    });
  });
  return k.finish();
}

// 3. Host function
constexpr const char* kOp = "reduce_fused";

/// The dtype of out; binds P, H, T and K.
DType check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const bool e4m3 = std::holds_alternative<std::string>(params.at("format"));
  check.tensor("x", tensors).dtype({DType::f32, DType::bf16}).shape("P", "H").row_major();
  check.multiple_of("H", 256);
  check.optional("x_sf", tensors).dtype(DType::f32).shape("P").row_major();
  check.tensor("token_topk_to_pos", tensors).dtype(DType::i32).shape("T", "K").row_major();
  check.optional("topk_weights", tensors).dtype(DType::f32).shape("T", "K").row_major();
  check.optional("sf", tensors).dtype(DType::f32).shape(1).row_major();
  check.require(e4m3 || !tensors.contains("sf"), "sf", "sf scales e4m3 outputs only",
                "format=e4m3 or no sf", "format=none");
  return e4m3 ? DType::e4m3 : tensors.at("x").dtype;
}

Spec spec_of(const ArgCheck& check, const Tensors& tensors, DType out_dtype) {
  const TensorView& x = tensors.at("x");
  auto address = reinterpret_cast<uintptr_t>(x.data);
  if (const auto out = tensors.find("out"); out != tensors.end()) {
    address |= reinterpret_cast<uintptr_t>(out->second.data);
  }
  Spec s;
  s.in = x.dtype;
  s.out = out_dtype;
  s.num_topk = x.shape[0] == 0 ? 0 : static_cast<int32_t>(check["K"]);
  s.has_x_sf = s.num_topk > 0 && tensors.contains("x_sf");
  s.has_weights = s.num_topk > 0 && tensors.contains("topk_weights");
  s.has_sf = tensors.contains("sf");
  s.align = static_cast<uint8_t>(std::gcd(address, uintptr_t{16}));
  s.vector = static_cast<uint8_t>(std::max(1, s.align / bytes(s.in)));
  s.hidden = static_cast<int32_t>(check["H"]);
  return s;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check(kOp);
  const DType dtype = check_input(check, inputs, params);
  const Dims shape{check["T"], check["H"]};
  return {{"out", dtype, shape, row_major_strides(shape), num_elements(shape)}};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check(kOp);
  const DType dtype = check_input(check, tensors, params);
  check.output("out", tensors).dtype(dtype).shape("T", "H").row_major();
  check.memory();
  if (tensors.at("out").size() == 0) return;
  const Spec spec = spec_of(check, tensors, dtype);
  std::vector<TensorView> arguments = {tensors.at("out")};
  const auto add = [&](const char* name, bool used) {
    if (used) arguments.push_back(tensors.at(name));
  };
  add("x", spec.num_topk > 0);
  add("token_topk_to_pos", spec.num_topk > 0);
  add("x_sf", spec.has_x_sf);
  add("topk_weights", spec.has_weights);
  add("sf", spec.has_sf);
  jit::run(
      kOp, jit::spec_bytes(spec), [&] { return build(spec); }, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check(kOp);
  const DType dtype = check_input(check, tensors, params);
  if (check["T"] * check["H"] == 0) return {};
  return {build(spec_of(check, tensors, dtype))};
}

// 4. Registration
BenchCase bench_case(const moe::EvenMapping& mapping, int64_t hidden, DType in, bool x_sf,
                     bool weights, bool e4m3 = false) {
  const int64_t tokens = mapping.num_tokens, topk = mapping.num_topk, positions = tokens * topk;
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " K=" + std::to_string(topk) +
            " E=" + std::to_string(mapping.num_experts) + " H=" + std::to_string(hidden) + " " +
            std::string(name(in)) + (x_sf ? " x_sf" : "") + (weights ? " weights" : "") +
            (e4m3 ? " to e4m3" : "");
  c.inputs = {{"x", in, {positions, hidden}, {hidden, 1}}, mapping.token_topk_to_pos()};
  if (x_sf) c.inputs.push_back({"x_sf", DType::f32, {positions}, {1}});
  if (weights) c.inputs.push_back({"topk_weights", DType::f32, {tokens, topk}, {topk, 1}});
  if (e4m3) {
    c.params["format"] = std::string("e4m3");
    c.inputs.push_back({"sf", DType::f32, {1}, {1}});
  }
  c.bytes = positions * (4 + (x_sf ? 4 : 0) + (weights ? 4 : 0)) +
            tokens * hidden * (e4m3 ? 1 : bytes(in)) + mapping.num_entries * hidden * bytes(in);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = kOp;
  op.family = "moe";
  op.purpose = "the rows of each token's positions, weighted and summed";
  op.tensors = {
      {"x", Role::in, false, false, false, {"f32", "bf16"}, {"P", "H"}, "row_major"},
      {"x_sf", Role::in, true, false, false, {"f32"}, {"P"}, "row_major"},
      {"topk_weights", Role::in, true, false, false, {"f32"}, {"T", "K"}, "row_major"},
      {"token_topk_to_pos", Role::in, false, false, false, {"i32"}, {"T", "K"}, "row_major"},
      {"sf", Role::in, true, false, false, {"f32"}, {"1"}, "row_major"},
      {"out", Role::out, false, false, false, {"as x, or e4m3"}, {"T", "H"}, "row_major"}};
  op.params = {{"format", ParamInfo::Type::word, ParamValue(), {"none", "e4m3"}, {}, ""}};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType f32 = DType::f32, bf16 = DType::bf16;
  op.examples = {bench_case({17, 6, 9, 25, 1}, 7168, bf16, true, true),
                 bench_case({9, 8, 4, 20, 1}, 2560, f32, true, true),
                 bench_case({5, 2, 3, 9, 1}, 256, bf16, false, true, true),
                 bench_case({3, 20, 64, 50, 1}, 768, f32, false, false)};
  op.bench = {bench_case(moe::rank_mapping(18431, 6, 9, 1), 7168, bf16, true, true),
              bench_case(moe::rank_mapping(18578, 6, 32, 1), 7168, bf16, true, true),
              bench_case(moe::rank_mapping(18311, 6, 9, 1), 7168, f32, true, true),
              bench_case(moe::rank_mapping(25023, 6, 4, 1), 7168, f32, true, true),
              bench_case({1, 8, 256, 8, 1}, 7168, bf16, false, true),
              bench_case({128, 8, 256, 1024, 1}, 7168, bf16, false, true),
              bench_case({1, 8, 256, 8, 1}, 7168, f32, false, true),
              bench_case({128, 8, 256, 1024, 1}, 7168, f32, false, true)};
  return op;
}

}  // namespace

void reduce_fused(const ReduceFusedTensors& tensors, Stream stream) {
  jit::call("reduce_fused",
            {&tensors.x, &tensors.x_sf, &tensors.topk_weights, &tensors.token_topk_to_pos,
             &tensors.sf, &tensors.out},
            {}, stream, [&] {
              Tensors given = {{"x", tensors.x},
                               {"token_topk_to_pos", tensors.token_topk_to_pos},
                               {"out", tensors.out}};
              const auto add = [&](const char* name, const TensorView& view) {
                if (view.rank() > 0) given[name] = view;
              };
              add("x_sf", tensors.x_sf);
              add("topk_weights", tensors.topk_weights);
              add("sf", tensors.sf);
              Params params = {{"format", ParamValue()}};
              if (tensors.out.dtype == DType::e4m3) params["format"] = std::string("e4m3");
              run(given, params, stream);
            });
}

const OpInfo& reduce_fused_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
