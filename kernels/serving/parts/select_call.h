#pragma once
// From a call that selects the best of rows to its kernel.

#include "kernels/serving/parts/select_kernel.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Adds the kernel for `rows` rows of `columns` columns, with the shape of blocks and clusters that they need.
/// `kind` as of Launches::add.
void add_select(const Call& c, Launches& go, const SelectSpec& spec, int64_t rows, int64_t columns,
                const Args& args, std::string_view kind = {});

}  // namespace tessera::kernels::serving
