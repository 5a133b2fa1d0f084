#include "tests/fuzz/random_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "dsl/builder.h"
#include "tests/fuzz/role_statements.h"

namespace tessera::test {
namespace {

class Generator : RoleStatements {
 public:
  explicit Generator(uint64_t seed) : RoleStatements(seed) {}

  RoleProgram make() {
    turns_ = between(1, 4);
    rounds_ = between(1, 3);
    blocks_ = between(1, 2);
    is_dynamic_ = chance(60);
    if (is_dynamic_) steps_ = k_.dim("steps", {.multiple_of = turns_});
    choose_roles();
    for (size_t r = 0; r < kinds_.size(); ++r) declare_inputs(r);
    for (Taker& taker : takers_) choose_work(taker, [this](size_t ring) { return shape_of(ring); });
    at_ = k_.launch({blocks_}, {.threads = threads_}).x;
    for (size_t r = 0; r < kinds_.size(); ++r) declare_ring(r);
    prologue();
    k_.roles(roles());
    RoleProgram program{k_.finish(), {}, meaning()};
    program.tensors = std::move(tensors_);
    return program;
  }

 private:
  /// `passed`: a role that takes the plain ring before it fills it.
  enum class Kind { product, plain, passed };
  struct Loaded {
    Ref input;
    size_t tensor = 0;
    int64_t rows = 0, columns = 0;  // of a tile
    DType dtype = DType::f32;       // of the tile
  };

  // ---- what there is
  void choose_roles() {
    rows_ = pick<int64_t>({64, 64, 64, 128});
    columns_ = pick<int64_t>({16, 32, 64});
    depth_ = pick<int64_t>({16, 32, 64});
    half_ = pick<DType>({DType::bf16, DType::f16});
    if (chance(75)) kinds_.push_back(Kind::product);
    if (kinds_.empty() || chance(60)) kinds_.push_back(Kind::plain);
    if (kinds_.back() == Kind::plain && chance(40)) kinds_.push_back(Kind::passed);
    // The warpgroups come first in the block, so do their roles here.
    const int64_t takers = between(1, 2);
    for (int64_t i = 0; i < takers; ++i) {
      Taker& taker = takers_.emplace_back();
      const bool multiplies = kinds_[0] == Kind::product && (i == 0 || chance(50));
      taker.by_groups = multiplies || chance(50);
      taker.warps = taker.by_groups ? (rows_ == 128 && chance(50) ? 8 : 4) : pick<int>({1, 2, 4});
      for (size_t r = 0; r < kinds_.size(); ++r) {
        if (kinds_[r] == Kind::product ? multiplies : chance(60)) taker.rings.push_back(r);
      }
    }
    std::stable_sort(takers_.begin(), takers_.end(),
                     [](const Taker& a, const Taker& b) { return a.by_groups > b.by_groups; });
    // Each ring has to be taken.
    for (size_t r = 0; r < kinds_.size(); ++r) {
      const bool is_passed_on = r + 1 < kinds_.size() && kinds_[r + 1] == Kind::passed;
      const bool is_taken = std::any_of(takers_.begin(), takers_.end(), [&](const Taker& taker) {
        return std::count(taker.rings.begin(), taker.rings.end(), r) > 0;
      });
      if (!is_taken && !is_passed_on) takers_[0].rings.push_back(r);
    }
    std::erase_if(takers_, [](const Taker& taker) { return taker.rings.empty(); });
    for (Taker& taker : takers_) std::sort(taker.rings.begin(), taker.rings.end());
    load_warps_ = pick<int>({1, 1, 2, 4});
    passes_on_ = kinds_.back() == Kind::passed;
    pass_warps_ = pick<int>({1, 2, 4});
    threads_ = 32 * (load_warps_ + (passes_on_ ? pass_warps_ : 0));
    for (const Taker& taker : takers_) threads_ += 32 * taker.warps;
  }

  dsl::Arg extent_of_steps() const {
    return is_dynamic_ ? dsl::Arg(*steps_) : dsl::Arg(rounds_ * turns_);
  }
  int64_t num_steps() const { return rounds_ * turns_; }

  void declare_inputs(size_t r) {
    std::vector<Loaded>& loaded = loaded_.emplace_back();
    const auto add = [&](const char* name, DType in_memory, DType of_tile, int64_t rows,
                         int64_t columns, int64_t largest) {
      const std::vector<int64_t> shape = {num_steps(), blocks_ * rows, columns};
      HostTensor data(in_memory, Dims(shape));
      for (int64_t i = 0; i < data.size(); ++i) {
        data.set_value(i, static_cast<double>(between(-largest, largest)));
      }
      Ref input = k_.input(fmt::format("{}{}", name, r), in_memory,
                           {extent_of_steps(), dsl::Arg(blocks_ * rows), dsl::Arg(columns)});
      loaded.push_back({std::move(input), tensors_.size(), rows, columns, of_tile});
      add_input(std::move(data));
    };
    if (kinds_[r] == Kind::product) {
      b_by_rows_ = chance(50);  // [n, k]
      const DType in_memory = chance(85) ? half_ : DType::f32;
      add("b", in_memory, half_, b_by_rows_ ? columns_ : depth_, b_by_rows_ ? depth_ : columns_, 2);
      loads_a_ = chance(50);
      if (loads_a_) add("a", half_, half_, rows_, depth_, 2);
    } else if (kinds_[r] == Kind::plain) {
      const DType dtype = pick<DType>({DType::f32, DType::i32, DType::bf16, DType::i64});
      const DType of_tile = chance(80) ? dtype : DType::f32;
      const auto rows = pick<int64_t>({1, 4, 16, 32}),
                 columns = pick<int64_t>({16, 32, 40, 64, 200});
      add("x", dtype, of_tile, rows, columns, 8);
    }
  }

  /// The shape of the sums of a product, else of the tile.
  std::tuple<int64_t, int64_t, DType, bool> shape_of(size_t ring) const {
    if (kinds_[ring] == Kind::product) return {rows_, columns_, DType::f32, true};
    const Loaded& from = loaded_[kinds_[ring] == Kind::passed ? ring - 1 : ring][0];
    return {from.rows, from.columns, from.dtype, false};
  }

  void declare_ring(size_t r) {
    Ring& ring =
        rings_.emplace_back(Ring{k_.ring({.stages = static_cast<int>(between(1, 4))}), {}});
    if (kinds_[r] == Kind::passed) {
      const Source& from = rings_[r - 1].tiles[0];
      const int64_t times = between(1, 3), plus = between(-2, 2), turned = between(0, 5);
      Source source{ring.ring.shared(from.tile.dtype(), {from.rows, from.columns}, "passed"),
                    from.rows, from.columns,
                    [from, times, plus, turned](int64_t block, int64_t step, int64_t i, int64_t j) {
                      const double value = from.at(block, step, i, (j + turned) % from.columns);
                      return value * static_cast<double>(times) + static_cast<double>(plus);
                    }};
      pass_ = {times, plus, turned};
      ring.tiles.push_back(std::move(source));
      return;
    }
    for (const Loaded& from : loaded_[r]) {
      const int64_t sign = chance(20) ? -1 : 1;
      signs_.push_back(sign);
      const auto at = [this_tensors = inputs_, tensor = from.tensor, rows = from.rows,
                       columns = from.columns, all = blocks_ * from.rows,
                       sign](int64_t block, int64_t step, int64_t i, int64_t j) {
        const int64_t element = (step * all + block * rows + i) * columns + j;
        return static_cast<double>(sign) * (*this_tensors)[tensor][static_cast<size_t>(element)];
      };
      ring.tiles.push_back({ring.ring.shared(from.dtype, {from.rows, from.columns}, "tile"),
                            from.rows, from.columns, at});
    }
  }

  /// Tiles that roles share and nobody writes afterwards.
  void prologue() {
    if (kinds_[0] != Kind::product || loads_a_) return;
    const Ref tile = k_.shared(half_, {rows_, depth_}, "still");
    const int64_t down = between(1, 4), right = between(1, 4);
    k_.parallel({rows_, depth_}, [&](Value i, Value j) {
      tile(i, j) = cast(half_, (i * down + j * right + at()) % 5 - 2);
    });
    rings_[0].tiles.push_back(
        {tile, rows_, depth_, [=](int64_t block, int64_t, int64_t i, int64_t j) {
           return static_cast<double>((i * down + j * right + block) % 5 - 2);
         }});
  }

  // ---- the roles
  std::vector<dsl::Role> roles() {
    std::vector<dsl::Role> result, loads;
    loads.push_back({.name = "load", .warps = load_warps_, .body = [this] { load(); }});
    if (passes_on_) {
      loads.push_back({.name = "pass", .warps = pass_warps_, .body = [this] { pass(); }});
    }
    for (size_t i = 0; i < takers_.size(); ++i) {
      const Taker& taker = takers_[i];
      dsl::Role role{.name = fmt::format("take{}", i), .body = [this, i] { take(i); }};
      (taker.by_groups ? role.warpgroups : role.warps) =
          taker.by_groups ? taker.warps / 4 : taker.warps;
      result.push_back(std::move(role));
    }
    result.insert(result.end(), loads.begin(), loads.end());
    return result;
  }

  void load() {
    const bool by_stores = chance(20);
    k_.serial(0, extent_of_steps(), [&](Value step) {
      size_t sign = 0;
      for (size_t r = 0; r < rings_.size(); ++r) {
        if (kinds_[r] == Kind::passed) continue;
        rings_[r].ring.fill([&] {
          for (size_t t = 0; t < loaded_[r].size(); ++t) {
            load(loaded_[r][t], rings_[r].tiles[t].tile, step, signs_[sign++], by_stores);
          }
        });
      }
    });
  }
  void load(const Loaded& from, const Ref& tile, const Value& step, int64_t sign, bool by_stores) {
    const Value first = at() * from.rows;
    if (sign > 0 && !by_stores) {
      return k_.copy(from.input.tile({step, first, 0}, {1, from.rows, from.columns}), tile);
    }
    k_.parallel({from.rows, from.columns}, [&](Value i, Value j) {
      const Value value = from.input(step, first + i, j);
      tile(i, j) = convert(from.dtype, sign > 0 ? value : -value);
    });
  }

  /// From one ring to the next.
  void pass() {
    Ring& to = rings_.back();
    Ring& from = rings_[rings_.size() - 2];
    const Source& source = from.tiles[0];
    const Ref target = to.tiles[0].tile;
    const bool fills_inside = chance(50);
    const auto move = [&](const Ref& tile) {
      k_.parallel({source.rows, source.columns}, [&](Value i, Value j) {
        const Value value = tile(i, (j + pass_.turned) % source.columns);
        target(i, j) = convert(target.dtype(),
                               convert(DType::f32, value) * float(pass_.times) + float(pass_.plus));
      });
    };
    k_.serial(0, extent_of_steps(), [&](Value) {
      if (fills_inside) {
        from.ring.take([&] { to.ring.fill([&] { move(source.tile); }); });
        return;
      }
      const Ref kept = k_.shared(source.tile.dtype(), {source.rows, source.columns}, "kept");
      from.ring.take([&] { k_.copy(source.tile, kept); });
      to.ring.fill([&] { move(kept); });
    });
  }

  dsl::Arg num_rounds() const {
    return is_dynamic_ ? dsl::Arg(*steps_ / dsl::Arg(turns_)) : dsl::Arg(rounds_);
  }
  void take(size_t index) {
    Taker& taker = takers_[index];
    begin(taker);
    k_.serial(0, num_rounds(), [&](Value) {
      for (int64_t turn = 0; turn < turns_; ++turn) {
        for (const size_t r : taker.rings) {
          rings_[r].ring.take([&] {
            if (kinds_[r] == Kind::product) {
              multiply(taker, rings_[r].tiles[1], rings_[r].tiles[0], turn);
            } else {
              statement(taker, r, rings_[r].tiles[0], turn);
            }
          });
          between_takes(taker, turn);
        }
      }
      end_round(taker);
    });
    end(taker);
  }

  // ---- what it means
  std::vector<std::vector<double>> meaning() {
    for (int64_t block = 0; block < blocks_; ++block) {
      for (const Taker& taker : takers_) {
        for (const auto& step : taker.before) step(block, 0);
        for (int64_t round = 0; round < rounds_; ++round) {
          for (const auto& step : taker.in_round) step(block, round * turns_);
        }
        for (const auto& step : taker.after) step(block, 0);
      }
    }
    return std::move(results_);
  }

  std::vector<Kind> kinds_;  // by ring
  std::vector<std::vector<Loaded>> loaded_;
  std::vector<int64_t> signs_;
  struct Pass {
    int64_t times = 1, plus = 0, turned = 0;
  };
  Pass pass_;
  bool passes_on_ = false;
  int load_warps_ = 1, pass_warps_ = 1;
  bool is_dynamic_ = false;
  std::optional<Value> steps_;
  int64_t rounds_ = 1;
};

}  // namespace

RoleProgram random_role_program(uint64_t seed) {
  return Generator(seed).make();
}

}  // namespace tessera::test
