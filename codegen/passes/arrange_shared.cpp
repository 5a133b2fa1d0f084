#include "codegen/passes/arrange_shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "codegen/analysis/evaluate.h"
#include "codegen/analysis/index_form.h"
#include "codegen/thread_ir/replace_shared.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"
#include "dsl/layout/swizzle.h"

namespace tessera::codegen {
namespace {

using layout::Swizzle;

constexpr int64_t kBoxAlign = 128;    // bytes, of the target of a tensor copy
constexpr int64_t kMaxColumns = 256;  // of a box; a wider tile takes several, a panel each

/// The leading dimensions together are the row.
Expr offset_of(const Swizzle& a, const Array& array, const std::vector<Expr>& indices,
               const IndexMath& math) {
  Expr row = ir::index(0);
  for (size_t d = 0; d + 1 < indices.size(); ++d) row = row * array.shape[d] + indices[d];
  const Expr column = indices.back();
  Expr offset = row * ir::index(a.pitch);
  if (a.panel < a.columns) {
    offset = offset + column / ir::index(a.panel) * ir::index(a.rows * a.pitch);
  }
  const Expr in_panel = a.panel < a.columns ? math.simplify(column % ir::index(a.panel)) : column;
  if (a.mask > 0) {
    const int64_t exchanged = a.mask + 1;
    const int64_t turn = int64_t{1} << a.rotation;
    const Expr bits = row / ir::index(int64_t{1} << a.shift);
    const Expr low = bits % ir::index(exchanged / turn) * ir::index(turn);
    const Expr high = bits / ir::index(exchanged / turn) % ir::index(turn);
    const Expr exchange = math.simplify(low + high);
    const Expr chunk = math.simplify(in_panel / ir::index(a.chunk));
    offset = offset + ir::binary(ir::Op::bit_xor, chunk, exchange) * ir::index(a.chunk) +
             math.simplify(in_panel % ir::index(a.chunk));
  } else {
    offset = offset + in_panel;
  }
  return math.simplify(ir::cast(DType::i32, offset));
}

/// The product of the leading dimensions.
int64_t rows_of(const Array& array) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < array.shape.size(); ++d) rows *= array.shape[d]->integer;
  return rows;
}

/// The requirements of the accesses to an array.
struct Needs {
  bool has_vectors = false;
  bool has_rows = false;  // copied in whole rows: a swizzle may not move anything inside them
};

std::vector<Swizzle> candidates_for(const Array& array, Needs needs) {
  const int64_t rows = rows_of(array), columns = array.shape.back()->integer;
  std::vector<Swizzle> result = {layout::plain_rows(rows, columns, columns)};
  if (array.shape.size() < 2 || array.dtype == DType::e2m1) return result;
  const int64_t chunk = 16 / bytes(array.dtype);
  const int64_t chunks = columns / chunk;
  if (columns % chunk == 0 && chunks >= 2 && (chunks & (chunks - 1)) == 0) {
    if (needs.has_rows) return result;
    const int64_t exchanged = std::min<int64_t>(chunks, 8);
    const auto add = [&](int shift, int rotation) {
      result.push_back(
          layout::xor_swizzle(rows, columns, bits(array.dtype), shift, exchanged - 1, rotation));
    };
    for (int shift = 0; shift <= 4; ++shift) add(shift, 0);
    for (int rotation = 1; int64_t{1} << rotation < exchanged; ++rotation) add(0, rotation);
  } else {
    const int64_t padding = needs.has_vectors ? chunk : std::max(1, 4 / bytes(array.dtype));
    result.push_back(layout::plain_rows(rows, columns, columns + padding));
  }
  return result;
}

/// The hardware swizzles that fit a tile, widest first.
std::vector<Swizzle> hardware_modes(const Array& array) {
  std::vector<Swizzle> result;
  const int64_t columns = array.shape.back()->integer;
  for (const auto mode : {layout::SwizzleMode::bytes_128, layout::SwizzleMode::bytes_64,
                          layout::SwizzleMode::bytes_32}) {
    const int64_t panel = static_cast<int64_t>(mode) * 8 / bits(array.dtype);
    if (columns % panel != 0) continue;
    result.push_back(layout::swizzle_mode(rows_of(array), columns, bits(array.dtype), mode));
  }
  return result;
}

/// Accesses of 4 bytes are served per warp, wider ones per part of a warp.
size_t lanes_of_phase(int64_t access_bytes) {
  return access_bytes <= 4 ? 32 : access_bytes == 8 ? 16 : 8;
}

/// The number of distinct rows of 32 banks that the lanes of each phase access.
int64_t wavefronts(const std::vector<int64_t>& addresses, int64_t access_bytes) {
  const size_t phase = lanes_of_phase(access_bytes);
  int64_t total = 0;
  std::vector<int64_t> words;
  for (size_t first = 0; first < addresses.size(); first += phase) {
    words.clear();
    for (size_t i = first; i < std::min(first + phase, addresses.size()); ++i) {
      for (int64_t word = addresses[i] / 4; word * 4 < addresses[i] + access_bytes; ++word) {
        words.push_back(word);
      }
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<int64_t, 32> words_of_bank{};
    for (const int64_t word : words) ++words_of_bank[static_cast<size_t>(word % 32)];
    total += *std::max_element(words_of_bank.begin(), words_of_bank.end());
  }
  return total;
}

/// The block's own array whose layout an access follows; null for other memory.
const Array* shared_array(const Access& access) {
  const Array& array = *access.array;
  if (array.space == ArraySpace::cluster) return array.mine.get();
  return array.space == ArraySpace::shared ? &array : nullptr;
}

/// Chooses the layout of each array by the bank conflicts of all its accesses.
class Arranger {
 public:
  explicit Arranger(Program& program)
      : program_(program), samples_{Environment(program.num_vars), Environment(program.num_vars)} {
    std::vector<VarRef> loops;
    const auto note = [&](Stmt& stmt, const RoleBodies::Role* role) {
      for_each_access(stmt, [&](Access& access, bool) {
        if (const Array* array = shared_array(access)) accesses_[array].push_back({&access, role});
      });
      for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
        if (effect.matrix != nullptr) {
          matrices_[effect.access.array.get()].push_back(effect.matrix);
        }
        if (effect.box != nullptr) {
          boxes_[effect.access.array.get()].push_back({effect.box, &effect.access});
        }
        const bool is_row_target =
            effect.writes && effect.proxy == Proxy::async && effect.box == nullptr;
        if (is_row_target) row_targets_.insert(effect.access.array.get());
      });
      for_each_binding(stmt, [&](const VarRef& var, const Expr* value) {
        if (var->kind == ir::VarKind::loop) loops.push_back(var);
        const auto* const load = std::get_if<Load>(&stmt.node);
        if (load != nullptr && load->from.array->ring_part == Array::RingPart::stage) {
          loops.push_back(var);
        }
        if (value != nullptr && is_integer(var->type)) math_.define(var, *value);
      });
    };
    for (Stmt& stmt : program.body) {
      auto* const bodies = std::get_if<RoleBodies>(&stmt.node);
      if (bodies == nullptr) {
        walk_stmt(stmt, [&](Stmt& inner) { note(inner, nullptr); });
        continue;
      }
      for (RoleBodies::Role& role : bodies->roles) {
        walk(role.body, [&](Stmt& inner) { note(inner, &role); });
      }
    }
    // Samples the first and last value of every loop for one warp.
    for (const bool last : {false, true}) {
      Environment& sample = samples_[last ? 1 : 0];
      for (const VarRef& var : loops) {
        const bool known = last && var->upper && ir::is_constant(var->upper);
        sample.set(*var, known ? var->upper->integer - 1 : 0);
      }
      for (const VarRef& block : program.blocks) sample.set(*block, 0);
    }
  }

  Swizzle choose(const Array& array) {
    const std::vector<Use>& uses = accesses_[&array];
    const Needs needs = {
        .has_vectors =
            std::any_of(uses.begin(), uses.end(), [](const Use& u) { return u.access->width > 1; }),
        .has_rows = row_targets_.contains(&array)};
    const auto matrices = matrices_.find(&array);
    std::vector<Swizzle> candidates = matrices != matrices_.end() ? hardware_modes(array)
                                      : boxes_.contains(&array)   ? box_modes(array)
                                                                  : candidates_for(array, needs);
    if (matrices != matrices_.end()) {
      std::erase_if(candidates, [&](const Swizzle& candidate) {
        return !std::all_of(matrices->second.begin(), matrices->second.end(),
                            [&](const auto* matrix) { return takes(candidate, *matrix); });
      });
      TESSERA_CHECK(!candidates.empty() && !needs.has_rows,
                    fmt::format("no swizzle of the hardware for '{}'", array.name));
    }
    if (candidates.size() == 1) return candidates.front();
    Swizzle best;
    std::optional<Cost> best_cost;
    for (const Swizzle& candidate : candidates) {
      const Cost cost = cost_of(candidate, array, uses);
      if (!best_cost || cost.wavefronts < best_cost->wavefronts) {
        best = candidate;
        best_cost = cost;
      }
      // Without conflicts no other layout is better.
      if (best_cost->wavefronts == cost.least) break;
    }
    return best;
  }

  /// Bytes that the array's offset in the arena is a multiple of: panels of matrices and boxes begin with row
  /// 0 of the pattern.
  int64_t alignment(const Array& array, const Swizzle& swizzle) const {
    const int64_t pattern = 8 * swizzle.panel * bits(array.dtype) / 8;
    if (matrices_.contains(&array)) return pattern;
    if (!boxes_.contains(&array)) return array.align;
    return swizzle.mask > 0 ? pattern : kBoxAlign;
  }

  /// Gives the accesses to `array` their offsets.
  void set_offsets(const Array& array, const Swizzle& swizzle) {
    for (const Use& use : accesses_[&array]) {
      use.access->offset = offset_of(swizzle, array, use.access->indices, math_);
    }
  }

 private:
  /// True if the tensor cores can read the matrix from a tile with this swizzle. A transposed matrix takes whole
  /// panels.
  bool takes(const Swizzle& swizzle, const SharedMatrix& matrix) const {
    const int64_t unit = matrix.transposed ? swizzle.panel : matrix.depth();
    return math_.divisor(matrix.first.indices.back()) % unit == 0;
  }

  /// The layouts that a box can be copied to or stored from: rows without gaps that one box covers, or, where it begins
  /// with a row 0 of the pattern, a swizzle of the hardware.
  std::vector<Swizzle> box_modes(const Array& array) const {
    const int64_t rows = rows_of(array), columns = array.shape.back()->integer;
    std::vector<Swizzle> result;
    if (columns <= kMaxColumns) result.push_back(layout::plain_rows(rows, columns, columns));
    const std::vector<Box>& boxes = boxes_.at(&array);
    const bool may_swizzle = std::all_of(boxes.begin(), boxes.end(), [](const Box& box) {
      return box.map->elements() / box.map->box.back() % 8 == 0;
    });
    if (!may_swizzle) return result;
    const std::vector<Swizzle> modes = hardware_modes(array);
    result.insert(result.end(), modes.begin(), modes.end());
    return result;
  }

  struct Box {
    const TensorMap* map;
    const Access* access;  // in shared memory
  };
  struct Use {
    Access* access;
    const RoleBodies::Role* role;  // the role of the access; null = none
  };
  struct Cost {
    int64_t wavefronts = 0, least = 0;  // least: the number without conflicts
  };

  Cost cost_of(const Swizzle& candidate, const Array& array, const std::vector<Use>& uses) {
    const int64_t size = candidate.size();
    Cost cost;
    for (const Use& use : uses) {
      if (is_matrix(*use.access) || is_box(*use.access)) continue;
      const Expr offset = offset_of(candidate, array, use.access->indices, math_);
      const int64_t access_bytes = use.access->width * bits(array.dtype) / 8;
      const ThreadGroup group = use.role != nullptr ? use.role->threads : program_.block();
      for (Environment& environment : samples_) {
        std::vector<int64_t> addresses;
        for (int lane = 0; lane < std::min(kThreadsPerWarp, group.count); ++lane) {
          environment.set(*program_.thread, group.first + lane);
          if (use.role != nullptr && use.role->thread) environment.set(*use.role->thread, lane);
          const auto element = evaluate(offset, environment);
          // A lane outside the array is disabled by the access's guard.
          if (element && *element >= 0 && *element < size) {
            addresses.push_back(*element * bits(array.dtype) / 8);
          }
        }
        cost.wavefronts += wavefronts(addresses, access_bytes);
        const size_t phase = lanes_of_phase(access_bytes);
        cost.least += static_cast<int64_t>((addresses.size() + phase - 1) / phase);
      }
    }
    return cost;
  }

  bool is_matrix(const Access& access) const {
    const auto matrices = matrices_.find(access.array.get());
    return matrices != matrices_.end() &&
           std::any_of(matrices->second.begin(), matrices->second.end(),
                       [&](const SharedMatrix* matrix) { return &matrix->first == &access; });
  }

  bool is_box(const Access& access) const {
    const auto boxes = boxes_.find(access.array.get());
    return boxes != boxes_.end() &&
           std::any_of(boxes->second.begin(), boxes->second.end(),
                       [&](const Box& box) { return box.access == &access; });
  }

  const Program& program_;
  std::map<const Array*, std::vector<const SharedMatrix*>> matrices_;
  std::map<const Array*, std::vector<Box>> boxes_;
  std::map<const Array*, std::vector<Use>> accesses_;
  std::set<const Array*> row_targets_;
  IndexMath math_;
  std::array<Environment, 2> samples_;
};

}  // namespace

void arrange_shared(Program& program) {
  Arranger arranger(program);
  std::map<ArrayRef, ArrayRef> arranged;
  for (ArrayRef& array : program.shared) {
    const auto now = std::make_shared<Array>(*array);
    if (!now->swizzle) now->swizzle = arranger.choose(*array);
    now->align = arranger.alignment(*array, *now->swizzle);
    now->size = now->swizzle->size();
    arranger.set_offsets(*array, *now->swizzle);
    arranged[array] = now;
  }
  replace_shared(program, arranged);
}

}  // namespace tessera::codegen
