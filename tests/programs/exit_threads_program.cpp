// Ends while it is busy, as the word says:
//   run         main returns while detached threads lower and run kernels
//   compile     the same while they bring kernels to cubins (needs NVRTC)
//   destructor  the destructor of a global object runs a kernel, after main has run one
// The global object is older than whatever a kernel leaves in static storage: when its destructor runs,
// all of that has been destroyed, and the threads go on for a while.

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "runtime/image.h"
#include "runtime/nvrtc/target.h"
#include "runtime/request.h"
#include "runtime/runtime.h"

#ifdef __SANITIZE_THREAD__
/// A thread that has ended and is not joined yet is no leak here: main returns while threads work. Libtsan finds
/// the function only where the program exports it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}
#endif

namespace {

using namespace tessera;

constexpr int kThreads = 3;
constexpr auto kWarmUp = std::chrono::milliseconds(100);
constexpr auto kAfterwards = std::chrono::milliseconds(300);

/// y = factor * x, through a fragment: another kernel for each factor.
ir::Kernel scale(float factor) {
  dsl::Builder k("scale");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 8});
  auto y = k.output("y", DType::f32, {rows, 8});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 32});
  auto tile = k.fragment(DType::f32, {4, 8}, "tile");
  k.copy(x.tile({at.x * 4, 0}, {4, 8}), tile);
  k.parallel({4, 8}, [&](auto r, auto c) { tile(r, c) = tile(r, c) * factor; });
  k.copy(tile, y.tile({at.x * 4, 0}, {4, 8}));
  return k.finish();
}

bool run_once(float factor) {
  alignas(16) float x[48], y[48] = {};
  for (float& value : x) value = 1.5f;
  const TensorView tensors[] = {{x, DType::f32, {6, 8}}, {y, DType::f32, {6, 8}}};
  kernels::jit::run(scale(factor), tensors, {}, nullptr);
  return y[47] == 1.5f * factor;
}

void compile_once(float factor) {
  alignas(16) static float x[48], y[48];
  const TensorView tensors[] = {{x, DType::f32, {6, 8}, Device::cuda(0)},
                                {y, DType::f32, {6, 8}, Device::cuda(0)}};
  const auto requests =
      kernels::jit::kernels_needed([&] { kernels::jit::run(scale(factor), tensors, {}, nullptr); });
  runtime::Runtime::instance().image(requests.at(0), {9, 0, 'a'});
}

/// Nothing is compiled once the destructors of the compiler have run.
bool is_refused() {
  try {
    compile_once(-1.0f);
    return false;
  } catch (const Error& error) {
    return std::string(error.what()).find("the process is exiting") != std::string::npos;
  }
}

void start(const std::string& word, int thread) {
  std::thread([word, thread] {
    for (int i = 0;; ++i) {
      const auto factor = static_cast<float>(i * kThreads + thread);
      word == "run" ? static_cast<void>(run_once(factor)) : compile_once(factor);
    }
  }).detach();
}

struct Oldest {
  std::string word;
  ~Oldest() {
    if (word == "destructor") {
      if (!run_once(3.0f)) std::_Exit(3);
    } else if (!word.empty()) {
      std::this_thread::sleep_for(kAfterwards);
    }
    if (word == "compile" && !is_refused()) std::_Exit(4);
  }
};
Oldest oldest;

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "destructor") {
    if (!run_once(2.0f)) return 2;
  } else if (word == "run" || word == "compile") {
    if (word == "compile")
      runtime::Runtime::instance().nvrtc();  // the loader cannot exit meanwhile
    for (int thread = 0; thread < kThreads; ++thread) start(word, thread);
    std::this_thread::sleep_for(kWarmUp);
  } else {
    return 2;
  }
  oldest.word = word;
  return 0;
}
