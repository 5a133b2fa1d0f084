// Emitter: roles and named barriers.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen::cuda {
namespace {

constexpr int kGroupThreads = 128;  // set their registers together

/// "warp < 4" or "warp >= 4 && warp < 12": the warps of a role.
std::string condition(const std::string& warp, const ThreadGroup& threads) {
  const int first = threads.first / kThreadsPerWarp, end = threads.end() / kThreadsPerWarp;
  const std::string below = fmt::format("{} < {}", warp, end);
  return first == 0 ? below : fmt::format("{} >= {} && {}", warp, first, below);
}

}  // namespace

// One chain on an index that the compiler knows to be the same in a warp: it keeps warps whole.
void Emitter::print(const RoleBodies& bodies) {
  const std::string warp = names_.fresh("warp");
  out_.line(fmt::format("const int {} = __shfl_sync({}, threadIdx.x / {}, 0);", warp,
                        expressions_.call("all_lanes"), kThreadsPerWarp));
  bool is_first = true;
  for (const RoleBodies::Role& role : bodies.roles) {
    // All warps of a group of four set their registers together.
    ThreadGroup part = role.threads;
    const bool sets = role.registers > 0;
    if (sets) part.count = (part.count + kGroupThreads - 1) / kGroupThreads * kGroupThreads;
    const std::string test = condition(warp, part);
    if (is_first) {
      out_.open(fmt::format("if ({})", test));
    } else {
      out_.close(fmt::format(" else if ({}) {{", test));
    }
    is_first = false;
    out_.comment(role.name);
    names_.enter();
    if (sets) {
      out_.line(fmt::format("{}<{}, {}>();", expressions_.call("set_registers"), role.registers,
                            registers_at_launch(program_.threads)));
    }
    const bool is_part = part.count > role.threads.count;
    if (is_part) out_.open(fmt::format("if ({})", condition(warp, role.threads)));
    if (role.thread && usage_.is_used(*role.thread)) {
      bind(role.thread, role.threads.first == 0
                            ? std::string("threadIdx.x")
                            : fmt::format("threadIdx.x - {}", role.threads.first));
    }
    bind_first_of_warp(role.thread, role.body);
    body(role.body);
    if (is_part) out_.close();
    names_.leave();
  }
  if (!is_first) out_.close();
}

}  // namespace tessera::codegen::cuda
