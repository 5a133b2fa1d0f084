#pragma once
// Parts of the calls of latent attention.

#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/signature/call.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::attention {

/// Chooses the form and the tile of a kernel for tokens of `rows` queries that share their keys. The rest of the Spec
/// stands.
void choose_form(MlaSpec& s, const Call& c, int64_t rows);

/// Adds the tensors of `parts` parts, which lie in the workspace: outputs, maxima and sums, as mla_combine takes them.
void add_parts(const Call& c, int64_t parts, Args& args);

/// The factor of scores before the exponential of base 2: sm_scale * log2 e, in double.
double latent_factor_of(const Call& c);
/// Requires a scale that makes sense. Errors: argument.
void require_latent_scale(const Call& c);
/// Requires scales q_scale, if given, that make sense: the kernels give NaN for the rows of others. Errors: argument.
void require_query_scales(const Call& c);
/// The elements that all rows begin at multiples of.
int32_t vector_of_rows(const TensorView& view);

}  // namespace tessera::kernels::attention
