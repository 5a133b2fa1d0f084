#pragma once
// Everything a process has prepared to run, found without a lock: readers follow one atomic pointer
// to an immutable table; writers copy it. Old tables and entries are never freed, since a reader
// may still be in them.

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
      const Entry* entry = table->slots[i & table->mask];
      if (!entry) return nullptr;
      if (entry->op == op && entry->spec == spec && entry->device == device) return entry;
    }
  }

  /// Calls fn(entry) for all that are here.
  template <class Fn>
  void for_each(const Fn& fn) const {
    const Table* table = current_.load(std::memory_order_acquire);
    if (!table) return;
    for (const Entry* entry : table->slots) {
      if (entry) fn(*entry);
    }
  }

  /// The entry of that name: the one given, or one that another thread was faster to insert.
  const Entry& insert(std::unique_ptr<const Entry> entry) {
    const std::lock_guard lock(mutex_);
    if (const Entry* other = find(entry->op, entry->spec, entry->device)) return *other;
    entries_.push_back(entry.release());
    auto* table = new Table(entries_.size());
    for (const Entry* item : entries_) table->add(item);
    retired_.push_back(current_.exchange(table, std::memory_order_acq_rel));
    return *entries_.back();
  }

  // Around fork: no child begins with the lock taken.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  struct Table {
    explicit Table(size_t num_entries) {
      size_t size = 16;
      while (size < 2 * num_entries) size *= 2;  // at least half of the slots are free
      mask = size - 1;
      slots.resize(size);
    }
    void add(const Entry* entry) {
      size_t i = hash(entry->op, entry->spec, entry->device);
      while (slots[i & mask]) ++i;
      slots[i & mask] = entry;
    }
    size_t mask = 0;
    std::vector<const Entry*> slots;
  };

  static size_t hash(std::string_view op, std::string_view spec, Device device) {
    const std::hash<std::string_view> bytes;
    const auto place = static_cast<size_t>(device.ordinal) * 2 + (device.is_cuda() ? 1 : 0);
    return (bytes(op) * 31 + bytes(spec)) * 31 + place;
  }

  std::atomic<const Table*> current_ = nullptr;
  std::mutex mutex_;
  std::vector<const Entry*> entries_;
  std::vector<const Table*> retired_;  // reachable, so that leak checkers see them
};

}  // namespace tessera::kernels::jit
