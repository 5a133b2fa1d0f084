#pragma once
// A small image and its key, for cache tests.

#include <string>

#include "runtime/cache/key.h"
#include "runtime/image.h"

namespace tessera::test {

inline runtime::Image sample_image() {
  std::string cubin(
      "\x7F"
      "ELF\x02\x01",
      6);
  cubin.resize(64, '\0');
  cubin[18] = static_cast<char>(190);  // EM_CUDA
  runtime::Image image;
  image.op = "scale";
  image.entry = "scale_kernel";
  image.target = {9, 0, 'a'};
  image.params = {{"x", true, DType::bf16},
                  {"count", false, DType::i32},
                  {"x_map", false, DType::bf16, TensorMapParam{0, {64, 32}, 64}}};
  image.threads = 256;
  image.shared_bytes = 1024;
  image.resources = {32, 8, 16, 4096};
  image.cubin = cubin + "the code";
  image.source = "extern \"C\" __global__ void scale_kernel() {}\n";
  image.log = "ptxas info : Used 32 registers";
  image.compiler = "NVRTC 13.0, build-id aa";
  return image;
}

inline runtime::CacheKey sample_key(const std::string& spec = "spec") {
  return runtime::KeyBuilder().add("op", "scale").add("spec", spec).finish();
}

}  // namespace tessera::test
