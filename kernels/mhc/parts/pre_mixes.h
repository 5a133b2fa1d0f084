#pragma once
// The launches of pre_big_fuse, of pre_big_fuse_and_norm, and of mhc_pre_fwd, which saves more outputs.

#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

/// Adds the projection and the kernel of the mixes.
void add_pre_mixes(const Call& c, Launches& go, bool save);
/// The same with the norm of the layer input; nothing without tokens.
void add_normed_mixes(const Call& c, Launches& go);

}  // namespace tessera::kernels::mhc
