// The class Layout: normal form, the map and its inverse.

#include "dsl/layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "dsl/base/error.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

constexpr int64_t kMaxNumber = std::numeric_limits<int32_t>::max();  // of threads, slots, points

std::string digit_text(const Digit& digit) {
  return fmt::format("axis {}, div {}, extent {}, thread {}, slot {}", digit.axis, digit.div,
                     digit.extent, digit.thread, digit.slot);
}

void check_digit(const Digit& digit, int rank) {
  auto fail = [&](const char* what, std::string expected) {
    reject("layout", "digits", what, std::move(expected), digit_text(digit));
  };
  if (digit.axis < 0 || digit.axis >= rank) {
    fail("has a digit of an axis that the shape does not have",
         fmt::format("an axis below {}", rank));
  }
  if (digit.div < 1 || digit.extent < 1 || digit.extent > kMaxNumber) {
    fail("has a digit without values", "div and extent from 1 up, extent below 2^31");
  }
  if (digit.thread < 0 || digit.slot < 0 || digit.thread > kMaxNumber || digit.slot > kMaxNumber) {
    fail("has a digit with a bad stride", "strides from 0 up to below 2^31");
  }
  if (digit.extent > 1 && digit.thread != 0 && digit.slot != 0) {
    fail("has a digit that moves thread and slot at once", "one stride of the two");
  }
}

bool continues(const Digit& low, const Digit& high) {
  return low.axis == high.axis && high.thread == low.thread * low.extent &&
         high.slot == low.slot * low.extent;
}

/// Sorts, chains, completes and merges digits.
std::vector<Digit> normal_digits(const std::vector<int64_t>& shape, std::vector<Digit> digits) {
  std::erase_if(digits, [](const Digit& digit) { return digit.extent == 1; });
  std::sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) {
    return a.axis != b.axis ? a.axis < b.axis : a.div < b.div;
  });
  std::vector<Digit> result;
  auto append = [&result](const Digit& digit) {
    if (!result.empty() && continues(result.back(), digit)) {
      result.back().extent *= digit.extent;
    } else {
      result.push_back(digit);
    }
  };
  auto next = digits.begin();
  for (size_t a = 0; a < shape.size(); ++a) {
    const int axis = static_cast<int>(a);
    int64_t chain = 1;
    for (; next != digits.end() && next->axis == axis; ++next) {
      if (next->div != chain) {
        reject("layout", "digits", "does not chain: each div is the product of the extents below",
               fmt::format("div {}", chain), digit_text(*next));
      }
      if (next->extent > kMaxNumber / chain) {
        reject("layout", "digits", "pads an axis too far", "fewer than 2^31 indices",
               digit_text(*next));
      }
      append(*next);
      chain *= next->extent;
    }
    if (chain < shape[a]) append({axis, chain, (shape[a] + chain - 1) / chain, 0, 0});
  }
  return result;
}

/// Sorts and merges replicas, and drops those within one thread.
std::vector<Replica> normal_replicas(std::vector<Replica> replicas) {
  for (const Replica& replica : replicas) {
    if (replica.extent < 1 || replica.thread < 0 || replica.extent > kMaxNumber ||
        replica.thread > kMaxNumber) {
      reject("layout", "replicas", "has a replica out of range",
             "extent from 1 up and thread from 0 up, both below 2^31",
             fmt::format("extent {}, thread {}", replica.extent, replica.thread));
    }
  }
  std::erase_if(replicas, [](const Replica& r) { return r.extent == 1 || r.thread == 0; });
  std::sort(replicas.begin(), replicas.end(),
            [](const Replica& a, const Replica& b) { return a.thread < b.thread; });
  for (size_t low = 0; low < replicas.size(); ++low) {
    for (size_t high = low + 1; high < replicas.size();) {
      if (replicas[high].thread == replicas[low].thread * replicas[low].extent) {
        replicas[low].extent *= replicas[high].extent;
        replicas.erase(replicas.begin() + static_cast<std::ptrdiff_t>(high));
      } else {
        ++high;
      }
    }
  }
  return replicas;
}

/// Thread and slot numbers stay below 2^31, so that no sum in this folder overflows.
void check_reach(const char* number, const char* argument, const std::vector<Replica>& terms) {
  int64_t last = 0;
  for (const Replica& term : terms) {
    last += term.thread * (term.extent - 1);
    if (last >= kMaxNumber) {
      reject("layout", argument, fmt::format("reaches {} numbers that no block has", number),
             "numbers below 2^31", fmt::format("{}", last));
    }
  }
}

/// A thread or slot number is the sum of value * stride over the terms. `digit` is null for a
/// replica.
struct Term {
  int64_t stride = 0;
  int64_t extent = 1;
  const Digit* digit = nullptr;
};

/// Finds term values that add up to `rest` and writes them into `index`. Terms come by descending
/// stride: with nested strides (the usual case) each term has one possible value and the search
/// never backtracks.
bool solve(const std::vector<Term>& terms, size_t first, int64_t rest,
           std::vector<int64_t>& index) {
  if (first == terms.size()) return rest == 0;
  int64_t below = 0;  // the most that the smaller strides can add
  for (size_t i = first + 1; i < terms.size(); ++i)
    below += terms[i].stride * (terms[i].extent - 1);
  const Term& term = terms[first];
  const int64_t most = std::min(term.extent - 1, rest / term.stride);
  const int64_t least = rest <= below ? 0 : (rest - below + term.stride - 1) / term.stride;
  for (int64_t value = most; value >= least; --value) {
    if (!solve(terms, first + 1, rest - value * term.stride, index)) continue;
    if (term.digit != nullptr) {
      index[static_cast<size_t>(term.digit->axis)] += value * term.digit->div;
    }
    return true;
  }
  return false;
}

}  // namespace

Layout::Layout(std::vector<int64_t> shape, std::vector<Digit> digits, std::vector<Replica> replicas)
    : shape_(std::move(shape)) {
  check_shape("layout", shape_);
  for (const Digit& digit : digits) check_digit(digit, static_cast<int>(shape_.size()));
  digits_ = normal_digits(shape_, std::move(digits));
  replicas_ = normal_replicas(std::move(replicas));
  std::vector<Replica> threads = replicas_, slots;
  for (const Digit& digit : digits_) {
    threads.push_back({digit.extent, digit.thread});
    slots.push_back({digit.extent, digit.slot});
  }
  check_reach("thread", "digits, replicas", threads);
  check_reach("slot", "digits", slots);
}

int64_t Layout::num_threads() const {
  int64_t last = 0;
  for (const Digit& digit : digits_) last += digit.thread * (digit.extent - 1);
  for (const Replica& replica : replicas_) last += replica.thread * (replica.extent - 1);
  return last + 1;
}

int64_t Layout::num_slots() const {
  int64_t last = 0;
  for (const Digit& digit : digits_) last += digit.slot * (digit.extent - 1);
  return last + 1;
}

int64_t Layout::num_replicas() const {
  int64_t count = 1;
  for (const Replica& replica : replicas_) count *= replica.extent;
  return count;
}

int64_t Layout::padded_extent(int axis) const {
  TESSERA_CHECK(axis >= 0 && axis < static_cast<int>(shape_.size()),
                fmt::format("padded_extent of axis {}, the rank is {}", axis, shape_.size()));
  int64_t extent = 1;
  for (const Digit& digit : digits_) {
    if (digit.axis == axis) extent *= digit.extent;
  }
  return extent;
}

bool Layout::is_ragged() const {
  for (size_t axis = 0; axis < shape_.size(); ++axis) {
    if (padded_extent(static_cast<int>(axis)) > shape_[axis]) return true;
  }
  return false;
}

Place Layout::place(const std::vector<int64_t>& index, int64_t replica) const {
  TESSERA_CHECK(index.size() == shape_.size(), fmt::format("place of ({}), the rank is {}",
                                                           fmt::join(index, ", "), shape_.size()));
  Place result;
  for (const Digit& digit : digits_) {
    const int64_t value = index[static_cast<size_t>(digit.axis)] / digit.div % digit.extent;
    result.thread += value * digit.thread;
    result.slot += value * digit.slot;
  }
  for (const Replica& copies : replicas_) {
    result.thread += replica % copies.extent * copies.thread;
    replica /= copies.extent;
  }
  return result;
}

std::optional<std::vector<int64_t>> Layout::element(int64_t thread, int64_t slot) const {
  std::vector<Term> threads, slots;
  for (const Digit& digit : digits_) {
    if (digit.thread != 0) threads.push_back({digit.thread, digit.extent, &digit});
    if (digit.slot != 0) slots.push_back({digit.slot, digit.extent, &digit});
  }
  for (const Replica& replica : replicas_) {
    threads.push_back({replica.thread, replica.extent, nullptr});
  }
  auto descending = [](const Term& a, const Term& b) { return a.stride > b.stride; };
  std::sort(threads.begin(), threads.end(), descending);
  std::sort(slots.begin(), slots.end(), descending);
  std::vector<int64_t> index(shape_.size(), 0);
  if (thread < 0 || slot < 0) return std::nullopt;
  if (!solve(threads, 0, thread, index) || !solve(slots, 0, slot, index)) return std::nullopt;
  return index;
}

}  // namespace tessera::layout
