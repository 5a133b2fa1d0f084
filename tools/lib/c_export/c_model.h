#pragma once
// Internal to tools/lib/c_export: a call as C sees it. own_export.cpp and op_export.cpp make it, c_source.cpp writes it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/dtype.h"
#include "dsl/base/target.h"
#include "runtime/image.h"

namespace tessera::tools {

/// An integer of a call: a C expression of type int64_t that may set `bad`.
struct CNumber {
  std::string code;
  std::string formula = {};  // as a person writes it; empty: a constant
};

/// A tensor argument.
struct CTensor {
  std::string name;  // a C identifier
  DType dtype = DType::f32;
  std::string declared;  // "bf16[rows, 1000]"
  bool is_output = false, is_optional = false, may_alias = false;
  int64_t align = 1;  // bytes
  std::vector<CNumber> shape, strides;
  std::vector<bool> is_index;          // extents that indices of i32 must reach
  std::optional<CNumber> allocated{};  // bytes, where the tensor has padding
  std::string role;                    // "in", "out", "in and out"
};

/// A free extent or stride; call->dims[i] has its value.
struct CDim {
  struct Place {
    size_t tensor;
    size_t dim;
    bool is_stride;
  };
  std::string name;
  std::vector<Place> places;
  int64_t multiple = 1;
  int64_t most = 0;             // that its dtype holds
  CNumber least{"0"}, limit{};  // inclusive; no code: `most`
};

/// A scalar argument; call->scalars[i] has its value.
struct CScalar {
  std::string name;
  DType type = DType::f32;
};

/// A pointer of a kernel.
struct CPointer {
  std::string name;
  std::string code;  // of type void *
};

/// A dim or a scalar of a kernel.
struct CSlot {
  std::string name;
  std::string code;
};

struct CMap {
  std::string name, tensor;  // of the parameter; the pointer's name
  DType dtype = DType::f32;
  std::vector<std::string> shape, strides;
  std::vector<int64_t> box;
  int swizzle = 0;
  bool is_empty = false;  // the kernel writes the map
};

struct CLaunch {
  std::shared_ptr<const runtime::Image> image;
  std::vector<CPointer> pointers;
  std::vector<CSlot> slots;
  std::vector<CMap> maps;
  std::vector<std::string> grid;
};

struct CTarget {
  Target target;
  std::vector<CLaunch> launches;
};

/// At most so many: a sum of tiles and step that i32 holds.
struct CLimit {
  std::string code, text;
  int64_t most;
};

struct CCall {
  std::string name;  // of the function
  std::string op, purpose;
  std::string origin;              // the case, or the line of the kernel
  std::vector<std::string> fixed;  // sentences about what the file is specialised for
  std::vector<CTensor> tensors;
  std::vector<CDim> dims;
  std::vector<CScalar> scalars;
  std::vector<CLimit> limits;
  std::optional<CNumber> workspace;  // bytes
  bool has_barrier = false;  // cooperative kernels: their words are the end of the workspace
  std::vector<CTarget> targets;
};

}  // namespace tessera::tools
