#include "codegen/passes/place_shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "codegen/analysis/evaluate.h"
#include "codegen/analysis/index_form.h"
#include "codegen/analysis/row_copies.h"
#include "codegen/analysis/shared_lifetimes.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kArenaAlign = 128;
constexpr int kDeviceThreads = 2048;  // of one multiprocessor
constexpr int64_t kArenaLimit =
    227 * 1024;  // what one block may have on sm_90; smaller devices are told at load

/// How logical (row, column) become an element offset; the leading dimensions together are the row.
struct Arrangement {
  int64_t pitch = 0;      // elements from row to row
  int64_t chunk = 0;      // elements of 16 bytes, 0 = no exchange
  int64_t exchanged = 0;  // chunks among each other, a power of two
  int shift = 0;          // chunk ^ (row >> shift) % exchanged
  int rotation = 0;       // the bits of the row rotated to the left by this before

  std::string text() const {
    if (chunk == 0) return fmt::format("rows {} elements apart", pitch);
    const std::string row = shift > 0 ? fmt::format("(row >> {})", shift) : "row";
    const std::string turned = rotation > 0 ? fmt::format(", rotated by {}", rotation) : "";
    return fmt::format("16-byte chunks exchanged by xor {} % {}{}", row, exchanged, turned);
  }
};

Expr offset_of(const Arrangement& a, const Array& array, const std::vector<Expr>& indices,
               const IndexMath& math) {
  Expr row = ir::index(0);
  for (size_t d = 0; d + 1 < indices.size(); ++d) row = row * array.shape[d] + indices[d];
  const Expr column = indices.back();
  Expr offset = row * ir::index(a.pitch);
  if (a.chunk > 0) {
    const int64_t turn = int64_t{1} << a.rotation;
    const Expr bits = row / ir::index(int64_t{1} << a.shift);
    const Expr low = bits % ir::index(a.exchanged / turn) * ir::index(turn);
    const Expr high = bits / ir::index(a.exchanged / turn) % ir::index(turn);
    const Expr exchange = math.simplify(low + high);
    const Expr chunk = math.simplify(column / ir::index(a.chunk));
    offset = offset + ir::binary(ir::Op::bit_xor, chunk, exchange) * ir::index(a.chunk) +
             math.simplify(column % ir::index(a.chunk));
  } else {
    offset = offset + column;
  }
  return math.simplify(ir::cast(DType::i32, offset));
}

/// The leading dimensions together.
int64_t rows_of(const Array& array) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < array.shape.size(); ++d) rows *= array.shape[d]->integer;
  return rows;
}

/// What accesses need of an arrangement.
struct Needs {
  bool has_vectors = false;
  bool has_rows = false;  // copied whole: nothing in them changes its place
};

std::vector<Arrangement> arrangements(const Array& array, Needs needs) {
  const int64_t columns = array.shape.back()->integer;
  std::vector<Arrangement> result;
  Arrangement plain;
  plain.pitch = columns;
  result.push_back(plain);
  if (array.shape.size() < 2 || array.dtype == DType::e2m1) return result;
  const int64_t chunk = 16 / bytes(array.dtype);
  const int64_t chunks = columns / chunk;
  if (columns % chunk == 0 && chunks >= 2 && (chunks & (chunks - 1)) == 0) {
    if (needs.has_rows) return result;
    Arrangement swizzled = plain;
    swizzled.chunk = chunk;
    swizzled.exchanged = std::min<int64_t>(chunks, 8);
    for (swizzled.shift = 0; swizzled.shift <= 4; ++swizzled.shift) result.push_back(swizzled);
    swizzled.shift = 0;
    for (swizzled.rotation = 1; int64_t{1} << swizzled.rotation < swizzled.exchanged;
         ++swizzled.rotation) {
      result.push_back(swizzled);
    }
  } else {
    Arrangement padded = plain;
    padded.pitch += needs.has_vectors ? chunk : std::max(1, 4 / bytes(array.dtype));
    result.push_back(padded);
  }
  return result;
}

/// 4-byte accesses go by warps, wider ones by parts of it.
size_t lanes_of_phase(int64_t access_bytes) {
  return access_bytes <= 4 ? 32 : access_bytes == 8 ? 16 : 8;
}

/// Distinct rows of 32 banks that the lanes of each phase need.
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

int64_t bytes_of(const Array& array) {
  const int64_t bytes = (array.size * bits(array.dtype) + 7) / 8;
  return (bytes + kArenaAlign - 1) / kArenaAlign * kArenaAlign;
}

/// Whether so much shared memory in each block leaves room for as many blocks as there are threads
/// for on a multiprocessor.
bool fills_the_device(int64_t arena, int threads) {
  return arena * (kDeviceThreads / threads) <= kArenaLimit;
}

/// One after the other; where that keeps blocks off the device, arrays that are not in use together
/// take the same memory, each the lowest that is free. Returns the size of the arena.
int64_t choose_places(const Program& program, const std::vector<std::shared_ptr<Array>>& arrays) {
  int64_t sum = 0;
  for (const auto& array : arrays) sum += bytes_of(*array);
  const bool share = !fills_the_device(sum, program.threads);
  const std::map<const Array*, Lifetime> lifetimes = shared_lifetimes(program);
  const auto in_use_together = [&](const Array& a, const Array& b) {
    const auto one = lifetimes.find(&a);
    const auto other = lifetimes.find(&b);
    const bool known = one != lifetimes.end() && other != lifetimes.end();
    return !share || !known || one->second.meets(other->second);
  };
  int64_t end = 0;
  std::vector<const Array*> done;
  for (const auto& array : arrays) {
    Array& placed = *array;
    placed.shared_offset = 0;
    std::sort(done.begin(), done.end(),
              [](const Array* a, const Array* b) { return a->shared_offset < b->shared_offset; });
    for (const Array* other : done) {
      const int64_t other_end = other->shared_offset + bytes_of(*other);
      const bool overlap = placed.shared_offset < other_end &&
                           other->shared_offset < placed.shared_offset + bytes_of(placed);
      if (overlap && in_use_together(placed, *other)) placed.shared_offset = other_end;
    }
    done.push_back(&placed);
    end = std::max(end, placed.shared_offset + (placed.size * bits(placed.dtype) + 7) / 8);
  }
  return end;
}

/// The array of this block whose arrangement an access follows; null for other memory.
const Array* shared_array(const Access& access) {
  const Array& array = *access.array;
  if (array.space == ArraySpace::cluster) return array.mine.get();
  return array.space == ArraySpace::shared ? &array : nullptr;
}

/// Views of other blocks' arrays stand in the place of this block's.
void move_views(Body& body, const std::map<ArrayRef, ArrayRef>& placed_as) {
  std::map<ArrayRef, ArrayRef> views;
  const auto moved = [&](ArrayRef& array) {
    if (array->space != ArraySpace::cluster) return;
    ArrayRef& view = views[array];
    if (!view) {
      const auto fresh = std::make_shared<Array>(*array);
      fresh->mine = placed_as.at(array->mine);
      fresh->size = fresh->mine->size;
      view = fresh;
    }
    array = view;
  };
  walk(body, [&](Stmt& stmt) {
    if (auto* declare = std::get_if<Declare>(&stmt.node)) moved(declare->array);
    for_each_access(stmt, [&](Access& access, bool) { moved(access.array); });
  });
}

/// Chooses the arrangement of each array by the bank conflicts of all its accesses.
class Arranger {
 public:
  explicit Arranger(Program& program)
      : program_(program), samples_{Environment(program.num_vars), Environment(program.num_vars)} {
    std::vector<VarRef> loops;
    walk(program.body, [&](Stmt& stmt) {
      for_each_access(stmt, [&](Access& access, bool) {
        if (const Array* array = shared_array(access)) accesses_[array].push_back(&access);
      });
      for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
        const bool is_row_target = effect.writes && effect.proxy == Proxy::async;
        if (is_row_target) row_targets_.insert(effect.access.array.get());
      });
      for_each_binding(stmt, [&](const VarRef& var, const Expr* value) {
        if (var->kind == ir::VarKind::loop) loops.push_back(var);
        if (value != nullptr && is_integer(var->type)) math_.define(var, *value);
      });
    });
    // Sample points: first and last value of every loop, one warp of threads.
    for (const bool last : {false, true}) {
      Environment& sample = samples_[last ? 1 : 0];
      for (const VarRef& var : loops) {
        const bool known = last && var->upper && ir::is_constant(var->upper);
        sample.set(*var, known ? var->upper->integer - 1 : 0);
      }
      for (const VarRef& block : program.blocks) sample.set(*block, 0);
    }
  }

  Arrangement choose(const Array& array) {
    const std::vector<Access*>& uses = accesses_[&array];
    const Needs needs = {.has_vectors = std::any_of(uses.begin(), uses.end(),
                                                    [](const Access* a) { return a->width > 1; }),
                         .has_rows = row_targets_.contains(&array)};
    const std::vector<Arrangement> candidates = arrangements(array, needs);
    if (candidates.size() == 1) return candidates.front();
    Arrangement best;
    std::optional<Cost> best_cost;
    for (const Arrangement& candidate : candidates) {
      const Cost cost = cost_of(candidate, array, uses);
      if (!best_cost || cost.wavefronts < best_cost->wavefronts) {
        best = candidate;
        best_cost = cost;
      }
      // Without conflicts none of the others is better.
      if (best_cost->wavefronts == cost.least) break;
    }
    return best;
  }

  /// Gives the accesses of `array` their offsets in `placed`, which takes its place.
  void redirect(const Array& array, const Arrangement& arrangement, const ArrayRef& placed) {
    for (Access* use : accesses_[&array]) {
      use->offset = offset_of(arrangement, array, use->indices, math_);
      if (use->array->space == ArraySpace::shared) use->array = placed;
    }
  }

 private:
  struct Cost {
    int64_t wavefronts = 0, least = 0;  // least: without conflicts
  };

  Cost cost_of(const Arrangement& candidate, const Array& array, const std::vector<Access*>& uses) {
    const int64_t size = rows_of(array) * candidate.pitch;
    Cost cost;
    for (const Access* use : uses) {
      const Expr offset = offset_of(candidate, array, use->indices, math_);
      const int64_t access_bytes = use->width * bits(array.dtype) / 8;
      for (Environment& environment : samples_) {
        std::vector<int64_t> addresses;
        for (int thread = 0; thread < std::min(32, program_.threads); ++thread) {
          environment.set(*program_.thread, thread);
          const auto element = evaluate(offset, environment);
          // A lane outside of the array is one that the guard of the access turns off.
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

  const Program& program_;
  std::map<const Array*, std::vector<Access*>> accesses_;
  std::set<const Array*> row_targets_;
  IndexMath math_;
  std::array<Environment, 2> samples_;
};

void require_room(const Program& program) {
  const int64_t limit = kArenaLimit - row_barriers(program) * kRowBarrierBytes;
  if (program.shared_bytes <= limit) return;
  ErrorFields fields;
  fields.kind = ErrorKind::program;
  fields.op = program.name;
  fields.code = "SMEM_LIMIT";
  fields.what = "the block needs more shared memory than there is";
  fields.expected = fmt::format("at most {} bytes", limit);
  for (const ArrayRef& array : program.shared) {
    fields.got += fmt::format("{}{} {} bytes", fields.got.empty() ? "" : ", ", array->name,
                              array->size * bits(array->dtype) / 8);
  }
  fields.loc = program.shared.back()->loc;
  throw Error(std::move(fields));
}

}  // namespace

std::vector<std::string> place_shared(Program& program) {
  Arranger arranger(program);
  std::vector<Arrangement> chosen;
  std::vector<std::shared_ptr<Array>> arrays;
  std::map<ArrayRef, ArrayRef> placed_as;
  for (ArrayRef& array : program.shared) {
    chosen.push_back(arranger.choose(*array));
    const auto placed = std::make_shared<Array>(*array);
    placed->size = rows_of(*array) * chosen.back().pitch;
    arranger.redirect(*array, chosen.back(), placed);
    arrays.push_back(placed);
    placed_as[array] = placed;
    array = placed;
  }
  move_views(program.body, placed_as);
  program.shared_bytes = choose_places(program, arrays);
  require_room(program);
  std::vector<std::string> notes;
  for (size_t i = 0; i < program.shared.size(); ++i) {
    const Array& array = *program.shared[i];
    notes.push_back(fmt::format("{}: shared '{}' at byte {}: {}", to_string(array.loc), array.name,
                                array.shared_offset, chosen[i].text()));
  }
  return notes;
}

}  // namespace tessera::codegen
