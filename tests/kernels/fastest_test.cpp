// The measuring of the tuner on scripted times (U43).

#include "kernels/jit/fastest.h"

#include <cmath>
#include <functional>
#include <random>
#include <stdexcept>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::kernels::jit;

namespace {

/// Base times with noise of 1 %; `script` may change a sample.
class FakeTimer final : public TuneTimer {
 public:
  using Script = std::function<double(size_t candidate, int round, double us)>;
  FakeTimer(std::vector<double> base, unsigned seed, Script script = {})
      : base_(std::move(base)),
        calls_(base_.size(), 0),
        random_(seed),
        script_(std::move(script)) {}

  double sample_us(size_t candidate) override {
    const double us = base_[candidate] * (1 + 0.01 * noise_(random_));
    const double shown = script_ ? script_(candidate, calls_[candidate], us) : us;
    ++calls_[candidate];
    seconds_ += 1e-3;
    return shown;
  }
  double elapsed_s() override { return seconds_; }
  int calls(size_t candidate) const { return calls_[candidate]; }

 private:
  std::vector<double> base_;
  std::vector<int> calls_;
  std::mt19937 random_;
  std::normal_distribution<double> noise_;
  Script script_;
  double seconds_ = 0;
};

}  // namespace

TEST_CASE("the tuner finds a clear winner with every seed (U43)", "[tune]") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    FakeTimer timer({100, 120, 80, 100}, seed);
    const Fastest found = find_fastest(timer, 4);
    CHECK(found.winner == 2);
    CHECK(std::abs(found.candidates[2].us - 80) < 1);
    CHECK(found.candidates[1].dropped == "slower after 5 rounds");
    CHECK(timer.calls(1) == 5);
    CHECK(found.candidates[0].dropped.empty());  // the standard one stays
  }
}

TEST_CASE("the tuner keeps the standard candidate within noise (U43)", "[tune]") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    FakeTimer timer({100, 99, 98.5, 100.5}, seed);
    CHECK(find_fastest(timer, 4).winner == 0);
    FakeTimer short_kernel({4, 3.9, 3.92}, seed);  // 2.5 % and 0.1 us
    CHECK(find_fastest(short_kernel, 3).winner == 0);
  }
}

TEST_CASE("of the candidates within noise of the best, the first wins (U43)", "[tune]") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    FakeTimer timer({100, 80.2, 80, 80.1}, seed);
    CHECK(find_fastest(timer, 4).winner == 1);
  }
}

TEST_CASE("drift of the clock changes no winner (U43)", "[tune]") {
  const auto drift = [](size_t, int round, double us) { return us * (1 + 0.2 * round / 300.0); };
  for (unsigned seed = 0; seed < 100; ++seed) {
    FakeTimer gain({100, 90, 130}, seed, drift);
    CHECK(find_fastest(gain, 3).winner == 1);
    FakeTimer tie({100, 99, 100}, seed, drift);
    CHECK(find_fastest(tie, 3).winner == 0);
  }
}

TEST_CASE("a candidate that is slow at first still wins (U43)", "[tune]") {
  const auto late = [](size_t candidate, int round, double us) {
    return candidate == 1 && round < 2 ? 3 * us : us;
  };
  for (unsigned seed = 0; seed < 100; ++seed) {
    FakeTimer timer({100, 80}, seed, late);
    CHECK(find_fastest(timer, 2).winner == 1);
  }
}

TEST_CASE("a candidate that throws is dropped, the standard one may not (U43)", "[tune]") {
  FakeTimer timer({100, 50, 80}, 1, [](size_t candidate, int round, double us) {
    if (candidate == 1 && round == 3) throw std::runtime_error("too few registers");
    return us;
  });
  const Fastest found = find_fastest(timer, 3);
  CHECK(found.winner == 2);
  CHECK(found.candidates[1].dropped == "too few registers");
  FakeTimer broken({100, 50}, 1, [](size_t candidate, int, double us) {
    if (candidate == 0) throw std::runtime_error("no device");
    return us;
  });
  CHECK_THROWS_WITH(find_fastest(broken, 2), "no device");
  CHECK_THROWS_AS(find_fastest(broken, 0), Error);
}

TEST_CASE("the tuner keeps its budget (U43)", "[tune]") {
  FakeTimer timer({1, 1}, 1);
  const Fastest found = find_fastest(timer, 2, {.budget_s = 0.02});
  CHECK(found.out_of_budget);
  CHECK(found.winner == 0);
  CHECK(timer.elapsed_s() <= 0.023);
}
