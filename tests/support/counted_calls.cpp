#include "tests/support/counted_calls.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <new>

namespace tessera::test {
namespace {

thread_local CallCounts g_counts;

template <class Lock>
int take(const char* name, Lock* lock) {
  using Take = int (*)(Lock*);
  const auto real = reinterpret_cast<Take>(dlsym(RTLD_NEXT, name));
  ++g_counts.locks;
  return real(lock);
}

void* allocate_or_null(std::size_t bytes) noexcept {
  ++g_counts.allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate(std::size_t bytes) {
  if (void* memory = allocate_or_null(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

CallCounts counted_calls() {
  return g_counts;
}

}  // namespace tessera::test

void* operator new(std::size_t bytes) {
  return tessera::test::allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return tessera::test::allocate(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return tessera::test::allocate_or_null(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return tessera::test::take("pthread_mutex_lock", mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return tessera::test::take("pthread_rwlock_rdlock", lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return tessera::test::take("pthread_rwlock_wrlock", lock);
}

}  // extern "C"
