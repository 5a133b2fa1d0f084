// Builder: asynchronous copies and early exit.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {

namespace {

bool is_store(const Ref& from, const Ref& to) {
  return from.region().buffer->space == ir::Space::shared &&
         to.region().buffer->space == ir::Space::global;
}

void check_async(const Recorder& recorder, const Ref& from, const Ref& to, SourceLoc loc) {
  const ir::Buffer& source = *from.region().buffer;
  const ir::Buffer& target = *to.region().buffer;
  const bool loads = source.space == ir::Space::global && target.space == ir::Space::shared;
  if (!loads && !is_store(from, to)) {
    recorder.fail(
        "CPASYNC_SPACE", fmt::format("copy_async from '{}' to '{}'", source.name, target.name), loc,
        "between global and shared memory",
        fmt::format("from {} to {}", name(source.space), name(target.space)), "use k.copy");
  }
  if (source.dtype != target.dtype) {
    recorder.fail(
        "DTYPE",
        fmt::format("copy_async from '{}' to '{}' cannot convert", source.name, target.name), loc,
        std::string(name(source.dtype)), std::string(name(target.dtype)),
        "use k.copy, or convert when the tile is read");
  }
}

void check_token(const Recorder& recorder, int scope, SourceLoc loc) {
  if (recorder.in_scope(scope)) return;
  recorder.fail("ASYNC_TOKEN", "the copy was started in a body that has ended", loc, {}, {},
                "wait in the body that starts the copy, or use wait_pending");
}

}  // namespace

AsyncToken Builder::copy_async(const Ref& from, const Ref& to, SourceLoc loc) {
  check_async(*recorder_, from, to, loc);
  ir::Copy terms;
  if (is_store(from, to)) {
    const int token = recorder_->stores++;
    terms.plan.engine = ir::Engine::tensor;
    terms.token = token;
    copy(from, to, std::move(terms), loc);
    return {token, recorder_->scope(), true};
  }
  terms.plan.when = ir::CopyTime::awaited;
  copy(from, to, std::move(terms), loc);
  return committed(loc);
}

AsyncToken Builder::copy_async(const TileAt& from, const Ref& to, SourceLoc loc) {
  return copy_async(from.with_extents_of(to), to, loc);
}
AsyncToken Builder::copy_async(const Ref& from, const TileAt& to, SourceLoc loc) {
  return copy_async(from, to.with_extents_of(from), loc);
}

AsyncToken Builder::copy_async(const Rows& from, const Ref& to, SourceLoc loc) {
  check_async(*recorder_, from.of(), to, loc);
  copy_rows(from, to, true, ir::CopyTime::awaited, loc);
  return committed(loc);
}

AsyncToken Builder::committed(SourceLoc loc) {
  const int group = recorder_->async_groups++;
  recorder_->add({ir::AsyncCommit{group}, loc});
  return {group, recorder_->scope()};
}

void Builder::wait(const AsyncToken& token, SourceLoc loc) {
  check_token(*recorder_, token.scope_, loc);
  if (token.is_store_) {
    recorder_->add({ir::StoreWait{token.group_, false}, loc});
  } else {
    recorder_->add({ir::AsyncWait{token.group_, 0}, loc});
  }
}

void Builder::wait_read(const AsyncToken& token, SourceLoc loc) {
  check_token(*recorder_, token.scope_, loc);
  if (!token.is_store_) {
    recorder_->fail("ASYNC_TOKEN", "wait_read of a copy to shared memory", loc,
                    "a copy from a shared tile to a tensor", "one from a tensor", "use k.wait");
  }
  recorder_->add({ir::StoreWait{token.group_, true}, loc});
}

void Builder::wait_pending(int pending, SourceLoc loc) {
  if (pending < 0) {
    recorder_->fail("ASYNC_WAIT", "a wait for a negative number of copies", loc, "0 or more",
                    fmt::format("{}", pending));
  }
  recorder_->add({ir::AsyncWait{-1, pending}, loc});
}

void Builder::manual_sync(const std::function<void()>& body) {
  const bool outer = recorder_->manual_sync;
  recorder_->manual_sync = true;
  body();
  recorder_->manual_sync = outer;
}

void Builder::return_if(Arg condition, SourceLoc loc) {
  const Value test = condition.as(DType::boolean, recorder_.get());
  recorder_->check_in_scope(test.expr(), loc);
  if (recorder_->parallel_depth > 0) {
    recorder_->fail("RETURN_IN_PARALLEL", "return_if() for one iteration of a parallel loop", loc,
                    {}, {}, "put what the iteration does into k.if_");
  }
  if (!recorder_->marks.empty()) {
    recorder_->fail("MARK",
                    fmt::format("mark \"{}\" begins and does not end", recorder_->marks.back()),
                    loc, "a body that stays in the kernel", "k.return_if in it",
                    "leave before the mark, or put the work under k.if_");
  }
  recorder_->add({ir::Return{test.expr()}, loc});
  ++recorder_->returns;
}

}  // namespace tessera::dsl
