#include "kernels/jit/call_memo.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/call_types.h"
#include "kernels/jit/repeatable_call.h"

namespace tessera::kernels::jit {
namespace {

constexpr int kSetBits = 6;
constexpr size_t kSets = size_t{1} << kSetBits;
constexpr size_t kWays = 8;

struct Slot {
  std::vector<uint64_t> words;
  std::optional<RepeatableCall> call;
};

// A set-associative table: calls whose hashes begin alike share a set, and the oldest is evicted.
// The hashes of a set fill one cache line, and the calls of a model rarely evict each other.
class RememberedCalls {
 public:
  Slot* find(uint64_t hash) {
    Set& set = sets_[hash >> (64 - kSetBits)];
    for (size_t way = 0; way < kWays; ++way) {
      if (set.hashes[way] == hash) return &slot_of(set, way);
    }
    return nullptr;
  }
  Slot& make(uint64_t hash) {
    if (Slot* slot = find(hash)) return *slot;
    Set& set = sets_[hash >> (64 - kSetBits)];
    const size_t way = set.oldest++ % kWays;
    set.hashes[way] = hash;
    return slot_of(set, way);
  }

 private:
  struct alignas(64) Set {
    std::array<uint64_t, kWays> hashes = {};
    size_t oldest = 0;
  };
  Slot& slot_of(const Set& set, size_t way) {
    return slots_[static_cast<size_t>(&set - sets_.data()) * kWays + way];
  }

  std::vector<Set> sets_ = std::vector<Set>(kSets);
  std::vector<Slot> slots_ = std::vector<Slot>(kSets * kWays);
};

// Thread-local, so there are no locks. Destructors of other objects may still make calls after the
// thread's end has freed this memory: they get fresh memory, which is not freed.
RememberedCalls& remembered() {
  thread_local RememberedCalls* of_thread = nullptr;
  struct Owner {
    ~Owner() { delete std::exchange(of_thread, nullptr); }
  };
  if (of_thread == nullptr) {
    of_thread = new RememberedCalls;
    thread_local const Owner owner;
    static_cast<void>(owner);
  }
  return *of_thread;
}

}  // namespace

// Sums products of pairs, so that no step waits for the previous one. The high bits depend on all
// other bits.
uint64_t CallMemo::hash() const {
  uint64_t sum = 0;
  uint64_t key = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i + 1 < num_words_; i += 2) {
    sum += (words_[i] + key) * (words_[i + 1] + ~key);
    key += 0xBF58476D1CE4E5B8u;
  }
  if (num_words_ % 2 == 1) sum += words_[num_words_ - 1] * key;
  return sum;
}

void CallMemo::add(uint64_t word) {
  if (num_words_ == kMaxWords) {
    is_usable_ = false;
    return;
  }
  words_[num_words_++] = word;
}

void CallMemo::add_text(std::string_view text) {
  add(text.size());
  for (size_t at = 0; at < text.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
    add(word);
  }
}

void CallMemo::add_option(const OptionValue& value) {
  add(value.index());
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    add(static_cast<uint64_t>(*integer));
  } else if (const auto* number = std::get_if<double>(&value)) {
    add(std::bit_cast<uint64_t>(*number));
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    add(*flag ? 1 : 0);
  } else if (const auto* word = std::get_if<std::string_view>(&value)) {
    add_text(*word);
  } else if (const auto* list = std::get_if<std::span<const int64_t>>(&value)) {
    add(list->size());
    for (const int64_t item : *list) add(static_cast<uint64_t>(item));
  }
}

void CallMemo::add_tensor(const TensorView& view) {
  if (num_tensors_ == kMaxTensors || num_words_ + 1 + 2 * kMaxRank > kMaxWords) {
    is_usable_ = false;
    return;
  }
  // The full call reports the problem.
  if (static_cast<unsigned>(view.shape.rank) > unsigned{kMaxRank} ||
      static_cast<unsigned>(view.strides.rank) > unsigned{kMaxRank}) {
    is_usable_ = false;
    return;
  }
  tensors_[num_tensors_++] = &view;
  is_usable_ = is_usable_ && (is_absent(view) || view.device.is_cuda());
  uint64_t* word = &words_[num_words_];
  *word++ = static_cast<uint64_t>(view.dtype) | static_cast<uint64_t>(view.device.ordinal) << 8 |
            static_cast<uint64_t>(view.rank()) << 24 |
            static_cast<uint64_t>(view.strides.rank) << 32 | alignment_of(view.data) << 40 |
            static_cast<uint64_t>(view.read_only) << 63;
  // Copies the whole array; the next write overwrites the unused tail. Branch-free on purpose.
  for (const Dims* dims : {&view.shape, &view.strides}) {
    std::memcpy(word, dims->values.data(), sizeof(dims->values));
    word += dims->rank;
  }
  num_words_ = static_cast<size_t>(word - words_.data());
}

bool CallMemo::launch_again(Stream stream) const {
  if (!is_usable_) return false;
  const Slot* slot = remembered().find(hash());
  if (!slot || !slot->call || slot->words.size() != num_words_ ||
      std::memcmp(slot->words.data(), words_.data(), num_words_ * sizeof(uint64_t)) != 0) {
    return false;
  }
  std::array<void*, kMaxTensors> data;
  for (size_t i = 0; i < num_tensors_; ++i) data[i] = tensors_[i]->data;
  return slot->call->launch_again({data.data(), num_tensors_}, stream);
}

void CallMemo::learn(const std::function<void()>& call) const {
  if (!is_usable_) {
    call();
    return;
  }
  Slot fresh;
  fresh.call = RepeatableCall::learn({tensors_.data(), num_tensors_}, call);
  if (!fresh.call) return;
  fresh.words.assign(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(num_words_));
  remembered().make(hash()) = std::move(fresh);
}

}  // namespace tessera::kernels::jit
