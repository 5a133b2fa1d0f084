#pragma once
// Lock-free lookup of all that a process has prepared to run. Readers follow one atomic pointer to a
// table; writers fill its free slots, and copy a full table to one of twice the size. Old tables and
// entries are never freed, since a reader may still use them.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/tensor_view.h"

namespace tessera::kernels::jit {

/// Entry needs members `op`, `spec` (strings) and `device`.
template <class Entry>
class OpTable {
 public:
  /// Null if there is none.
  const Entry* find(std::string_view op, std::string_view spec, Device device) const {
    const Table* table = current_.load(std::memory_order_acquire);
    if (!table) return nullptr;
    for (size_t i = hash(op, spec, device);; ++i) {
      const Entry* entry = table->slots[i & table->mask].load(std::memory_order_acquire);
      if (!entry) return nullptr;
      if (entry->op == op && entry->spec == spec && entry->device == device) return entry;
    }
  }

  /// Calls fn(entry) for all entries.
  template <class Fn>
  void for_each(const Fn& fn) const {
    const Table* table = current_.load(std::memory_order_acquire);
    if (!table) return;
    for (const auto& slot : table->slots) {
      if (const Entry* entry = slot.load(std::memory_order_acquire)) fn(*entry);
    }
  }

  /// Returns the entry of that name: the given one, or one that another thread inserted first.
  const Entry& insert(std::unique_ptr<const Entry> entry) {
    const std::lock_guard lock(mutex_);
    if (const Entry* other = find(entry->op, entry->spec, entry->device)) return *other;
    entries_.push_back(entry.release());
    if (!tables_.empty() && tables_.back()->has_room_for(entries_.size())) {
      tables_.back()->add(entries_.back());
      return *entries_.back();
    }
    tables_.push_back(new Table(entries_.size()));
    for (const Entry* item : entries_) tables_.back()->add(item);
    current_.store(tables_.back(), std::memory_order_release);
    return *entries_.back();
  }

  // Around fork: no child starts with the lock held.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  struct Table {
    explicit Table(size_t num_entries) : slots(size_for(num_entries)), mask(slots.size() - 1) {}
    static size_t size_for(size_t num_entries) {
      size_t size = 16;
      while (size < 2 * num_entries) size *= 2;  // at least half of the slots are free
      return size;
    }
    bool has_room_for(size_t num_entries) const { return 2 * num_entries <= slots.size(); }
    void add(const Entry* entry) {
      size_t i = hash(entry->op, entry->spec, entry->device);
      while (slots[i & mask].load(std::memory_order_relaxed)) ++i;
      slots[i & mask].store(entry, std::memory_order_release);
    }
    std::vector<std::atomic<const Entry*>> slots;
    const size_t mask;
  };

  static size_t hash(std::string_view op, std::string_view spec, Device device) {
    const std::hash<std::string_view> bytes;
    const auto place = static_cast<size_t>(device.ordinal) * 2 + (device.is_cuda() ? 1 : 0);
    return (bytes(op) * 31 + bytes(spec)) * 31 + place;
  }

  std::atomic<const Table*> current_ = nullptr;
  std::mutex mutex_;
  std::vector<const Entry*> entries_;
  std::vector<Table*> tables_;  // the last is current; the others are kept for leak checkers
};

}  // namespace tessera::kernels::jit
