#pragma once
// The one part of the model that is not random: Engram remembers a text.
//
// Each token id has a code, a random vector. A row of a table is the mean code of the tokens that followed its n-gram in the
// text. The value's matrix turns a code into the row of the output matrix of its token. So a row that is found adds to the
// streams what raises the logits of the tokens that followed. This takes counting, and no gradient.

#include <string_view>

#include "random.h"
#include "weights.h"

namespace model {

inline constexpr std::string_view kText =
    "A tile is a part of a tensor that a block holds. A kernel is made of tiles: it copies a tile, "
    "it multiplies two tiles, and "
    "it stores a tile. The block waits for the copy, then its warps multiply. A warp has lanes, a "
    "lane has registers, and the "
    "registers hold the sums. The sums are added in one order, so the bits of a text are the same "
    "alone and in a batch. A model "
    "is made of kernels: tokens come in, streams are mixed, experts are chosen, and the next token "
    "goes out. ";

/// `out`: the output matrix of the model.
EngramWeights remembered(Random& random, std::string_view text, const Tensor& out);

}  // namespace model
