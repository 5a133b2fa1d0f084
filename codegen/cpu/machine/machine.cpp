#include "codegen/cpu/machine/machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "codegen/analysis/footprint.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int64_t kAlign = 128;  // of shared memory, as on the GPU; columns need 64

int64_t round_up(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// Bytes of the smallest element in shared memory: no access is smaller or begins inside one.
int smallest_element(const std::vector<ArrayRef>& arrays) {
  int smallest = 8;
  for (const ArrayRef& array : arrays) {
    smallest = std::min(smallest, array->dtype == DType::e2m1 ? 1 : bytes(array->dtype));
  }
  return smallest;
}

bool any_overlap(const std::vector<ArrayRef>& arrays) {
  for (const ArrayRef& a : arrays) {
    for (const ArrayRef& b : arrays) {
      if (a != b && overlap(*a, *b)) return true;
    }
  }
  return false;
}

void store_integer(std::byte* to, DType type, int64_t value) {
  // All supported machines are little-endian: the low bytes come first.
  std::memcpy(to, &value, static_cast<size_t>(bytes(type)));
}

}  // namespace

Machine::Machine(const Program& program, const Bytecode& bytecode, const Launch& launch,
                 Neighbours& neighbours, int rank)
    : program_(program),
      code_(bytecode),
      launch_(launch),
      neighbours_(neighbours),
      rank_(rank),
      in_flight_(bytecode.asyncs.empty() ? 0 : static_cast<size_t>(bytecode.threads)),
      groups_(static_cast<size_t>(bytecode.threads), 0),
      store_groups_(bytecode.box_stores.empty() ? 0 : static_cast<size_t>(bytecode.threads), 0) {
  const int64_t below = round_up(code_.below);
  const int64_t frame_bytes = below + round_up(code_.above);
  const int64_t shared_bytes = round_up(program.shared_bytes);
  const int64_t mask_bytes = round_up(code_.threads);
  const auto cursors = static_cast<int64_t>(code_.roles.size()) + 1;
  const int64_t total =
      kAlign + frame_bytes + shared_bytes + mask_bytes * (int64_t{code_.mask_depth} + 1) * cursors;
  memory_.resize(static_cast<size_t>(total));
  void* start = memory_.data();
  size_t space = memory_.size();
  auto* aligned = static_cast<std::byte*>(std::align(kAlign, space - kAlign, start, space));
  frame_ = aligned + below;
  shared_ = aligned + frame_bytes;
  std::byte* lanes = shared_ + shared_bytes;
  make_cursors(reinterpret_cast<uint8_t*>(lanes), mask_bytes);
  if (code_.checked) {
    shadow_ = std::make_unique<SharedShadow>(program.shared_bytes, neighbours.clocks,
                                             code_.parts_meet(), smallest_element(program.shared));
    shares_arena_ = any_overlap(program.shared);
  }

  for (const Initial& initial : code_.initials) {
    const uint64_t bits =
        initial.param >= 0 ? launch.scalars[static_cast<size_t>(initial.param)] : initial.bits;
    std::memcpy(at(initial.slot), &bits, sizeof bits);
    if (!initial.column) continue;
    Instr instr{};
    instr.out = initial.column;
    instr.args[0] = initial.slot;
    broadcast(instr);
  }
  if (code_.thread) {
    const int size = bytes(code_.thread.type);
    for (int lane = 0; lane < code_.threads; ++lane) {
      store_integer(at(code_.thread) + lane * size, code_.thread.type, lane);
    }
  }
  if (code_.checked && (code_.has_bulk_copies || !code_.group_products.empty())) {
    stores_.resize(static_cast<size_t>(program.shared_bytes / shadow_->granule() + 1));
    fences_.resize(static_cast<size_t>(code_.threads));
    fenced_.resize(static_cast<size_t>((code_.threads + kWarpSize - 1) / kWarpSize));
  }
  cursors_[0].end = code_.launch.size();
  execute(code_.launch);
}

std::array<int64_t, 3> Machine::grid() const {
  std::array<int64_t, 3> extents{1, 1, 1};
  for (size_t i = 0; i < code_.grid.size(); ++i) extents[i] = uniform<int64_t>(code_.grid[i]);
  return extents;
}

void Machine::start_block(const std::array<int64_t, 3>& block, int64_t number) {
  block_ = block;
  block_number_ = number;
  for (size_t axis = 0; axis < 3; ++axis) {
    const Slot slot = code_.blocks[axis];
    if (slot) store_integer(at(slot), slot.type, block[axis]);
  }
  Cursor& all = cursors_[0];
  all.depth = 0;
  all.next = 0;
  all.end = code_.block.size();
  all.waits = false;
  all.awaits = -1;
  Mask& threads = all.masks[0];
  threads.begin = 0;
  threads.end = threads.count = code_.threads;
  if (left_ > 0) std::memset(threads.lanes, 1, static_cast<size_t>(code_.threads));
  left_ = 0;
  are_roles_running_ = false;
  if (!code_.named_barriers.empty()) named_barriers_ = {};
  drop_copies();
  drop_mbarriers();
  boxes_.clear();
  products_.assign(cursors_.size(), {});
  busy_.clear();
  if (code_.checked) shadow_->start_block();
  if (launch_.marks != nullptr) steps_.begin(program_.block().num_warps());
  has_ended_ = is_at_barrier_ = is_at_grid_barrier_ = false;
  visitor_.reset();
}

void Machine::pass_cluster_barrier(int64_t step) {
  is_at_barrier_ = is_at_grid_barrier_ = false;
  visitor_.reset();
  steps_.go_on_at(mask(), step);
}

bool Machine::resume() {
  if (has_ended_ || is_at_barrier_) return false;
  bool went_on = false;
  for (;;) {
    went_on = (are_roles_running_ ? run_roles() : run(cursors_[0])) || went_on;
    if (are_roles_running_ || is_at_barrier_) return went_on;
    if (!cursors_[0].has_ended()) {
      if (cursors_[0].waits) return went_on;
      continue;  // roles have begun, or all of them have ended
    }
    has_ended_ = true;
    check_visitor();
    check_mbarriers_at_end();
    end_stores();
    return went_on;
  }
}

Machine::Stop Machine::execute(const std::vector<Instr>& code) {
  Cursor& cursor = *cursor_;
  size_t next = cursor.next;
  size_t begin = next;  // until the cursor passes a wait for a signal
  const size_t end = cursor.end;
  const auto jump_if = [&](bool condition, const Instr& instr) {
    if (condition) next = static_cast<size_t>(instr.target);
  };
  const auto stop = [&](Stop why) {
    cursor.next = next;
    return why;
  };
  while (next < end) {
    const Instr& instr = code[next++];
    switch (instr.code) {
      case Code::compute:
        compute(instr);
        break;
      case Code::jump:
        jump_if(true, instr);
        break;
      case Code::jump_unless:
        jump_if(uniform<uint8_t>(instr.args[0]) == 0, instr);
        break;
      case Code::mask_push:
        push_mask(instr.args[0]);
        jump_if(mask().count == 0, instr);
        break;
      case Code::mask_else:
        flip_mask(instr.args[0]);
        jump_if(mask().count == 0, instr);
        break;
      case Code::mask_and:
        narrow_mask(instr.args[0]);
        jump_if(mask().count == 0, instr);
        break;
      case Code::mask_pop:
        --cursor.depth;
        break;
      case Code::guard:
        guard(instr);
        jump_if(mask().count == 0, instr);
        break;
      case Code::leave:
        leave(instr);
        jump_if(cursor.masks[0].count == 0, instr);
        break;
      case Code::part:
        jump_if(true, instr);
        return stop(Stop::roles);
      case Code::named_barrier:
      case Code::mbarrier_wait:
        if (!(instr.code == Code::named_barrier ? named_barrier(instr) : mbarrier_wait(instr))) {
          --next;
          return stop(Stop::waiting);
        }
        break;
      case Code::await_signal:
        if (!await_signal(instr, begin == static_cast<size_t>(instr.target))) {
          next = static_cast<size_t>(instr.target);
          return stop(Stop::waiting);
        }
        begin = end;
        break;
      case Code::grid_barrier:
        barrier(instr);
        is_at_barrier_ = is_at_grid_barrier_ = true;
        return stop(Stop::barrier);
      case Code::cluster_barrier:
        cluster_barrier(instr);
        return stop(Stop::barrier);
      default:
        perform(instr);
        break;
    }
    went_on_ = true;
    if (steps_.are_counted()) count_steps(instr);
  }
  return stop(Stop::end);
}

void Machine::perform(const Instr& instr) {
  switch (instr.code) {
    case Code::copy:
      return copy(instr);
    case Code::broadcast:
      return broadcast(instr);
    case Code::check_overflow:
      return check_overflow(instr);
    case Code::check_divisor:
      return check_divisor(instr);
    case Code::check_uniform:
      return check_uniform(instr);
    case Code::check_indices:
      return check_indices(instr);
    case Code::load:
    case Code::store:
      return transfer(instr);
    case Code::pointer:
      return pointer(instr);
    case Code::require:
      return require(instr);
    case Code::print:
      return print(instr);
    case Code::mark:
      return mark(instr);
    case Code::extern_call:
      return extern_call(instr);
    case Code::atomic:
      return atomic(instr);
    case Code::lanewise:
      return lanewise(instr);
    case Code::start_product:
      return start_product(instr);
    case Code::commit_products:
      return products().groups.push_back(std::exchange(products().started, {}));
    case Code::await_products:
      return await_products(static_cast<size_t>(instr.index));
    case Code::proxy_fence:
      return proxy_fence();
    case Code::multiply:
      return multiply(instr);
    case Code::declare:
      return declare(storage(instr.index));
    case Code::async_read:
      return async_read(instr);
    case Code::async_copy:
      return async_copy(instr);
    case Code::async_commit:
      return async_commit();
    case Code::async_wait:
      return async_wait(instr);
    case Code::mbarrier_init:
      return mbarrier_init(instr);
    case Code::mbarrier_arrive:
      return mbarrier_arrive(instr);
    case Code::bulk_copy:
      return bulk_copy(instr);
    case Code::tensor_copy:
      return tensor_copy(instr);
    case Code::write_map:
      return write_map(instr);
    case Code::tensor_store:
      return tensor_store(instr);
    case Code::commit_stores:
      return commit_stores();
    case Code::await_stores:
      return await_stores(instr);
    case Code::barrier:
      return barrier(instr);
    case Code::view:
      return view(instr);
    case Code::warp_barrier:
      return warp_barrier(instr);
    case Code::collective:
      return collective(instr);
    default:
      internal_error("an instruction that execute() runs");
  }
}

void Machine::compute(const Instr& instr) {
  if (instr.out.uniform) {
    instr.op(at(instr.out), at(instr.args[0]), at(instr.args[1]), at(instr.args[2]), 1);
    return;
  }
  const Mask& active = mask();
  const auto from_first = [&](Slot slot) { return at(slot) + active.begin * bytes(slot.type); };
  instr.op(from_first(instr.out), from_first(instr.args[0]), from_first(instr.args[1]),
           from_first(instr.args[2]), active.end - active.begin);
}

void Machine::copy(const Instr& instr) {
  const int size = bytes(instr.out.type);
  const int first = instr.out.uniform ? 0 : mask().begin;
  const int count = instr.out.uniform ? 1 : mask().end - first;
  std::memcpy(at(instr.out) + first * size, at(instr.args[0]) + first * size,
              static_cast<size_t>(count * size));
}

void Machine::broadcast(const Instr& instr) {
  const Slot from = instr.args[0];
  const auto fill = [&](auto value) {
    using T = decltype(value);
    std::fill(column<T>(instr.out) + mask().begin, column<T>(instr.out) + mask().end,
              uniform<T>(from));
  };
  switch (bytes(instr.out.type)) {
    case 1:
      fill(uint8_t{});
      break;
    case 2:
      fill(uint16_t{});
      break;
    case 4:
      fill(uint32_t{});
      break;
    default:
      fill(uint64_t{});
      break;
  }
}

}  // namespace tessera::codegen::cpu
