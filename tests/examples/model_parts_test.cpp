// Each part of examples/model against its definition in f64, from the inputs that it had: a difference is that of one part.

#include <algorithm>
#include <cmath>
#include <string>

#include "examples/model/model.h"
#include "tests/examples/model_reference.h"
#include "tests/support/catch.h"

namespace tessera::test {
namespace {

using model::kHidden, model::kStreams;

constexpr int64_t kLength = 134;
// The first token; one with entries of ratio 4; the end of the first window of ratio 128; tokens with more entries than
// they may see.
constexpr int64_t kRows[] = {0, 39, 127, 131, 133};

/// A row of a matrix.
Vector row_of(const Vector& all, int64_t row) {
  const auto width = static_cast<int64_t>(all.size()) / kLength;
  return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

/// The length of a - b, in lengths of b.
double difference(const Vector& a, const Vector& b) {
  REQUIRE(a.size() == b.size());
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) apart += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(apart / size);
}

// One rounding to bf16 is 2^-9 of a value at most. A part rounds what lies between its products and its result, a few
// times; errors of different channels are independent.
constexpr double kBf16 = 0x1p-9, kSeveralBf16 = 3 * kBf16;
// One rounding to e4m3 is 2^-4 of a value at most. Experts round rows and activations.
constexpr double kE4m3 = 0x1p-4, kExperts = 2 * kE4m3;

/// Follows a step from part to part.
class Follower {
 public:
  Follower(model::Model& model, const model::Step& step, const model::Request& request)
      : w_(model.weights()), a_(model.activations(step.shape)), step_(step), request_(request) {}

  void see(const std::string& name) {
    CAPTURE(name);
    const size_t comma = name.find(", ");
    if (comma == std::string::npos) return name == "head" ? see_head() : see_start(name);
    const auto layer = static_cast<size_t>(std::stoi(name.substr(6)));
    const std::string part = name.substr(comma + 2);
    if (part == "Engram") see_engram(w_.layers[layer].engram);
    if (part == "boundary") see_boundary(w_.layers[layer]);
    if (part == "attention") see_attention(layer);
    if (part == "experts") see_experts(w_.layers[layer].experts);
  }

 private:
  void see_start(const std::string& name) {
    if (name != "embedding") return;
    output_ = values_of(a_.output);
    const Vector embedding = values_of(w_.embedding);
    for (const int64_t row : kRows) {
      const auto first = embedding.begin() + request_.tokens[static_cast<size_t>(row)] * kHidden;
      CHECK(row_of(output_, row) == Vector(first, first + kHidden));
    }
    streams_.assign(static_cast<size_t>(kLength * kStreams * kHidden), 0);
    post_.assign(static_cast<size_t>(kLength * kStreams), 1);
    comb_.assign(static_cast<size_t>(kLength * kStreams * kStreams), 0);
  }

  Vector next(int64_t row) const {
    return next_streams(row_of(output_, row), row_of(streams_, row), row_of(post_, row),
                        row_of(comb_, row));
  }

  void see_engram(const model::EngramWeights& w) {
    const Vector got = values_of(a_.streams[1 - spare_]);
    for (const int64_t row : kRows) {
      CHECK(difference(row_of(got, row), recalled(w, request_.tokens, row, next(row))) <
            kSeveralBf16);
    }
    streams_ = got;
    std::fill(post_.begin(), post_.end(), 0);
    for (size_t i = 0; i < comb_.size(); ++i) comb_[i] = i % 16 % 5 == 0 ? 1 : 0;
  }

  void see_boundary(const model::LayerWeights& layer) {
    const model::MixWeights& w = attended_ ? layer.before_experts : layer.before_attention;
    const Vector got = values_of(a_.streams[spare_]), post = values_of(a_.post[spare_]);
    const Vector comb = values_of(a_.comb[spare_]);
    input_ = values_of(a_.input);
    for (const int64_t row : kRows) {
      CHECK(difference(row_of(got, row), next(row)) < kBf16);
      const Mixed expected = mixed_input(w, row_of(got, row));
      CHECK(difference(row_of(input_, row), expected.input) < kSeveralBf16);
      // The projection is by tf32, 10 bits of each factor.
      CHECK(difference(row_of(post, row), expected.post) < 1e-3);
      CHECK(difference(row_of(comb, row), expected.comb) < 1e-3);
    }
    streams_ = got, post_ = post, comb_ = comb;
    spare_ = 1 - spare_;
  }

  /// The entries that a row sees. `choice` are the slots of its keys.
  std::vector<int64_t> entries_of(const AttentionReference& reference, int64_t row,
                                  bool by_indexer) {
    const int64_t count = reference.num_entries(row);
    const auto window = std::min<int64_t>(row + 1, model::kWindow);
    const std::vector<int32_t>& pages = by_indexer ? request_.pages4 : request_.pages128;
    const std::vector<int32_t> lists =
        (by_indexer ? a_.keys4 : step_.keys128.tensor).download<int32_t>();
    std::vector<int64_t> entries;
    int64_t keys = 0;
    for (int64_t i = 0; i < model::kKeys; ++i) {
      const int32_t slot = lists[static_cast<size_t>(row * model::kKeys + i)];
      if (slot < 0 || keys++ < window) continue;  // the window comes first
      const auto page = std::find(pages.begin(), pages.end(), slot / model::kPageSize);
      REQUIRE(page != pages.end());
      entries.push_back((page - pages.begin()) * model::kPageSize + slot % model::kPageSize);
    }
    REQUIRE(static_cast<int64_t>(entries.size()) == std::min(count, model::kEntries));
    if (!by_indexer) return entries;
    // Codes of e4m3 are the scores' only coarse rounding; entries whose scores are closer than it may change places.
    Vector scores = reference.scores(row);
    double size = 0, least = INFINITY, best_left = -INFINITY;
    for (size_t entry = 0; entry < scores.size(); ++entry) {
      const bool is_chosen =
          std::find(entries.begin(), entries.end(), static_cast<int64_t>(entry)) != entries.end();
      if (is_chosen) least = std::min(least, scores[entry]);
      if (!is_chosen) best_left = std::max(best_left, scores[entry]);
      size = std::max(size, std::abs(scores[entry]));
    }
    CHECK(best_left - least < kE4m3 * size);
    return entries;
  }

  void see_attention(size_t layer) {
    attended_ = true;
    std::vector<Vector> inputs;
    for (int64_t row = 0; row < kLength; ++row) inputs.push_back(row_of(input_, row));
    const AttentionReference reference(w_, layer, inputs);
    output_ = values_of(a_.output);
    for (const int64_t row : kRows) {
      const std::vector<int64_t> entries =
          entries_of(reference, row, model::kLayers[layer].ratio == 4);
      CHECK(difference(row_of(output_, row), reference.output(row, entries)) < 2 * kSeveralBf16);
    }
  }

  void see_experts(const model::ExpertWeights& w) {
    attended_ = false;
    output_ = values_of(a_.output);
    for (const int64_t row : kRows) {
      const Vector input = row_of(input_, row);
      const Routed choice = routed(w, input, request_.tokens[static_cast<size_t>(row)]);
      CHECK(difference(row_of(output_, row), expert_output(w, input, choice)) < kExperts);
    }
  }

  void see_head() {
    const Vector got = values_of(a_.logits);
    for (const int64_t row : kRows) {
      CHECK(difference(row_of(got, row), logits(w_, next(row))) < 2 * kSeveralBf16);
    }
  }

  const model::Weights& w_;
  const model::Activations& a_;
  const model::Step& step_;
  const model::Request& request_;
  Vector input_, output_, streams_, post_, comb_;
  int spare_ = 0;
  bool attended_ = false;
};

}  // namespace

TEST_CASE("every part of the model is what its definition says", "[model][slow]") {
  model::Model model(Device::cpu(), 1);
  model::Pages pages;
  model::Request request;
  for (int32_t i = 0; i < kLength; ++i) request.tokens.push_back((i * i * 37 + i * 11) % 251);
  model::Step& step = model.step({kLength, 1, false});
  const model::Part part{&request, kLength};
  model::plan(step, {&part, 1}, pages);
  Follower follower(model, step, request);
  model.run(step, [&](const std::string& name, const std::function<void()>& run) {
    run();
    follower.see(name);
  });
}

}  // namespace tessera::test
