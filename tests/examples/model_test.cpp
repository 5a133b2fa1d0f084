// The model of examples/model: no bit of a text depends on the texts beside it or on the steps it is read in.

#include "examples/model/model.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "tests/support/catch.h"

namespace tessera::test {
namespace {

using model::Model, model::Pages, model::Part, model::Request, model::Shape;
using Row = std::vector<float>;  // the logits of a token

Request request_of(const std::string& text, int32_t ring) {
  Request request;
  for (const char c : text) request.tokens.push_back(static_cast<uint8_t>(c));
  request.ring = ring;
  return request;
}

/// Bytes of every kind, and no runs.
std::string long_text(int64_t length) {
  std::string text;
  for (int64_t i = 0; i < length; ++i) text += static_cast<char>((i * i * 37 + i * 11) % 251);
  return text;
}

/// The logits of the rows of a step of those parts.
std::vector<Row> advance(Model& model, Pages& pages, const std::vector<Part>& parts, Shape shape) {
  model::Step& step = model.step(shape);
  model::plan(step, parts, pages);
  const std::vector<float> all = model.run(step);
  std::vector<Row> rows;
  for (auto at = all.begin(); at != all.end(); at += model::kVocabulary) {
    rows.emplace_back(at, at + model::kVocabulary);
  }
  return rows;
}

std::vector<Row> prefill(Model& model, Pages& pages, Request& request, int64_t count) {
  return advance(model, pages, {{&request, count}}, {count, 1, false});
}

int32_t best(const Row& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// The logits of the choices that continue the texts, by text: of the best token each time. In decode steps of `rows` rows.
std::vector<std::vector<Row>> generate(Model& model, const std::vector<std::string>& texts,
                                       int64_t rows, int count) {
  Pages pages;
  std::vector<Request> requests;
  for (const std::string& text : texts) {
    requests.push_back(request_of(text, static_cast<int32_t>(requests.size())));
  }
  std::vector<std::vector<Row>> result(texts.size());
  Shape prompts{0, static_cast<int64_t>(texts.size()), false};
  std::vector<Part> parts;
  for (Request& r : requests) {
    parts.push_back({&r, static_cast<int64_t>(r.tokens.size())});
    prompts.rows += parts.back().count;
  }
  for (int i = 0; i < count; ++i) {
    const auto logits = advance(model, pages, parts, i == 0 ? prompts : Shape{rows, rows, true});
    int64_t row = -1;
    for (size_t r = 0; r < requests.size(); ++r) {
      row += parts[r].count;
      result[r].push_back(logits[static_cast<size_t>(row)]);
      requests[r].tokens.push_back(best(result[r].back()));
      parts[r].count = 1;
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a text goes on alone as in a batch, bit for bit", "[model][slow]") {
  Model model(Device::cpu(), 1);
  const std::vector<std::string> texts = {"tiles", "a", "of other lengths"};
  // One row of padding in decode steps. The caches hold what others left there.
  const auto together = generate(model, texts, 4, 3);
  for (size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i]);
    CHECK(generate(model, {texts[i]}, 1, 3).front() == together[i]);
  }
}

TEST_CASE("a plan for fewer texts is padded, one for more than the step or the text has is refused",
          "[model]") {
  Pages pages;
  Request request = request_of("tiles", 0);
  model::Step two(Device::cpu(), {8, 2, false});
  const std::vector<Part> one = {{&request, 5}};
  model::plan(two, one, pages);
  CHECK(two.row_start.values == std::vector<int32_t>{0, 5, 5});
  const auto is_refused = [&](const std::vector<Part>& parts, Shape shape) {
    model::Step step(Device::cpu(), shape);
    CHECK_THROWS_WITH(model::plan(step, parts, pages), Catch::Contains("no tokens"));
  };
  is_refused({{&request, 1}}, {8, 2, false});  // all are read
  Request other = request_of("of other lengths", 1);
  is_refused({{&other, 9}}, {8, 2, false});
  is_refused({{&other, 1}, {&other, 1}}, {8, 1, false});
}

TEST_CASE("a text read at once, in parts and token by token has the same logits, bit for bit",
          "[model][slow]") {
  // Twice as many entries of ratio 4 as a token sees; token 127 closes the first window of ratio 128.
  constexpr int64_t kLength = 134, kFirst = 121, kSecond = 3;
  Model model(Device::cpu(), 1);
  const std::string text = long_text(kLength);
  Pages pages;
  Request whole = request_of(text, 0), parts = request_of(text, 1);
  const std::vector<Row> expected = prefill(model, pages, whole, kLength);
  std::vector<Row> got = prefill(model, pages, parts, kFirst);
  for (Row& row : prefill(model, pages, parts, kSecond)) got.push_back(std::move(row));
  while (parts.done < kLength) got.push_back(advance(model, pages, {{&parts, 1}}, {1, 1, true})[0]);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == expected[i]);
  }
}

}  // namespace tessera::test
