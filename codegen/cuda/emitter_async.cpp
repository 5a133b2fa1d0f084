// Emitter: copies that go on in the background.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

void Emitter::print(const AsyncCopy& copy) {
  const int count = copy.from.width * bits(copy.from.array->dtype) / 8;
  TESSERA_CHECK(count == 4 || count == 8 || count == 16,
                fmt::format("an asynchronous copy of {} bytes", count));
  TESSERA_CHECK(copy.from.array->dtype == copy.to.array->dtype && !copy.to.guard,
                "an asynchronous copy that converts or skips");
  const auto place = [&](const Access& access) {
    // Two e2m1 share a byte.
    return access.array->dtype == DType::e2m1
               ? fmt::format("{} + ({} >> 1)", names_.of(access.array.get()),
                             expressions_.index(access.offset, Precedence::additive))
               : expressions_.address(*access.array, access.offset);
  };
  const std::string guard =
      copy.from.guard ? expressions_.index(copy.from.guard) + ", " : std::string();
  // A hint of the source is left to the launch (kernels/jit/plan.h): before 13.4 the compiler makes
  // an illegal instruction of some copies with a cache policy.
  const std::string& function =
      expressions_.call(copy.from.guard ? "copy_async_or_zero" : "copy_async");
  out_.line(
      fmt::format("{}<{}>({}{}, {});", function, count, guard, place(copy.to), place(copy.from)));
}

void Emitter::print(const AsyncCommit&) {
  out_.line(fmt::format("{}();", expressions_.call("commit_copies")));
}

void Emitter::print(const AsyncWait& wait) {
  out_.line(fmt::format("{}<{}>();", expressions_.call("wait_for_copies"), wait.pending));
}

}  // namespace tessera::codegen::cuda
