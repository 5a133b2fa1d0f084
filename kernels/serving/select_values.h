#pragma once
// The requirements of topk_select on its parameters and the values of its inputs.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Requires the page size to be a power of two.
void require_page_size(const Call& c);

/// Requires 0 <= start <= length <= columns, every page of a row in the table, and at most one entry
/// per row in a plan.
void require_ranges(const Call& c);

}  // namespace tessera::kernels::serving
