// Runs the examples of every op on the GPU and prints the digest of each output. With the word "no-compiler" it fails
// if that has opened libnvrtc.

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "runtime/cache/sha256.h"
#include "tools/lib/op_call.h"

namespace {

using namespace tessera;

constexpr uint64_t kSeed = 22;

void run(const kernels::OpInfo& op, const kernels::BenchCase& example) {
  tools::OpCall call(op, example, Device::cuda(0), kSeed);
  call.run();
  for (const tools::StoredTensor& output : call.results().tensors) {
    const auto bytes = output.data.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    fmt::print("{} {}: {} {}\n", op.name, example.label, output.name,
               runtime::to_hex(runtime::sha256(text)));
  }
}

bool is_mapped(const char* library) {
  return dlopen(library, RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const bool without_compiler = argc > 1 && std::string_view(argv[1]) == "no-compiler";
  int failures = 0;
  for (const kernels::OpInfo& op : kernels::ops()) {
    for (const kernels::BenchCase& example : op.examples) {
      try {
        run(op, example);
      } catch (const Error& error) {
        fmt::print("{} {}: {}\n", op.name, example.label, error.what());
        ++failures;
      }
    }
  }
  if (without_compiler && (is_mapped("libnvrtc.so.13") || is_mapped("libnvrtc.so.12"))) {
    fmt::print("libnvrtc is mapped\n");
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}
