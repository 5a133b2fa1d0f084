#include "tools/lib/host_buffer.h"

#include <unistd.h>

#include <new>

namespace tessera::tools {
namespace {

constexpr int64_t kAlignment = 64;

int64_t memory_of_machine() {
  return int64_t{::sysconf(_SC_PHYS_PAGES)} * int64_t{::sysconf(_SC_PAGESIZE)};
}

}  // namespace

HostBuffer::HostBuffer(int64_t bytes) : size_(bytes) {
  if (bytes < 0 || bytes > memory_of_machine()) throw std::bad_alloc();
  // calloc maps large blocks lazily; an aligned form of it does not exist.
  storage_.reset(std::calloc(static_cast<size_t>(bytes + kAlignment), 1));
  if (storage_ == nullptr) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(storage_.get());
  const uintptr_t ahead = (kAlignment - address % kAlignment) % kAlignment;
  data_ = static_cast<std::byte*>(storage_.get()) + ahead;
}

}  // namespace tessera::tools
