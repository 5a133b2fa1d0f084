#pragma once
// Values made once per key: the first caller makes, callers of the same key wait for it, other keys
// never wait.

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tessera::runtime {

enum class Flight { found, waited, made };

/// The lock is held to look up and insert, never while a value is made. A failure reaches every
/// waiter and is not remembered: the next caller tries again.
template <class Value>
class SingleFlight {
 public:
  using Result = std::shared_ptr<const Value>;

  /// `make` returns a Result. `flight` says what happened.
  template <class Make>
  Result get(const std::string& key, const Make& make, Flight& flight) {
    std::unique_lock lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) {
      flight = Flight::found;
      return found->second;
    }
    if (const auto found = in_flight_.find(key); found != in_flight_.end()) {
      const std::shared_future<Result> future = found->second;
      lock.unlock();
      flight = Flight::waited;
      return future.get();
    }
    std::promise<Result> promise;
    in_flight_.emplace(key, promise.get_future().share());
    lock.unlock();
    flight = Flight::made;
    return lead(key, make, promise);
  }

  /// Takes a value out, so that the next caller makes it anew.
  void forget(const std::string& key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }

  // Around fork: the child has the values, but not the threads that were making others.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child() {
    in_flight_.clear();
    mutex_.unlock();
  }

 private:
  template <class Make>
  Result lead(const std::string& key, const Make& make, std::promise<Result>& promise) {
    try {
      Result value = make();
      {
        const std::lock_guard lock(mutex_);
        values_.emplace(key, value);
        in_flight_.erase(key);
      }
      promise.set_value(value);
      return value;
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        in_flight_.erase(key);
      }
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  std::mutex mutex_;
  std::map<std::string, Result> values_;
  std::map<std::string, std::shared_future<Result>> in_flight_;
};

}  // namespace tessera::runtime
