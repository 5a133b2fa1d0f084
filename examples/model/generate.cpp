// example_generate: continues texts with the model, all of them in one batch.
//
//   example_generate                       three prompts, 16 tokens each
//   example_generate -n 20 "One" "Two"     these prompts, 20 tokens each
//
// On the first GPU, else on the CPU. The model is random but for its memory of a short text, whose words come back. Behind
// the texts it prints how many kernels a decode step launches, by layer and by op.

#include <tessera/runtime/driver/device.h>
#include <tessera/runtime/runtime.h>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "model.h"
#include "sample.h"

namespace {

namespace ts = tessera;

struct Words {
  int64_t count = 16;
  std::vector<std::string> prompts;
};

Words words_of(int argc, char** argv) {
  Words words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with('-')) {
      words.prompts.emplace_back(word);
      continue;
    }
    const std::string_view number = word == "-n" && i + 1 < argc ? argv[++i] : "";
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), words.count);
    if (error != std::errc() || end != number.data() + number.size() || words.count < 0) {
      throw std::runtime_error("expected: [-n NUMBER] [PROMPT ..]");
    }
  }
  if (words.prompts.empty()) words.prompts = {"A tile", "The sums are", "A model is made of"};
  return words;
}

/// Printable characters as they are, others as "\x0a".
std::string printable(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    char code[8];
    const bool is_plain = token >= ' ' && token < 127 && token != '\\';
    std::snprintf(code, sizeof code, is_plain ? "%c" : "\\x%02x", static_cast<unsigned>(token));
    text += code;
  }
  return text;
}

/// "gemm_bf16 x 3, moe_gate", and how many.
void print_launches(const std::vector<model::PartLaunches>& parts) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;  // a layer is a row
  for (const model::PartLaunches& part : parts) {
    const std::string name = part.name.substr(0, part.name.find(','));
    if (rows.empty() || rows.back().first != name) rows.push_back({name, {}});
    rows.back().second.insert(rows.back().second.end(), part.ops.begin(), part.ops.end());
  }
  size_t all = 0;
  std::printf("launches of a decode step:\n");
  for (const auto& [name, ops] : rows) {
    std::map<std::string, int> counts;
    for (const std::string& op : ops) ++counts[op];
    std::string text;
    for (const auto& [op, count] : counts) {
      text += (text.empty() ? "" : ", ") + op;
      if (count > 1) text += " x " + std::to_string(count);
    }
    std::printf("  %-10s %3zu  %s\n", name.c_str(), ops.size(), text.c_str());
    all += ops.size();
  }
  std::printf("  %-10s %3zu\n", "all", all);
}

int run(const Words& words) {
  const ts::Device device =
      ts::runtime::num_devices() > 0 ? ts::Device::cuda(0) : ts::Device::cpu();
  model::Model model(device, 1);
  const auto batch = static_cast<int64_t>(words.prompts.size());
  if (batch > model::kRings) throw std::runtime_error("at most 4 prompts");

  std::vector<model::Request> requests(words.prompts.size());
  model::Shape prefill{0, batch, false};
  const model::Shape decode{batch, batch, true};
  std::vector<model::Part> prompts, next;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const char c : words.prompts[i]) requests[i].tokens.push_back(static_cast<uint8_t>(c));
    requests[i].ring = static_cast<int32_t>(i);
    const auto length = static_cast<int64_t>(requests[i].tokens.size());
    if (length == 0) throw std::runtime_error("a prompt is empty");
    // The last token that is chosen is not read.
    if (words.count > model::kContext - length + 1) {
      throw std::runtime_error("a prompt and the tokens that follow are longer than 256");
    }
    prefill.rows += length;
    prompts.push_back({&requests[i], length});
    next.push_back({&requests[i], 1});
  }
  if (device.is_cuda()) {  // no token waits for a compiler
    model.prepare(prefill);
    model.prepare(decode);
    ts::runtime::Runtime::instance().seal();
  }

  model::Pages pages;
  std::vector<model::Sampler> samplers;
  for (size_t i = 0; i < requests.size(); ++i) samplers.emplace_back(i, 4);
  for (int64_t i = 0; i < words.count; ++i) {
    model::Step& step = model.step(i == 0 ? prefill : decode);
    const std::vector<model::Part>& parts = i == 0 ? prompts : next;
    model::plan(step, parts, pages);
    const std::vector<float> logits = model.run(step);
    int64_t row = -1;
    for (size_t r = 0; r < requests.size(); ++r) {
      row += parts[r].count;
      const std::span all(logits);
      requests[r].tokens.push_back(samplers[r].choose(all.subspan(
          static_cast<size_t>(row * model::kVocabulary), static_cast<size_t>(model::kVocabulary))));
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& all = requests[i].tokens;
    const auto end = static_cast<std::ptrdiff_t>(words.prompts[i].size());
    std::printf("%s|%s\n", printable({all.begin(), all.begin() + end}).c_str(),
                printable({all.begin() + end, all.end()}).c_str());
  }
  model::Step& step = model.step(decode);
  model::plan(step, {}, pages);  // the same launches
  print_launches(model.launches(step));
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(words_of(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "generate: %s\n", error.what());
  return 1;
}
