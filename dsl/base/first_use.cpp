#include "dsl/base/first_use.h"

#include <pthread.h>

#include <mutex>

#include "dsl/base/callbacks.h"

namespace tessera {
namespace {

constinit std::mutex g_mutex;
constinit thread_local int g_depth = 0;

[[maybe_unused]] const bool g_registered = [] {
  FirstUseLock::register_for_fork();  // registered before any thread starts
  return true;
}();

}  // namespace

void FirstUseLock::hold() {
  DeferCallbacks::begin();
  if (g_depth++ == 0) g_mutex.lock();
}
void FirstUseLock::release() {
  if (--g_depth == 0) g_mutex.unlock();
  DeferCallbacks::end();
}
void FirstUseLock::register_for_fork() {
  [[maybe_unused]] static const int registered = pthread_atfork(hold, release, release);
}

}  // namespace tessera
