#pragma once
// Which of several candidates is the fastest, so that a second run gives the same answer.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::kernels::jit {

/// Where times come from: a GPU, or the script of a test.
class TuneTimer {
 public:
  virtual ~TuneTimer() = default;
  /// The time of one call of a candidate. What it throws drops the candidate.
  virtual double sample_us(size_t candidate) = 0;
  /// Since the timer was made.
  virtual double elapsed_s() = 0;
};

struct TuneRules {
  double budget_s = 60;         // no round begins later
  double samples_ms = 30;       // of each candidate that is left
  int first_rounds = 5;         // before any candidate leaves
  int most_rounds = 400;        // a short kernel has enough samples then
  double least_gain = 0.03;     // of the standard candidate's time
  double least_gain_us = 0.15;  // for those below 10 us
};

struct TimedCandidate {
  double us = 0;      // median
  double spread = 0;  // median distance from it, drift removed, in us
  int64_t samples = 0;
  std::string dropped;  // why it left; empty: measured to the end
};

struct Fastest {
  size_t winner = 0;
  std::vector<TimedCandidate> candidates;
  bool out_of_budget = false;
};

/// Measures `count` candidates in rounds, each once per round in rotating order. The first one is the standard: it
/// stays to the end, and another one wins only if it is faster by least_gain (below 10 us: by least_gain_us) and by
/// three spreads. Of those within noise of the best, the first wins.
///
/// Errors: those of the timer for candidate 0; argument, if `count` is 0.
Fastest find_fastest(TuneTimer& timer, size_t count, const TuneRules& rules = {});

}  // namespace tessera::kernels::jit
