#pragma once
// Tensors of both kernels of gated_delta_fwd, and the places of chunks between them.
//
// Dense requests have equally many places. Packed ones lie one behind the other, from cu_seqlens[b] to cu_seqlens[b + 1], and
// request b has the places from cu_seqlens[b] / 64 + b on: no fewer than chunks, and no sum over the requests before it. Bounds that
// do not ascend from 0, or exceed the tokens, are reported and cut.

#include <string>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::linear {

/// An input whose last dimension is contiguous; the strides of the others are multiples of `width` elements, and so is
/// its address.
dsl::Ref rows_of(dsl::Builder& k, const std::string& name, DType dtype,
                 const std::vector<dsl::Arg>& shape, int64_t width);

/// The tokens of a request, by `lengths`; the call reports a number below 0 or above `tokens`.
dsl::Value length_of(dsl::Builder& k, const dsl::Ref& lengths, const dsl::Value& request,
                     const dsl::Value& tokens);

/// A packed request: tokens before it, its tokens, places before it.
struct PackedRequest {
  dsl::Value first, length, place;
};
/// Request `request` of `requests`, or, where it is that number, what follows all requests: no tokens.
PackedRequest packed_request(dsl::Builder& k, const dsl::Ref& bounds, const dsl::Value& requests,
                             const dsl::Value& tokens, const dsl::Value& request);

/// The chunk at `place` of packed requests. Without a chunk `row` is not below `length`.
struct PackedChunk {
  dsl::Value first, length, row;  // tokens before the request, its tokens, those before the chunk
};
PackedChunk packed_chunk(dsl::Builder& k, const dsl::Ref& bounds, const dsl::Value& requests,
                         const dsl::Value& tokens, const dsl::Value& place);

}  // namespace tessera::kernels::linear
