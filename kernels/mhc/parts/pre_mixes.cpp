#include "kernels/mhc/parts/pre_mixes.h"

#include "kernels/mhc/parts/mix_kernel.h"
#include "kernels/mhc/parts/projection.h"

namespace tessera::kernels::mhc {

void add_pre_mixes(const Call& c, Launches& go, bool save) {
  add_projection(c, go, /*is_last_reader=*/false);
  const MixSpec spec = {c.i32("n"), c.i32("H"), c.align({"residual", "layer_input"}), save ? 1 : 0,
                        PartSum(projection_shape(c), c.align({"workspace"}))};
  go.add(build_mix, spec, {.tensors = projected_parts(c)});
}

}  // namespace tessera::kernels::mhc
