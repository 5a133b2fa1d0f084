#include "kernels/mhc/parts/pre_mixes.h"

#include "kernels/mhc/parts/mix_kernel.h"
#include "kernels/mhc/parts/projection.h"

namespace tessera::kernels::mhc {
namespace {

MixSpec mix_spec(const Call& c, bool save) {
  return {c.i32("n"),
          c.i32("H"),
          c.align({"residual", "layer_input"}),
          save ? 1 : 0,
          PartSum(projection_shape(c), c.align({"workspace"})),
          0,
          1,
          {}};
}

}  // namespace

void add_pre_mixes(const Call& c, Launches& go, bool save) {
  add_projection(c, go, /*is_last_reader=*/false);
  go.add(build_mix, mix_spec(c, save), {.tensors = projected_parts(c)});
}

void add_normed_mixes(const Call& c, Launches& go) {
  if (c["T"] == 0) return;
  add_projection(c, go, /*is_last_reader=*/false);
  MixSpec spec = mix_spec(c, /*save=*/false);
  spec.has_norm = 1;
  spec.save_layer_input = c.has("layer_input") ? 1 : 0;
  spec.norm = serving::norm_output_spec(c, DType::bf16);
  if (c.word("format") == "e4m3") serving::set_cast(spec.norm, c);
  spec.norm.save_bf16 = c.flag("save_bf16");
  go.add(build_mix, spec, {.tensors = projected_parts(c)});
}

}  // namespace tessera::kernels::mhc
