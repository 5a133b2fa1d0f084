#pragma once
// Parts of the calls of latent attention.

#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::attention {

/// Chooses the form and the tile of a kernel for tokens of `rows` queries that share their keys. The rest of the Spec
/// stands.
void choose_form(MlaSpec& s, int64_t rows, Device device);

/// The factor of scores before the exponential of base 2: sm_scale * log2 e, in double.
double latent_factor_of(const Call& c);
/// Requires a scale that makes sense. Errors: argument.
void require_latent_scale(const Call& c);
/// The elements that all rows begin at multiples of.
int32_t vector_of_rows(const TensorView& view);

}  // namespace tessera::kernels::attention
