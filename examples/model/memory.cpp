#include "memory.h"

#include <tessera/kernels/ops.h>

#include <set>

namespace model {
namespace {

namespace ops = tessera::kernels;
using ts::DType;

constexpr int64_t kTables = (kNgram - 1) * kTablesOfNgram;
constexpr float kGain = 10;  // so that the value outweighs what the rest of the model says

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

/// The rows that the tokens of a text have in the tables, [tokens, tables].
std::vector<int32_t> rows_of(const EngramWeights& w, std::string_view text) {
  const ts::Device device = w.table.view().device;
  const auto count = static_cast<int64_t>(text.size());
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < kNgram; ++j) {
      ids.push_back(i >= j ? static_cast<uint8_t>(text[at(i - j)]) : -1);
    }
  }
  const Tensor ngrams = filled(device, DType::i32, {count, kNgram}, ids);
  const Tensor rows(device, DType::i32, {1, count, kTables});
  ops::engram_hash({.ngram_token_ids = ngrams,
                    .multipliers = reshaped(w.multipliers, {1, kNgram}),
                    .vocab_sizes = reshaped(w.sizes, {1, kNgram - 1, kTablesOfNgram}),
                    .offsets = reshaped(w.offsets, {1, kTables}),
                    .out = rows},
                   nullptr);
  return rows.download<int32_t>();
}

/// The codes of all tokens, a part for each table.
class Codes {
 public:
  explicit Codes(Random& random)
      : numbers_(random.numbers(kVocabulary * kEngram, 1 / std::sqrt(double{kTableColumns}))) {}
  const float* of(int64_t token, int64_t table) const {
    return &numbers_[at(token * kEngram + table * kTableColumns)];
  }

 private:
  std::vector<float> numbers_;
};

/// The tables: the mean codes of the tokens that follow the n-grams of each row.
std::vector<float> table_of(const EngramWeights& w, const Codes& codes, std::string_view text) {
  std::vector<float> rows(at(w.table.view().size())), counts(at(w.table.view().shape[0]));
  const std::vector<int32_t> found = rows_of(w, text);
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(text.size()); ++i) {
    for (int64_t table = 0; table < kTables; ++table) {
      const int64_t row = found[at(i * kTables + table)];
      const float* const next = codes.of(static_cast<uint8_t>(text[at(i + 1)]), table);
      for (int64_t c = 0; c < kTableColumns; ++c) rows[at(row * kTableColumns + c)] += next[c];
      ++counts[at(row)];
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] /= std::max(counts[i / at(kTableColumns)], 1.0f);
  }
  return rows;
}

/// The matrix of the value: from codes to rows of the output matrix, for the tokens of the text.
std::vector<float> value_of(const Codes& codes, std::string_view text, const Tensor& out) {
  const std::vector<uint16_t> directions = out.download<uint16_t>();
  std::vector<float> matrix(at(kHidden * kEngram));
  for (const char c : std::set<char>(text.begin(), text.end())) {
    const int64_t token = static_cast<uint8_t>(c);
    for (int64_t h = 0; h < kHidden; ++h) {
      const float direction = kGain * ts::from_bf16(directions[at(token * kHidden + h)]);
      for (int64_t column = 0; column < kEngram; ++column) {
        const int64_t table = column / kTableColumns;
        const auto order =
            static_cast<float>(table / kTablesOfNgram + 1);  // longer n-grams say more
        matrix[at(h * kEngram + column)] +=
            order * direction * codes.of(token, table)[column % kTableColumns];
      }
    }
  }
  return matrix;
}

}  // namespace

EngramWeights remembered(Random& random, std::string_view text, const Tensor& out) {
  static_assert(kNgram == 3 && kTablesOfNgram == 2);
  const ts::Device device = random.device();
  EngramWeights w;
  w.multipliers =
      filled<int64_t>(device, DType::i64, {kNgram}, {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D});
  w.sizes =
      filled<int32_t>(device, DType::i32, {kNgram - 1, kTablesOfNgram}, {2003, 2011, 2017, 2027});
  w.offsets = Tensor(device, DType::i32, {kTables});
  ops::engram_make_offsets({.vocab_sizes = reshaped(w.sizes, {1, kNgram - 1, kTablesOfNgram}),
                            .offsets = reshaped(w.offsets, {1, kTables})},
                           nullptr);
  const Codes codes(random);
  const ts::Dims table = {2003 + 2011 + 2017 + 2027, kTableColumns};
  w.table = Tensor(device, DType::bf16, table);
  w.table = filled_bf16(device, table, table_of(w, codes, text));
  // Random keys of the streams, then the value.
  std::vector<float> matrix =
      random.numbers(kStreams * kHidden * kEngram, 1 / std::sqrt(double{kEngram}));
  const std::vector<float> value = value_of(codes, text, out);
  matrix.insert(matrix.end(), value.begin(), value.end());
  w.key_value = filled_bf16(device, {(kStreams + 1) * kHidden, kEngram}, matrix);
  w.norm = Tensor(device, DType::f32, {kStreams, kHidden});
  const Tensor of_streams = random.tensor(DType::bf16, {kStreams, kHidden}, 0.1, 1);
  const Tensor of_keys = random.tensor(DType::bf16, {kStreams, kHidden}, 0.1, 1);
  ops::fused_weight({.weight_hidden = of_streams, .weight_embed = of_keys, .weight_fused = w.norm},
                    nullptr);
  return w;
}

}  // namespace model
