#include "kernels/serving/parts/compress_window.h"

#include <algorithm>
#include <limits>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// An f32 or bf16 as f32, without the test for NaN of a cast: results computed from a NaN are NaN either way.
Value widened(const Value& value) {
  if (value.dtype() == DType::f32) return value;
  return reinterpret(DType::f32, cast(DType::u32, reinterpret(DType::u16, value)) << 16);
}

void load_run(Builder& k, int64_t count, int64_t width, const Ref& from, const Value& column,
              const Ref& to) {
  each_run(k, count, width,
           [&](const Value& i) { to(i) = cast(to.dtype(), from(column + i).unchecked()); });
}

}  // namespace

int64_t lane_channels(const WindowSpec& s) {
  return s.ratio == 4 || (s.x == DType::bf16 && s.state == DType::bf16) ? kLaneChannels : 2;
}

int64_t span_channels(const WindowSpec& s) {
  return kGroupLanes * lane_channels(s);
}

CompressWindow::CompressWindow(const WindowSpec& s)
    : s_(s),
      slots_(window_slots(s.ratio)),
      overlaps_(s.ratio == 4),
      lane_channels_(lane_channels(s)),
      span_(span_channels(s)),
      k_(s.step == Step::entries ? "store_entries" : "compress") {
  const int64_t length = s.channels * (overlaps_ ? 4 : 2);
  const auto rows = [&](const char* name, DType dtype, int64_t width, const Value& count,
                        bool is_output) {
    const std::string stride = std::string(name) + "_stride";
    const TensorOptions options{.strides = {k_.stride(stride, {.multiple_of = width}), 1},
                                .align = width * bytes(dtype)};
    return is_output ? k_.output(name, dtype, {count, length}, options)
                     : k_.input(name, dtype, {count, length}, options);
  };
  windows_ = k_.dim("windows");
  x_rows_ = k_.dim("x_rows");
  state_rows_ = k_.dim("slots");
  x_ = rows("x", s.x, s.is_ahead ? kAhead : s.x_width, x_rows_, false);
  state_ = rows("state", s.state, s.state_width, state_rows_, s.is_decode);
  plan_ = k_.input("plan", DType::i32, {windows_, 8}, {.align = 4});
  const TensorOptions of_entries{.align = int64_t{s.out_width} * bytes(s.out)};
  if (s.has_out) out_ = k_.output("out", s.out, {windows_, s.channels}, of_entries);
  if (s.step == Step::entries) {
    entries_ = k_.input("entries", DType::f32, {windows_, s.channels}, of_entries);
  } else {
    ape_ = k_.input("ape", DType::f32, {slots_, s.channels}, {.align = 4 * s.ape_width});
  }
}

// ---- the plan

/// Reads the row of a window and finds out what of it is there.
void CompressWindow::read_plan(const Value& window) {
  const Ref row = (*plan_)(k_.let("row_of_plan", min(window, windows_ - 1))).unchecked();
  row_ = k_.let("x_row", select(window < windows_, row(0).unchecked(), -1));
  last_ = k_.let("last", row(1).unchecked());
  from_state_ = s_.is_decode ? i32(slots_ - 1) : k_.let("from_state", row(2).unchecked());
  older_ = k_.let("older", row(3).unchecked());
  own_ = k_.let("own", row(4).unchecked());
  location_ = k_.let("location", row(5).unchecked());
  if (s_.step != Step::windows)
    planned_page_size_ = k_.let("planned_page_size", row(7).unchecked());
  is_first_ = k_.let("is_first", overlaps_ ? last_ < s_.ratio : last_ < 0);
  if (s_.is_decode) {
    find_token();
  } else {
    find_window();
  }
  k_.report_unless(row_ == -1 || is_known_, out_of_range("plan"));
}

void CompressWindow::require_page_size(const Value& page_size) {
  auto fits = k_.let("fits_pages", planned_page_size_ == page_size);
  k_.report_unless(row_ == -1 || fits, kOtherPages);
  location_ = k_.let("location_in_pages", select(fits, location_, -1));
}

/// In prefill the window is there if its rows and slots are.
void CompressWindow::find_window() {
  auto absent = select(is_first_, kGroup / 2, 0);
  auto from_x = k_.let("from_x", i32(slots_) - max(from_state_, overlaps_ ? absent : i32(0)));
  is_known_ = k_.let("is_known", row_ >= 0 && row_ < x_rows_ && last_ >= 0 && from_state_ >= 0 &&
                                     from_state_ <= slots_ && row_ >= from_x - 1 && has_slots());
  is_whole_ = is_known_;
}

/// True if the slots of the window that come from the state are in it.
Value CompressWindow::has_slots() {
  const auto has = [&](const Value& first, const Value& count) {
    return count <= 0 || (first >= 0 && first <= state_rows_ - count);
  };
  if (!overlaps_) return has(own_, from_state_);
  auto older = is_first_ || has(older_, min(from_state_, kGroup / 2));
  return older && has(own_, from_state_ - kGroup / 2);
}

/// In decode the token is there if its row and its slot are, the window if all its slots are.
void CompressWindow::find_token() {
  auto own_slot = k_.let("own_slot", own_ + last_ % s_.ratio);
  stores_ = k_.let("stores", row_ >= 0 && row_ < x_rows_ && last_ >= 0 && own_ >= 0 &&
                                 own_slot >= 0 && own_slot < state_rows_);
  own_slot_ = own_slot;
  auto emits = k_.let("emits", last_ % s_.ratio == s_.ratio - 1);
  is_known_ = k_.let("is_known", stores_ && (!emits || has_slots()));
  is_whole_ = k_.let("is_whole", is_known_ && emits);
}

// ---- slots

/// The columns of kv and of score that slot `s` takes begin at these multiples of the channels.
std::pair<int64_t, int64_t> CompressWindow::parts_of(int64_t nth) const {
  if (!overlaps_) return {0, 1};
  return nth < kGroup / 2 ? std::pair{0, 2} : std::pair{1, 3};
}

void CompressWindow::load_slot(const Ref& row, int64_t width, int64_t nth, const Value& column) {
  const auto [kv, score] = parts_of(nth);
  load_run(k_, lane_channels_, width, row, column + kv * s_.channels, (*kv_)(nth));
  load_run(k_, lane_channels_, width, row, column + score * s_.channels, (*score_)(nth));
}
void CompressWindow::load_from_x(const Value& slot, int64_t nth, const Value& column) {
  auto row = row_ - (i32(slots_ - 1) - slot);
  load_slot((*x_)(row).unchecked().cached(CacheHint::evict_first), s_.x_width, nth, column);
}
void CompressWindow::load_from_state(const Value& slot, int64_t nth, const Value& column) {
  Value row = own_ + slot;
  if (overlaps_) row = nth < kGroup / 2 ? older_ + slot : own_ + (slot - kGroup / 2);
  load_slot((*state_)(row).unchecked(), s_.state_width, nth, column);
}

void CompressWindow::declare_slots() {
  const DType dtype = s_.x == s_.state ? s_.x : DType::f32;
  kv_ = k_.local(dtype, {kGroup, lane_channels_}, "kv");
  score_ = k_.local(dtype, {kGroup, lane_channels_}, "score");
}

void CompressWindow::load_ahead(const Value& window, const Value& slot, const Value& channel) {
  declare_slots();
  auto row = k_.let("last_row", (*plan_)(min(window, windows_ - 1), 0).unchecked());
  auto first = k_.let("first_row", select(window < windows_, row - i32(slots_ - 1), -i32(slots_)));
  for (const auto& [part, target] : {std::pair{0, &*kv_}, std::pair{1, &*score_}}) {
    auto rows = k_.shared(s_.x, {slots_, span_}, part == 0 ? "kv_rows" : "score_rows");
    auto column = first_shared_ + part * s_.channels;
    k_.copy(x_->tile({first, column}, {slots_, span_}).cached(CacheHint::evict_first), rows);
    for (int64_t nth = 0; nth < kGroup; ++nth) {
      load_run(k_, lane_channels_, lane_channels_, rows(slot + nth), channel, (*target)(nth));
    }
  }
}

/// Slots `first` .. `first` + 7, for the channels from `column` on.
void CompressWindow::load(const Value& first, const Value& column) {
  if (s_.is_ahead) {
    k_.if_(first < from_state_, [&] {
      for (int64_t nth = 0; nth < kGroup; ++nth) {
        k_.if_(first + nth < from_state_, [&] { load_from_state(first + nth, nth, column); });
      }
    });
    return;
  }
  declare_slots();
  if (s_.is_decode) return load_of_decode(first, column);
  const auto load_mixed = [&] {
    for (int64_t nth = 0; nth < kGroup; ++nth) {
      auto slot = first + nth;
      const auto present = [&] {
        k_.if_else(
            slot < from_state_, [&] { load_from_state(slot, nth, column); },
            [&] { load_from_x(slot, nth, column); });
      };
      if (!overlaps_ || nth >= kGroup / 2) {
        present();
        continue;
      }
      k_.if_else(
          is_first_,
          [&] {
            k_.unrolled(lane_channels_, [&](Value i) {
              (*kv_)(nth, i) = cast(kv_->dtype(), 0.0f);
              (*score_)(nth, i) = cast(kv_->dtype(), 0.0f);
            });
          },
          present);
    }
  };
  k_.if_else(
      from_state_ == 0 && !Value(is_first_),
      [&] {
        for (int64_t nth = 0; nth < kGroup; ++nth) load_from_x(first + nth, nth, column);
      },
      load_mixed);
}

/// All from the state, but the token itself. Without a branch the loads are on their way together: what is
/// not of the window is loaded too, and left out by weigh and take_token.
void CompressWindow::load_of_decode(const Value& first, const Value& column) {
  for (int64_t nth = 0; nth < kGroup; ++nth) {
    const bool may_be_token = nth == kGroup - 1;
    Value row = own_ + (first + nth);
    if (overlaps_) {
      row = nth < kGroup / 2 ? select(is_first_, own_, older_ + nth) : own_ + (nth - kGroup / 2);
    } else if (may_be_token) {
      row = own_ + min(first + nth, i32(slots_ - 2));
    }
    if (!(overlaps_ && may_be_token)) {
      load_slot((*state_)(row).unchecked(), s_.state_width, nth, column);
    }
    if (may_be_token) take_token(nth, first + nth == slots_ - 1);
  }
}

// ---- weights

/// Copies the bias of channels `first` .. `first` + span - 1 to shared memory, for add_bias.
void CompressWindow::share_bias(const Value& first) {
  shared_bias_ = k_.shared(DType::f32, {slots_, span_}, "bias");
  first_shared_ = first;
  k_.copy(ape_->tile({0, first}, {slots_, span_}), *shared_bias_);
}

/// Biased scores of the group, and their maxima.
void CompressWindow::add_bias(const Value& first, const Value& column) {
  biased_ = k_.local(DType::f32, {kGroup, lane_channels_}, "biased");
  peak_ = k_.local(DType::f32, {lane_channels_}, "peak");
  const int64_t width =
      shared_bias_ ? lane_channels_ : std::min<int64_t>(s_.ape_width, lane_channels_);
  for (int64_t nth = 0; nth < kGroup; ++nth) {
    const Ref from = shared_bias_ ? (*shared_bias_)(first + nth) : (*ape_)(first + nth);
    load_run(k_, lane_channels_, width, from, shared_bias_ ? column - first_shared_ : column,
             (*biased_)(nth));
  }
  k_.unrolled(lane_channels_, [&](Value i) {
    for (int64_t nth = 0; nth < kGroup; ++nth) {
      Value bias = (*biased_)(nth, i);
      Value biased = widened((*score_)(nth, i)) + bias;
      if (overlaps_ && nth < kGroup / 2) biased = select(is_first_, kLowest, biased);
      (*biased_)(nth, i) = biased;
      (*peak_)(i) = nth == 0 ? Value((*biased_)(nth, i)) : max((*peak_)(i), (*biased_)(nth, i));
    }
  });
}

/// The sums of the group, with the maxima of the window.
void CompressWindow::weigh(const Ref& peak) {
  weights_ = k_.local(DType::f32, {lane_channels_}, "weights");
  values_ = k_.local(DType::f32, {lane_channels_}, "values");
  k_.unrolled(lane_channels_, [&](Value i) {
    auto weights = k_.var(DType::f32, 0.0f, "den"), values = k_.var(DType::f32, 0.0f, "num");
    for (int64_t nth = 0; nth < kGroup; ++nth) {
      auto weight = k_.let("weight", exp((*biased_)(nth, i) - peak(i)));
      weights = weights + weight;
      Value kv = widened((*kv_)(nth, i));
      if (overlaps_ && s_.is_decode && nth < kGroup / 2) kv = select(is_first_, 0.0f, kv);
      values = fma(kv, weight, values);
    }
    (*weights_)(i) = weights;
    (*values_)(i) = values;
  });
}

// ---- the row of a token

void CompressWindow::load_token(const Value& column, const Value& is_needed) {
  const int64_t parts = overlaps_ ? 4 : 2;
  token_.emplace(k_.local(s_.x, {parts, lane_channels_}, "token_row"));
  k_.unrolled(lane_channels_, [&](Value i) {
    for (int64_t part = 0; part < parts; ++part) (*token_)(part, i) = cast(s_.x, 0.0f);
  });
  k_.if_(is_needed, [&] {
    for (int64_t part = 0; part < parts; ++part) {
      load_run(k_, lane_channels_, s_.x_width, (*x_)(row_), column + part * s_.channels,
               (*token_)(part));
    }
  });
}

/// The last slot of a window of decode is the token, in registers where `is_own`.
void CompressWindow::take_token(int64_t nth, const Value& is_own) {
  const auto [kv, score] = parts_of(nth);
  for (const auto& [part, to] : {std::pair{kv, &*kv_}, std::pair{score, &*score_}}) {
    k_.unrolled(lane_channels_, [&, part = part, to = to](Value i) {
      const Value token = cast(to->dtype(), (*token_)(part, i));
      (*to)(nth, i) = overlaps_ ? token : select(is_own, token, (*to)(nth, i));
    });
  }
}

void CompressWindow::store_token(const Value& column) {
  for (int64_t part = 0; part < (overlaps_ ? 4 : 2); ++part) {
    each_run(k_, lane_channels_, s_.state_width, [&](const Value& i) {
      const Value at = column + i + part * s_.channels;
      (*state_)(own_slot_, at).unchecked() = cast(s_.state, (*token_)(part, i));
    });
  }
}

}  // namespace tessera::kernels::serving
