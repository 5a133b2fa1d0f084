#pragma once
// The launches of pre_big_fuse and of mhc_pre_fwd, which saves more outputs.

#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

/// Adds the projection and the kernel of the mixes.
void add_pre_mixes(const Call& c, Launches& go, bool save);

}  // namespace tessera::kernels::mhc
