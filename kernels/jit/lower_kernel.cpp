#include "kernels/jit/lower_kernel.h"

#include <fmt/format.h>

#include "codegen/lower.h"
#include "runtime/cache/sha256.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {

codegen::Program lower_kernel(const ir::Kernel& kernel, Target target) {
  runtime::Runtime& runtime = runtime::Runtime::instance();
  if (!runtime.options().pass_dump_dir.empty()) {
    const std::string digest = runtime::to_hex(runtime::sha256(ir::to_string(kernel)));
    const auto dump = [&](int number, std::string_view pass, const std::string& text) {
      runtime.dump_pass(
          fmt::format("{}-{}.{:02}-{}.txt", kernel.name, digest.substr(0, 8), number, pass), text);
    };
    codegen::for_each_pass(kernel, dump, target);
  }
  return codegen::lower(kernel, target);
}

}  // namespace tessera::kernels::jit
