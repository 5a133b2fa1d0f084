#pragma once
// Computes from a logit the score that weights are normalised from and the value that ranks
// experts.

#include "kernels/call_types.h"

namespace tessera::dsl {
class Value;
}

namespace tessera::kernels::moe {

enum class Scoring : uint8_t { sigmoid, sqrtsoftplus, softmax };

/// Parses the parameter `scoring_func`.
Scoring scoring_of(const Params& params);
std::string_view name(Scoring scoring);

/// The score of one logit, f32; softmax is exp(logit - maximum) / sum over the row.
dsl::Value expert_score(Scoring scoring, const dsl::Value& logit, const dsl::Value& maximum,
                        const dsl::Value& sum);

}  // namespace tessera::kernels::moe
