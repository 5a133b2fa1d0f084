#include "codegen/passes/pipeline_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/passes/tile_uses.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// A statement of the body that only copies from global to shared memory, perhaps under a condition.
struct Producer {
  size_t position = 0;
  ir::Expr condition;  // null = always
  std::vector<ir::Copy> copies;
  SourceLoc loc;
};

/// Producers whose tiles are first read by the same statement.
struct Group {
  size_t consumer = 0;
  std::vector<Producer> producers;
};

/// `stmt` as a producer; one without copies if it is none.
Producer as_producer(const ir::Stmt& stmt, size_t position) {
  Producer result;
  result.position = position;
  result.loc = stmt.loc;
  ir::Body copies;
  if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
    if (branch->otherwise.empty()) copies = branch->then;
    result.condition = branch->condition;
  } else {
    copies = {stmt};
  }
  for (const ir::Stmt& inner : copies) {
    const auto* copy = std::get_if<ir::Copy>(&inner.node);
    const bool loads = copy != nullptr && copy->mode == ir::CopyMode::plain && !copy->outside &&
                       copy->from.buffer->space == ir::Space::global &&
                       copy->to.buffer->space == ir::Space::shared;
    if (!loads) {
      result.copies.clear();
      break;
    }
    result.copies.push_back(*copy);
  }
  return result;
}

class LoopPipeline {
 public:
  LoopPipeline(ir::Kernel& kernel, const std::map<int, int>& uses, const ir::Loop& loop,
               SourceLoc loc, std::vector<std::string>& notes)
      : kernel_(kernel), uses_(uses), loop_(loop), loc_(loc), notes_(notes) {}

  ir::Body run() {
    require_no_waits(loop_.body);
    if (loop_.stages > 0) find_groups();
    ir::Body result;
    counter_ = loop_.vars[0];
    if (!groups_.empty()) normalise();
    version_tiles();
    if (!groups_.empty()) result.push_back(prologue());
    result.push_back(main_loop());
    return result;
  }

 private:
  [[noreturn]] void fail(const char* code, std::string what, SourceLoc loc) const {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = kernel_.name;
    fields.code = code;
    fields.what = std::move(what);
    fields.hint = "a pipelined loop counts its own copies: use k.copy in it, or a serial loop";
    fields.loc = loc;
    fields.related = loc_;
    throw Error(std::move(fields));
  }

  void require_no_waits(const ir::Body& body) const {
    for (const ir::Stmt& stmt : body) {
      if (std::holds_alternative<ir::AsyncCommit>(stmt.node) ||
          std::holds_alternative<ir::AsyncWait>(stmt.node)) {
        fail("ASYNC_IN_PIPELINE", "an asynchronous copy or a wait inside a pipelined loop",
             stmt.loc);
      } else if (const auto* inner = std::get_if<ir::Loop>(&stmt.node)) {
        if (inner->kind == ir::LoopKind::pipelined) {
          fail("ASYNC_IN_PIPELINE", "a pipelined loop inside a pipelined loop", stmt.loc);
        }
        require_no_waits(inner->body);
      } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
        require_no_waits(branch->then);
        require_no_waits(branch->otherwise);
      }
    }
  }

  // ---- what can be issued ahead

  void find_groups() {
    const ir::Body& body = loop_.body;
    std::map<size_t, Group> by_consumer;
    for (size_t i = 0; i < body.size(); ++i) {
      Producer producer = as_producer(body[i], i);
      if (producer.copies.empty()) continue;
      std::string what;
      for (const ir::Copy& copy : producer.copies) {
        what += fmt::format("{}copy {} -> {}", what.empty() ? "" : ", ", copy.from.buffer->name,
                            copy.to.buffer->name);
      }
      size_t consumer = body.size();
      const std::string obstacle = obstacle_of(producer, consumer);
      notes_.push_back(
          obstacle.empty()
              ? fmt::format("{}: {}: {} iterations ahead, {} versions", to_string(producer.loc),
                            what, loop_.stages, loop_.stages + 1)
              : fmt::format("{}: {}: not ahead: {}", to_string(producer.loc), what, obstacle));
      if (!obstacle.empty()) continue;
      Group& group = by_consumer[consumer];
      group.consumer = consumer;
      group.producers.push_back(std::move(producer));
    }
    for (auto& [consumer, group] : by_consumer) groups_.push_back(std::move(group));
    for (const Group& group : groups_) {
      for (const Producer& producer : group.producers) {
        ahead_.insert(producer.position);
        for (const ir::Copy& copy : producer.copies) tiles_.insert(storage_of(*copy.to.buffer).id);
      }
    }
  }

  /// Why the producer has to stay where it is; empty if it need not. Sets the first reader.
  std::string obstacle_of(const Producer& producer, size_t& consumer) const {
    std::set<size_t> defined;
    if (producer.condition && !replayable(producer.condition, defined)) {
      return "its condition depends on what the iteration computes";
    }
    for (const ir::Copy& copy : producer.copies) {
      for (const ir::Expr& offset : copy.from.offsets) {
        if (!replayable(offset, defined)) {
          return "where it reads depends on what the iteration computes";
        }
      }
      for (const ir::Expr& offset : copy.to.offsets) {
        if (!ir::is_constant(offset)) return "where it writes is not constant";
      }
      if (is_written(*copy.from.buffer)) {
        return fmt::format("the loop writes '{}'", copy.from.buffer->name);
      }
      const ir::Buffer& tile = storage_of(*copy.to.buffer);
      if (uses_in(loop_.body, tile) != uses_.at(tile.id)) {
        return fmt::format("'{}' is used outside the loop", tile.name);
      }
      const std::string order = order_obstacle(producer, tile, consumer);
      if (!order.empty()) return order;
    }
    return {};
  }

  static int uses_in(const ir::Body& body, const ir::Buffer& storage) {
    int uses = 0;
    for_each_use(body, [&](const ir::BufferRef& buffer, bool) {
      if (storage_of(*buffer).id == storage.id) ++uses;
    });
    return uses;
  }

  bool is_written(const ir::Buffer& tensor) const {
    bool written = false;
    for_each_use(loop_.body, [&](const ir::BufferRef& buffer, bool writes) {
      written = written || (writes && buffer->id == tensor.id);
    });
    return written;
  }

  /// All copies into the tile come first, then only reads, under the condition of the copy.
  std::string order_obstacle(const Producer& producer, const ir::Buffer& tile,
                             size_t& consumer) const {
    bool has_read = false;
    for (size_t i = 0; i < loop_.body.size(); ++i) {
      const ir::Stmt& stmt = loop_.body[i];
      bool reads = false, writes = false;
      for_each_use(stmt, [&](const ir::BufferRef& buffer, bool is_write) {
        if (storage_of(*buffer).id != tile.id) return;
        (is_write ? writes : reads) = true;
      });
      if (writes) {
        if (has_read || reads) return fmt::format("'{}' is read before it is written", tile.name);
        const Producer other = as_producer(stmt, i);
        const bool same =
            static_cast<bool>(other.condition) == static_cast<bool>(producer.condition) &&
            (!other.condition || ir::equal(other.condition, producer.condition));
        if (other.copies.empty() || !same) {
          return fmt::format("'{}' is not only written by copies", tile.name);
        }
      }
      if (reads) {
        if (i < producer.position) return fmt::format("'{}' is read first", tile.name);
        has_read = true;
        consumer = std::min(consumer, i);
        const auto* branch = std::get_if<ir::If>(&stmt.node);
        const bool inside = branch != nullptr && producer.condition &&
                            ir::equal(branch->condition, producer.condition) &&
                            uses_in(branch->otherwise, tile) == 0;
        if (producer.condition && !inside) {
          return fmt::format("'{}' is copied under a condition and read without it", tile.name);
        }
      }
    }
    return has_read ? std::string() : fmt::format("'{}' is never read", tile.name);
  }

  /// True if `e` can be computed for another iteration: from the loop index, values from outside,
  /// and values that the body computes or loads from memory that it does not write. Adds the
  /// statements that define the latter.
  bool replayable(const ir::Expr& e, std::set<size_t>& defined) const {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(e, vars);
    return std::all_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
      if (var == loop_.vars[0]) return true;
      if (var->kind != ir::VarKind::value) return true;
      const auto stmt = std::find_if(loop_.body.begin(), loop_.body.end(), [&](const ir::Stmt& s) {
        if (const auto* let = std::get_if<ir::Let>(&s.node)) return let->var == var;
        if (const auto* load = std::get_if<ir::ElementLoad>(&s.node)) return load->var == var;
        if (const auto* warp = std::get_if<ir::Collective>(&s.node)) return warp->var == var;
        return false;
      });
      if (stmt == loop_.body.end()) return true;  // defined outside
      defined.insert(static_cast<size_t>(stmt - loop_.body.begin()));
      if (const auto* let = std::get_if<ir::Let>(&stmt->node)) {
        return replayable(let->value, defined);
      }
      const auto* load = std::get_if<ir::ElementLoad>(&stmt->node);
      return load != nullptr && load->buffer->space == ir::Space::global &&
             !is_written(*load->buffer) &&
             std::all_of(load->indices.begin(), load->indices.end(),
                         [&](const ir::Expr& index) { return replayable(index, defined); });
    });
  }

  // ---- rewriting

  ir::VarRef new_var(const ir::Var& like, std::string name, ir::VarKind kind) {
    auto var = std::make_shared<ir::Var>(like);
    var->name = std::move(name);
    var->kind = kind;
    var->id = kernel_.num_vars++;
    return var;
  }

  ir::Expr number(int64_t value) const { return ir::constant(loop_.vars[0]->type, value); }

  /// A loop counter that starts at 0: the version is its remainder.
  void normalise() {
    if (ir::is_constant(loop_.begin, 0)) return;
    auto counter = std::make_shared<ir::Var>(
        *new_var(*loop_.vars[0], loop_.vars[0]->name + "_count", ir::VarKind::loop));
    counter->lower = number(0);
    counter->upper = loop_.extents[0] - loop_.begin;
    counter_ = counter;
  }

  ir::Expr rounds() const {
    return ir::is_constant(loop_.begin, 0) ? loop_.extents[0] : loop_.extents[0] - loop_.begin;
  }

  /// Gives every tile that is copied ahead its versions.
  void version_tiles() {
    const ir::Expr versions = ir::index(loop_.stages + 1);
    for_each_use(loop_.body, [&](const ir::BufferRef& buffer, bool) {
      const ir::Buffer& storage = storage_of(*buffer);
      if (!tiles_.contains(storage.id)) return;
      for (const ir::BufferRef& old : {buffer->alias_of, buffer}) {
        if (!old || versioned_.contains(old->id)) continue;
        auto fresh = std::make_shared<ir::Buffer>(*old);
        fresh->id = kernel_.num_buffers++;
        fresh->shape.insert(fresh->shape.begin(), versions);
        if (old->alias_of) fresh->alias_of = versioned_.at(old->alias_of->id);
        versioned_[old->id] = fresh;
      }
    });
  }

  /// The uses of versioned tiles in `body` as uses of version `iteration` % versions.
  void use_version(ir::Body& body, const ir::Expr& iteration) const {
    const ir::Expr version = ir::cast(DType::i32, iteration % number(loop_.stages + 1));
    BufferMove move;
    move.region = [&](ir::Region& region) {
      const auto found = versioned_.find(region.buffer->id);
      if (found == versioned_.end()) return;
      region.buffer = found->second;
      region.offsets.insert(region.offsets.begin(), version);
      region.extents.insert(region.extents.begin(), ir::Expr());
      for (int& dimension : region.order) ++dimension;
    };
    move.element = [&](ir::BufferRef& buffer, std::vector<ir::Expr>& indices) {
      const auto found = versioned_.find(buffer->id);
      if (found == versioned_.end()) return;
      buffer = found->second;
      indices.insert(indices.begin(), version);
    };
    move_buffers(body, move);
  }

  /// The copies of a group for round `round`, if there is such a round, and the commit.
  void issue(const Group& group, const ir::Expr& round, ir::Body& out) {
    ir::If branch;
    branch.condition = round < rounds();
    std::map<const ir::Var*, ir::Expr> values;
    values[loop_.vars[0].get()] = ir::is_constant(loop_.begin, 0) ? round : loop_.begin + round;
    const auto replayed = [&](const ir::Expr& e) {
      return ir::substitute(e, [&](const ir::VarRef& var) {
        const auto found = values.find(var.get());
        return found == values.end() ? ir::Expr() : found->second;
      });
    };
    std::set<size_t> defined;
    for (const Producer& producer : group.producers) {
      if (producer.condition) replayable(producer.condition, defined);
      for (const ir::Copy& copy : producer.copies) {
        for (const ir::Expr& offset : copy.from.offsets) replayable(offset, defined);
      }
    }
    for (const size_t position : defined) {
      ir::Stmt stmt = loop_.body[position];
      const auto rename = [&](ir::VarRef& var) {
        const ir::VarRef old = var;
        var = new_var(*old, old->name + "_ahead", old->kind);
        values[old.get()] = ir::var(var);
      };
      if (auto* let = std::get_if<ir::Let>(&stmt.node)) {
        let->value = replayed(let->value);
        rename(let->var);
      } else if (auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
        for (ir::Expr& index : load->indices) index = replayed(index);
        rename(load->var);
      }
      branch.then.push_back(std::move(stmt));
    }
    for (const Producer& producer : group.producers) {
      ir::Body copies;
      for (ir::Copy copy : producer.copies) {
        for (ir::Expr& offset : copy.from.offsets) offset = replayed(offset);
        copy.mode = ir::CopyMode::async_if_possible;
        copies.push_back({std::move(copy), producer.loc});
      }
      use_version(copies, round);
      if (producer.condition) {
        branch.then.push_back({ir::If{replayed(producer.condition), copies, {}}, producer.loc});
      } else {
        branch.then.insert(branch.then.end(), copies.begin(), copies.end());
      }
    }
    out.push_back({std::move(branch), loc_});
    out.push_back({ir::AsyncCommit{}, loc_});
  }

  ir::Stmt prologue() {
    ir::Loop loop;
    loop.kind = ir::LoopKind::unrolled;
    auto var = std::make_shared<ir::Var>(*new_var(*loop_.vars[0], "stage", ir::VarKind::loop));
    var->lower = number(0);
    var->upper = number(loop_.stages);
    loop.vars = {var};
    loop.begin = number(0);
    loop.step = number(1);
    loop.extents = {number(loop_.stages)};
    for (const Group& group : groups_) issue(group, ir::var(var), loop.body);
    return {std::move(loop), loc_};
  }

  ir::Stmt main_loop() {
    ir::Loop loop = loop_;
    loop.kind = ir::LoopKind::serial;
    loop.stages = 0;
    if (groups_.empty()) return {std::move(loop), loc_};
    loop.body.clear();
    if (counter_ != loop_.vars[0]) {
      loop.vars = {counter_};
      loop.begin = number(0);
      loop.extents = {rounds()};
      loop.body.push_back({ir::Let{loop_.vars[0], loop_.begin + ir::var(counter_)}, loc_});
    }
    const ir::Expr round = ir::var(counter_);
    const int pending = loop_.stages * static_cast<int>(groups_.size()) - 1;
    ir::Body consumers;
    const auto flush = [&] {
      use_version(consumers, round);
      loop.body.insert(loop.body.end(), consumers.begin(), consumers.end());
      consumers.clear();
    };
    for (size_t i = 0; i < loop_.body.size(); ++i) {
      for (const Group& group : groups_) {
        if (group.consumer != i) continue;
        flush();
        loop.body.push_back({ir::AsyncWait{-1, pending}, loc_});
        issue(group, round + number(loop_.stages), loop.body);
      }
      if (!ahead_.contains(i)) consumers.push_back(loop_.body[i]);
    }
    flush();
    return {std::move(loop), loc_};
  }

  ir::Kernel& kernel_;
  const std::map<int, int>& uses_;  // of each storage, in the whole kernel
  const ir::Loop& loop_;
  const SourceLoc loc_;
  std::vector<std::string>& notes_;
  std::vector<Group> groups_;               // in the order of their first readers
  std::set<size_t> ahead_;                  // statements of the body that are issued ahead
  std::set<int> tiles_;                     // storage ids of their tiles
  std::map<int, ir::BufferRef> versioned_;  // by id of the buffer it replaces
  ir::VarRef counter_;
};

class Pipeliner {
 public:
  Pipeliner(ir::Kernel& kernel, std::vector<std::string>& notes) : kernel_(kernel), notes_(notes) {
    for_each_use(kernel.body,
                 [&](const ir::BufferRef& buffer, bool) { ++uses_[storage_of(*buffer).id]; });
  }

  ir::Body body(const ir::Body& from) {
    ir::Body to;
    for (const ir::Stmt& stmt : from) {
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && loop->kind == ir::LoopKind::pipelined) {
        ir::Body rounds = LoopPipeline(kernel_, uses_, *loop, stmt.loc, notes_).run();
        for (ir::Stmt& round : rounds) {
          round.manual_sync = stmt.manual_sync;
          to.push_back(std::move(round));
        }
        continue;
      }
      to.push_back(stmt);
      if (auto* inner = std::get_if<ir::Loop>(&to.back().node)) {
        inner->body = body(inner->body);
      } else if (auto* branch = std::get_if<ir::If>(&to.back().node)) {
        branch->then = body(branch->then);
        branch->otherwise = body(branch->otherwise);
      }
    }
    return to;
  }

 private:
  ir::Kernel& kernel_;
  std::vector<std::string>& notes_;
  std::map<int, int> uses_;
};

}  // namespace

ir::Kernel pipeline_loops(const ir::Kernel& kernel, std::vector<std::string>& notes) {
  ir::Kernel result = kernel;
  result.body = Pipeliner(result, notes).body(kernel.body);
  return result;
}

}  // namespace tessera::codegen
