#include "codegen/passes/solve_layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "codegen/passes/fragment_layouts.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

using layout::Layout;

int root_id(const ir::Buffer& buffer) {
  return buffer.alias_of ? buffer.alias_of->id : buffer.id;
}

/// A global or shared access of a parallel loop.
struct MemoryUse {
  ir::BufferRef buffer;
  std::vector<ir::Expr> indices;
};

/// One parallel loop, one reduction or one matrix product.
struct Participant {
  const ir::Loop* loop = nullptr;
  const ir::Reduce* reduce = nullptr;
  const ir::Gemm* gemm = nullptr;
  std::vector<FragmentUse> fragments;
  std::vector<MemoryUse> memory;
  SourceLoc loc;
  int component = -1;
};

struct State {
  std::map<int, Layout> fragments;
  std::map<const ir::Loop*, Layout> loops;
};

/// Why an attempt failed.
struct Conflict {
  std::string what;
  SourceLoc loc, related;
};

std::vector<int64_t> constants(const std::vector<ir::Expr>& list) {
  std::vector<int64_t> values;
  for (const ir::Expr& e : list) values.push_back(e->integer);
  return values;
}

class Solver {
 public:
  explicit Solver(const ir::Kernel& kernel) : kernel_(kernel) {}

  LayoutPlan solve() {
    collect(kernel_.body, nullptr);
    group();
    State state;
    for (const auto& [id, buffer] : buffers_) {
      if (!buffer->layout) continue;
      if (auto conflict = set_fragment(state, buffer, whole_block(*buffer->layout), buffer->loc)) {
        fail(*conflict);
      }
    }
    for (const Participant& p : participants_) {
      if (p.gemm == nullptr) continue;
      if (auto conflict = set_operands(state, p)) fail(*conflict);
    }
    for (int component = 0; component < num_components_; ++component) {
      state = solve_component(component, state);
    }
    plan_.fragments = std::move(state.fragments);
    plan_.loops = std::move(state.loops);
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(const Conflict& conflict, const char* code = "LAYOUT_CONFLICT") const {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = kernel_.name;
    fields.code = code;
    fields.what = conflict.what;
    fields.loc = conflict.loc;
    fields.related = conflict.related;
    fields.hint =
        "copy the fragment into one with the layout that this use needs, or stage it through "
        "shared memory";
    throw Error(std::move(fields));
  }

  /// Threads beyond the layout's own hold further copies, so that every thread of the block owns
  /// something.
  Layout whole_block(const Layout& layout) const {
    const int64_t used = layout.num_threads();
    if (kernel_.threads > used && kernel_.threads % used == 0) {
      return layout::replicate(layout, kernel_.threads / used);
    }
    return layout;
  }

  // ---- participants

  void collect(const ir::Body& body, Participant* inside) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
        if (loop->kind == ir::LoopKind::parallel) {
          if (inside != nullptr) {
            fail({"a parallel loop inside a parallel loop", stmt.loc, inside->loc},
                 "NESTED_PARALLEL");
          }
          Participant p;
          p.loop = loop;
          p.loc = stmt.loc;
          collect(loop->body, &p);
          participants_.push_back(std::move(p));
        } else {
          collect(loop->body, inside);
        }
      } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
        collect(branch->then, inside);
        collect(branch->otherwise, inside);
      } else if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
        if (is_integer(let->var->type)) math_.define(let->var, let->value);
      } else if (const auto* reduce = std::get_if<ir::Reduce>(&stmt.node)) {
        Participant p;
        p.reduce = reduce;
        p.loc = stmt.loc;
        for (const ir::Region* region : {&reduce->from, &reduce->to}) {
          p.fragments.push_back({region->buffer, {}, region == &reduce->to, stmt.loc});
          note_buffer(region->buffer);
        }
        participants_.push_back(std::move(p));
      } else if (const auto* gemm = std::get_if<ir::Gemm>(&stmt.node)) {
        Participant p;
        p.gemm = gemm;
        p.loc = stmt.loc;
        for (const ir::Region* region : {&gemm->a, &gemm->c}) {
          if (region->buffer->space != ir::Space::fragment) continue;
          p.fragments.push_back({region->buffer, {}, region == &gemm->c, stmt.loc});
          note_buffer(region->buffer);
        }
        participants_.push_back(std::move(p));
      } else if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
        use(inside, load->buffer, load->indices, false, stmt.loc);
      } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
        use(inside, store->buffer, store->indices, true, stmt.loc);
      }
    }
  }

  void note_buffer(const ir::BufferRef& buffer) {
    buffers_[buffer->id] = buffer;
    if (buffer->alias_of) buffers_[buffer->alias_of->id] = buffer->alias_of;
  }

  void use(Participant* inside, const ir::BufferRef& buffer, const std::vector<ir::Expr>& indices,
           bool written, SourceLoc loc) {
    if (buffer->space == ir::Space::fragment) {
      if (inside == nullptr) {
        fail({fmt::format("fragment '{}' is indexed outside a parallel loop", buffer->name),
              loc,
              {}},
             "FRAG_OUTSIDE_PARALLEL");
      }
      note_buffer(buffer);
      for (FragmentUse& other : inside->fragments) {
        if (other.buffer->id != buffer->id) continue;
        bool same = true;
        for (size_t d = 0; d < indices.size(); ++d) {
          same = same && IndexMath().same(indices[d], other.indices[d]);
        }
        if (!same) {
          fail({fmt::format("fragment '{}' is indexed in two ways in one parallel loop",
                            buffer->name),
                loc, other.loc},
               "FRAG_MULTI_INDEX");
        }
        other.written = other.written || written;
        return;
      }
      inside->fragments.push_back({buffer, indices, written, loc});
    } else if (inside != nullptr &&
               (buffer->space == ir::Space::global || buffer->space == ir::Space::shared)) {
      inside->memory.push_back({buffer, indices});
    }
  }

  /// Numbers the components: participants connected through the storage of a fragment.
  void group() {
    std::vector<int> parent(participants_.size());
    for (size_t i = 0; i < parent.size(); ++i) parent[i] = static_cast<int>(i);
    auto find = [&](int i) {
      while (parent[static_cast<size_t>(i)] != i) i = parent[static_cast<size_t>(i)];
      return i;
    };
    std::map<int, int> first_user;
    for (size_t i = 0; i < participants_.size(); ++i) {
      for (const FragmentUse& use : participants_[i].fragments) {
        const auto [entry, is_new] =
            first_user.try_emplace(root_id(*use.buffer), static_cast<int>(i));
        if (!is_new) {
          const int a = find(entry->second);
          const int b = find(static_cast<int>(i));
          parent[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
        }
      }
    }
    std::map<int, int> number;
    for (size_t i = 0; i < participants_.size(); ++i) {
      const int leader = find(static_cast<int>(i));
      const auto entry = number.try_emplace(leader, num_components_);
      if (entry.second) ++num_components_;
      participants_[i].component = entry.first->second;
    }
  }

  // ---- propagation

  /// The instruction decides the layouts of a product and of a left operand in registers.
  std::optional<Conflict> set_operands(State& state, const Participant& p) {
    const ir::Gemm& gemm = *p.gemm;
    for (const FragmentUse& use : p.fragments) {
      const std::vector<int64_t> shape = constants(use.buffer->shape);
      const Layout needed =
          use.written ? layout::mma_accumulator(shape[0], shape[1], gemm.warps)
                      : layout::mma_left(shape[0], shape[1], bits(use.buffer->dtype), gemm.warps);
      const auto have = state.fragments.find(use.buffer->id);
      if (have == state.fragments.end()) {
        if (auto conflict = set_fragment(state, use.buffer, needed, use.loc)) return conflict;
      } else if (have->second != needed) {
        return Conflict{fmt::format("fragment '{}' has the layout {} but the gemm needs {}",
                                    use.buffer->name, to_string(have->second), to_string(needed)),
                        p.loc, use.buffer->loc};
      }
    }
    return std::nullopt;
  }

  std::optional<Conflict> set_fragment(State& state, const ir::BufferRef& buffer,
                                       const Layout& layout, SourceLoc loc) {
    for (const auto& [id, other] : buffers_) {
      if (root_id(*other) != root_id(*buffer)) continue;
      auto view = id == buffer->id ? std::optional<Layout>(layout)
                                   : layout::reshape(layout, constants(other->shape));
      if (!view) {
        return Conflict{fmt::format("the layout of fragment '{}' cannot be reshaped to [{}]",
                                    buffer->name, fmt::join(constants(other->shape), ", ")),
                        loc, other->loc};
      }
      state.fragments[id] = *view;
    }
    return std::nullopt;
  }

  std::optional<Conflict> check_use(const State& state, const Participant& p,
                                    const FragmentUse& use, const Layout& needed) const {
    const Layout& have = state.fragments.at(use.buffer->id);
    const bool readable = layout::contains(have, needed);
    const bool complete = !use.written || layout::contains(needed, have);
    if (readable && complete) return std::nullopt;
    return Conflict{fmt::format("fragment '{}' has the layout {} but this loop needs {}",
                                use.buffer->name, to_string(have), to_string(needed)),
                    use.loc, p.loc};
  }

  /// Gives fragments of a planned loop their layout, or checks the one they have.
  std::optional<Conflict> push_to_fragments(State& state, const Participant& p) {
    const Layout& iteration = state.loops.at(p.loop);
    for (const FragmentUse& use : p.fragments) {
      const auto needed = fragment_from_loop(*p.loop, use, iteration);
      if (!state.fragments.contains(use.buffer->id)) {
        if (!needed) {
          return Conflict{
              fmt::format(
                  "the index of fragment '{}' does not follow the digits of the loop layout",
                  use.buffer->name),
              use.loc, p.loc};
        }
        if (auto conflict = set_fragment(state, use.buffer, *needed, use.loc)) return conflict;
      } else if (needed) {
        if (auto conflict = check_use(state, p, use, *needed)) return conflict;
      } else if (state.fragments.at(use.buffer->id) !=
                 layout::replicated(constants(use.buffer->shape), kernel_.threads)) {
        return Conflict{
            fmt::format("the index of fragment '{}' does not follow the digits of the loop layout",
                        use.buffer->name),
            use.loc, p.loc};
      }
    }
    return std::nullopt;
  }

  /// A layout for an unplanned loop from a fragment that has one: written fragments first, then
  /// those without copies.
  std::optional<Layout> pull_from_fragments(const State& state, const Participant& p) const {
    for (const int preference : {0, 1, 2}) {
      for (const FragmentUse& use : p.fragments) {
        const auto found = state.fragments.find(use.buffer->id);
        if (found == state.fragments.end()) continue;
        const bool single = found->second.num_replicas() == 1;
        const int rank = use.written ? 0 : single ? 1 : 2;
        if (rank != preference) continue;
        if (auto loop = loop_from_fragment(*p.loop, use, found->second)) return loop;
      }
    }
    return std::nullopt;
  }

  /// Carries what is known through a component until nothing changes.
  std::optional<Conflict> propagate(State& state, int component) {
    std::set<const Participant*> done;
    bool changed = true;
    while (changed) {
      changed = false;
      for (const Participant& p : participants_) {
        if (p.component != component || done.contains(&p)) continue;
        if (p.gemm != nullptr) {
          done.insert(&p);  // set_operands has done it
          continue;
        }
        if (p.reduce != nullptr) {
          const auto source = state.fragments.find(p.fragments[0].buffer->id);
          if (source == state.fragments.end()) continue;
          const Layout result = layout::reduce(source->second, p.reduce->axis);
          const ir::BufferRef& to = p.fragments[1].buffer;
          const auto have = state.fragments.find(to->id);
          if (have == state.fragments.end()) {
            if (auto conflict = set_fragment(state, to, result, p.loc)) return conflict;
          } else if (have->second.digits() != result.digits() ||
                     !layout::contains(result, have->second)) {
            return Conflict{
                fmt::format(
                    "fragment '{}' has the layout {} but the reduction leaves its result as {}",
                    to->name, to_string(have->second), to_string(result)),
                p.loc, to->loc};
          }
        } else {
          if (!state.loops.contains(p.loop)) {
            auto loop = pull_from_fragments(state, p);
            if (!loop) continue;
            state.loops[p.loop] = *loop;
          }
          if (auto conflict = push_to_fragments(state, p)) return conflict;
        }
        done.insert(&p);
        changed = true;
      }
    }
    return std::nullopt;
  }

  // ---- candidates

  /// Splits proposed by one loop: one per distinct vector width of its accesses, widest first.
  std::vector<Layout> proposals(const Participant& p) const {
    const std::vector<int64_t> extents = constants(p.loop->extents);
    std::vector<int64_t> widths;
    int64_t limit = 16;
    while (extents.back() % limit != 0) limit /= 2;
    for (const MemoryUse& use : p.memory) {
      widths.push_back(
          feasible_vector(math_, *use.buffer, use.indices, *p.loop->vars.back(), limit));
    }
    widths.push_back(1);
    std::sort(widths.rbegin(), widths.rend());
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    std::vector<Layout> result;
    for (const int64_t width : widths) {
      result.push_back(whole_block(layout::plan(extents, kernel_.threads, width)));
    }
    return result;
  }

  bool resolved(const State& state, int component) const {
    for (const Participant& p : participants_) {
      if (p.component != component) continue;
      if (p.loop != nullptr && !state.loops.contains(p.loop)) return false;
      for (const FragmentUse& use : p.fragments) {
        if (!state.fragments.contains(use.buffer->id)) return false;
      }
    }
    return true;
  }

  State solve_component(int component, const State& before) {
    State start = before;
    std::optional<Conflict> last = propagate(start, component);
    if (last) fail(*last);
    if (resolved(start, component)) return start;

    std::optional<State> best;
    double best_cost = 0;
    for (const Participant& root : participants_) {
      if (root.component != component || root.loop == nullptr || start.loops.contains(root.loop))
        continue;
      for (const Layout& proposal : proposals(root)) {
        State attempt = start;
        attempt.loops[root.loop] = proposal;
        auto conflict = propagate(attempt, component);
        // Parts that the root does not determine take their own first proposal.
        while (!conflict && !resolved(attempt, component)) {
          const Participant* next = nullptr;
          for (const Participant& p : participants_) {
            if (next == nullptr && p.component == component && p.loop != nullptr &&
                !attempt.loops.contains(p.loop)) {
              next = &p;
            }
          }
          if (next == nullptr) {
            conflict =
                Conflict{"a fragment is used before anything determines its layout", root.loc, {}};
            break;
          }
          attempt.loops[next->loop] = proposals(*next).front();
          conflict = propagate(attempt, component);
        }
        if (conflict) {
          note(root, proposal, "rejected: " + conflict->what);
          if (!last) last = conflict;
          continue;
        }
        const double cost = component_cost(attempt, component);
        note(root, proposal, fmt::format("cost {:.1f}", cost));
        if (!best || cost < best_cost) {
          best = std::move(attempt);
          best_cost = cost;
        }
      }
    }
    if (!best) {
      if (!last) last = Conflict{"no layout fits this program", kernel_.body.front().loc, {}};
      fail(*last);
    }
    return *best;
  }

  void note(const Participant& root, const Layout& proposal, const std::string& verdict) {
    const std::string what = root.loop->label.empty() ? "parallel loop" : root.loop->label;
    plan_.notes.push_back(
        fmt::format("{}: {} ({}): {}", to_string(root.loc), what, to_string(proposal), verdict));
  }

  // ---- cost

  /// Memory requests of all warps, each with its 32-byte sectors, plus shuffles and a little for
  /// registers.
  double component_cost(const State& state, int component) const {
    double cost = 0;
    for (const Participant& p : participants_) {
      if (p.component != component) continue;
      if (p.gemm != nullptr) continue;
      if (p.reduce != nullptr) {
        cost += reduce_cost(state.fragments.at(p.fragments[0].buffer->id), p.reduce->axis);
        continue;
      }
      const Layout& iteration = state.loops.at(p.loop);
      for (const MemoryUse& use : p.memory) cost += access_cost(*p.loop, iteration, use);
      cost += 0.001 * static_cast<double>(iteration.num_slots());
    }
    return cost;
  }

  double reduce_cost(const Layout& source, int axis) const {
    const double outputs = static_cast<double>(layout::reduce(source, axis).num_slots());
    double steps = 0;
    for (const layout::Digit& digit : source.digits()) {
      if (digit.axis != axis || digit.thread == 0) continue;
      for (int64_t reach = digit.thread; reach < digit.thread * digit.extent; reach *= 2) {
        steps += reach < 32 ? 1 : 8;  // beyond the warp: through shared memory and a barrier
      }
    }
    return outputs * steps * (kernel_.threads / 32.0);
  }

  double access_cost(const ir::Loop& loop, const Layout& iteration, const MemoryUse& use) const {
    const int element = bytes(use.buffer->dtype);
    const ir::Var& last = *loop.vars.back();
    int64_t run = 1;
    for (const layout::Digit& digit : iteration.digits()) {
      if (digit.axis + 1 == static_cast<int>(loop.vars.size()) && digit.div == 1 &&
          digit.slot == 1) {
        run = digit.extent;
      }
    }
    const int64_t vector =
        feasible_vector(math_, *use.buffer, use.indices, last, std::min<int64_t>(run & -run, 16));
    // A byte holds two e2m1 codes: lowering refuses to split it, so any other layout is better.
    if (use.buffer->dtype == DType::e2m1 && vector == 1) return 1e9;
    const double requests = static_cast<double>(iteration.num_slots()) /
                            static_cast<double>(vector) *
                            (static_cast<double>(kernel_.threads) / 32.0);
    if (use.buffer->space == ir::Space::shared) return 0.25 * requests;
    // Byte strides of the loop Vars, other dimensions far apart.
    std::vector<int64_t> stride(loop.vars.size(), 0);
    int64_t pitch = element;
    for (size_t d = use.indices.size(); d-- > 0;) {
      for (const Term& term : math_.form(use.indices[d]).terms) {
        for (size_t v = 0; v < loop.vars.size(); ++v) {
          if (term.atom->op == ir::Op::var && term.atom->var == loop.vars[v]) {
            stride[v] += term.coefficient * pitch;
          }
        }
      }
      pitch = d + 1 == use.indices.size() ? int64_t{1} << 20 : pitch << 12;
    }
    std::set<int64_t> sectors;
    for (int64_t lane = 0; lane < std::min(32, kernel_.threads); ++lane) {
      const auto index = iteration.element(lane, 0);
      if (!index) continue;
      int64_t address = 0;
      for (size_t v = 0; v < stride.size(); ++v) address += (*index)[v] * stride[v];
      for (int64_t byte = 0; byte < vector * element; byte += element)
        sectors.insert((address + byte) / 32);
    }
    return requests * (static_cast<double>(sectors.size()) + 4.0);
  }

  const ir::Kernel& kernel_;
  IndexMath math_;
  std::vector<Participant> participants_;
  std::map<int, ir::BufferRef> buffers_;
  int num_components_ = 0;
  LayoutPlan plan_;
};

}  // namespace

LayoutPlan solve_layouts(const ir::Kernel& kernel) {
  return Solver(kernel).solve();
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
    const int64_t start = math.divisor(rest);
    if (is_last) {
      require_multiple(start);
      require_multiple(math.divisor(buffer.shape.back()));
    } else if (global) {
      require_multiple(start * math.divisor(buffer.strides[d]));
    } else {
      int64_t pitch = 1;
      for (size_t k = d + 1; k < indices.size(); ++k) pitch *= buffer.shape[k]->integer;
      require_multiple(start * pitch);
    }
  }
  return width;
}

}  // namespace tessera::codegen
