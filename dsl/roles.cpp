// Builder: roles, and the rings between them.

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/target_facts.h"
#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

constexpr int kWarp = 32, kWarpgroup = 128;  // threads
constexpr int kMostStages = 32;

int round_up(int count, int unit) {
  return (count + unit - 1) / unit * unit;
}

class Registers {
 public:
  Registers(const Recorder& r, SourceLoc loc) : r_(r), loc_(loc) {}

  void check(const Role& role) const {
    if (role.registers % 8 != 0) {
      refuse(role, "a multiple of 8", fmt::format("{}", role.registers));
    }
    if (role.registers < 24 || role.registers > 256) {
      refuse(role, "24 .. 256", fmt::format("{}", role.registers));
    }
    if (r_.kernel.min_blocks_per_sm > 1) {
      refuse(role, "a launch without min_blocks_per_sm",
             fmt::format("min_blocks_per_sm {}", r_.kernel.min_blocks_per_sm));
    }
  }

  /// All groups of four warps together have no more than at launch.
  void check_sum(const std::vector<Role>& roles) const {
    const int threads = r_.kernel.threads, groups = round_up(threads, kWarpgroup) / kWarpgroup;
    const int each = registers_at_launch(threads);
    int sum = 0, set = 0;
    std::string terms;
    for (const Role& role : roles) {
      if (role.registers == 0) continue;
      const int count = role.warpgroups > 0 ? role.warpgroups : (role.warps + 3) / 4;
      for (int i = 0; i < count; ++i) {
        terms += fmt::format("{}{}", terms.empty() ? "" : " + ", role.registers);
      }
      sum += count * role.registers;
      set += count;
    }
    if (set == 0) return;
    if (threads % kWarpgroup != 0) {
      r_.fail("ROLE_REGISTERS", "roles with registers need whole groups of four warps", loc_,
              "a block size that is a multiple of 128", fmt::format("{} threads", threads));
    }
    for (int i = set; i < groups; ++i) terms += fmt::format(" + {}", each);
    sum += (groups - set) * each;
    if (sum <= each * groups) return;
    r_.fail("ROLE_REGISTERS", "the roles ask for more registers than a multiprocessor has", loc_,
            fmt::format("at most {}: {} x {} groups of four warps of {} threads", each * groups,
                        each, groups, threads),
            fmt::format("{} = {} > {}", terms, sum, each * groups),
            "give registers of the role that loads to those that compute");
  }

 private:
  [[noreturn]] void refuse(const Role& role, std::string expected, std::string got) const {
    r_.fail("ROLE_REGISTERS", fmt::format("role '{}' cannot have these registers", role.name), loc_,
            std::move(expected), std::move(got));
  }

  const Recorder& r_;
  const SourceLoc loc_;
};

/// Where each role begins: those of groups of four warps first.
std::vector<ir::Roles::Role> place(const Recorder& r, const std::vector<Role>& roles,
                                   SourceLoc loc) {
  std::vector<ir::Roles::Role> result;
  int end = 0;
  for (const bool groups : {true, false}) {
    for (size_t i = 0; i < roles.size(); ++i) {
      const Role& role = roles[i];
      if ((role.warpgroups > 0) != groups) continue;
      if (role.warps < 0 || role.warpgroups < 0 || (role.warps > 0) == groups || !role.body) {
        r.fail("LAUNCH", fmt::format("role '{}' is incomplete", role.name), loc,
               "a body, and a positive number of warps or of warpgroups",
               fmt::format("warps {}, warpgroups {}", role.warps, role.warpgroups));
      }
      if (role.registers != 0) {
        Registers(r, loc).check(role);
        end = round_up(end, kWarpgroup);
      }
      ir::Roles::Role placed;
      placed.name = role.name;
      placed.first = end;
      placed.count = groups ? role.warpgroups * kWarpgroup : role.warps * kWarp;
      placed.registers = role.registers;
      placed.loc = loc;
      end += role.registers != 0 ? round_up(placed.count, kWarpgroup) : placed.count;
      result.push_back(std::move(placed));
    }
  }
  if (end != r.kernel.threads) {
    r.fail("LAUNCH", "the roles are not the block", loc, fmt::format("launch with {} threads", end),
           fmt::format("{}", r.kernel.threads),
           "a role with registers takes whole groups of four warps");
  }
  return result;
}

}  // namespace

void Builder::roles(const std::vector<Role>& roles, SourceLoc loc) {
  Recorder& r = *recorder_;
  if (!r.launched) r.fail("NO_LAUNCH", "roles before launch()", loc);
  if (r.role != nullptr || r.depth() > 1 || r.manual_sync) {
    r.fail("ROLES_PLACE", "roles inside another statement", loc, "the top level of the kernel",
           r.role != nullptr ? fmt::format("inside role '{}'", r.role->name)
                             : std::string("inside a loop, a condition or manual_sync"));
  }
  for (const Role& role : roles) {
    check_name(r, role.name, loc);
    const auto same = [&](const Role& other) { return other.name == role.name; };
    if (std::count_if(roles.begin(), roles.end(), same) > 1) {
      r.fail("NAME", fmt::format("two roles are called '{}'", role.name), loc);
    }
  }
  ir::Roles node;
  node.roles = place(r, roles, loc);
  Registers(r, loc).check_sum(roles);
  for (ir::Roles::Role& placed : node.roles) {
    const auto role = std::find_if(roles.begin(), roles.end(),
                                   [&](const Role& other) { return other.name == placed.name; });
    placed.thread = r.new_var(placed.name + "_thread", DType::i32, ir::VarKind::thread, loc,
                              ir::index(0), ir::index(placed.count));
    r.role = &placed;
    placed.body = r.record(loc, Recorder::Runs::under_condition, [&] {
      r.iterate(placed.thread, 0, placed.count - 1);
      role->body();
    });
    r.role = nullptr;
  }
  r.add({std::move(node), loc});
}

Ring Builder::ring(RingOptions options, SourceLoc loc) {
  Recorder& r = *recorder_;
  if (options.stages < 1 || options.stages > kMostStages) {
    r.fail("RING_STAGES", "the stages of a ring are out of range", loc,
           fmt::format("1 .. {}", kMostStages), fmt::format("{}", options.stages));
  }
  if (r.role != nullptr) {
    r.fail("ROLES_PLACE", "a ring inside a role", loc, "k.ring before k.roles",
           fmt::format("inside role '{}'", r.role->name));
  }
  r.kernel.rings.push_back({options.stages, {}, loc});
  return Ring(*this, static_cast<int>(r.kernel.rings.size()) - 1);
}

Ref Ring::shared(DType dtype, std::vector<int64_t> shape, std::string name, SourceLoc loc) {
  Recorder& r = *builder_->recorder_;
  check_name(r, name, loc);
  if (shape.size() > 3) {
    r.fail("SHAPE", fmt::format("'{}' has too many dimensions", name), loc,
           "at most 3 of a tile of a ring", fmt::format("{}", shape.size()));
  }
  ir::Buffer buffer;
  buffer.shape = constant_shape(r, shape, name, loc);
  buffer.name = std::move(name);
  buffer.dtype = dtype;
  buffer.space = ir::Space::shared;
  buffer.ring = number_;
  buffer.loc = loc;
  const Ref tile = r.new_buffer(std::move(buffer));
  r.kernel.rings[static_cast<size_t>(number_)].tiles.push_back(tile.region().buffer);
  return tile;
}

void Ring::turn(bool fills, const std::function<void()>& body, SourceLoc loc) {
  Recorder& r = *builder_->recorder_;
  const ir::Ring& ring = r.kernel.rings[static_cast<size_t>(number_)];
  const char* what = fills ? "fill" : "take";
  if (r.role == nullptr) {
    r.fail("RING_ROLE", fmt::format("a {} outside of the roles", what), loc,
           "k.roles({{.name = ..., .body = [&] { ... }}})", {}, {}, ring.loc);
  }
  if (std::find(r.turns.begin(), r.turns.end(), number_) != r.turns.end()) {
    r.fail("RING_NESTED", fmt::format("a {} inside a fill or a take of the same ring", what), loc,
           "one stage at a time", {}, "close the first one, or use another ring", ring.loc);
  }
  if (r.parallel_depth > 0) {
    r.fail("NESTED_PARALLEL", fmt::format("a {} inside a parallel loop", what), loc);
  }
  ir::RingTurn node;
  node.ring = number_;
  node.fills = fills;
  r.turns.push_back(number_);
  node.body = r.record(loc, Recorder::Runs::always, [&] {
    node.stage = r.new_var(fills ? "filled" : "taken", DType::i32, ir::VarKind::value, loc,
                           ir::index(0), ir::index(ring.stages));
    body();
  });
  r.turns.pop_back();
  r.add({std::move(node), loc});
}

void Ring::fill(const std::function<void()>& body, SourceLoc loc) {
  turn(true, body, loc);
}

void Ring::take(const std::function<void()>& body, SourceLoc loc) {
  turn(false, body, loc);
}

}  // namespace tessera::dsl
