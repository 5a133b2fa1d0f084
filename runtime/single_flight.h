#pragma once
// Makes each value once per key. Concurrent callers of one key wait for the first; other keys never
// wait.

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "dsl/base/error.h"
#include "runtime/nvrtc/compile.h"  // kCancelled

namespace tessera::runtime {

enum class Flight { found, waited, made };

/// The lock is held for lookup and insertion, never while a value is made. A failure reaches every
/// waiter and is not remembered: the next caller tries again.
template <class Value>
class SingleFlight {
 public:
  using Result = std::shared_ptr<const Value>;

  /// `hits` counts values found, `waits` callers from the moment they wait.
  SingleFlight(std::atomic<int64_t>& hits, std::atomic<int64_t>& waits)
      : hits_(hits), waits_(waits) {}

  /// `make` returns a Result. `flight` says what happened.
  template <class Make>
  Result get(const std::string& key, const Make& make, Flight& flight) {
    std::unique_lock lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) {
      flight = Flight::found;
      ++hits_;
      return found->second;
    }
    if (const auto found = in_flight_.find(key); found != in_flight_.end()) {
      const std::shared_future<Outcome> future = found->second;
      lock.unlock();
      flight = Flight::waited;
      ++waits_;
      const Outcome& outcome = future.get();
      if (outcome.error) throw Error(*outcome.error);
      return outcome.value;
    }
    std::promise<Outcome> promise;
    in_flight_.emplace(key, promise.get_future().share());
    lock.unlock();
    flight = Flight::made;
    return lead(key, make, promise);
  }

  /// Removes a value, so that the next caller makes it anew.
  void forget(const std::string& key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }

  // Around fork: the child has the values but not the threads that were making others.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child() {
    in_flight_.clear();
    mutex_.unlock();
  }

 private:
  /// Errors are passed on as fields: each waiter throws its own exception object.
  struct Outcome {
    Result value;
    std::optional<ErrorFields> error;
  };

  void land(const std::string& key, const Result& value) {
    const std::lock_guard lock(mutex_);
    if (value) values_.emplace(key, value);
    in_flight_.erase(key);
  }

  template <class Make>
  Result lead(const std::string& key, const Make& make, std::promise<Outcome>& promise) {
    try {
      Result value = make();
      land(key, value);
      promise.set_value({value, std::nullopt});
      return value;
    } catch (const Error& error) {
      land(key, nullptr);
      promise.set_value({nullptr, error.fields()});
      throw;
    } catch (...) {  // out of memory
      land(key, nullptr);
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  std::atomic<int64_t>& hits_;
  std::atomic<int64_t>& waits_;
  std::mutex mutex_;
  std::map<std::string, Result> values_;
  std::map<std::string, std::shared_future<Outcome>> in_flight_;
};

/// Does the same, but a caller who waited for a compile that was cancelled tries again itself.
template <class Value, class Make>
std::shared_ptr<const Value> get_despite_cancelled_leader(SingleFlight<Value>& flights,
                                                          const std::string& key,
                                                          const std::stop_token& stop,
                                                          const Make& make, Flight& flight) {
  for (;;) {
    try {
      return flights.get(key, make, flight);
    } catch (const Error& error) {
      const bool led_by_other = flight == Flight::waited && error.code() == kCancelled;
      if (!led_by_other || stop.stop_requested()) throw;
    }
  }
}

}  // namespace tessera::runtime
