#include "kernels/engram/parts/held_token.h"

namespace tessera::kernels::engram {

using namespace dsl;

namespace {

/// Each row is read by one thread once, so it takes no line of L1: 1.6 % faster at 7168 columns.
Ref once(const Ref& row) {
  return row.cached(CacheHint::no_allocate);
}

}  // namespace

HeldToken::HeldToken(Builder& k, const GateBwdSpec& s, const Columns& columns,
                     const GateBwdTensors& tensors, const TokenInputs& inputs)
    : k_(k),
      columns_(columns),
      tensors_(tensors),
      inputs_(inputs),
      vector_(s.vector),
      ahead_(columns.tile().runs == 1 ? kStreams : 2),
      g_(k.local(DType::bf16, {columns.tile().runs, kStreams, kRun}, "g")),
      x_(k.local(DType::bf16, {ahead_, kRun}, "x")),
      key_(k.local(DType::bf16, {ahead_, kRun}, "key")),
      v_(k.local(DType::bf16, {columns.tile().runs, kRun}, "v")),
      scores_(k.local(DType::f32, {4}, "scores")) {}

void HeldToken::load(const Value& token) const {
  load_values(token);
  for (int64_t run = 0; run < columns_.tile().runs; ++run) load_grads(token, run);
  for (int64_t step = 0; step < ahead_; ++step) load_step(token, step);
}

void HeldToken::load_step(const Value& token, int64_t step) const {
  const int64_t stream = step % kStreams;
  columns_.in_row(i32(step / kStreams), [&](const Value& col) {
    auto row = tensors_.row(token, stream);
    columns_.load_run(vector_, once(inputs_.hidden(row)), col, x(step));
    columns_.load_run(vector_, once(inputs_.keys(token, stream)), col, key(step));
  });
}

void HeldToken::load_grads(const Value& token, int64_t run) const {
  columns_.in_row(i32(run), [&](const Value& col) {
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      auto row = tensors_.row(token, stream);
      columns_.load_run(vector_, once(inputs_.grad_out(row)), col, g_(run, stream));
    }
  });
}

void HeldToken::load_values(const Value& token) const {
  k_.unrolled(columns_.tile().runs, [&](Value run) {
    columns_.in_row(run, [&](const Value& col) {
      columns_.load_run(vector_, once(inputs_.values(token)), col, v_(run));
    });
  });
  for (size_t i = 0; i < inputs_.saved.size(); ++i) {
    scores_(static_cast<int64_t>(i)) = inputs_.saved[i](token, k_.lane() % kStreams);
  }
}

std::vector<Ref> HeldToken::grads_out(const Value& run) const {
  std::vector<Ref> streams;
  for (int64_t stream = 0; stream < kStreams; ++stream) streams.push_back(g_(run, stream));
  return streams;
}

std::vector<Value> HeldToken::saved() const {
  std::vector<Value> values;
  for (int64_t i = 0; i < 4; ++i) values.emplace_back(scores_(i));
  return values;
}

}  // namespace tessera::kernels::engram
