#include "kernels/jit/fastest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <optional>

#include "dsl/base/error.h"

namespace tessera::kernels::jit {
namespace {

constexpr double kShortUs = 10;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Rounds {
 public:
  Rounds(TuneTimer& timer, size_t count, const TuneRules& rules)
      : timer_(timer), rules_(rules), samples_(count) {
    result_.candidates.resize(count);
  }

  Fastest run() && {
    for (int round = 0; round < rules_.most_rounds; ++round) {
      if (round > 0 && timer_.elapsed_s() > rules_.budget_s) {
        result_.out_of_budget = true;
        break;
      }
      measure_round(static_cast<size_t>(round));
      if (round + 1 < rules_.first_rounds) continue;
      summarize();
      drop_slow();
      if (is_enough()) break;
    }
    summarize();
    result_.winner = winner();
    return std::move(result_);
  }

 private:
  bool is_left(size_t i) const { return result_.candidates[i].dropped.empty(); }

  size_t num_left() const {
    size_t count = 0;
    for (size_t i = 0; i < samples_.size(); ++i) count += is_left(i) ? 1 : 0;
    return count;
  }

  void measure_round(size_t round) {
    const size_t count = samples_.size();
    for (size_t k = 0; k < count; ++k) {
      const size_t i = (k + round) % count;
      if (!is_left(i)) continue;
      try {
        samples_[i].push_back(timer_.sample_us(i));
      } catch (const std::exception& error) {
        if (i == 0) throw;
        result_.candidates[i].dropped = error.what();
      }
    }
  }

  /// How much slower than usual each round was, for all that is left alike: the clock of a GPU drifts. One
  /// candidate alone says nothing about it.
  std::vector<double> drift() const {
    std::vector<double> factors(samples_[0].size(), 1);
    std::vector<double> usual(samples_.size());
    for (size_t i = 0; i < samples_.size(); ++i) usual[i] = median(samples_[i]);
    for (size_t round = 0; round < factors.size(); ++round) {
      std::vector<double> ratios;
      for (size_t i = 0; i < samples_.size(); ++i) {
        if (is_left(i) && usual[i] > 0) ratios.push_back(samples_[i][round] / usual[i]);
      }
      if (ratios.size() < 2) continue;
      factors[round] =
          std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size());
    }
    return factors;
  }

  void summarize() {
    const std::vector<double> factors = drift();
    // The factors hold a part of each candidate's own noise.
    const auto left = static_cast<double>(num_left());
    const double hidden = left < 2 ? 1 : std::sqrt(left / (left - 1));
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!is_left(i)) continue;
      std::vector<double> steady = samples_[i];
      for (size_t round = 0; round < steady.size(); ++round) steady[round] /= factors[round];
      TimedCandidate& candidate = result_.candidates[i];
      candidate.us = median(steady);
      candidate.samples = static_cast<int64_t>(steady.size());
      for (double& us : steady) us = std::fabs(us - candidate.us);
      candidate.spread = hidden * median(steady);
    }
  }

  size_t best() const {
    size_t found = 0;
    for (size_t i = 1; i < samples_.size(); ++i) {
      if (is_left(i) && result_.candidates[i].us < result_.candidates[found].us) found = i;
    }
    return found;
  }

  void drop_slow() {
    const TimedCandidate best_one = result_.candidates[best()];
    // A spread of a few samples may be far too small: what is nearly as fast stays.
    const double limit = best_one.us * (1 + rules_.least_gain) + 2 * best_one.spread;
    for (size_t i = 1; i < samples_.size(); ++i) {
      TimedCandidate& candidate = result_.candidates[i];
      if (is_left(i) && candidate.us - 2 * candidate.spread > limit) {
        candidate.dropped = fmt::format("slower after {} rounds", candidate.samples);
      }
    }
  }

  bool is_enough() const {
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!is_left(i)) continue;
      const double total = std::accumulate(samples_[i].begin(), samples_[i].end(), 0.0);
      if (total < rules_.samples_ms * 1e3) return false;
    }
    return true;
  }

  bool is_gain(const TimedCandidate& candidate) const {
    const TimedCandidate& standard = result_.candidates[0];
    const double least =
        standard.us < kShortUs ? rules_.least_gain_us : rules_.least_gain * standard.us;
    const double gain = standard.us - candidate.us;
    return gain >= least && gain >= 3 * std::max(standard.spread, candidate.spread);
  }

  size_t winner() const {
    const TimedCandidate& best_one = result_.candidates[best()];
    for (size_t i = 1; i < samples_.size(); ++i) {
      const TimedCandidate& candidate = result_.candidates[i];
      if (is_left(i) && is_gain(candidate) &&
          candidate.us - 2 * candidate.spread <= best_one.us + 2 * best_one.spread) {
        return i;
      }
    }
    return 0;
  }

  TuneTimer& timer_;
  const TuneRules& rules_;
  std::vector<std::vector<double>> samples_;  // [candidate][round]; those left have one per round
  Fastest result_;
};

}  // namespace

Fastest find_fastest(TuneTimer& timer, size_t count, const TuneRules& rules) {
  if (count == 0) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "nothing to measure",
                 .argument = "count",
                 .expected = "at least the standard candidate",
                 .got = "0"});
  }
  return Rounds(timer, count, rules).run();
}

}  // namespace tessera::kernels::jit
