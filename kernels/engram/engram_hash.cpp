// engram_hash: rows of hashed embedding tables.
//
// Shapes   ngram_token_ids [tokens, N], multipliers [layers, N], vocab_sizes [layers, N-1, tables],
//          offsets [layers, C], out [layers, tokens, C] with C = (N-1) * tables
// Dtypes   ids, sizes, offsets and rows i32, multipliers i64
// Method   one thread per entry, so that each has one 64-bit division and neighbours store
//          neighbouring entries; hashing again what the tables of an order share costs N products.
//          Few bytes: the bound is the latency of two loads, one division and one store.
// Maths    h ^= id * multiplier (mod 2^64); floor modulus; sum mod 2^32
// Tuned    H200: 256 threads per block.

#include "kernels/engram/engram_hash.h"

#include "dsl/builder.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t ngram, tables;
};

constexpr int64_t kThreads = 256;
constexpr int64_t kUnrolledIds = 8;

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t columns = int64_t{s.ngram - 1} * s.tables;
  Builder k("engram_hash");
  auto tokens = k.dim("tokens"), layers = k.dim("layers");
  auto ids = k.input("ngram_token_ids", DType::i32, {tokens, s.ngram}, {.align = 4});
  auto multipliers = k.input("multipliers", DType::i64, {layers, s.ngram}, {.align = 8});
  auto vocab_sizes = k.input("vocab_sizes", DType::i32, {layers, columns}, {.align = 4});
  auto offsets = k.input("offsets", DType::i32, {layers, columns}, {.align = 4});
  auto out = k.output("out", DType::i32, {layers, tokens, columns}, {.align = 4});
  auto at = k.launch({ceil_div(tokens * columns, kThreads), layers}, {.threads = kThreads});

  auto entry = k.let("entry", at.x * kThreads + k.thread());
  auto token = k.let("token", entry / columns);
  auto column = k.let("column", entry % columns);
  k.if_(token < tokens, [&] {
    // load
    auto size = k.let("size", vocab_sizes(at.y, column));
    k.report_unless(size > 0, out_of_range("vocab_sizes"));
    auto offset = k.let("offset", offsets(at.y, column));
    // hash the ids of this order
    auto order = k.let("order", column / s.tables + 1);
    auto hash = k.var(DType::i64, 0, "hash");
    auto mix = [&](const Value& i) {
      hash = select(i <= order, hash ^ i64(ids(token, i)) * multipliers(at.y, i), hash);
    };
    if (s.ngram <= kUnrolledIds) {
      k.unrolled(s.ngram, mix);
    } else {
      k.serial(0, s.ngram, mix);
    }
    // floor modulus
    auto positive = k.let("positive", i64(max(size, 1)));
    auto remainder = k.let("remainder", hash % positive);
    auto row = select(remainder < 0, remainder + positive, remainder);
    out(at.y, token, column) = i32(select(size > 0, row, i64(0)) + i64(offset));
  });
  return k.finish();
}

// 3. Host function
constexpr const char* kOp = "engram_hash";

void check_input(ArgCheck& check, const Tensors& tensors) {
  check.tensor("ngram_token_ids", tensors).dtype(DType::i32).shape("T", "N").row_major();
  check.in_range("N", 1, 1 << 16);
  check.tensor("multipliers", tensors).dtype(DType::i64).shape("L", "N").row_major();
  check.bind("N-1", check["N"] - 1, "N - 1");
  check.tensor("vocab_sizes", tensors).dtype(DType::i32).shape("L", "N-1", "J").row_major();
  check.bind("(N-1)*J", check["N-1"] * check["J"], "(N - 1) * J");
  check.tensor("offsets", tensors).dtype(DType::i32).shape("L", "(N-1)*J").row_major();
}

Spec spec_of(const ArgCheck& check) {
  return {static_cast<int32_t>(check["N"]), static_cast<int32_t>(check["J"])};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params&) {
  ArgCheck check(kOp);
  check_input(check, inputs);
  const Dims shape{check["L"], check["T"], check["(N-1)*J"]};
  return {row_major_output("out", DType::i32, shape)};
}

void run(const Tensors& tensors, const Params&, Stream stream) {
  ArgCheck check(kOp);
  check_input(check, tensors);
  check.output("out", tensors).dtype(DType::i32).shape("L", "T", "(N-1)*J").row_major();
  check.memory();
  require_values(check, "vocab_sizes", tensors.at("vocab_sizes"), 1, INT32_MAX);
  if (tensors.at("out").size() == 0) return;
  const Spec spec = spec_of(check);
  TensorView sizes = tensors.at("vocab_sizes");
  sizes.shape = tensors.at("offsets").shape;
  sizes.strides = row_major_strides(sizes.shape);
  const TensorView arguments[] = {tensors.at("ngram_token_ids"), tensors.at("multipliers"), sizes,
                                  tensors.at("offsets"), tensors.at("out")};
  jit::run_op(kOp, spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params&) {
  ArgCheck check(kOp);
  check_input(check, tensors);
  if (check["L"] * check["T"] * check["(N-1)*J"] == 0) return {};
  return {build(spec_of(check))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t layers, int64_t ngram, int64_t tables) {
  const int64_t columns = (ngram - 1) * tables;
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " L=" + std::to_string(layers) +
            " N=" + std::to_string(ngram) + " J=" + std::to_string(tables);
  const auto spread = [](int64_t i) { return i * 7919 % 100'000; };
  c.inputs = {{"ngram_token_ids", DType::i32, {tokens, ngram}, {ngram, 1}, spread},
              {"multipliers", DType::i64, {layers, ngram}, {ngram, 1}, spread},
              {"vocab_sizes",
               DType::i32,
               {layers, ngram - 1, tables},
               {columns, tables, 1},
               [](int64_t i) { return 100'003 + i * 9973; }},
              {"offsets", DType::i32, {layers, columns}, {columns, 1}, [](int64_t i) {
                 return i * 500'009;
               }}};
  c.bytes = 4 * tokens * ngram + 8 * layers * ngram + 8 * layers * columns +
            4 * layers * tokens * columns;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = kOp;
  op.family = "engram";
  op.purpose = "rows of hashed embedding tables for the last token ids";
  op.tensors = {
      input("ngram_token_ids", {"i32"}, {"T", "N"}), input("multipliers", {"i64"}, {"L", "N"}),
      input("vocab_sizes", {"i32"}, {"L", "N-1", "J"}), input("offsets", {"i32"}, {"L", "(N-1)*J"}),
      output("out", {"i32"}, {"L", "T", "(N-1)*J"})};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(67, 2, 3, 8), bench_case(5, 1, 12, 3)};
  op.bench = {bench_case(4001, 2, 3, 8), bench_case(8001, 2, 3, 8), bench_case(1, 2, 3, 8),
              bench_case(128, 2, 3, 8)};
  return op;
}

}  // namespace

void engram_hash(const TensorView& ngram_token_ids, const TensorView& multipliers,
                 const TensorView& vocab_sizes, const TensorView& offsets, const TensorView& out,
                 Stream stream) {
  call_op(engram_hash_op(),
          {{"ngram_token_ids", ngram_token_ids},
           {"multipliers", multipliers},
           {"vocab_sizes", vocab_sizes},
           {"offsets", offsets},
           {"out", out}},
          {}, stream);
}

const OpInfo& engram_hash_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
