#pragma once
// Table look-up in eight bytes: one instruction selects four of them.

#include "dsl/builder.h"

namespace tessera::kernels {

/// Selects four bytes of the eight bytes high:low (u32 each), by the selectors in bits 0-2, 4-6, 8-10 and
/// 12-14 of `selectors`, a u32 whose bits 3, 7, 11 and 15 are 0. Bits 16 to 31 say nothing.
///
/// Example: byte_perm(k, u32(0x33221100), u32(0x77665544), u32(0x7520))  // 0x77552200
dsl::Value byte_perm(dsl::Builder& k, const dsl::Arg& low, const dsl::Arg& high,
                     const dsl::Arg& selectors);

}  // namespace tessera::kernels
