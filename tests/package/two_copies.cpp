// two_copies LIBRARY LIBRARY: two copies of the shared library in one process, both open to everybody (RTLD_GLOBAL), each
// with a runtime of its own. Nothing of Tessera is linked.
#include <dlfcn.h>
#include <tessera/kernels/ops.h>
#include <tessera/runtime/build_info.h>
#include <tessera/runtime/runtime.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>

namespace ts = tessera;

namespace {

struct Copy {
  explicit Copy(const char* path) : library(dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
    if (!library) std::printf("%s\n", dlerror());
  }
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(dlsym(library, symbol));
  }
  ts::runtime::Runtime& runtime() const {
    return find<ts::runtime::Runtime&()>("_ZN7tessera7runtime7Runtime8instanceEv")();
  }
  ts::runtime::BuildInfo info() const {
    return find<ts::runtime::BuildInfo()>("_ZN7tessera7runtime10build_infoEv")();
  }
  bool transposes() const {
    float x[] = {1, 2, 3, 4, 5, 6}, out[6] = {};
    find<void(const ts::kernels::Transpose&, ts::kernels::Stream)>(
        "_ZN7tessera7kernels9transposeERKNS0_9TransposeEPv")(
        {.x = matrix(x, {2, 3}), .out = matrix(out, {3, 2})}, nullptr);
    return out[1] == 4 && out[5] == 6;
  }
  static ts::TensorView matrix(float* data, std::initializer_list<int64_t> shape) {
    ts::TensorView view;
    view.data = data;
    for (const int64_t extent : shape) view.shape[view.shape.rank++] = extent;
    view.strides.rank = 2;
    view.strides[0] = view.shape[1];
    view.strides[1] = 1;
    return view;
  }

  void* library;
};

}  // namespace

int main(int, char** argv) {
  const Copy one(argv[1]), other(argv[2]);
  if (!one.library || !other.library) return 1;
  const ts::runtime::BuildInfo info = one.info(), other_info = other.info();
  std::printf("%s\n%s\n", info.path.c_str(), other_info.path.c_str());
  const bool know_each_other = info.others.size() == 1 && other_info.others.size() == 1 &&
                               info.others[0].path == other_info.path &&
                               other_info.others[0].path == info.path;
  return know_each_other && info.shared && &one.runtime() != &other.runtime() && one.transposes() &&
                 other.transposes()
             ? 0
             : 1;
}
