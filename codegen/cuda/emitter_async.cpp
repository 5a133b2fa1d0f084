// Emitter: copies that go on in the background.

#include <fmt/format.h>

#include "codegen/analysis/row_copies.h"
#include "codegen/cuda/emitter.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

/// What keeps the groups of the copies of whole rows, where the program has any.
void Emitter::row_copies() {
  const int groups = row_barriers(program_);
  if (groups == 0) return;
  bool any_piece = false;
  walk(program_.body, [&](const Stmt& stmt) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      any_piece = any_piece || (effect.in_flight && effect.proxy == Proxy::generic);
    });
  });
  rows_follow_stores_ = rows_follow_stores(program_);
  row_copies_ = names_.fresh("rows");
  const std::string barriers = names_.fresh("row_barriers");
  out_.line(fmt::format("__shared__ {} {}[{}];", expressions_.call("u64"), barriers, groups));
  out_.line(fmt::format("{}<{}, {}, {}> {}({});", expressions_.call("RowCopies"), groups,
                        program_.threads / 32, any_piece, row_copies_, barriers));
}

void Emitter::print(const AsyncCopy& copy) {
  const int count = copy.from.width * bits(copy.from.array->dtype) / 8;
  TESSERA_CHECK(copy.is_row ? count % 16 == 0 : count == 4 || count == 8 || count == 16,
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
  if (copy.is_row) {
    const bool has_hint = copy.from.cache != ir::CacheHint::none;
    const std::string hint =
        has_hint ? ", " + expressions_.call(std::string(ir::name(copy.from.cache))) : "";
    const std::string inside = copy.from.guard ? guard : "true, ";
    return out_.line(fmt::format("{}.copy<{}{}>({}{}, {});", row_copies_, count, hint, inside,
                                 place(copy.to), place(copy.from)));
  }
  // A hint of the source is left to the launch (kernels/jit/plan.h): before 13.4 the compiler makes
  // an illegal instruction of some copies with a cache policy.
  const std::string& function =
      expressions_.call(copy.from.guard ? "copy_async_or_zero" : "copy_async");
  out_.line(
      fmt::format("{}<{}>({}{}, {});", function, count, guard, place(copy.to), place(copy.from)));
}

void Emitter::fence_stores() {
  if (rows_follow_stores_) out_.line(expressions_.call("fence_stores") + "();");
}

// A block must not end before its bulk copies.
void Emitter::print(const Return& leave) {
  const std::string condition = fmt::format("if ({})", expressions_.value(leave.condition));
  if (row_copies_.empty()) return out_.line(condition + " return;");
  out_.open(condition);
  out_.line(row_copies_ + ".wait<0>();");
  out_.line("return;");
  out_.close();
}

void Emitter::print(const AsyncCommit&) {
  if (!row_copies_.empty()) return out_.line(fmt::format("{}.commit();", row_copies_));
  out_.line(fmt::format("{}();", expressions_.call("commit_copies")));
}

void Emitter::print(const AsyncWait& wait) {
  if (!row_copies_.empty()) {
    return out_.line(fmt::format("{}.wait<{}>();", row_copies_, wait.pending));
  }
  out_.line(fmt::format("{}<{}>();", expressions_.call("wait_for_copies"), wait.pending));
}

}  // namespace tessera::codegen::cuda
