#include "kernels/moe/parts/row_scatter.h"

#include <algorithm>
#include <numeric>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

/// Vectors in a lane's registers: 16 bytes x 14 x 32 lanes are a row of 7168 bytes.
constexpr int64_t kVectorsPerLane = 14;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t vectors_per_lane(const RowWords& row) {
  return ceil_div(row.words / row.vector, 32);
}

/// Calls body(slot, first word) for this lane's vectors from `first` on. The last vectors may lie
/// beyond the row.
void for_each_vector(Builder& k, const RowWords& row, const Value& first, int64_t vectors,
                     const std::function<void(const Value& slot, const Value& word)>& body) {
  k.unrolled(vectors, [&](const Value& slot) {
    auto vector = k.let("vector", (first + slot) * 32 + k.lane());
    k.if_(vector < row.words / row.vector, [&] { body(slot, vector * row.vector); });
  });
}

/// Calls `body` with each position of the token below `positions`. The lanes of a warp load up to
/// 32 slots of `token` at a time.
void for_each_position(Builder& k, const Ref& token_topk_to_pos, const Value& token,
                       int64_t num_topk, const Value& positions,
                       const std::function<void(const Value& position)>& body) {
  for (int64_t first = 0; first < num_topk; first += 32) {
    const int64_t slots = std::min<int64_t>(32, num_topk - first);
    auto slot = k.let("slot", min(k.lane(), i32(slots - 1)) + i32(first));
    auto mine = k.let("mine", token_topk_to_pos(token, slot));
    k.report_unless(mine >= -1 && mine < positions, out_of_range("token_topk_to_pos"));
    k.serial(0, slots, [&](const Value& i) {
      auto position = k.let("position", k.shuffle(mine, i));
      k.if_(position >= 0 && position < positions, [&] { body(position); });
    });
  }
}

}  // namespace

RowWords row_words(int64_t row_bytes, int64_t align) {
  const int64_t bytes = std::gcd(std::gcd(row_bytes, align), int64_t{16});
  if (bytes >= 4) return {DType::u32, row_bytes / 4, bytes / 4};
  return {bytes == 2 ? DType::u16 : DType::u8, row_bytes / bytes, 1};
}

int64_t row_parts(const std::vector<RowStream>& streams) {
  int64_t parts = 1;
  for (const RowStream& stream : streams) {
    parts = std::max(parts, ceil_div(vectors_per_lane(stream.row), kVectorsPerLane));
  }
  return parts;
}

void scatter_rows(Builder& k, const std::vector<RowStream>& streams, const RowPart& part,
                  const Ref& token_topk_to_pos, const Value& token, int64_t num_topk,
                  const Value& positions) {
  // load
  struct Held {
    const RowStream* stream;
    Value first;
    int64_t vectors;
    Ref words;
  };
  std::vector<Held> all;
  for (const RowStream& stream : streams) {
    const RowWords& row = stream.row;
    const int64_t vectors = ceil_div(vectors_per_lane(row), part.of);
    auto words = k.local(row.dtype, {vectors, row.vector}, "words");
    const Held held{&stream, part.number * vectors, vectors, words};
    for_each_vector(k, row, held.first, vectors, [&](const Value& slot, const Value& word) {
      k.vectorized(row.vector, [&](Value i) { words(slot, i) = stream.from(token, word + i); });
    });
    all.push_back(held);
  }
  // store
  for_each_position(k, token_topk_to_pos, token, num_topk, positions, [&](const Value& position) {
    for (const Held& held : all) {
      const RowWords& row = held.stream->row;
      for_each_vector(k, row, held.first, held.vectors, [&](const Value& slot, const Value& word) {
        k.vectorized(row.vector,
                     [&](Value i) { held.stream->to(position, word + i) = held.words(slot, i); });
      });
    }
  });
}

void clear_row(Builder& k, const RowStream& stream, const RowPart& part, const Value& position) {
  const RowWords& row = stream.row;
  const int64_t vectors = ceil_div(vectors_per_lane(row), part.of);
  k.serial(0, vectors, [&](const Value& i) {
    for_each_vector(k, row, part.number * vectors + i, 1, [&](const Value&, const Value& word) {
      k.vectorized(row.vector,
                   [&](Value j) { stream.to(position, word + j) = cast(row.dtype, 0); });
    });
  });
}

}  // namespace tessera::kernels::moe
