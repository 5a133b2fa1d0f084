// Runs the examples of every op on the GPU and prints the digest of each output; without a GPU
// brings their kernels to cubins for sm_90a and prints their keys and the digests of these. With
// the word "no-compiler" it fails if that has opened libnvrtc. With the word "text" it prints the digests
// of the kernels' CUDA texts and compiles nothing, for sm_90a or the target that a word names; with "bench" it brings the
// kernels of the benchmark cases to the device, or to cubins, and launches nothing; with both it prints the digests of those
// too. Other words are names of ops: those, in that order.

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "kernels/op.h"
#include "kernels/views/dry_call.h"
#include "runtime/cache/sha256.h"
#include "runtime/driver/device.h"
#include "runtime/image.h"
#include "runtime/nvrtc/target.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/images/bundle_maker.h"

namespace {

using namespace tessera;

constexpr uint64_t kSeed = 22;

void print_digest(const kernels::OpInfo& op, const kernels::BenchCase& example,
                  const std::string& what, std::string_view bytes) {
  fmt::print("{} {}: {} {}\n", op.name, example.label, what,
             runtime::to_hex(runtime::sha256(bytes)));
}

void run(const kernels::OpInfo& op, const kernels::BenchCase& example) {
  tools::OpCall call(op, example, Device::cuda(0), kSeed);
  call.run();
  for (const tools::StoredTensor& output : call.results().tensors) {
    const auto bytes = output.data.bytes();
    print_digest(op, example, output.name,
                 {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

void compile(const kernels::OpInfo& op, const kernels::BenchCase& example) {
  const runtime::Target target = {9, 0, 'a'};
  for (const runtime::KernelRequest& request : tools::requests_of(op, example, target)) {
    const auto image = runtime::Runtime::instance().image(request, target);
    print_digest(op, example, image->entry + " " + image->key.hex, image->cubin);
  }
}

/// Cases of one Spec have one text: it is made once.
void lower(const kernels::OpInfo& op, const kernels::BenchCase& example, Target target) {
  static std::map<std::pair<std::string, std::string>, KernelSource> made;
  for (const runtime::KernelRequest& request : tools::requests_of(op, example, target)) {
    const auto [source, is_new] = made.try_emplace({request.op, request.spec.value()});
    if (is_new) source->second = request.emit(target);
    print_digest(op, example, source->second.entry, source->second.text);
  }
}

/// Loads the kernels of a call on the GPU.
void prepare(const kernels::OpInfo& op, const kernels::BenchCase& one) {
  const kernels::Params params = kernels::check_params(op, one.params);
  const kernels::Tensors views = kernels::placed_nowhere(
      kernels::views_with_outputs(op, kernels::views_of(one), params), Device::cuda(0));
  kernels::jit::prepare([&] { op.run(views, params, nullptr); });
}

struct Work {
  bool texts = false, bench = false;
  Target target = {9, 0, 'a'};  // of texts
};

void work_on(const kernels::OpInfo& op, const kernels::BenchCase& one, const Work& work) {
  const bool has_gpu = !work.texts && runtime::num_devices() > 0;
  if (work.texts) {
    lower(op, one, work.target);
  } else if (!has_gpu) {
    compile(op, one);
  } else {
    work.bench ? prepare(op, one) : run(op, one);
  }
}

bool is_mapped(const char* library) {
  return dlopen(library, RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  bool without_compiler = false;
  Work work;
  std::vector<kernels::OpInfo> ops;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "no-compiler") {
      without_compiler = true;
    } else if (word == "text") {
      work.texts = true;
    } else if (word == "bench") {
      work.bench = true;
    } else if (const std::optional<Target> target = parse_target(word)) {
      work.target = *target;
    } else {
      ops.push_back(kernels::find_op(std::string(word)));
    }
  }
  if (ops.empty()) ops.assign(kernels::ops().begin(), kernels::ops().end());
  int failures = 0;
  for (const kernels::OpInfo& op : ops) {
    std::vector<kernels::BenchCase> cases;
    if (work.texts || !work.bench) cases = op.examples;
    if (work.bench) cases.insert(cases.end(), op.bench.begin(), op.bench.end());
    for (const kernels::BenchCase& example : cases) {
      try {
        work_on(op, example, work);
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
