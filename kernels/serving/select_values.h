#pragma once
// What topk_select asks of its parameters and of the values of its inputs.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// The size of pages is a power of two.
void require_page_size(const Call& c);

/// Starts and lengths lie in a row, in this order; the pages of a row are in the table; a plan has
/// every row once at most.
void require_ranges(const Call& c);

}  // namespace tessera::kernels::serving
