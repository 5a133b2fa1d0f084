#include "kernels/moe/parts/expert_score.h"

#include "dsl/value.h"

namespace tessera::kernels::moe {

std::string_view name(Scoring scoring) {
  switch (scoring) {
    case Scoring::sigmoid:
      return "sigmoid";
    case Scoring::sqrtsoftplus:
      return "sqrtsoftplus";
    case Scoring::softmax:
      return "softmax";
  }
  return "sigmoid";
}

Scoring scoring_of(const Params& params) {
  const auto& word = std::get<std::string>(params.at("scoring_func"));
  if (word == name(Scoring::softmax)) return Scoring::softmax;
  return word == name(Scoring::sqrtsoftplus) ? Scoring::sqrtsoftplus : Scoring::sigmoid;
}

dsl::Value expert_score(Scoring scoring, const dsl::Value& logit, const dsl::Value& maximum,
                        const dsl::Value& sum) {
  using namespace dsl;
  switch (scoring) {
    case Scoring::sigmoid:
      return 1.0f / (1.0f + exp(-logit));
    case Scoring::sqrtsoftplus:
      return sqrt(select(logit > 20.0f, logit, log1p(exp(logit))));
    case Scoring::softmax:
      return exp(logit - maximum) / sum;
  }
  return logit;
}

}  // namespace tessera::kernels::moe
