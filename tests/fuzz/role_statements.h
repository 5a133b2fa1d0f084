#pragma once
// The statements of a random kernel with roles that take tiles from rings, each with its meaning on plain arrays.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dsl/builder.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

class RoleStatements {
 protected:
  using Ref = dsl::Ref;
  using Value = dsl::Value;
  using Numbers = std::shared_ptr<std::vector<double>>;

  /// A tile and its elements when a step is taken.
  struct Source {
    Ref tile;
    int64_t rows = 0, columns = 0;
    std::function<double(int64_t block, int64_t step, int64_t i, int64_t j)> at;
  };
  struct Ring {
    dsl::Ring ring;
    std::vector<Source> tiles;
  };
  /// A role's value of the tiles of a ring, which it adds up over its turns.
  struct Work {
    enum class Kind { product, add, reduce, scan, reducer, count, lanes };
    Kind kind = Kind::add;
    size_t ring = 0, tensor = 0;
    int64_t rows = 1, columns = 1;  // of the sums
    DType dtype = DType::f32;
    int64_t turned = 0, axis = 0, form = 0;
    bool is_maximum = false, is_exclusive = false, is_from_end = false;
    std::optional<Ref> output, sums;
    Numbers numbers = std::make_shared<std::vector<double>>();
    std::vector<Ref> parts;  // product: of each turn
    std::vector<Numbers> part_numbers;
    int64_t added = 0;  // products that are in the sums

    double& number(int64_t i, int64_t j) const {
      return (*numbers)[static_cast<size_t>(i * columns + j)];
    }
  };
  using Step = std::function<void(int64_t block, int64_t first_step)>;
  /// A role that takes.
  struct Taker {
    bool by_groups = false;
    int warps = 4;
    std::vector<size_t> rings;
    std::vector<Work> works;
    std::vector<Step> before, in_round, after;
  };

  explicit RoleStatements(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, std::ssize(from) - 1))];
  }
  const Value& at() const { return *at_; }
  static Value convert(DType to, const Value& value) {
    return value.dtype() == to ? value : cast(to, value);
  }

  // ---- tensors
  void add_input(HostTensor data) {
    std::vector<double>& numbers = inputs_->emplace_back();
    for (int64_t i = 0; i < data.size(); ++i) numbers.push_back(data.value(i));
    tensors_.push_back(std::move(data));
  }
  /// [blocks * rows, columns]
  Ref output(DType dtype, int64_t rows, int64_t columns) {
    HostTensor data(dtype, {blocks_ * rows, columns});
    data.fill_bytes(std::byte{0x11});
    tensors_.push_back(std::move(data));
    inputs_->emplace_back();
    return k_.output(fmt::format("y{}", tensors_.size()), dtype,
                     {dsl::Arg(blocks_ * rows), dsl::Arg(columns)});
  }
  /// The sums of each role, and where it stores them. `shape_of(ring)`: of its first tile.
  template <class Shape>
  void choose_work(Taker& taker, const Shape& shape_of) {
    for (const size_t ring : taker.rings) {
      const auto [rows, columns, dtype, is_product] = shape_of(ring);
      const int64_t count = is_product ? 1 : between(1, 3);
      for (int64_t i = 0; i < count; ++i) {
        Work& work = taker.works.emplace_back();
        work.kind = is_product ? Work::Kind::product : static_cast<Work::Kind>(between(1, 6));
        work.ring = ring;
        work.dtype = dtype == DType::i32 || dtype == DType::i64 ? dtype : DType::f32;
        work.turned = between(0, 7);
        work.axis = between(0, 1);
        work.form = between(0, 5);
        work.is_maximum = chance(40);
        work.is_exclusive = !work.is_maximum && chance(50);
        work.is_from_end = chance(50);
        work.rows = rows;
        work.columns = columns;
        const bool is_line = work.kind == Work::Kind::reduce || work.kind == Work::Kind::reducer;
        if (is_line) work.columns = work.axis == 1 ? rows : columns;
        if (work.kind == Work::Kind::count) work.columns = between(1, 40);
        if (work.kind == Work::Kind::lanes) work.columns = 32 * taker.warps;
        const bool is_vector =
            is_line || work.kind == Work::Kind::count || work.kind == Work::Kind::lanes;
        if (is_vector) work.rows = 1;
        if (is_vector && !is_line) work.dtype = DType::i32;
        work.tensor = tensors_.size();
        work.output = output(work.dtype, work.rows, work.columns);
      }
    }
    // Every thread stores the same value there.
    taker.works.push_back({});
    Work& same = taker.works.back();
    same.tensor = tensors_.size();
    same.ring = SIZE_MAX;
    same.dtype = DType::i32;
    same.output = output(DType::i32, 1, 1);
  }

  // ---- a role: begin, its turns, end
  static bool is_vector(const Work& work) {
    return work.kind != Work::Kind::product && work.kind != Work::Kind::add &&
           work.kind != Work::Kind::scan;
  }
  void begin(Taker& taker) {
    for (Work& work : taker.works) {
      if (work.ring == SIZE_MAX) continue;
      const auto size = static_cast<size_t>(work.rows * work.columns);
      taker.before.push_back(
          [numbers = work.numbers, size](int64_t, int64_t) { numbers->assign(size, 0); });
      if (work.kind == Work::Kind::lanes) {
        work.sums = k_.var(DType::i32, 0, "mine");
        continue;
      }
      const std::vector<int64_t> shape =
          is_vector(work) ? std::vector{work.columns} : std::vector{work.rows, work.columns};
      work.sums = k_.fragment(work.dtype, shape, "sums");
      k_.fill(*work.sums, 0);
      if (work.kind != Work::Kind::product) continue;
      for (int64_t turn = 0; turn < turns_; ++turn) {
        work.parts.push_back(k_.fragment(DType::f32, {work.rows, work.columns}, "part"));
        work.part_numbers.push_back(std::make_shared<std::vector<double>>());
      }
    }
  }

  /// a * b, to a fragment of the turn or to the sums.
  void multiply(Taker& taker, const Source& a, const Source& b, int64_t turn) {
    for (Work& work : taker.works) {
      if (work.kind != Work::Kind::product) continue;
      const bool accumulates = work.form == 0, in_registers = work.form == 1;
      const bool by_rows = b.rows == work.columns && b.columns == a.columns && b_by_rows_;
      const auto index = static_cast<size_t>(turn);
      const Ref to = accumulates ? *work.sums : work.parts[index];
      if (!accumulates) k_.fill(to, 0.0f);
      const Ref left = in_registers ? k_.fragment(half_, {a.rows, a.columns}, "left") : a.tile;
      if (in_registers) k_.copy(a.tile, left);
      k_.gemm(left, by_rows ? b.tile.transposed() : b.tile, to);
      const Numbers numbers = accumulates ? work.numbers : work.part_numbers[index];
      taker.in_round.push_back([=](int64_t block, int64_t first) {
        const int64_t step = first + turn, n = by_rows ? b.rows : b.columns;
        if (!accumulates) numbers->assign(static_cast<size_t>(a.rows * n), 0);
        for (int64_t d = 0; d < a.columns; ++d) {
          std::vector<double> row(static_cast<size_t>(n));
          for (int64_t j = 0; j < n; ++j) {
            row[static_cast<size_t>(j)] =
                by_rows ? b.at(block, step, j, d) : b.at(block, step, d, j);
          }
          for (int64_t i = 0; i < a.rows; ++i) {
            const double factor = a.at(block, step, i, d);
            double* const sums = numbers->data() + i * n;
            for (size_t j = 0; j < row.size(); ++j) sums[j] += factor * row[j];
          }
        }
      });
    }
  }
  /// Products of earlier turns join the sums: at once, or while the last one is still computed.
  void between_takes(Taker& taker, int64_t turn) {
    for (Work& work : taker.works) {
      if (work.kind != Work::Kind::product || work.form == 0) continue;
      const int64_t late = work.form % 3;
      while (work.added + late <= turn) add_part(taker, work);
    }
  }
  void end_round(Taker& taker) {
    for (Work& work : taker.works) {
      if (work.kind != Work::Kind::product || work.form == 0) continue;
      while (work.added < turns_) add_part(taker, work);
    }
  }
  void add_part(Taker& taker, Work& work) {
    const auto index = static_cast<size_t>(work.added++);
    const Ref sums = *work.sums, part = work.parts[index];
    const bool by_fma = work.form >= 4;
    const int64_t weight = by_fma ? static_cast<int64_t>(index) + 1 : 1;
    k_.parallel({work.rows, work.columns}, [&](Value i, Value j) {
      sums(i, j) = by_fma ? fma(part(i, j), static_cast<float>(weight), sums(i, j))
                          : part(i, j) + sums(i, j);
    });
    taker.in_round.push_back(
        [to = work.numbers, from = work.part_numbers[index], weight](int64_t, int64_t) {
          for (size_t i = 0; i < to->size(); ++i)
            (*to)[i] += static_cast<double>(weight) * (*from)[i];
        });
  }

  void statement(Taker& taker, size_t ring, const Source& from, int64_t turn) {
    for (Work& work : taker.works) {
      if (work.ring != ring) continue;
      switch (work.kind) {
        case Work::Kind::reduce:
          reduce(taker, work, from, turn);
          break;
        case Work::Kind::scan:
          scan(taker, work, from, turn);
          break;
        case Work::Kind::reducer:
          reducer(taker, work, from, turn);
          break;
        case Work::Kind::count:
          count(taker, work, from, turn);
          break;
        case Work::Kind::lanes:
          lanes(taker, work, from, turn);
          break;
        default:
          add(taker, work, from, turn);
          break;
      }
    }
  }
  void add(Taker& taker, Work& work, const Source& from, int64_t turn) {
    const Ref sums = *work.sums;
    k_.parallel({from.rows, from.columns}, [&](Value i, Value j) {
      sums(i, j) = sums(i, j) + convert(work.dtype, from.tile(i, (j + work.turned) % from.columns));
    });
    taker.in_round.push_back([=](int64_t block, int64_t first) {
      for (int64_t i = 0; i < from.rows; ++i) {
        for (int64_t j = 0; j < from.columns; ++j) {
          work.number(i, j) += from.at(block, first + turn, i, (j + work.turned) % from.columns);
        }
      }
    });
  }
  /// The elements of a line of a tile when a step is taken: of a row for axis 1, else of a column.
  static std::vector<double> line_of(const Source& from, int64_t axis, int64_t line, int64_t block,
                                     int64_t step) {
    std::vector<double> result;
    for (int64_t i = 0; i < (axis == 1 ? from.columns : from.rows); ++i) {
      result.push_back(axis == 1 ? from.at(block, step, line, i) : from.at(block, step, i, line));
    }
    return result;
  }
  static double total(const std::vector<double>& line, bool is_maximum) {
    double result = is_maximum ? line[0] : 0;
    for (const double value : line) result = is_maximum ? std::max(result, value) : result + value;
    return result;
  }
  void add_totals(Taker& taker, Work& work, const Source& from, int64_t turn) {
    taker.in_round.push_back([=](int64_t block, int64_t first) {
      for (int64_t i = 0; i < work.columns; ++i) {
        work.number(0, i) +=
            total(line_of(from, work.axis, i, block, first + turn), work.is_maximum);
      }
    });
  }
  void add_line(const Work& work, const Ref& line) {
    k_.parallel({work.columns}, [&](Value i) { (*work.sums)(i) = (*work.sums)(i) + line(i); });
  }
  Ref copied(const Work& work, const Source& from, bool is_shared) {
    const std::vector<int64_t> shape = {from.rows, from.columns};
    const Ref to =
        is_shared ? k_.shared(work.dtype, shape, "own") : k_.fragment(work.dtype, shape, "own");
    k_.copy(from.tile, to);
    return to;
  }
  void reduce(Taker& taker, Work& work, const Source& from, int64_t turn) {
    const Ref own = copied(work, from, false);
    const Ref line = k_.fragment(work.dtype, {work.columns}, "line");
    if (work.is_maximum) {
      k_.reduce_max(own, line, dsl::Axis(static_cast<int>(work.axis)));
    } else {
      k_.reduce_sum(own, line, dsl::Axis(static_cast<int>(work.axis)));
    }
    add_line(work, line);
    add_totals(taker, work, from, turn);
  }
  void reducer(Taker& taker, Work& work, const Source& from, int64_t turn) {
    dsl::ReducerOptions options;
    if (work.form == 0) options.kind = dsl::ReducerKind::wide;
    const dsl::Reducer all = k_.reducer(work.is_maximum ? dsl::ReduceOp::max : dsl::ReduceOp::sum,
                                        work.dtype, {work.columns}, options, "all");
    all.init();
    k_.parallel({from.rows, from.columns}, [&](Value i, Value j) {
      all.update(work.axis == 1 ? i : j, convert(work.dtype, from.tile(i, j)));
    });
    const Ref line = k_.fragment(work.dtype, {work.columns}, "line");
    all.finalize(line);
    add_line(work, line);
    add_totals(taker, work, from, turn);
  }
  void scan(Taker& taker, Work& work, const Source& from, int64_t turn) {
    const Ref own = copied(work, from, work.form % 2 == 0);
    const std::vector<int64_t> shape = {from.rows, from.columns};
    const Ref scanned = work.form < 3 ? k_.fragment(work.dtype, shape, "scanned") : own;
    const auto axis = dsl::Axis(static_cast<int>(work.axis));
    const dsl::ScanOptions options = {.exclusive = work.is_exclusive, .from_end = work.is_from_end};
    if (work.is_maximum) {
      k_.scan_max(own, scanned, axis, options);
    } else {
      k_.scan_sum(own, scanned, axis, options);
    }
    k_.parallel({from.rows, from.columns},
                [&](Value i, Value j) { (*work.sums)(i, j) = (*work.sums)(i, j) + scanned(i, j); });
    taker.in_round.push_back([=](int64_t block, int64_t first) {
      const int64_t lines = work.axis == 1 ? from.rows : from.columns;
      for (int64_t l = 0; l < lines; ++l) {
        std::vector<double> line = line_of(from, work.axis, l, block, first + turn);
        if (work.is_from_end) std::reverse(line.begin(), line.end());
        for (size_t i = 0; i < line.size(); ++i) {
          const auto end = line.begin() + static_cast<int64_t>(i) + (work.is_exclusive ? 0 : 1);
          const double value = line.begin() == end
                                   ? 0
                                   : total(std::vector<double>(line.begin(), end), work.is_maximum);
          const auto place = static_cast<int64_t>(work.is_from_end ? line.size() - 1 - i : i);
          (work.axis == 1 ? work.number(l, place) : work.number(place, l)) += value;
        }
      }
    });
  }
  /// Contributions of all elements to a few counters, in any order.
  void count(Taker& taker, Work& work, const Source& from, int64_t turn) {
    const Ref table = k_.shared(DType::i32, {work.columns}, "counters");
    const int64_t step = work.turned + 1, size = work.columns;
    k_.fill(table, 0);
    k_.parallel({from.rows, from.columns}, [&](Value i, Value j) {
      k_.atomic_add(table((i * step + j) % size), convert(DType::i32, from.tile(i, j)));
    });
    add_line(work, table);
    taker.in_round.push_back([=](int64_t block, int64_t first) {
      for (int64_t i = 0; i < from.rows; ++i) {
        for (int64_t j = 0; j < from.columns; ++j) {
          work.number(0, (i * step + j) % size) += from.at(block, first + turn, i, j);
        }
      }
    });
  }
  /// One element for each thread of the role, perhaps the sum of its warp.
  void lanes(Taker& taker, Work& work, const Source& from, int64_t turn) {
    const Value thread = k_.thread();
    const int64_t step = work.turned + 1;
    Value mine = k_.let(
        "mine", convert(DType::i32, from.tile(thread % from.rows, thread * step % from.columns)));
    if (work.is_maximum) mine = k_.warp_sum(mine);
    *work.sums = *work.sums + mine;
    taker.in_round.push_back([=](int64_t block, int64_t first) {
      std::vector<double> values;
      for (int64_t t = 0; t < work.columns; ++t) {
        values.push_back(from.at(block, first + turn, t % from.rows, t * step % from.columns));
      }
      for (int64_t t = 0; t < work.columns; ++t) {
        const auto warp = values.begin() + t / 32 * 32;
        work.number(0, t) += work.is_maximum ? total(std::vector<double>(warp, warp + 32), false)
                                             : values[static_cast<size_t>(t)];
      }
    });
  }

  void end(Taker& taker) {
    for (Work& work : taker.works) {
      const Ref to = *work.output;
      if (work.ring == SIZE_MAX) {
        to(at(), 0) = at() * 7 + 3;
        taker.before.push_back([numbers = work.numbers](int64_t block, int64_t) {
          numbers->assign(1, static_cast<double>(block * 7 + 3));
        });
      } else if (work.kind == Work::Kind::lanes) {
        to(at(), k_.thread()) = *work.sums;
      } else {
        store(work, to.tile({at() * work.rows, 0}, {work.rows, work.columns}));
      }
      taker.after.push_back(
          [this, tensor = work.tensor, numbers = work.numbers](int64_t block, int64_t) {
            results_.resize(tensors_.size());
            std::vector<double>& all = results_[tensor];
            all.resize(static_cast<size_t>(blocks_) * numbers->size());
            std::copy(numbers->begin(), numbers->end(), all.begin() + block * std::ssize(*numbers));
          });
    }
  }
  /// The sums to a part of a tensor: as a copy, by elements, or through shared memory.
  void store(const Work& work, const Ref& to) {
    const Ref sums = *work.sums;
    if (work.turned % 3 == 0) return k_.copy(sums, to);
    if (is_vector(work)) {
      k_.parallel({work.columns}, [&](Value j) { to(0, j) = sums(j); });
    } else if (work.turned % 3 == 1) {
      k_.parallel({work.rows, work.columns}, [&](Value i, Value j) { to(i, j) = sums(i, j); });
    } else {
      const Ref staged = k_.shared(work.dtype, {work.rows, work.columns}, "staged");
      k_.copy(sums, staged);
      k_.copy(staged, to);
    }
  }

  std::mt19937_64 random_;
  dsl::Builder k_{"roles"};
  std::optional<Value> at_;
  int64_t blocks_ = 1, turns_ = 1;
  int threads_ = 0;
  int64_t rows_ = 64, columns_ = 64, depth_ = 64;  // of products
  DType half_ = DType::bf16;                       // of their operands
  bool b_by_rows_ = false, loads_a_ = false;
  std::vector<Ring> rings_;
  std::vector<Taker> takers_;
  std::vector<HostTensor> tensors_;
  std::shared_ptr<std::vector<std::vector<double>>> inputs_ =
      std::make_shared<std::vector<std::vector<double>>>();  // by tensor
  std::vector<std::vector<double>> results_;                 // by tensor
};

}  // namespace tessera::test
