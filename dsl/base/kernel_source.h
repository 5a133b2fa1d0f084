#pragma once
// The form in which codegen passes a kernel to the runtime: a text and the facts of a launch. The runtime never sees IR,
// so hand-written CUDA takes the same path.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/dtype.h"
#include "dsl/base/source_loc.h"

namespace tessera {

/// A parameter that is a tensor map: 128 bytes that the host makes of a tensor of the call, for copies of
/// boxes of it to shared memory.
struct TensorMapParam {
  static constexpr int kNoTensor = -1;  // the kernel writes address, extents and strides
  int tensor = kNoTensor;               // the parameter
  std::vector<int64_t> box;             // elements, one extent per dimension of the tensor
  int swizzle = 0;  // bytes of a row of the pattern in shared memory: 0 = none, 32, 64, 128
  friend bool operator==(const TensorMapParam&, const TensorMapParam&) = default;
};

struct KernelParam {
  std::string name;
  bool is_pointer = false;
  DType dtype = DType::i32;                // of the scalar, or of the elements behind the pointer
  std::optional<TensorMapParam> map = {};  // neither pointer nor scalar; after those
};

/// The author's line for the text from this line (counted from 1) to the next origin.
struct LineOrigin {
  int line = 0;
  SourceLoc loc;
};

struct KernelSource {
  std::string op;     // [A-Za-z_][A-Za-z0-9_]*, names dumps and cache entries
  std::string entry;  // extern "C" name in the text
  std::string text;   // self-contained CUDA C++, no #include
  std::vector<KernelParam> params;
  int threads = 0;                   // block size
  int64_t shared_bytes = 0;          // dynamic shared memory
  int cluster = 1;                   // blocks of a cluster, along x; more than 1 from sm_90 on
  std::vector<std::string> options;  // extra NVRTC options, in order
  bool waits_for_previous = false;   // contains the wait for the previous kernel in the stream
  /// All blocks run at once. The entry takes an extra pointer after `params`, to two unsigned words
  /// that no concurrent launch uses: zero at first, later as the previous launch left them.
  bool cooperative = false;
  std::vector<LineOrigin> origins;  // of a generated text, ascending
  bool calls_author_text = false;   // a generated text that calls CUDA functions of the author's
};

}  // namespace tessera
