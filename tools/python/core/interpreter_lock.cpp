#include "tools/python/core/interpreter_lock.h"

#include <unistd.h>

namespace tessera::python {

void sleep_until_exit() noexcept {
  while (true) pause();
}

}  // namespace tessera::python
