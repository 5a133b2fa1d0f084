#include "codegen/pipelines/copy_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

/// True for a copy from global to shared memory that may be issued ahead.
bool is_load(const ir::Stmt& stmt) {
  const auto* copy = std::get_if<ir::Copy>(&stmt.node);
  const auto* loop = std::get_if<ir::Loop>(&stmt.node);
  const bool is_copy =
      copy != nullptr ? copy->plan.when == ir::CopyTime::at_once && !copy->outside
                      : loop != nullptr && loop->plan && loop->plan->when == ir::CopyTime::at_once;
  return is_copy && source_of(stmt)->space == ir::Space::global &&
         target_of(stmt)->space == ir::Space::shared;
}

std::string text_of(const ir::Stmt& copy) {
  const auto* loop = std::get_if<ir::Loop>(&copy.node);
  return loop != nullptr
             ? loop->label
             : fmt::format("copy {} -> {}", source_of(copy)->name, target_of(copy)->name);
}

/// `stmt` as a producer; without copies if it is none.
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
    if (ir::is_mark(inner)) continue;  // under a condition: it is lost where the copies move
    if (!is_load(inner)) {
      result.copies.clear();
      break;
    }
    result.copies.push_back(inner);
  }
  return result;
}

/// The variable that a statement binds; null if none.
ir::VarRef bound_by(const ir::Stmt& stmt) {
  ir::VarRef result;
  for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr*) {
    if (var->kind == ir::VarKind::value) result = var;
  });
  return result;
}

class GroupFinder {
 public:
  GroupFinder(const ir::Loop& loop, const std::map<int, int>& uses) : loop_(loop), uses_(uses) {}

  /// Why the producer must stay in its iteration; empty if it need not. Sets its first reader and
  /// the statements to replay.
  std::string obstacle_of(Producer& producer) const {
    producer.consumer = loop_.body.size();
    if (producer.condition && !replayable(producer.condition, producer.replayed)) {
      return "its condition depends on what the iteration computes";
    }
    for (const ir::Stmt& copy : producer.copies) {
      const std::string place = place_obstacle(copy, producer.replayed);
      if (!place.empty()) return place;
      const ir::Buffer& source = *source_of(copy);
      if (begins_here(source)) return "the iteration computes its address";
      if (is_written(source)) return fmt::format("the loop writes '{}'", source.name);
      if (may_come_late(source)) {
        return fmt::format("other blocks may write '{}' until the loop meets them", source.name);
      }
      const ir::Buffer& tile = storage_of(*target_of(copy));
      if (uses_in(loop_.body, tile) != uses_.at(tile.id)) {
        return fmt::format("'{}' is used outside the loop", tile.name);
      }
      const std::string order = order_obstacle(producer, tile);
      if (!order.empty()) return order;
    }
    return {};
  }

 private:
  /// Why the elements of a copy are not known ahead.
  std::string place_obstacle(const ir::Stmt& stmt, std::set<size_t>& replayed) const {
    constexpr const char* computed = "where it reads depends on what the iteration computes";
    const auto known = [&](const std::vector<ir::Expr>& indices) {
      return std::all_of(indices.begin(), indices.end(),
                         [&](const ir::Expr& index) { return replayable(index, replayed); });
    };
    if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) {
      if (!known(copy->from.offsets)) return computed;
      for (const ir::Expr& offset : copy->to.offsets) {
        if (!ir::is_constant(offset)) return "where it writes is not constant";
      }
      return {};
    }
    for (const ir::Stmt& inner : std::get<ir::Loop>(stmt.node).body) {
      if (const auto* let = std::get_if<ir::Let>(&inner.node)) {
        if (!replayable(let->value, replayed)) return computed;
      } else if (const auto* load = std::get_if<ir::ElementLoad>(&inner.node)) {
        if (is_written(*load->buffer)) {
          return fmt::format("the loop writes '{}'", load->buffer->name);
        }
        if (may_come_late(*load->buffer)) return computed;
        if (begins_here(*load->buffer) || !known(load->indices)) return computed;
      } else if (const auto* store = std::get_if<ir::ElementStore>(&inner.node)) {
        const auto& vars = std::get<ir::Loop>(stmt.node).vars;
        std::vector<ir::VarRef> used;
        for (const ir::Expr& index : store->indices) ir::collect_vars(index, used);
        const bool is_constant = std::all_of(used.begin(), used.end(), [&](const ir::VarRef& var) {
          return std::find(vars.begin(), vars.end(), var) != vars.end();
        });
        if (!is_constant) return "where it writes is not constant";
      } else {
        return "the place of a row takes more than values and loads";
      }
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
      written = written || (writes && memory_of(*buffer) == memory_of(tensor));
    });
    return written;
  }

  /// True for a tensor that other blocks may write while the loop runs, if an iteration waits for them.
  bool may_come_late(const ir::Buffer& tensor) const { return tensor.is_output && meets_blocks_; }

  /// True for a tensor whose address the iteration determines.
  bool begins_here(const ir::Buffer& tensor) const {
    return std::any_of(loop_.body.begin(), loop_.body.end(), [&](const ir::Stmt& stmt) {
      const auto* pointer = std::get_if<ir::Pointer>(&stmt.node);
      return pointer != nullptr && pointer->buffer->id == tensor.id;
    });
  }

  /// Requires all copies into the tile to precede its reads, which stand under the condition of the
  /// copy.
  std::string order_obstacle(Producer& producer, const ir::Buffer& tile) const {
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
        producer.consumer = std::min(producer.consumer, i);
        producer.last_reader = std::max(producer.last_reader, i);
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
      const auto stmt = std::find_if(loop_.body.begin(), loop_.body.end(),
                                     [&](const ir::Stmt& s) { return bound_by(s) == var; });
      if (stmt == loop_.body.end()) return true;  // defined outside
      defined.insert(static_cast<size_t>(stmt - loop_.body.begin()));
      if (std::holds_alternative<ir::Present>(stmt->node)) return true;
      if (const auto* let = std::get_if<ir::Let>(&stmt->node)) {
        return replayable(let->value, defined);
      }
      const auto* load = std::get_if<ir::ElementLoad>(&stmt->node);
      return load != nullptr && load->buffer->space == ir::Space::global &&
             !is_written(*load->buffer) && !may_come_late(*load->buffer) &&
             !begins_here(*load->buffer) &&
             std::all_of(load->indices.begin(), load->indices.end(),
                         [&](const ir::Expr& index) { return replayable(index, defined); });
    });
  }

  const ir::Loop& loop_;
  const std::map<int, int>& uses_;
  const bool meets_blocks_ =
      std::any_of(loop_.body.begin(), loop_.body.end(),
                  [](const ir::Stmt& stmt) { return any_in(stmt, meets_blocks); });
};

/// Notes copies inside a statement that is no producer: they stay in their iteration.
void note_inner_copies(const ir::Stmt& stmt, bool in_loop, std::vector<std::string>& notes) {
  const bool inside_loop = in_loop || std::holds_alternative<ir::Loop>(stmt.node);
  for_each_body(stmt, [&](const ir::Body& body) {
    for (const ir::Stmt& inner : body) {
      if (is_load(inner)) {
        notes.push_back(fmt::format("{}: {}: not ahead: it stands {}", to_string(inner.loc),
                                    text_of(inner),
                                    inside_loop ? "in a loop of the iteration"
                                                : "under a condition with other statements"));
      } else {
        note_inner_copies(inner, inside_loop, notes);
      }
    }
  });
}

}  // namespace

bool meets_blocks(const ir::Stmt& stmt) {
  struct Receiver : TileEffectReceiver {
    void orders(const Order& order) override {
      found = found || order.kind == Order::Kind::fence ||
              (order.kind == Order::Kind::barrier && order.group > Group::block);
    }
    bool found = false;
  } receiver;
  effects(stmt, receiver);
  return receiver.found;
}

std::map<int, int> count_uses(const ir::Kernel& kernel) {
  std::map<int, int> uses;
  for_each_use(kernel.body,
               [&](const ir::BufferRef& buffer, bool) { ++uses[storage_of(*buffer).id]; });
  return uses;
}

std::vector<CopyGroup> find_copy_groups(const ir::Loop& loop, const std::map<int, int>& uses,
                                        std::vector<std::string>& notes,
                                        const StaysBecause& stays) {
  const GroupFinder finder(loop, uses);
  std::map<size_t, CopyGroup> by_consumer;
  for (size_t i = 0; i < loop.body.size(); ++i) {
    Producer producer = as_producer(loop.body[i], i);
    if (producer.copies.empty()) {
      note_inner_copies(loop.body[i], false, notes);
      continue;
    }
    std::string what;
    for (const ir::Stmt& copy : producer.copies) {
      what += fmt::format("{}{}", what.empty() ? "" : ", ", text_of(copy));
    }
    std::string obstacle = stays ? stays(producer) : std::string();
    if (obstacle.empty()) obstacle = finder.obstacle_of(producer);
    const std::string ahead =
        loop.producer ? fmt::format("by the load role, {} stages", loop.stages)
                      : fmt::format("{} iterations ahead, {} versions", loop.ahead(), loop.stages);
    notes.push_back(fmt::format("{}: {}: {}", to_string(producer.loc), what,
                                obstacle.empty() ? ahead : "not ahead: " + obstacle));
    if (!obstacle.empty()) continue;
    CopyGroup& group = by_consumer[producer.consumer];
    group.consumer = producer.consumer;
    group.producers.push_back(std::move(producer));
  }
  std::vector<CopyGroup> groups;
  for (auto& [consumer, group] : by_consumer) groups.push_back(std::move(group));
  return groups;
}

}  // namespace tessera::codegen
