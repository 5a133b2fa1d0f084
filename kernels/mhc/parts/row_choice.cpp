#include "kernels/mhc/parts/row_choice.h"

#include <bit>
#include <utility>

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kVector = 8;

jit::TuneChoice standard(const jit::TuneFacts& facts) {
  const RowTile tile = pick_row_tile(facts.spec.at("hidden"));
  return {tile.rows, tile.cols, tile.threads};
}

/// One vector per thread, whole tiles along a row.
bool is_legal(const jit::TuneFacts& facts, const jit::TuneChoice& c) {
  return c[0] * c[1] == c[2] * kVector && facts.spec.at("hidden") % c[1] == 0;
}

std::vector<int64_t> bucket(const jit::TuneFacts& facts) {
  const auto tokens = static_cast<uint64_t>(facts.extents.at("T"));
  return {static_cast<int64_t>(std::bit_width(tokens > 0 ? tokens - 1 : 0))};
}

const jit::TuneSpace& row_space() {
  static const auto* const made =
      new jit::TuneSpace{.fields = {{"rows", {1, 2, 4}},
                                    {"cols", {256, 512, 768, 1024, 1280, 1536, 1792, 2048}},
                                    {"threads", {128, 160, 192, 224, 256}}},
                         .standard = standard,
                         .is_legal = is_legal,
                         .bucket = bucket};
  return *made;
}

}  // namespace

RowChoice choose_row_tile(std::string_view op, std::map<std::string, int64_t> spec, int64_t tokens,
                          Device device) {
  const jit::TuneChoice c =
      jit::choose(op, row_space(), {.spec = std::move(spec), .extents = {{"T", tokens}}}, device);
  return {static_cast<int32_t>(c[0]), static_cast<int32_t>(c[1]), static_cast<int32_t>(c[2])};
}

}  // namespace tessera::kernels::mhc
