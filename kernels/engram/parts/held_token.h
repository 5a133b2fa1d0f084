#pragma once
// The rows of a token in the registers of a thread, for the kernel that loops over the tokens of a
// partial. Each part is reloaded right after its use, so that loads stay in flight.

#include <vector>

#include "dsl/builder.h"
#include "kernels/engram/parts/gate_gradients.h"

namespace tessera::kernels::engram {

/// The inputs by token.
struct TokenInputs {
  dsl::Ref grad_out, hidden, keys, values;
  std::vector<dsl::Ref> saved;  // dot, gate_score, rstd_x, rstd_k
};

/// The thread's columns of grad_out and v, and of x and k for the next steps. A step is a run of one
/// stream: if a thread has two runs, x and k of all steps do not fit in registers.
class HeldToken {
 public:
  HeldToken(dsl::Builder& k, const GateBwdSpec& s, const Columns& columns,
            const GateBwdTensors& tensors, const TokenInputs& inputs);

  int64_t steps() const { return columns_.tile().runs * kStreams; }
  int64_t ahead() const { return ahead_; }  // number of steps whose x and k are in registers

  /// Loads all parts of the first token.
  void load(const dsl::Value& token) const;
  void load_step(const dsl::Value& token, int64_t step) const;
  void load_grads(const dsl::Value& token, int64_t run) const;
  /// Loads v and the saved scores.
  void load_values(const dsl::Value& token) const;

  dsl::Ref grad_out(const dsl::Arg& run, const dsl::Arg& stream) const { return g_(run, stream); }
  dsl::Ref x(int64_t step) const { return x_(step % ahead_); }
  dsl::Ref key(int64_t step) const { return key_(step % ahead_); }
  /// The gradients of all streams in a run.
  std::vector<dsl::Ref> grads_out(const dsl::Value& run) const;
  dsl::Ref values(const dsl::Value& run) const { return v_(run); }
  /// The saved values of stream lane % 4.
  std::vector<dsl::Value> saved() const;
  dsl::Ref gate_score() const { return scores_(1); }

 private:
  dsl::Builder& k_;
  const Columns& columns_;
  const GateBwdTensors& tensors_;
  TokenInputs inputs_;
  int64_t vector_, ahead_;
  dsl::Ref g_, x_, key_, v_, scores_;
};

}  // namespace tessera::kernels::engram
