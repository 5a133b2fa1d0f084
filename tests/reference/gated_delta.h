#pragma once
// The gated delta rule of one value head by definition, in f32 with every operation rounded once.
//
//   S = a S with a = 2^max(g log2 e, -128); u = beta (v - k S); S = S + k^T u; out = round(scale q S)
//
// The state S is [dk, dv]. Sums over dk are of 8 lanes: lane l takes the quads l, l + 8, .. by fma, and lanes are added at
// distances 1, 2, 4. q and k may be normed first: x / sqrt(sum of squares + eps), rounded to their dtype.

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Mistakes that the cases must catch.
enum class DeltaMistake : uint8_t {
  none,
  head_modulo,        // value head a has key head a mod h
  wraps_slot,         // slot -1 is the last slot
  padded_row_runs,    // a row without a slot to read starts from +0
  last_token_alone,   // of several slots of a request only the last is written
  rounds_once,        // a bf16 state is rounded once per call
  unrounded_norm,     // normed keys keep f32
  eps_outside,        // eps is added to the length
  base_two,           // g is taken for a log2
  adds_before_decay,  // the new row decays too
  undecayed_read,     // u looks at the state before its decay
  beta_of_v,          // u = beta v - k S
  no_scale,           // out is not scaled
  old_state,          // out looks at the state before its new row
  one_lane,           // sums over dk in ascending order
  keeps_state,        // the state is not written
};

test::HostTensors gated_delta_decode(const test::HostTensors& in, const kernels::Params& params,
                                     DeltaMistake mistake = DeltaMistake::none);

/// The same recurrence of one value head in f64, with natural logs and values as they are.
class DeltaRecurrence {
 public:
  DeltaRecurrence(int64_t dk, int64_t dv) : dv_(dv), state_(static_cast<size_t>(dk * dv)) {}

  /// Rows of q and k [dk] and v [dv]; returns the row of out.
  std::vector<double> step(const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v, double g, double beta, double scale);
  std::vector<double>& state() { return state_; }

 private:
  int64_t dv_;
  std::vector<double> state_;  // [dk, dv]
};

/// The reference of a gated delta rule, or null if it is none.
Runner gated_delta_runner(const std::string& op);

}  // namespace tessera::reference
