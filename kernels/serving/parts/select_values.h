#pragma once
// The requirements of topk_select on its parameters and the values of its inputs.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Requires the page size to be a power of two.
void require_page_size(const Call& c);

/// Reported of a chosen column whose page is not in the table.
inline constexpr const char* kNoPage = "argument 'page_table' has too few columns";
inline constexpr const char* kNoOutPage = "argument 'out_page_table' has too few columns";

/// Requires 0 <= start <= length <= columns, the pages of chosen columns in the table, and at most one
/// entry per row in a plan.
void require_ranges(const Call& c);

}  // namespace tessera::kernels::serving
