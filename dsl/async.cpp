// Builder: asynchronous copies and early exit.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {

namespace {

void check_async(const Recorder& recorder, const Ref& from, const Ref& to, SourceLoc loc) {
  const ir::Buffer& source = *from.region().buffer;
  const ir::Buffer& target = *to.region().buffer;
  if (source.space != ir::Space::global || target.space != ir::Space::shared) {
    recorder.fail(
        "CPASYNC_SPACE", fmt::format("copy_async from '{}' to '{}'", source.name, target.name), loc,
        "from global to shared memory",
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

}  // namespace

AsyncToken Builder::copy_async(const Ref& from, const Ref& to, SourceLoc loc) {
  check_async(*recorder_, from, to, loc);
  ir::Copy terms;
  terms.mode = ir::CopyMode::async;
  copy(from, to, std::move(terms), loc);
  return committed(loc);
}

AsyncToken Builder::copy_async(const Rows& from, const Ref& to, SourceLoc loc) {
  check_async(*recorder_, from.of(), to, loc);
  copy_rows(from, to, true, ir::CopyMode::async, loc);
  return committed(loc);
}

AsyncToken Builder::committed(SourceLoc loc) {
  const int group = recorder_->async_groups++;
  recorder_->add({ir::AsyncCommit{group}, loc});
  return {group, recorder_->scope()};
}

void Builder::wait(const AsyncToken& token, SourceLoc loc) {
  if (!recorder_->in_scope(token.scope_)) {
    recorder_->fail("ASYNC_TOKEN", "the copy was started in a body that has ended", loc, {}, {},
                    "wait in the body that starts the copy, or use wait_pending");
  }
  recorder_->add({ir::AsyncWait{token.group_, 0}, loc});
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
  recorder_->add({ir::Return{test.expr()}, loc});
  ++recorder_->returns;
}

}  // namespace tessera::dsl
