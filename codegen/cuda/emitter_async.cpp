// Emitter: asynchronous copies and mbarriers.

#include <fmt/format.h>

#include <utility>

#include "codegen/cuda/emitter.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

std::string Emitter::copy_address(const Access& access) {
  // Two e2m1 share a byte.
  return access.array->dtype == DType::e2m1
             ? fmt::format("{} + ({} >> 1)", names_.of(access.array.get()),
                           expressions_.index(access.offset, Precedence::additive))
             : expressions_.address(*access.array, access.offset);
}

void Emitter::print(const AsyncCopy& copy) {
  const int count = copy.from.width * bits(copy.from.array->dtype) / 8;
  TESSERA_CHECK(count == 4 || count == 8 || count == 16,
                fmt::format("an asynchronous copy of {} bytes", count));
  TESSERA_CHECK(copy.from.array->dtype == copy.to.array->dtype && !copy.to.guard,
                "an asynchronous copy that converts or skips");
  const std::string guard =
      copy.from.guard ? expressions_.index(copy.from.guard) + ", " : std::string();
  // A hint of the source is left to the launch (kernels/jit/argument_binder.h): before 13.4 the compiler makes
  // an illegal instruction of some copies with a cache policy.
  const std::string& function =
      expressions_.call(copy.from.guard ? "copy_async_or_zero" : "copy_async");
  out_.line(fmt::format("{}<{}>({}{}, {});", function, count, guard, copy_address(copy.to),
                        copy_address(copy.from)));
}

void Emitter::print(const Break& leave) {
  out_.line(fmt::format("if ({}) break;", expressions_.value(leave.condition)));
}

void Emitter::print(const Return& leave) {
  if (ir::is_constant(leave.condition, 1)) return out_.line("return;");
  out_.line(fmt::format("if ({}) return;", expressions_.value(leave.condition)));
}

std::string Emitter::mbarrier(const Access& at) {
  return expressions_.address(*at.array, at.offset);
}

void Emitter::print(const MbarrierInit& init) {
  const bool of_ring = init.at.array->ring >= 0;
  out_.line(fmt::format("{}<{}>({}, {});",
                        expressions_.call(of_ring ? "init_ring" : "init_mbarriers"), init.at.width,
                        mbarrier(init.at), init.at.array->arrivals));
  if (of_ring && program_.cluster > 1) {
    out_.line(expressions_.call("fence_mbarrier_init") + "();");
  }
  if (std::exchange(prefetches_maps_, true)) return;  // once, where the first thread is alone
  for (const TensorMapRef& map : program_.maps) {
    if (map->tensor->address) continue;  // the copies go by another map, in memory
    out_.line(fmt::format("{}(&{});", expressions_.call("prefetch_map"), names_.of(map.get())));
  }
}

void Emitter::print(const MbarrierArrive& arrive) {
  if (arrive.rank) {
    return out_.line(fmt::format("{}({}, {});", expressions_.call("arrive_at_block"),
                                 mbarrier(arrive.at), expressions_.index(arrive.rank)));
  }
  const bool of_ring = arrive.at.array->ring >= 0;
  out_.line(fmt::format("{}({});",
                        expressions_.call(arrive.after_copies ? "arrive_after_copies"
                                          : of_ring           ? "arrive_at_ring"
                                                              : "arrive"),
                        mbarrier(arrive.at)));
}

void Emitter::print(const MbarrierWait& wait) {
  const bool of_ring = wait.at.array->ring >= 0;
  out_.line(fmt::format("{}({}, {});",
                        expressions_.call(wait.of_cluster ? "wait_for_cluster"
                                          : of_ring       ? "wait_at_ring"
                                                          : "wait_for_phase"),
                        mbarrier(wait.at), expressions_.index(wait.phase)));
}

void Emitter::print(const BulkCopy& copy) {
  TESSERA_CHECK(copy.mbarrier.array && !copy.from.guard && copy.bytes() % 16 == 0,
                "a bulk copy of whole pieces at an mbarrier, without a guard");
  const bool has_hint = copy.from.cache != ir::CacheHint::none;
  const std::string hint =
      has_hint ? ", " + expressions_.call(std::string(ir::name(copy.from.cache))) : "";
  const std::string& function = expressions_.call(copy.mbarrier.array->ring >= 0 ? "fill_bulk"
                                                  : copy.expects ? "expect_and_copy_bulk"
                                                                 : "copy_bulk");
  out_.line(fmt::format("{}<{}{}>({}, {}, {});", function, copy.bytes(), hint,
                        mbarrier(copy.mbarrier), copy_address(copy.to), copy_address(copy.from)));
}

void Emitter::print(const TensorCopy& copy) {
  TESSERA_CHECK(copy.mbarrier.array && !copy.to.guard, "a tensor copy at an mbarrier");
  const int parts = copy.multicast ? program_.cluster : 1;
  std::string function;
  if (copy.multicast) {
    TESSERA_CHECK(copy.expects, "a multicast whose bytes are expected");
    const uint32_t all = (uint32_t{1} << parts) - 1;
    function = fmt::format("{}<{}, {}>", expressions_.call("expect_and_multicast_tensor"),
                           parts * copy.bytes(), all);
  } else {
    function = copy.expects ? fmt::format("{}<{}>", expressions_.call("expect_and_copy_tensor"),
                                          copy.bytes())
                            : expressions_.call("copy_tensor");
  }
  out_.line(fmt::format("{}({}, {}, {});", function, mbarrier(copy.mbarrier), copy_address(copy.to),
                        box_arguments(map_address(copy), copy.coordinates)));
}

std::string Emitter::map_address(const TensorCopy& copy) {
  if (!copy.map_at.array) return "&" + names_.of(copy.map.get());
  return fmt::format("reinterpret_cast<const tensor_map*>({})", copy_address(copy.map_at));
}

void Emitter::print(const WriteMap& write) {
  const std::string to = copy_address(write.to);
  out_.line(fmt::format("{}({}, &{}, {});", expressions_.call("begin_map"), to,
                        names_.of(write.map.get()), expressions_.index(write.tensor->address)));
  const int64_t size = bits(write.tensor->dtype) / 8;
  const size_t last = write.extents.size() - 1;
  for (size_t d = 0; d <= last; ++d) {  // from the innermost one
    out_.line(fmt::format("{}<{}>({}, {});", expressions_.call("set_map_extent"), d, to,
                          expressions_.index(write.extents[last - d])));
  }
  for (size_t d = 1; d <= last; ++d) {
    const Expr bytes = write.strides[last - d] * ir::constant(DType::i64, size);
    out_.line(fmt::format("{}<{}>({}, {});", expressions_.call("set_map_stride"), d - 1, to,
                          expressions_.index(bytes)));
  }
  out_.line(fmt::format("{}({});", expressions_.call("acquire_map"), to));
}

/// "map, c0, c1", the innermost coordinate first.
std::string Emitter::box_arguments(std::string map, const std::vector<Expr>& coordinates) {
  std::string text = std::move(map);
  for (size_t d = coordinates.size(); d-- > 0;) {
    text += ", " + expressions_.index(coordinates[d]);
  }
  return text;
}

void Emitter::print(const TensorStore& store) {
  out_.line(fmt::format("{}({}, {});",
                        expressions_.call(store.adds ? "add_tensor" : "store_tensor"),
                        box_arguments("&" + names_.of(store.map.get()), store.coordinates),
                        copy_address(store.from)));
}

}  // namespace tessera::codegen::cuda
