#pragma once
// Exported C (tools/lib/c_export), compiled and called in the process of a test.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "tools/lib/c_export/c_export.h"

namespace tessera::test {

/// tessera_tensor of an exported header.
struct CTensorArgument {
  void* data = nullptr;
  int rank = 0;
  int64_t shape[8] = {}, strides[8] = {};
};
CTensorArgument to_c(const TensorView& view);

/// The tensors of a call in the order of the exported function; an optional one of an own kernel that the call lacks
/// has neither address nor rank.
std::vector<CTensorArgument> c_arguments(const kernels::OpInfo& op,
                                         const kernels::Tensors& tensors);

/// True if there is a `cc`.
bool has_c_compiler();
/// Compiles a C11 file to a shared library, with all warnings as errors, and opens it. Throws std::runtime_error with
/// the compiler's words.
void* compile_c(const std::string& source, const std::string& library, const std::string& include);

/// An exported function in this process.
class ExportedC {
 public:
  struct Replacement {
    std::string from, to;  // of the source
  };
  /// `scalars` are the C texts of the call's scalars.
  ExportedC(tools::CFiles files, const std::string& scalars = "",
            const std::vector<Replacement>& replacements = {});
  ~ExportedC();
  ExportedC(const ExportedC&) = delete;
  ExportedC& operator=(const ExportedC&) = delete;

  /// Returns the text of the error, "" for none. A tensor with neither address nor rank is passed as null.
  std::string operator()(const std::vector<CTensorArgument>& tensors, void* workspace,
                         size_t workspace_bytes, void* stream) const;
  void* symbol(const char* name) const;

 private:
  struct Error {
    int code;
    char text[768];
  };
  using Call = int (*)(const CTensorArgument* const*, void*, size_t, void*, Error*);

  size_t num_tensors_ = 0;
  void* library_ = nullptr;
  Call call_ = nullptr;
};

}  // namespace tessera::test
