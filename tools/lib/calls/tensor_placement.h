#pragma once
// Files hold logical values, row-major; ops read and write strided storage. This is the way between
// the two.

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "dsl/base/tensor_view.h"
#include "kernels/op.h"

namespace tessera::tools {

/// Where a tensor lies: strides, and the elements to allocate (padding included).
struct Placement {
  Dims strides;
  int64_t storage_elements = 0;
};

/// The placement of an input: the strides of `metadata["strides.<tensor>"]` ("1,8064") if they are
/// there, else what the layout parameter of a scale tensor says (see ops contract: row_major,
/// col_major_tma, packed_ue8m0), else row-major. Throws Error (argument) if the text is not a list
/// of strides, if strides are negative, overflow or overlap, or if they contradict the layout
/// parameter.
Placement place_input(const kernels::OpInfo& op, const std::string& tensor, DType dtype,
                      const Dims& shape, const kernels::Params& params,
                      const std::map<std::string, std::string>& metadata);

/// Every "strides.<tensor>" of `metadata` must be of one of the tensors given, else Error (argument)
/// naming the nearest: a misspelt name would give another layout.
void check_stride_names(const kernels::OpInfo& op, const kernels::Tensors& given,
                        const std::map<std::string, std::string>& metadata);

/// The text for the metadata of an output; empty when nothing is to be written: row-major, or no
/// elements.
std::string strides_text(const Dims& shape, const Dims& strides);

/// Logical row-major elements into strided storage, and back. `element_bytes` is 1, 2, 4 or 8.
void scatter(std::span<const std::byte> logical, const Dims& shape, const Dims& strides,
             int64_t element_bytes, std::span<std::byte> storage);
void gather(std::span<const std::byte> storage, const Dims& shape, const Dims& strides,
            int64_t element_bytes, std::span<std::byte> logical);

}  // namespace tessera::tools
