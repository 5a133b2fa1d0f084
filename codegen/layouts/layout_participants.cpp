#include "codegen/layouts/layout_participants.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/layouts/vector_width.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class Collector {
 public:
  explicit Collector(const ir::Kernel& kernel)
      : kernel_(kernel), copies_(copies_of_loops(kernel)), threads_{0, kernel.threads} {}

  Participants collect() {
    collect(kernel_.body, nullptr);
    group();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const char* code, std::string what, SourceLoc loc, SourceLoc related,
                         std::string hint) const {
    throw Error({.kind = ErrorKind::program,
                 .op = kernel_.name,
                 .what = std::move(what),
                 .hint = std::move(hint),
                 .code = code,
                 .loc = loc,
                 .related = related});
  }

  void collect(const ir::Body& body, Participant* inside) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
        if (loop->kind == ir::LoopKind::parallel) {
          forbid_inside(inside, loop->label.empty() ? "a parallel loop" : loop->label, stmt.loc);
          Participant p = participant(stmt);
          p.loop = loop;
          p.copies = copies_.at(loop_id(*loop));
          collect(loop->body, &p);
          out_.all.push_back(std::move(p));
        } else {
          collect(loop->body, inside);
        }
      } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
        collect(branch->then, inside);
        collect(branch->otherwise, inside);
      } else if (const auto* turn = std::get_if<ir::RingTurn>(&stmt.node)) {
        collect(turn->body, inside);
      } else if (const auto* roles = std::get_if<ir::Roles>(&stmt.node)) {
        collect_roles(*roles);
      } else if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
        if (is_integer(let->var->type)) out_.math.define(let->var, let->value);
      } else if (const auto* reduce = std::get_if<ir::Reduce>(&stmt.node)) {
        forbid_inside(inside, "a reduction", stmt.loc);
        Participant p = participant(stmt);
        p.reduce = reduce;
        add_whole(p, reduce->from.buffer, false);
        add_whole(p, reduce->to.buffer, true);
        out_.all.push_back(std::move(p));
      } else if (const auto* init = std::get_if<ir::ReducerInit>(&stmt.node)) {
        note_fragment(init->reducer);
        out_.reducers.insert(init->reducer->id);
      } else if (const auto* update = std::get_if<ir::ReducerUpdate>(&stmt.node)) {
        TESSERA_CHECK(inside != nullptr, "a reducer is updated outside of a parallel loop");
        // The thread that runs an iteration must hold a part; others may hold one too.
        use(*inside, update->reducer, update->indices, false, stmt.loc);
        out_.updated.insert(update->reducer->id);
      } else if (const auto* finalize = std::get_if<ir::ReducerFinalize>(&stmt.node)) {
        if (!finalize->to) continue;
        Participant p = participant(stmt);
        p.finalize = finalize;
        add_whole(p, finalize->reducer, false);
        add_whole(p, finalize->to, true);
        out_.all.push_back(std::move(p));
      } else if (const auto* gemm = std::get_if<ir::Gemm>(&stmt.node)) {
        forbid_inside(inside, "a matrix product", stmt.loc);
        Participant p = participant(stmt);
        p.gemm = gemm;
        add_whole(p, gemm->c.buffer, true);
        for (const ir::BufferRef& operand : {gemm->a.buffer, gemm->b.buffer}) {
          if (operand->space == ir::Space::fragment) add_whole(p, operand, false);
        }
        out_.all.push_back(std::move(p));
      } else if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
        if (inside != nullptr) {
          use(*inside, load->buffer, load->indices, false, stmt.loc);
        } else if (load->buffer->space == ir::Space::fragment) {
          Participant p = participant(stmt);
          p.read = load;
          use(p, load->buffer, load->indices, false, stmt.loc);
          out_.all.push_back(std::move(p));
        }
      } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
        if (inside != nullptr) {
          use(*inside, store->buffer, store->indices, true, stmt.loc);
        } else if (store->buffer->space == ir::Space::fragment) {
          fail("FRAG_OUTSIDE_PARALLEL",
               fmt::format("fragment '{}' is written outside a parallel loop", store->buffer->name),
               stmt.loc, {},
               "write it in k.parallel({extents}, ...), or keep one value per thread in k.var");
        }
      } else {
        if (inside != nullptr) use_sum(*inside, stmt);
        for_each_use(stmt, [](const ir::BufferRef& buffer, bool) {
          TESSERA_CHECK(buffer->space != ir::Space::fragment,
                        "a use of a fragment that has no say in its layout");
        });
      }
    }
  }

  void collect_roles(const ir::Roles& roles) {
    for (const ir::Roles::Role& role : roles.roles) {
      threads_ = {role.first, role.count};
      collect(role.body, nullptr);
    }
    threads_ = {0, kernel_.threads};
  }

  /// A statement that all threads of the block run together cannot be done once per iteration.
  void forbid_inside(const Participant* parallel, const std::string& what, SourceLoc loc) const {
    if (parallel == nullptr) return;
    fail("NESTED_PARALLEL", fmt::format("{} inside a parallel loop", what), loc, parallel->loc,
         "one parallel loop takes up to four extents; use serial or unrolled inside, and put work "
         "of the whole block before or after it");
  }

  Participant participant(const ir::Stmt& stmt) const {
    Participant p;
    p.stmt = &stmt;
    p.threads = threads_;
    p.loc = stmt.loc;
    return p;
  }

  void note_fragment(const ir::BufferRef& buffer) {
    for (const ir::BufferRef& part : {buffer, buffer->alias_of}) {
      if (!part) continue;
      out_.fragments[part->id] = part;
      out_.holders[part->id] = threads_;
    }
  }

  void add_whole(Participant& p, const ir::BufferRef& buffer, bool written) {
    p.fragments.push_back({buffer, {}, written, p.loc});
    note_fragment(buffer);
  }

  void use(Participant& p, const ir::BufferRef& buffer, const std::vector<ir::Expr>& indices,
           bool written, SourceLoc loc) {
    if (buffer->space == ir::Space::fragment) {
      note_fragment(buffer);
      for (FragmentUse& other : p.fragments) {
        if (other.buffer->id != buffer->id || !same_indices(other.indices, indices)) continue;
        other.written = other.written || written;
        return;
      }
      p.fragments.push_back({buffer, indices, written, loc});
    } else if (buffer->space == ir::Space::global || buffer->space == ir::Space::shared ||
               buffer->space == ir::Space::cluster) {
      p.memory.push_back({buffer, indices, written});
    }
  }

  /// Sums in memory: neighbours in one thread are one instruction.
  void use_sum(Participant& p, const ir::Stmt& stmt) {
    const auto* atomic = std::get_if<ir::Atomic>(&stmt.node);
    if (atomic == nullptr || !is_sum(*atomic) || !has_wide_form(*atomic)) return;
    use(p, atomic->buffer, atomic->indices, true, stmt.loc);
  }

  /// Numbers the components: participants connected through fragment storage.
  void group() {
    std::vector<int> parent(out_.all.size());
    for (size_t i = 0; i < parent.size(); ++i) parent[i] = static_cast<int>(i);
    auto find = [&](int i) {
      while (parent[static_cast<size_t>(i)] != i) i = parent[static_cast<size_t>(i)];
      return i;
    };
    std::map<int, int> first_user;
    for (size_t i = 0; i < out_.all.size(); ++i) {
      for (const FragmentUse& use : out_.all[i].fragments) {
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
    for (size_t i = 0; i < out_.all.size(); ++i) {
      const int leader = find(static_cast<int>(i));
      const auto entry = number.try_emplace(leader, out_.num_components);
      if (entry.second) ++out_.num_components;
      out_.all[i].component = entry.first->second;
    }
  }

  const ir::Kernel& kernel_;
  const std::map<int, Copies> copies_;  // by loop_id
  ThreadGroup threads_;                 // that run the statements
  Participants out_;
};

}  // namespace

Participants find_participants(const ir::Kernel& kernel) {
  return Collector(kernel).collect();
}

int root_id(const ir::Buffer& buffer) {
  return buffer.alias_of ? buffer.alias_of->id : buffer.id;
}

}  // namespace tessera::codegen
