// apply_rotary: rotates pairs of channels by the angle of the token's position, in place.
//
// Shapes   query [batch, tokens, heads, R], key [batch, tokens, key heads, R], any strides; cos_sin
//          [angles, R]; R 64 or 128. One token dimension is a batch of 1.
// Dtypes   bf16 or f32; cos_sin f32; positions i32, i64 or none
// Method   a thread has 16 bytes of both halves of its pairs in up to four heads, which share the
//          angles. Neighbouring threads have neighbouring channels, then neighbouring heads, so that
//          a warp moves whole rows. All loads are issued before the first product. Query and key go in
//          one launch. The bound is bytes / copy bandwidth.
// Maths    (fma(a, c, -(b * s)), fma(a, s, b * c)) in f32, rounded once; conjugate: s is negated first.
//          An element depends on its pair and its angle alone.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

/// Heads of one tensor, and how their channels lie in memory.
struct Heads {
  int32_t count;            // 0: the tensor is absent
  int16_t width;            // elements per access
  int16_t channels_follow;  // the last stride is 1
};

struct Spec {
  int32_t channels;
  Heads query, key;
  int16_t table_width;  // angles per access
  int16_t heads_per_thread;
  DType dtype;
  bool interleaved, conjugate, halves;
  bool has_positions, wide_positions;  // wide: i64
  uint8_t unused[2] = {};
};

constexpr int kThreads = 128;
constexpr const char* kNoAngle = "argument 'cos_sin' has too few rows";
// Heads of tokens from which a thread takes several heads. Fewer need every thread to hide latency.
constexpr int64_t kManyHeads = 32768;
constexpr int64_t kHeadsPerThread = 4;

/// Pairs of a thread: 16 bytes of each of two runs.
int64_t pairs_of(const Spec& s) {
  return 16 / bytes(s.dtype);
}

int64_t groups_of(const Spec& s, const Heads& heads) {
  return (heads.count + s.heads_per_thread - 1) / s.heads_per_thread;
}

/// The threads' work, one object per kernel.
class Rotation {
 public:
  Rotation(OpBuilder& k, const Spec& s) : k_(k), s_(s), pairs_(pairs_of(s)) {}

  dsl::Ref declare(const char* name, const Heads& heads, const dsl::Value& batch,
                   const dsl::Value& tokens) {
    const dsl::DimOptions apart{.multiple_of = heads.width};
    const auto stride = [&](const char* of) {
      return k_.stride(std::string(name) + of,
                       heads.channels_follow != 0 ? apart : dsl::DimOptions{});
    };
    std::vector<dsl::Arg> strides = {stride("_batch_stride"), stride("_token_stride"),
                                     stride("_head_stride")};
    if (heads.channels_follow != 0) {
      strides.emplace_back(1);
    } else {
      strides.emplace_back(k_.stride(std::string(name) + "_channel_stride"));
    }
    return k_.output(name, s_.dtype, {batch, tokens, heads.count, s_.channels},
                     {.strides = strides, .align = int64_t{bytes(s_.dtype)} * heads.width});
  }

  /// Reads cos and sin of the thread's pairs; angle 0 where the table has no row.
  void load_angles(const dsl::Ref& table, const dsl::Value& position, const dsl::Value& known,
                   const dsl::Value& lane) {
    cos_.emplace(k_.local(DType::f32, {pairs_}, "cos"));
    sin_.emplace(k_.local(DType::f32, {pairs_}, "sin"));
    k_.if_else(
        known,
        [&] {
          auto row = table(dsl::i32(position));
          auto angles = k_.local(DType::f32, {2 * pairs_}, "angles");
          for (const int64_t run : {0, 1}) {
            auto first = s_.halves ? lane * pairs_ + run * (s_.channels / 2)
                                   : lane * (2 * pairs_) + run * pairs_;
            load(row, first, angles, run * pairs_, s_.table_width);
          }
          k_.unrolled(pairs_, [&](dsl::Value i) {
            (*cos_)(i) = s_.halves ? angles(i) : angles(2 * i);
            (*sin_)(i) = s_.halves ? angles(pairs_ + i) : angles(2 * i + 1);
          });
        },
        [&] {
          k_.unrolled(pairs_, [&](dsl::Value i) {
            (*cos_)(i) = 1.0f;
            (*sin_)(i) = 0.0f;
          });
        });
  }

  /// Rotates heads group, group + groups, ... of a token, whose rows are x [heads, R].
  void rotate(const dsl::Ref& x, const Heads& heads, const dsl::Value& group,
              const dsl::Value& lane) const {
    using namespace dsl;
    const int64_t groups = groups_of(s_, heads);
    auto held = k_.local(s_.dtype, {s_.heads_per_thread, 2 * pairs_}, "held");
    const auto each_head = [&](const std::function<void(int64_t, const Value&)>& body) {
      for (int64_t i = 0; i < s_.heads_per_thread; ++i) {
        auto head = k_.let("head", group + i * groups);
        if ((i + 1) * groups <= heads.count) {
          body(i, head);
        } else {
          k_.if_(head < heads.count, [&] { body(i, head); });
        }
      }
    };
    each_head([&](int64_t i, const Value& head) {
      for (const int64_t run : {0, 1}) {
        load(x(head), column(lane, run), held(i), run * pairs_, heads.width);
      }
    });
    each_head([&](int64_t i, const Value& head) {
      auto turned = k_.local(s_.dtype, {2 * pairs_}, "turned");
      k_.unrolled(pairs_, [&](Value pair) {
        auto first = s_.interleaved ? 2 * pair : pair;
        auto second = s_.interleaved ? 2 * pair + 1 : pairs_ + pair;
        auto a = k_.let("a", f32(held(i, first))), b = k_.let("b", f32(held(i, second)));
        Value cos = (*cos_)(pair), sin = (*sin_)(pair);
        if (s_.conjugate) sin = -sin;
        turned(first) = cast(s_.dtype, fma(a, cos, -(b * sin)));
        turned(second) = cast(s_.dtype, fma(a, sin, b * cos));
      });
      auto row = x(head);
      for (const int64_t run : {0, 1}) {
        k_.unrolled(pairs_ / heads.width, [&](Value piece) {
          k_.vectorized(heads.width, [&](Value j) {
            auto at = piece * heads.width + j;
            row(column(lane, run) + at).unchecked() = turned(run * pairs_ + at);
          });
        });
      }
    });
  }

 private:
  /// First channel of the thread's run 0 or 1.
  dsl::Value column(const dsl::Value& lane, int64_t run) const {
    return s_.interleaved ? lane * (2 * pairs_) + run * pairs_
                          : lane * pairs_ + run * (s_.channels / 2);
  }

  void load(const dsl::Ref& row, const dsl::Value& first, const dsl::Ref& to, int64_t offset,
            int64_t width) const {
    k_.unrolled(pairs_ / width, [&](dsl::Value piece) {
      k_.vectorized(width, [&](dsl::Value j) {
        auto at = piece * width + j;
        to(offset + at) = row(first + at).unchecked();
      });
    });
  }

  OpBuilder& k_;
  const Spec& s_;
  const int64_t pairs_;
  std::optional<dsl::Ref> cos_, sin_;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(apply_rotary_op, {});
  Rotation rotation(k, s);
  auto batch = k.dim("batch"), tokens = k.dim("tokens"), rows = k.dim("angles");
  auto table = k.input("cos_sin", DType::f32, {rows, s.channels},
                       {.strides = {k.stride("cos_sin_stride", {.multiple_of = s.table_width}), 1},
                        .align = 4 * s.table_width});
  std::optional<Ref> positions, key;
  if (s.has_positions) {
    positions = k.input("positions", s.wide_positions ? DType::i64 : DType::i32, {batch, tokens},
                        {.align = s.wide_positions ? 8 : 4});
  }
  auto query = rotation.declare("query", s.query, batch, tokens);
  if (s.key.count > 0) key = rotation.declare("key", s.key, batch, tokens);
  auto offset = k.param("position_offset");
  const int64_t lanes = s.channels / (2 * pairs_of(s));  // threads of a head
  const int64_t query_groups = groups_of(s, s.query);
  const int64_t groups = query_groups + groups_of(s, s.key);
  const int64_t items_of_block = kThreads / lanes;
  auto items = batch * tokens * groups;
  auto at = k.launch({ceil_div(items, items_of_block)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto item = k.let("item", at.x * items_of_block + k.thread() / lanes);
  auto lane = k.let("lane_of_head", k.thread() % lanes);
  auto row = k.let("row", item / groups), group = k.let("group", item % groups);
  auto sequence = k.let("sequence", row / tokens), token = k.let("token", row % tokens);
  k.return_if(item >= items);
  k.wait_for_previous_kernel();
  auto given = positions ? i64((*positions)(sequence, token).unchecked()) : i64(token);
  auto position = k.let("position", given + i64(offset));
  auto known = k.let("known_position", position >= 0 && position < i64(rows));
  k.report_unless(known, positions ? out_of_range("positions") : kNoAngle);
  rotation.load_angles(table, position, known, lane);
  const auto rotate_query = [&] { rotation.rotate(query(sequence, token), s.query, group, lane); };
  if (!key) {
    rotate_query();
  } else {
    k.if_else(group < query_groups, rotate_query, [&] {
      rotation.rotate((*key)(sequence, token), s.key, k.let("key_group", group - query_groups),
                      lane);
    });
  }
  return k.finish();
}

/// A tensor with one token dimension as a batch of 1.
TensorView batched(const TensorView& view, int other_dims) {
  if (view.rank() == other_dims + 2) return view;
  TensorView result = view;
  result.shape = Dims{1};
  result.strides = Dims{0};
  for (int i = 0; i < view.rank(); ++i) {
    result.shape.push_back(view.shape[i]);
    result.strides.push_back(view.strides[i]);
  }
  result.strides[0] = view.shape[0] * view.strides[0];
  return result;
}

Heads heads_of(const Call& c, const char* name, const char* count) {
  if (!c.has(name)) return {};
  const TensorView& view = c.given(name);
  const bool follow = view.strides[view.rank() - 1] == 1;
  const int64_t width = follow ? common_vector(view, 16 / bytes(view.dtype)) : 1;
  return {c.i32(count), static_cast<int16_t>(width), static_cast<int16_t>(follow ? 1 : 0)};
}

int64_t num_heads(const Call& c) {
  return c["h"] + (c.has("key") ? c["g"] : 0);
}

void launches(const Call& c, Launches& go) {
  const TensorView& query = c.given("query");
  Spec s{};
  s.dtype = query.dtype;
  s.channels = c.i32("R");
  s.query = heads_of(c, "query", "h");
  s.key = heads_of(c, "key", "g");
  s.table_width = static_cast<int16_t>(common_vector(c.given("cos_sin"), 4));
  s.heads_per_thread = c["T"] * c["h"] >= kManyHeads ? kHeadsPerThread : 1;
  s.interleaved = c.flag("interleaved");
  s.conjugate = c.flag("conjugate");
  s.halves = c.word("cos_sin_layout") == "halves";
  s.has_positions = c.has("positions");
  s.wide_positions = s.has_positions && c.dtype("positions") == DType::i64;
  Args args;
  args.tensors.push_back({"query", batched(query, 2)});
  if (c.has("key")) args.tensors.push_back({"key", batched(c.given("key"), 2)});
  if (s.has_positions) args.tensors.push_back({"positions", batched(c.given("positions"), 0)});
  go.add(build, s, args);
}

void check(const Call& c) {
  const int rank = c.given("query").rank();
  c.need(rank <= 4, "query", "so many token dimensions are not supported",
         "[T, h, R] or [batch, T, h, R]", to_string(c.given("query")), ErrorKind::unsupported);
  const int64_t rows = c["T"] * num_heads(c);
  c.need(rows <= 2130706431, "query", "'query' and 'key' have too many heads of tokens",
         "T * (h + g) <= 2130706431", std::to_string(rows), ErrorKind::unsupported);
}

void require_positions(const Call& c) {
  const int64_t offset = c["position_offset"], last = c["angles"] - 1;
  if (c.has("positions")) {
    require_values(c.check(), "positions", c.given("positions"), -offset, last - offset);
    return;
  }
  const TensorView& query = c.given("query");
  if (!values_are_checked(query) || c["T"] == 0) return;
  const int64_t length = query.shape[query.rank() - 3];
  c.need(offset >= 0 && offset + length - 1 <= last, "cos_sin", kNoAngle, "a row for each position",
         "positions " + std::to_string(offset) + " .. " + std::to_string(offset + length - 1) +
             " with " + std::to_string(last + 1) + " rows");
}

}  // namespace

const Op apply_rotary_op{
    .name = "apply_rotary",
    .family = "serving",
    .purpose = "rotates query and key by the angles of their positions, in place",
    .signature = R"(
      cos_sin         f32 [angles, R] rows
      positions?      i32/i64 [T..]           # else the number of the token in its sequence
      -> inout query  bf16/f32 [T.., h, R] any  # [T, h, R], or [batch, T, h, R]
      -> inout key?   as query [T.., g, R] any
      param  interleaved, conjugate bool = false
      param  position_offset int = 0          # is added to each position
      param  cos_sin_layout {halves, pairs} = halves
      bucket T * h at 32768                   # several heads per thread
      need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
      need   h >= 1 on query "argument 'query' has no heads"
      need   g >= 1 if key on key "argument 'key' has no heads"
      limit  R in {64, 128} on cos_sin "so many channels are not supported"
      need   -2147483648 <= position_offset <= 2147483647
    )",
    .launches = launches,
    .check = check,
    .check_values = require_positions,
    .examples = R"(
      T=65 h=5 R=64 angles=90 query=bf16 positions=i64; T=33 h=4 g=1 R=128 angles=50 query=f32 key=given interleaved=true
      T=512 h=64 g=1 R=64 angles=600 query=bf16 key=given conjugate=true cos_sin_layout=pairs interleaved=true
      T=20 h=3 R=64 angles=32 query=bf16 query.strides=1536,512,1)",
    .bench = R"(
      T=1 h=64 R=64 angles=8192 query=bf16 positions=i64; T=512 h=64 R=64 angles=8192 query=bf16 positions=i64
      T=8192 h=64 R=64 angles=8192 query=bf16 positions=i64; T=8192 h=128 R=64 angles=8192 query=bf16 positions=i64
      T=8192 h=1 R=64 angles=8192 query=bf16 positions=i64
      T=8192 h=128 R=64 angles=8192 query=bf16 query.strides=65536,512,1 positions=i64 interleaved=true)",
    .values = {{"positions", [](const Case& c, int64_t t) { return t * 7919 % c["angles"]; }}},
    .bytes = [](const Case& c) {
      const int64_t heads = c["h"] + (c.has("key") ? c["g"] : 0);
      const int64_t size = c.dtype_word("query") == "f32" ? 4 : 2;
      return 2 * c["T"] * heads * c["R"] * size;
    }};

}  // namespace tessera::kernels
