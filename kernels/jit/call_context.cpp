#include "kernels/jit/call_context.h"

namespace tessera::kernels::jit {

CallContext& call_context() {
  thread_local CallContext context;
  return context;
}

}  // namespace tessera::kernels::jit
