#include "kernels/jit/count_scope.h"

namespace tessera::kernels::jit {
namespace {
thread_local CountScope* innermost = nullptr;
}

CountScope::CountScope() : outer_(innermost) {
  innermost = this;
}
CountScope::~CountScope() {
  innermost = outer_;
}
CountScope* CountScope::active() {
  return innermost;
}

}  // namespace tessera::kernels::jit
