#include "kernels/jit/count_scope.h"

#include <utility>

#include "kernels/jit/call_context.h"

namespace tessera::kernels::jit {

CountScope::CountScope() : outer_(std::exchange(call_context().counts, this)) {}
CountScope::~CountScope() {
  call_context().counts = outer_;
}

}  // namespace tessera::kernels::jit
