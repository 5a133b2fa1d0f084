#pragma once
// A step: the newest tokens of some requests, a row each, and where their keys lie. The host plans it; all its tensors have
// fixed extents and addresses, so that the launches of a step can be captured once and replayed.
//
// A request owns pages of keys, with the same numbers in every layer: pages of raw keys, one for each token, and pages of
// compressed entries, one for 4 or for 128 tokens. Slot = page * kPageSize + place. Raw keys and entries of a layer lie in
// one pool, so that one list of slots names all keys of a token.

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "sizes.h"
#include "tensor.h"

namespace model {

/// Numbers that the host writes and kernels read.
struct Numbers {
  Numbers(ts::Device device, ts::Dims shape, int32_t empty);
  operator const ts::TensorView&() const { return tensor; }  // NOLINT: calls take views

  Tensor tensor;
  std::vector<int32_t> values;
  int32_t empty;  // the value of padding
};

struct Shape {
  int64_t rows = 0, requests = 0;
  bool decodes = false;  // one token of each request: a row is a request
  auto operator<=>(const Shape&) const = default;
};

struct Step {
  /// A step of padding.
  Step(ts::Device device, Shape shape);
  std::vector<Numbers*> all();
  void clear();
  void upload();

  Shape shape;
  // Rows; those behind the last token are padding.
  Numbers token_ids, ngram_ids;      // ngram: its own id, the one before, ..
  Numbers positions, angles;         // apply_rotary takes no -1
  Numbers key_slots;                 // of the raw key of the token
  Numbers num_entries, index_pages;  // ratio 4: entries that the row sees, and their pages
  Numbers end_column, key_table;     // ratio 4: the end of the scores, and the slot of each column
  Numbers keys128;                   // ratio 128: the slots of all keys that the row sees
  // Requests.
  Numbers start, row_start, ring, pages4, pages128;
  Numbers num_tokens;
};

/// Pages that no request has.
class Pages {
 public:
  Pages();
  int32_t take();

 private:
  std::vector<int32_t> free_;
};

struct Request {
  std::vector<int32_t> tokens;  // of the prompt, then those that were chosen
  int32_t ring = 0;             // of the states of the compressors, one of kRings
  int64_t done = 0;             // tokens whose keys are in the caches
  std::vector<int32_t> pages, pages4, pages128;
};

/// The next `count` tokens of a request.
struct Part {
  Request* request;
  int64_t count;
};

/// Fills the step and counts its tokens as done. Takes the pages that they need.
void plan(Step& step, std::span<const Part> parts, Pages& pages);

}  // namespace model
