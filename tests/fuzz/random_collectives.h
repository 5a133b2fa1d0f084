#pragma once
// The statements of a random program in which threads work together: scans, reducers, atomics,
// pipelines.

#include <fmt/format.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/random_tiles.h"

namespace tessera::test {

class RandomCollectives : protected RandomTiles {
 protected:
  using RandomTiles::RandomTiles;

  /// Copies that are issued ahead of the rounds that use them, perhaps across those of a loop around, or by a role
  /// of their own.
  void pipeline() {
    const Ref from = pick(inputs_);
    const Ref staged = new_tile(true, from.dtype());
    const Ref sum = new_tile(false, compute_type());
    k_.fill(sum, 0);
    const int64_t trips = between(0, 4);
    const dsl::Arg end = chance(40) ? dsl::Arg(min(*rows_, dsl::Arg(trips))) : dsl::Arg(trips);
    const int64_t turned = between(0, width_);
    const int64_t ahead = between(1, 3);
    dsl::PipelineOptions options = {.in_place = chance(50)};
    // Not drawn: the seeds of other programs keep their meaning.
    const int64_t mixed = turned * 31 + trips * 7 + ahead * 3 + int64_t{options.in_place};
    options.across = mixed % 5 < 2;
    // A load role cannot know when a loop of repeat() ends.
    options.producer = !options.across && ahead > 1 && mixed % 7 < 4 && !is_repeated_;
    options.stages = static_cast<int>(options.in_place || options.producer ? ahead : ahead + 1);
    const auto rounds = [&](const dsl::Arg& first) {
      k_.pipelined(0, end, options, [&](Value t) {
        k_.copy(from.tile({row_ + first + t, column_ + shift()}, {height_, width_}), staged);
        k_.parallel({height_, width_}, [&](Value i, Value j) {
          sum(i, j) = sum(i, j) + convert(sum.dtype(), staged(i, (j + turned) % width_));
        });
      });
    };
    const bool is_nested = options.across || options.producer;
    const int64_t around = is_nested ? mixed / 5 % 4 : 1;
    if (is_nested) {
      const bool is_left_out = mixed % 3 == 0;  // in every second round
      k_.serial(0, around, [&](Value first) {
        if (is_left_out) {
          k_.if_(first % 2 == 0, [&] { rounds(first); });
        } else {
          rounds(first);
        }
      });
    } else {
      rounds(0);
    }
    tiles_.push_back({sum, 8 * trips * around, false});
  }

  void scan() {
    const Tile from = pick(tiles_);
    const DType type = from.ref.dtype();
    const bool is_down = chance(50);
    const int64_t length = is_down ? height_ : width_;
    if (from.bound * length > kExact || !is_compute_type(type)) return;
    const bool is_shared = chance(50);
    const Ref to = new_tile(is_shared, type);
    const bool is_sum = chance(70);
    const auto axis = dsl::Axis(is_down ? 0 : 1);
    // A maximum of nothing is no number that other statements could go on with.
    const dsl::ScanOptions options = {.exclusive = is_sum && chance(50), .from_end = chance(50)};
    if (is_sum) {
      k_.scan_sum(from.ref, to, axis, options);
    } else {
      k_.scan_max(from.ref, to, axis, options);
    }
    tiles_.push_back({to, is_sum ? from.bound * length : from.bound, is_shared});
  }

  void reducer() {
    const Tile from = pick(tiles_);
    const DType type = compute_type();
    const bool is_per_row = chance(50);
    const auto op = pick<dsl::ReduceOp>(
        {dsl::ReduceOp::sum, dsl::ReduceOp::sum, dsl::ReduceOp::max, dsl::ReduceOp::min});
    dsl::ReducerOptions options;
    if (chance(20) && height_ + width_ < 40) options.kind = dsl::ReducerKind::wide;
    const dsl::Reducer total =
        k_.reducer(op, type, {is_per_row ? height_ : width_}, options, "total");
    const int64_t start = between(0, 3);
    if (start > 0) {
      total.init(start);
    } else {
      total.init();
    }
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Value value = max(min(convert(type, from.ref(i, j)), kLargest), -kLargest);
      total.update(is_per_row ? i : j, value);
    });
    const Ref to = k_.fragment(type, {is_per_row ? height_ : width_}, "totals");
    total.finalize(to);
    lines_.push_back({to, kLargest * 128 + 3, is_per_row});
  }

  /// Contributions of all elements to a few counters, in any order.
  void count() {
    const Tile from = pick(tiles_);
    const int64_t counters = between(1, 40);
    const int64_t step = between(1, 5);
    const Ref table = k_.shared(DType::i32, {counters}, "counters");
    k_.fill(table, 0);
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Value value = max(min(convert(DType::i32, from.ref(i, j)), 8), -8);
      k_.atomic_add(table((i * step + j) % counters), value);
    });
    const Ref to = new_tile(false, DType::i32);
    k_.parallel({height_, width_}, [&](Value i, Value j) { to(i, j) = table((i + j) % counters); });
    tiles_.push_back({to, 8 * height_ * width_, false});
  }

  /// There and back again.
  void transpose() {
    const Tile from = pick(tiles_);
    const Ref across = k_.shared(from.ref.dtype(), {width_, height_}, "across");
    k_.copy(from.ref.transposed(), across);
    const bool is_shared = chance(30);
    const Ref to = new_tile(is_shared, from.ref.dtype());
    k_.copy(across.transposed(), to);
    tiles_.push_back({to, from.bound, is_shared});
  }

  /// Arithmetic in 16 bits, exact: integers of few bits.
  void halves() {
    const Tile a = pick(tiles_);
    const Tile b = pick(tiles_);
    const DType type = a.ref.dtype();
    const bool is_half = type == DType::f16 || type == DType::bf16;
    const int64_t exact = type == DType::f16 ? 2048 : 256;
    if (!is_half || b.ref.dtype() != type || a.bound + b.bound > exact) return;
    const bool is_shared = chance(30);
    const Ref to = new_tile(is_shared, type);
    const int64_t choice = between(0, a.bound * b.bound <= exact ? 5 : 4);
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Value x = a.ref(i, j);
      const Value y = b.ref(i, j);
      to(i, j) = choice == 0   ? x + y
                 : choice == 1 ? x - y
                 : choice == 2 ? max(x, abs(y))
                 : choice == 3 ? min(x, y)
                 : choice == 4 ? abs(x - y)
                               : x * y;
    });
    tiles_.push_back(
        {to, std::max(a.bound + b.bound, choice == 5 ? a.bound * b.bound : 0), is_shared});
  }
};

}  // namespace tessera::test
