#include "tests/reference/hisparse.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

int64_t integer(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  if (tensor.dtype() == DType::i16) return static_cast<int16_t>(static_cast<uint16_t>(bits));
  if (tensor.dtype() == DType::i32) return static_cast<int32_t>(static_cast<uint32_t>(bits));
  return static_cast<int64_t>(bits);
}

void set(HostTensor& tensor, int64_t element, int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  const DType dtype = tensor.dtype();
  tensor.set_bits(element, dtype == DType::i16   ? bits & 0xFFFF
                           : dtype == DType::i32 ? bits & 0xFFFFFFFF
                                                 : bits);
}

void fill(HostTensor& tensor, int64_t value) {
  for (int64_t i = 0; i < tensor.size(); ++i) set(tensor, i, value);
}

void copy_row(const HostTensor& from, int64_t source, HostTensor& to, int64_t target) {
  const int64_t columns = from.shape()[1];
  if (source < 0 || source >= from.shape()[0] || target < 0 || target >= to.shape()[0]) return;
  for (int64_t i = 0; i < columns; ++i) {
    to.set_bits(target * columns + i, from.bits(source * columns + i));
  }
}

/// The row of the state tables of each request; -1 for one that does not count.
std::vector<int64_t> states_of(const HostTensors& tensors) {
  const HostTensor& req = tensors.at("req");
  const auto given = tensors.find("num_reqs");
  const int64_t count =
      given == tensors.end() ? req.size() : std::min(integer(given->second, 0), req.size());
  std::vector<int64_t> states(static_cast<size_t>(req.size()), -1);
  std::set<int64_t> seen;
  for (int64_t b = 0; b < count; ++b) {
    const int64_t q = integer(req, b);
    const bool is_new = seen.insert(q).second;
    if (is_new && q >= 0 && q < tensors.at("hot_slots").shape()[0]) {
      states[static_cast<size_t>(b)] = q;
    }
  }
  return states;
}

/// One request of hisparse_swap_in.
class Swap {
 public:
  Swap(const HostTensors& in, HostTensors& out, int64_t b, int64_t q)
      : in_(in), out_(out), b_(b), q_(q), slots_(in.at("lru").shape()[1]) {
    const int64_t longest = in.at("host_loc").shape()[1];
    length_ = std::clamp<int64_t>(integer(in.at("seq_len"), b), 0, longest);
    const Dims& shape = in.at("tokens").shape();
    entries_ = shape[1] * shape[2];
  }

  void run() {
    if (length_ <= slots_) {
      for (int64_t j = 0; j < entries_; ++j) {
        const int64_t token = wanted(j);
        if (token >= 0) locate(j, token);
      }
      return;
    }
    std::map<int64_t, int64_t> place;  // slot of each token
    std::set<int64_t> all;
    for (int64_t j = 0; j < entries_; ++j) all.insert(wanted(j));
    if (all.contains(length_ - 1)) place[length_ - 1] = slots_;
    std::vector<int64_t> hits, evictable, taken;
    HostTensor &lru = out_.at("lru"), &held = out_.at("hot_tokens");
    for (int64_t i = 0; i < slots_; ++i) {
      int64_t slot = integer(lru, q_ * slots_ + i);
      if (slot < 0 || slot >= slots_) slot = 0;
      const int64_t token = integer(held, q_ * (slots_ + 1) + slot);
      const bool is_hit = token >= 0 && token != length_ - 1 && all.contains(token);
      (is_hit ? hits : evictable).push_back(slot);
      if (is_hit) place[token] = slot;
    }
    for (int64_t j = 0; j < entries_; ++j) {
      const int64_t token = wanted(j);
      if (token < 0 || place.contains(token) || host_row(token) < 0) continue;
      if (taken.size() == evictable.size()) continue;
      const int64_t slot = evictable[taken.size()];
      taken.push_back(slot);
      place[token] = slot;
      set(held, q_ * (slots_ + 1) + slot, token);
      note(host_row(token), device_row(slot));
    }
    std::vector<int64_t> order(evictable.begin() + std::ssize(taken), evictable.end());
    order.insert(order.end(), taken.begin(), taken.end());
    order.insert(order.end(), hits.begin(), hits.end());
    for (int64_t i = 0; i < slots_; ++i) {
      set(lru, q_ * slots_ + i, order[static_cast<size_t>(i)]);
    }
    for (int64_t j = 0; j < entries_; ++j) {
      const auto found = place.find(wanted(j));
      if (found != place.end()) locate(j, found->second);
    }
  }

 private:
  int64_t wanted(int64_t j) const {
    const int64_t token = integer(in_.at("tokens"), b_ * entries_ + j);
    return token >= 0 && token < length_ ? token : -1;
  }

  int64_t device_row(int64_t slot) const {
    const int64_t row = integer(in_.at("hot_slots"), q_ * (slots_ + 1) + slot);
    return row >= 0 && row < in_.at("cache").shape()[0] ? row : -1;
  }

  int64_t host_row(int64_t token) const {
    const HostTensor& rows = in_.at("host_loc");
    const int64_t row = integer(rows, q_ * rows.shape()[1] + token);
    return row >= 0 && row < in_.at("host").shape()[0] ? row : -1;
  }

  void locate(int64_t j, int64_t slot) {
    set(out_.at("locations"), b_ * entries_ + j, device_row(slot));
  }

  void note(int64_t source, int64_t target) {
    const int64_t entry = b_ * entries_ + misses_++;
    set(out_.at("miss_list"), 2 * entry, source);
    set(out_.at("miss_list"), 2 * entry + 1, target);
    set(out_.at("miss_count"), b_, misses_);
    copy_row(in_.at("host"), source, out_.at("cache"), target);
  }

  const HostTensors& in_;
  HostTensors& out_;
  const int64_t b_, q_, slots_;
  int64_t length_ = 0, entries_ = 0, misses_ = 0;
};

}  // namespace

HostTensors hisparse_swap_in(const HostTensors& tensors, bool save_misses) {
  const HostTensor& tokens = tensors.at("tokens");
  const int64_t batch = tokens.shape()[0], entries = tokens.shape()[1] * tokens.shape()[2];
  HostTensors out;
  for (const char* name : {"hot_tokens", "lru", "cache"}) out[name] = tensors.at(name);
  out["locations"] = HostTensor(DType::i32, tokens.shape());
  out["miss_list"] = HostTensor(DType::i64, {batch, entries, 2});
  out["miss_count"] = HostTensor(DType::i32, {batch});
  fill(out["locations"], -1);
  fill(out["miss_list"], -1);
  fill(out["miss_count"], 0);
  const std::vector<int64_t> states = states_of(tensors);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t q = states[static_cast<size_t>(b)];
    if (q >= 0) Swap(tensors, out, b, q).run();
  }
  if (!save_misses) {
    out.erase("miss_list");
    out.erase("miss_count");
  }
  return out;
}

HostTensors hisparse_replay(const HostTensors& tensors) {
  HostTensor cache = tensors.at("cache");
  const HostTensor &list = tensors.at("miss_list"), &counts = tensors.at("miss_count");
  const int64_t entries = list.shape()[1];
  for (int64_t b = 0; b < counts.size(); ++b) {
    for (int64_t r = 0; r < std::min(integer(counts, b), entries); ++r) {
      const int64_t entry = 2 * (b * entries + r);
      copy_row(tensors.at("host"), integer(list, entry), cache, integer(list, entry + 1));
    }
  }
  return {{"cache", std::move(cache)}};
}

HostTensors hisparse_backup(const HostTensors& tensors) {
  HostTensor host = tensors.at("host");
  const HostTensor &slots = tensors.at("hot_slots"), &rows = tensors.at("host_loc");
  const std::vector<int64_t> states = states_of(tensors);
  for (int64_t b = 0; b < std::ssize(states); ++b) {
    const int64_t q = states[static_cast<size_t>(b)], length = integer(tensors.at("seq_len"), b);
    if (q < 0 || length <= 0 || length > rows.shape()[1]) continue;
    const int64_t columns = slots.shape()[1], slot = length >= columns ? columns - 1 : length - 1;
    copy_row(tensors.at("cache"), integer(slots, q * columns + slot), host,
             integer(rows, q * rows.shape()[1] + length - 1));
  }
  return {{"host", std::move(host)}};
}

Runner hisparse_runner(const std::string& op) {
  if (op == "hisparse_swap_in") {
    return [](const HostTensors& in, const Params& params) {
      const auto saves = params.find("save_misses");
      return hisparse_swap_in(in, saves != params.end() && std::get<bool>(saves->second));
    };
  }
  if (op == "hisparse_replay") {
    return [](const HostTensors& in, const Params&) { return hisparse_replay(in); };
  }
  if (op == "hisparse_backup") {
    return [](const HostTensors& in, const Params&) { return hisparse_backup(in); };
  }
  return nullptr;
}

}  // namespace tessera::reference
