#pragma once
// Safetensors files: 8 bytes of header length, a JSON header, the data of all tensors without gaps.
// The reader trusts nothing: a file that it accepts is consistent in every number.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/dtype.h"
#include "dsl/base/tensor_view.h"
#include "tools/lib/atomic_file.h"
#include "tools/lib/host_buffer.h"

namespace tessera::tools {

/// Row-major data in host memory, little endian.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  HostBuffer data;
};

struct Safetensors {
  std::vector<StoredTensor> tensors;  // read: in the order of the data; written in this order
  std::map<std::string, std::string> metadata;  // __metadata__

  /// Null if there is none of that name.
  const StoredTensor* find(std::string_view name) const;
};

/// "F8_E4M3", "BOOL", ...; dtypes without a word in files (e2m1) are a bug of the caller.
std::string_view safetensors_word(DType dtype);

/// Throws Error (argument): cannot be opened; truncated; header longer than the file or than 100
/// MB; bad JSON; anything before its '{' or after its '}' but blanks; more than 65536 tensors or
/// keys of the metadata; a name twice; a field missing, unknown or of the wrong type; an unknown
/// dtype; negative or overflowing extents; offsets misordered, out of range, overlapping or with
/// holes; a size that is not that of the shape.
/// Example: const Safetensors file = read_safetensors("x.safetensors");
Safetensors read_safetensors(const std::string& path);

/// Whole or not at all, see AtomicFile. The header is padded with spaces to a multiple of 8 bytes.
/// Throws Error (argument) for a name or a value that is not UTF-8.
void write_safetensors(const std::string& path, const Safetensors& file);
/// The same into a file that was opened before; commits it.
void write_safetensors(AtomicFile& out, const Safetensors& file);

}  // namespace tessera::tools
