#include "kernels/quant/parts/channel_tile.h"

#include <algorithm>

namespace tessera::kernels {
namespace {

constexpr int64_t kTokens = ChannelTile::kTokens;

/// Distributes the scales of a tile over its threads, neighbouring lanes to neighbouring columns.
/// No scale is computed twice unless there are more threads than scales.
struct ScaleShare {
  ScaleShare(const ChannelTile& t, int64_t num_runs)
      : tile(t),
        runs(num_runs),
        own(std::max<int64_t>(1, runs * tile.cols / tile.threads())),
        threads_of_run(tile.cols / own),
        copies({tile.threads() / (runs * threads_of_run), runs * threads_of_run}) {}

  /// (runs, cols)
  layout::Layout scales() const {
    return {{runs, tile.cols},
            {{0, 1, runs, threads_of_run, 0}, {1, 1, own, 0, 1}, {1, own, threads_of_run, 1, 0}},
            {copies}};
  }
  /// (runs, token threads of a run, cols): the partial maxima that the thread of a scale needs.
  layout::Layout parts() const {
    const int64_t parts_of_run = tile.token_threads() / runs;
    return {{runs, parts_of_run, tile.cols},
            {{0, 1, runs, threads_of_run, 0},
             {1, 1, parts_of_run, 0, own},
             {2, 1, own, 0, 1},
             {2, own, threads_of_run, 1, 0}},
            {copies}};
  }
  /// (runs, cols): the factors of a thread's columns, in every thread of the run.
  layout::Layout factors() const {
    const int64_t parts_of_run = tile.token_threads() / runs, lanes = tile.lanes();
    return {{runs, tile.cols},
            {{0, 1, runs, parts_of_run * lanes, 0},
             {1, 1, tile.own_cols, 0, 1},
             {1, tile.own_cols, lanes, 1, 0}},
            {{parts_of_run, lanes}}};
  }

  ChannelTile tile;
  int64_t runs, own, threads_of_run;
  layout::Replica copies;
};

}  // namespace

layout::Layout ChannelTile::values() const {
  return {{kTokens, cols},
          {{0, 1, own_tokens, 0, own_cols},
           {0, own_tokens, token_threads(), lanes(), 0},
           {1, 1, own_cols, 0, 1},
           {1, own_cols, lanes(), 1, 0}}};
}

layout::Layout ChannelTile::tokens() const {
  return {{kTokens},
          {{0, 1, own_tokens, 0, 1}, {0, own_tokens, token_threads(), lanes(), 0}},
          {{lanes(), 1}}};
}

layout::Layout ChannelTile::parts() const {
  return {
      {token_threads(), cols},
      {{0, 1, token_threads(), lanes(), 0}, {1, 1, own_cols, 0, 1}, {1, own_cols, lanes(), 1, 0}}};
}

dsl::Ref own_amax(dsl::Builder& k, const ChannelTile& tile, const dsl::Ref& x) {
  auto amax = k.fragment(x.dtype(), tile.parts(), "own_amax");  // (token threads, cols)
  k.reduce_absmax(x.reshape({tile.token_threads(), tile.own_tokens, tile.cols}), amax,
                  dsl::Axis(1));
  return amax;
}

dsl::Ref column_factors(dsl::Builder& k, const ChannelTile& tile, int64_t run, bool round,
                        const TileOrigin& at, const dsl::Ref& amax, const dsl::Ref& out_sf,
                        DType factor) {
  using namespace dsl;
  const ScaleShare share(tile, kTokens / run);
  const int64_t runs = share.runs, parts_of_run = tile.token_threads() / runs;

  // Amax of each run: the threads of a scale gather the partial maxima of their column.
  auto parts = k.fragment(amax.dtype(), share.parts(), "parts");  // (runs, parts, cols)
  k.parallel({runs, parts_of_run, tile.cols},
             [&](Value r, Value i, Value c) { parts(r, i, c) = amax(r * parts_of_run + i, c); });
  auto run_amax = k.fragment(DType::f32, share.scales(), "run_amax");  // (runs, cols)
  k.reduce_max(parts, run_amax, Axis(1));

  // scales
  auto own_factor = k.fragment(factor, share.scales(), "own_factor");  // (runs, cols)
  k.parallel({runs, tile.cols}, [&](Value r, Value c) {
    auto sf = scale_factor(k, kE4m3, run_amax(r, c), round);
    own_factor(r, c) = cast(factor, sf.inverse);
    out_sf(at.row / run + r, at.col + c) = sf.scale;
  });
  auto factors = k.fragment(factor, share.factors(), "factors");  // (runs, cols)
  k.parallel({runs, tile.cols}, [&](Value r, Value c) { factors(r, c) = own_factor(r, c); });
  return factors;
}

void cast_columns(dsl::Builder& k, const ChannelTile& tile, int64_t run, bool round,
                  const TileOrigin& at, const dsl::Ref& x, const dsl::Ref& out_sf,
                  const dsl::Ref& out, bool transposed) {
  using namespace dsl;
  // Powers of two scale bf16 in pairs: exact, except for products that are zero in e4m3.
  const bool in_pairs = round && x.dtype() == DType::bf16;
  const DType factor = in_pairs ? DType::bf16 : DType::f32;
  const Ref factors = column_factors(k, tile, run, round, at, own_amax(k, tile, x), out_sf, factor);
  if (in_pairs) {
    k.parallel({kTokens, tile.cols},
               [&](Value t, Value c) { x(t, c) = x(t, c) * factors(t / run, c); });
  }
  const auto code = [&](const Value& t, const Value& c) {
    return cast(DType::e4m3, in_pairs ? f32(x(t, c)) : f32(x(t, c)) * f32(factors(t / run, c)));
  };
  if (transposed) {
    k.parallel({tile.cols, kTokens},
               [&](Value c, Value t) { out(at.col + c, at.row + t) = code(t, c); });
  } else {
    k.parallel({kTokens, tile.cols},
               [&](Value t, Value c) { out(at.row + t, at.col + c) = code(t, c); });
  }
}

}  // namespace tessera::kernels
