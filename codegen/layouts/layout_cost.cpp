// A model to compare layouts of one program with, in memory requests; its unit means nothing outside of the comparison.
//
//   global access   requests of all warps * (sectors + 4). Sectors of 32 bytes are counted exactly, for the first request of
//                   the first warp: the addresses of its lanes follow from the layout and from the strides of the loop's
//                   indices, other dimensions taken for far apart. A store pays again for sectors that it fills in part: they
//                   are written one by one, while the rest of a loaded sector waits in L1
//   shared access   a quarter of its requests
//   reduction       a step of a shuffle per power of two along the axis inside a warp, 8 such steps beyond it (shared memory
//                   and a barrier), for each slot of the result. A reducer is finalized once for several rounds that fill it
//   registers       0.001 per slot, so that of equals the smaller one wins
//   e2m1            a layout that splits the two codes of a byte costs 10^9: lowering refuses it
//
// The width of an access is the widest power of two, up to 16 bytes, for which every aligned run of the innermost index is a run
// of consecutive elements that begins at a multiple of it: proved from the forms of the indices, the strides and the declared
// alignment (feasible_vector). The same question decides which pieces cp.async can copy.

#include "codegen/layouts/layout_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/layouts/vector_width.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

using layout::Layout;

/// Warp requests of a group per request of a thread.
double warps_of(const ThreadGroup& threads) {
  return static_cast<double>(threads.count) / kThreadsPerWarp;
}

double reduce_cost(const Layout& source, int axis, const ThreadGroup& threads) {
  const double outputs = static_cast<double>(layout::reduce(source, axis).num_slots());
  double steps = 0;
  for (const layout::Digit& digit : source.digits()) {
    if (digit.axis != axis || digit.thread == 0) continue;
    for (int64_t reach = digit.thread; reach < digit.thread * digit.extent; reach *= 2) {
      steps += reach < kThreadsPerWarp ? 1 : 8;  // beyond the warp: shared memory and a barrier
    }
  }
  return outputs * steps * warps_of(threads);
}

double reducer_cost(const Layout& parts, const ThreadGroup& threads) {
  double steps = 0;
  for (const layout::Replica& copies : parts.replicas()) {
    for (int64_t reach = copies.thread; reach < copies.thread * copies.extent; reach *= 2) {
      steps += reach < kThreadsPerWarp ? 1 : 8;
    }
  }
  // The loops that fill a reducer run several times per finalize.
  constexpr double kRuns = 4;
  return static_cast<double>(parts.num_slots()) * steps * warps_of(threads) / kRuns;
}

/// The requests of a group's warps for one access.
struct Requests {
  double count = 0;     // of all warps
  int64_t sectors = 0;  // touched by the first request of the first warp
  int64_t filled = 0;   // sectors that its bytes would fill
};

Requests requests_of(const ir::Loop& loop, const Layout& iteration, const MemoryUse& use,
                     const ThreadGroup& threads, const IndexMath& math) {
  const int64_t element_bits = bits(use.buffer->dtype);
  const int64_t element = bytes(use.buffer->dtype);
  int64_t run = 1;
  for (const layout::Digit& digit : iteration.digits()) {
    if (digit.axis + 1 == static_cast<int>(loop.vars.size()) && digit.div == 1 && digit.slot == 1) {
      run = digit.extent;
    }
  }
  const int64_t vector = feasible_vector(math, *use.buffer, use.indices, *loop.vars.back(),
                                         std::min<int64_t>(run & -run, 16));
  Requests result;
  // A byte holds two e2m1 codes. Lowering refuses to split it, so every other layout is better.
  const double price = use.buffer->dtype == DType::e2m1 && vector == 1 ? 1e9 : 1;
  result.count = price * static_cast<double>(iteration.num_slots()) / static_cast<double>(vector) *
                 warps_of(threads);
  // Byte strides of the loop Vars; other dimensions count as far apart.
  std::vector<int64_t> stride(loop.vars.size(), 0);
  int64_t pitch = element;
  for (size_t d = use.indices.size(); d-- > 0;) {
    for (const Term& term : math.form(use.indices[d]).terms) {
      for (size_t v = 0; v < loop.vars.size(); ++v) {
        if (term.atom->op == ir::Op::var && term.atom->var == loop.vars[v]) {
          stride[v] += term.coefficient * pitch;
        }
      }
    }
    pitch = d + 1 == use.indices.size() ? int64_t{1} << 20 : pitch << 12;
  }
  std::set<int64_t> sectors, addresses;
  for (int64_t lane = 0; lane < std::min(kThreadsPerWarp, threads.count); ++lane) {
    const auto index = iteration.element(lane, 0);
    if (!index) continue;
    int64_t address = 0;
    for (size_t v = 0; v < stride.size(); ++v) address += (*index)[v] * stride[v];
    addresses.insert(address);
    for (int64_t byte = 0; byte < vector * element; byte += element)
      sectors.insert((address + byte) / 32);
  }
  result.sectors = static_cast<int64_t>(sectors.size());
  const auto distinct = static_cast<int64_t>(addresses.size());
  result.filled = (distinct * vector * element_bits / 8 + 31) / 32;
  return result;
}

double access_cost(const ir::Loop& loop, const Layout& iteration, const MemoryUse& use,
                   const ThreadGroup& threads, const IndexMath& math) {
  const Requests requests = requests_of(loop, iteration, use, threads, math);
  if (use.buffer->space != ir::Space::global) return 0.25 * requests.count;
  // A load leaves the rest of its sectors in L1 for the next load. A store writes every partial
  // sector separately, so it pays again for what it does not fill.
  int64_t sectors = requests.sectors;
  if (use.written) sectors += std::max<int64_t>(0, requests.sectors - requests.filled);
  return requests.count * (static_cast<double>(sectors) + 4.0);
}

}  // namespace

double layout_cost(const Participant& participant, const Layout& iteration, const IndexMath& math) {
  const ThreadGroup& threads = participant.threads;
  if (participant.reduce != nullptr) {
    return reduce_cost(iteration, participant.reduce->axis, threads);
  }
  if (participant.finalize != nullptr) return reducer_cost(iteration, threads);
  double cost = 0;
  if (participant.loop == nullptr) return cost;
  for (const MemoryUse& use : participant.memory) {
    cost += access_cost(*participant.loop, iteration, use, threads, math);
  }
  // Only the first copy of an iteration starts an asynchronous copy.
  if (is_in_pieces(*participant.loop)) cost /= static_cast<double>(iteration.num_replicas());
  return cost + 0.001 * static_cast<double>(iteration.num_slots());
}

std::vector<std::string> uncoalesced_accesses(const Participant& participant,
                                              const Layout& iteration, const IndexMath& math) {
  std::vector<std::string> notes;
  if (participant.loop == nullptr) return notes;
  for (const MemoryUse& use : participant.memory) {
    if (use.buffer->space != ir::Space::global) continue;
    const Requests requests =
        requests_of(*participant.loop, iteration, use, participant.threads, math);
    if (requests.sectors < 2 * requests.filled) continue;
    notes.push_back(fmt::format("{}: '{}': {} sectors of 32 bytes per request, its bytes fill {}",
                                tessera::to_string(participant.loc), use.buffer->name,
                                requests.sectors, requests.filled));
  }
  return notes;
}

int64_t feasible_vector(const IndexMath& math, const ir::Buffer& buffer,
                        const std::vector<ir::Expr>& indices, const ir::Var& lane, int64_t limit) {
  if (indices.empty()) return 1;
  const bool global = buffer.space == ir::Space::global;
  if (global && !ir::is_constant(buffer.strides.back(), 1)) return 1;
  int64_t width = std::min<int64_t>(limit, 128 / bits(buffer.dtype));
  if (global) {
    while (width > 1 && (buffer.align * 8) % (width * bits(buffer.dtype)) != 0) width /= 2;
  }
  auto require_multiple = [&](int64_t divisor) {
    while (width > 1 && divisor % width != 0) width /= 2;
  };
  for (size_t d = 0; d < indices.size(); ++d) {
    Form rest = math.form(indices[d], true);
    int64_t coefficient = 0;
    for (size_t t = 0; t < rest.terms.size(); ++t) {
      const Term term = rest.terms[t];
      if (term.atom->op == ir::Op::var && term.atom->var.get() == &lane) {
        coefficient = term.coefficient;
        rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(t));
        break;
      }
    }
    for (const Term& term : rest.terms) {
      std::vector<ir::VarRef> vars;
      ir::collect_vars(term.atom, vars);
      for (const ir::VarRef& var : vars) {
        if (var.get() == &lane) return 1;
      }
    }
    const bool is_last = d + 1 == indices.size();
    if (coefficient != (is_last ? 1 : 0)) return 1;
    const int64_t start = math.proved_divisor(rest);
    if (is_last) {
      require_multiple(start);
      require_multiple(math.proved_divisor(math.form(buffer.shape.back(), true)));
      if (buffer.alias_of) {
        require_multiple(math.proved_divisor(math.form(buffer.alias_of->shape.back(), true)));
      }
    } else if (global) {
      require_multiple(start * math.proved_divisor(math.form(buffer.strides[d], true)));
    } else {
      int64_t pitch = 1;
      for (size_t k = d + 1; k < indices.size(); ++k) pitch *= buffer.shape[k]->integer;
      require_multiple(start * pitch);
    }
  }
  return width;
}

int64_t common_run(const IndexMath& math, const ir::Loop& copy) {
  int64_t run = is_straight_line(copy.body) ? 16 : 1;
  while (copy.extents.back()->integer % run != 0) run /= 2;
  const ir::Var& lane = *copy.vars.back();
  const auto narrow = [&](const auto& element) {
    run = std::min(run, feasible_vector(math, *element.buffer, element.indices, lane, run));
  };
  narrow(load_of(copy));
  narrow(store_of(copy));
  return run;
}

std::vector<int64_t> piece_widths(const IndexMath& math, const ir::Loop& copy) {
  const ir::Buffer& tile = *store_of(copy).buffer;
  std::vector<int64_t> widths;
  if (load_of(copy).buffer->dtype != tile.dtype) return widths;
  for (int64_t run = common_run(math, copy); run > 0; run /= 2) {
    if (is_async_width(run * bits(tile.dtype))) widths.push_back(run);
  }
  return widths;
}

}  // namespace tessera::codegen
