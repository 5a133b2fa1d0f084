// Emitter: statements of a whole warp.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

void Emitter::print(const LoadMatrix& load) {
  const std::string& function =
      expressions_.call(load.transposed ? "load_matrix_transposed" : "load_matrix");
  out_.line(fmt::format("{}<{}>({}, {});", function, load.count,
                        expressions_.address(*load.into.array, load.into.base),
                        expressions_.address(*load.from.array, load.from.offset)));
}

void Emitter::print(const Mma& mma) {
  if (mma.is_of_group()) return print_group(mma);
  const DType a = mma.a.array->dtype;
  const DType b = mma.b.array->dtype;
  const std::string kind = a == DType::f32 ? "tf32"
                           : a == b        ? std::string(name(a))
                                           : fmt::format("{}_{}", name(a), name(b));
  const auto operand = [&](const Slice& slice) {
    return expressions_.address(*slice.array, slice.base);
  };
  out_.line(fmt::format("{}({}, {}, {});", expressions_.call("mma_" + kind), operand(mma.c),
                        operand(mma.a), operand(mma.b)));
}

void Emitter::print(const Collective& collective) {
  const std::string text = collective_call(collective);
  if (usage_.is_used(*collective.var)) {
    const bool vote = collective.kind == ir::CollectiveKind::vote_any ||
                      collective.kind == ir::CollectiveKind::vote_all;
    bind(collective.var, vote ? text + " != 0" : text);
  } else {
    out_.line(text + ";");
  }
}

std::string Emitter::collective_call(const Collective& collective) {
  using ir::CollectiveKind;
  const auto arg = [&](size_t i) { return expressions_.value(collective.args.at(i)); };
  const DType type = collective.args.at(0)->type;
  const std::string& lanes = expressions_.call("all_lanes");
  const auto shuffle = [&](const char* function) {
    const std::string width =
        collective.width == 32 ? std::string() : fmt::format(", {}", collective.width);
    return fmt::format("{}({}, {}, {}{})", function, lanes, arg(0), arg(1), width);
  };
  const auto whole_warp = [&](const char* function) {
    TESSERA_CHECK(collective.width == 32,
                  fmt::format("{} over part of a warp", ir::name(collective.kind)));
    return fmt::format("{}({}, {})", function, lanes, arg(0));
  };
  // The bit reductions take unsigned values only.
  const auto bitwise = [&](const char* function) {
    if (type == DType::u32) return whole_warp(function);
    return fmt::format("int({}({}, {}({})))", function, lanes, expressions_.type(DType::u32),
                       arg(0));
  };
  switch (collective.kind) {
    case CollectiveKind::shuffle:
      return shuffle("__shfl_sync");
    case CollectiveKind::shuffle_xor:
      return shuffle("__shfl_xor_sync");
    case CollectiveKind::shuffle_up:
      return shuffle("__shfl_up_sync");
    case CollectiveKind::shuffle_down:
      return shuffle("__shfl_down_sync");
    case CollectiveKind::reduce_add:
      return whole_warp("__reduce_add_sync");
    case CollectiveKind::reduce_min:
      return whole_warp("__reduce_min_sync");
    case CollectiveKind::reduce_max:
      return whole_warp("__reduce_max_sync");
    case CollectiveKind::reduce_and:
      return bitwise("__reduce_and_sync");
    case CollectiveKind::reduce_or:
      return bitwise("__reduce_or_sync");
    case CollectiveKind::vote_any:
      return whole_warp("__any_sync");
    case CollectiveKind::vote_all:
      return whole_warp("__all_sync");
    case CollectiveKind::ballot:
      return whole_warp("__ballot_sync");
    case CollectiveKind::match_any:
      return whole_warp("__match_any_sync");
  }
  internal_error("an unknown collective");
}

}  // namespace tessera::codegen::cuda
