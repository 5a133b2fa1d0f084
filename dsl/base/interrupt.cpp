#include "dsl/base/interrupt.h"

#include <chrono>
#include <utility>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(50);

thread_local const InterruptScope* t_scope = nullptr;
thread_local Clock::time_point t_next_question;
thread_local bool t_is_over = false;

}  // namespace

InterruptScope::InterruptScope(std::function<bool()> is_over)
    : is_over_(std::move(is_over)), outer_(std::exchange(t_scope, this)) {
  t_next_question = Clock::now() + kPause;
  t_is_over = false;
}

InterruptScope::~InterruptScope() {
  t_scope = outer_;
  t_is_over = false;
}

bool is_interrupted() {
  if (t_scope == nullptr || t_is_over) return t_is_over;
  const Clock::time_point now = Clock::now();
  if (now < t_next_question) return false;
  t_next_question = now + kPause;
  t_is_over = t_scope->is_over_();
  return t_is_over;
}

}  // namespace tessera
