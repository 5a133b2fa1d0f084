#include "tests/reference/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/reference/numeric.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;
using enum LogitsMistake;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  return found == params.end() ? fallback : std::get<T>(found->second);
}

int64_t integer(const HostTensor& tensor, int64_t element) {
  return static_cast<int64_t>(tensor.value(element));
}

/// The queries of one call, decomposed.
class Queries {
 public:
  Queries(const HostTensor& q, const HostTensor& weights, LogitsMistake mistake)
      : codes_(numbers_of(q)), weights_(weights), mistake_(mistake) {
    heads_ = weights.shape()[1];
    rows_ = weights.shape()[0];
    width_ = q.shape()[q.shape().rank - 1];
  }
  int64_t width() const { return width_; }
  int64_t rows() const { return rows_; }

  /// The score of a key, whose channels are `key`.
  float logit(int64_t row, const Number* key, float scale) const {
    float v[4];
    for (int64_t c = 0; c < 4; ++c) {
      const float even = chain(row, 2 * c, key, scale), odd = chain(row, 2 * c + 1, key, scale);
      v[c] = even + odd;
    }
    const float sum = (v[0] + v[1]) + (v[2] + v[3]) + 0.0f;  // no -0, as of every sum
    return mistake_ == scale_before_sum ? sum : sum * scale;
  }

 private:
  /// One head of eight, from the first eight on.
  float chain(int64_t row, int64_t first, const Number* key, float scale) const {
    const int64_t heads = heads_ - (mistake_ == last_head_missing ? 1 : 0);
    float sum = 0;
    for (int64_t head = first; head < heads; head += 8) {
      const int64_t of = mistake_ == weight_of_next ? (row + 1) % rows_ : row;
      const auto weight = static_cast<float>(weights_.value(of * heads_ + head));
      float product = product_of(row * heads_ + head, key);
      const bool is_nan = std::isnan(product);
      if (mistake_ != negative_counts && !(product > 0)) product = 0;
      if (mistake_ == nan_counts && is_nan) product = NAN;
      if (mistake_ == scale_before_sum) product *= scale;
      sum = std::fma(product, weight, sum);
    }
    return sum;
  }
  float product_of(int64_t row, const Number* key) const {
    constexpr int64_t kStep = 32;
    uint32_t sum = 0;
    for (int64_t d = 0; d < width_; d += kStep) {
      sum = sum_of({13, 13}, number_of(DType::f32, sum), codes_.data() + row * width_ + d, key + d,
                   static_cast<size_t>(kStep));
    }
    return float_of(sum);
  }

  const std::vector<Number> codes_;
  const HostTensor& weights_;
  const LogitsMistake mistake_;
  int64_t heads_ = 0, rows_ = 0, width_ = 0;
};

void store(HostTensor& out, int64_t i, float value) {
  out.set_bits(i, encode(out.dtype(), static_cast<double>(value)));
}

/// Rows of -inf where they are cleaned.
HostTensor empty_logits(int64_t rows, int64_t columns, const LogitsOptions& o) {
  HostTensor out(o.dtype, {rows, columns});
  for (int64_t i = 0; i < out.size() && o.is_clean; ++i) {
    if (o.mistake == last_unclean && i % columns == columns - 1) continue;
    store(out, i, kLowest);
  }
  return out;
}

}  // namespace

HostTensor mqa_logits(const HostTensors& in, const LogitsOptions& o) {
  const Queries queries(in.at("q"), in.at("weights"), o.mistake);
  const HostTensor& k_sf = in.at("k_sf");
  const std::vector<Number> keys = numbers_of(in.at("k"));
  const int64_t count = k_sf.size(), columns = o.is_compressed ? o.max_len : count;
  HostTensor out = empty_logits(queries.rows(), columns, o);
  for (int64_t row = 0; row < queries.rows(); ++row) {
    int64_t begin = std::clamp<int64_t>(integer(in.at("k_start"), row), 0, count);
    int64_t end = std::clamp(integer(in.at("k_end"), row), begin, count);
    const int64_t first = o.is_compressed && o.mistake != from_first_column ? begin : 0;
    if (o.mistake == start_missing) ++begin;
    if (o.mistake == end_seen) end = std::min(end + 1, count);
    for (int64_t j = begin; j < std::min(end, first + columns); ++j) {
      const int64_t of_scale = o.mistake == first_scale ? std::max<int64_t>(j - 1, 0) : j;
      const auto scale = static_cast<float>(k_sf.value(of_scale));
      store(out, row * columns + j - first,
            queries.logit(row, keys.data() + j * queries.width(), scale));
    }
  }
  return out;
}

HostTensor paged_mqa_logits(const HostTensors& in, const LogitsOptions& o) {
  const Queries queries(in.at("q"), in.at("weights"), o.mistake);
  const HostTensor &cache = in.at("cache"), &table = in.at("page_table"),
                   &lengths = in.at("lengths");
  const int64_t pages = cache.shape()[0], table_columns = table.shape()[1], width = queries.width();
  const int64_t tokens = in.at("q").shape()[1];
  const int64_t of_page = cache.shape()[1], of_codes = o.page_size * width;
  HostTensor out = empty_logits(queries.rows(), o.max_len, o);
  for (int64_t row = 0; row < queries.rows(); ++row) {
    int64_t end = std::clamp<int64_t>(integer(lengths, row), 0, o.max_len);
    if (o.mistake == end_seen) end = std::min(end + 1, o.max_len);
    for (int64_t j = o.mistake == start_missing ? 1 : 0; j < end; ++j) {
      const int64_t size = o.mistake == pages_of_64 ? 64 : o.page_size;
      int64_t column = j / size;
      if (o.mistake == next_page) column = std::min(column + 1, table_columns - 1);
      const int64_t page =
          column < table_columns ? integer(table, row / tokens * table_columns + column) : -1;
      if (page < 0 || page >= pages) {
        store(out, row * o.max_len + j, kLowest);
        continue;
      }
      const int64_t token = j % size % o.page_size;
      std::vector<Number> key;
      for (int64_t d = 0; d < width; ++d) {
        key.push_back(number_of(
            DType::e4m3, static_cast<uint32_t>(cache.bits(page * of_page + token * width + d))));
      }
      uint32_t scale = 0;
      const int64_t of_scale = o.mistake == first_scale ? std::max<int64_t>(token - 1, 0) : token;
      for (int64_t byte = 0; byte < 4; ++byte) {
        scale |= static_cast<uint32_t>(cache.bits(page * of_page + of_codes + 4 * of_scale + byte))
                 << (8 * byte);
      }
      store(out, row * o.max_len + j, queries.logit(row, key.data(), float_of(scale)));
    }
  }
  return out;
}

namespace {

LogitsOptions logits_options(const Params& params, LogitsMistake mistake) {
  LogitsOptions o;
  if (param<std::string>(params, "logits_dtype", "f32") == "bf16") o.dtype = DType::bf16;
  o.is_compressed = param<bool>(params, "compressed", false);
  o.is_clean = param<bool>(params, "clean", true);
  o.max_len = param<int64_t>(params, "max_len", 0);
  o.page_size = param<int64_t>(params, "page_size", 64);
  o.mistake = mistake;
  return o;
}

HostTensor logits_of(const HostTensors& in, const Params& params) {
  LogitsOptions o = logits_options(params, none);
  return in.contains("cache") ? paged_mqa_logits(in, o) : mqa_logits(in, o);
}

SelectOptions select_options(const Params& params, bool is_paged) {
  SelectOptions o;
  o.topk = param<int64_t>(params, "topk", 1);
  o.by_value = param<std::string>(params, "order", "index") == "value";
  o.page_size = param<int64_t>(params, is_paged ? "out_page_size" : "page_size", 64);
  o.is_relative = param<bool>(params, "relative", false);
  o.saves_values = param<bool>(params, "save_values", false);
  return o;
}

HostTensor flat(const HostTensor& tensor) {
  HostTensor made(tensor.dtype(), {tensor.size()});
  for (int64_t i = 0; i < tensor.size(); ++i) made.set_bits(i, tensor.bits(i));
  return made;
}

/// topk_select over all logits.
HostTensors chosen_keys(const HostTensors& in, const Params& params, const HostTensor& logits) {
  const bool is_paged = in.contains("cache");
  HostTensors select = {{"scores", logits}};
  select["lengths"] = flat(in.at(is_paged ? "lengths" : "k_end"));
  if (!is_paged) select["starts"] = in.at("k_start");
  const auto table = in.find(is_paged ? "out_page_table" : "page_table");
  if (table != in.end()) {  // a row for each of the queries of a request
    const Dims& shape = table->second.shape();
    const int64_t rows = logits.shape()[0], of_table = shape[0] > 0 ? rows / shape[0] : 1;
    HostTensor tables(DType::i32, {rows, shape[1]});
    for (int64_t i = 0; i < tables.size(); ++i) {
      tables.set_bits(i, table->second.bits(i / shape[1] / of_table * shape[1] + i % shape[1]));
    }
    select["page_table"] = std::move(tables);
  }
  return topk_select(select, select_options(params, is_paged));
}

float ranked(float score, BlocksMistake mistake) {
  if (std::isnan(score)) return kLowest;
  if (mistake != BlocksMistake::half) return score;
  return static_cast<float>(decode(DType::f16, encode(DType::f16, static_cast<double>(score))));
}

/// The key of a column of sparse_mqa_logits; -1: none that the row sees.
int64_t key_of(const HostTensors& in, int64_t row, int64_t column, int64_t block_size) {
  const HostTensor& blocks = in.at("blocks");
  const int64_t block = integer(blocks, row * blocks.shape()[1] + column / block_size);
  if (block < 0) return -1;
  const int64_t key = block * block_size + column % block_size;
  if (in.contains("cache")) return key < integer(in.at("lengths"), row) ? key : -1;
  const bool is_seen = key >= integer(in.at("k_start"), row) &&
                       key < integer(in.at("k_end"), row) && key < in.at("k_sf").size();
  return is_seen ? key : -1;
}

/// One query with the keys that it may see, as paged_mqa_logits or mqa_logits take it.
HostTensor all_logits(const HostTensors& in, int64_t page_size) {
  LogitsOptions o;
  o.page_size = page_size;
  if (!in.contains("cache")) return mqa_logits(in, o);
  HostTensors paged = in;
  const HostTensor &q = in.at("q"), &table = in.at("page_table");
  const int64_t rows = q.shape()[0], requests = table.shape()[0];
  const int64_t tokens = requests > 0 ? rows / requests : 0;
  HostTensor of_requests(DType::e4m3, {requests, tokens, q.shape()[1], q.shape()[2]});
  for (int64_t i = 0; i < q.size(); ++i) of_requests.set_bits(i, q.bits(i));
  paged["q"] = std::move(of_requests);
  o.max_len = table.shape()[1] * page_size;
  return paged_mqa_logits(paged, o);
}

HostTensors sparse_topk(const HostTensors& in, const Params& params, BlocksMistake mistake) {
  const int64_t size = param<int64_t>(params, "block_size", 8);
  const HostTensor all = all_logits(in, param<int64_t>(params, "page_size", 64));
  const HostTensor& blocks = in.at("blocks");
  const SelectOptions o = select_options(params, true);
  const int64_t rows = blocks.shape()[0], columns = all.shape()[1];
  const auto table = in.find("out_page_table");
  HostTensor indices(DType::i32, {rows, o.topk});
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> keys;
    for (int64_t c = 0; c < blocks.shape()[1] * size; ++c) {
      const int64_t key = key_of(in, row, c, size);
      if (key >= 0 && key < columns) keys.push_back(key);
    }
    std::sort(keys.begin(), keys.end());
    if (mistake != BlocksMistake::twice)
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    const auto score = [&](int64_t key) {
      return ranked(static_cast<float>(all.value(row * columns + key)), mistake);
    };
    if (mistake != BlocksMistake::lowest_taken) {
      std::erase_if(keys, [&](int64_t key) { return score(key) == kLowest; });
    }
    if (mistake == BlocksMistake::later_tie) std::reverse(keys.begin(), keys.end());
    std::stable_sort(keys.begin(), keys.end(),
                     [&](int64_t a, int64_t b) { return score(a) > score(b); });
    keys.resize(std::min(keys.size(), static_cast<size_t>(o.topk)));
    if (!o.by_value && mistake != BlocksMistake::by_score) std::sort(keys.begin(), keys.end());
    for (int64_t i = 0; i < o.topk; ++i) {
      int64_t index = -1;
      if (i < std::ssize(keys)) {
        index = keys[static_cast<size_t>(i)];
        if (o.is_relative && in.contains("k_start")) {
          index -= std::max<int64_t>(integer(in.at("k_start"), row), 0);
        }
        if (table != in.end()) {
          const int64_t of_row = row / (rows / table->second.shape()[0]);
          const int64_t column = index / o.page_size, pages = table->second.shape()[1];
          const int64_t page =
              column < pages ? integer(table->second, of_row * pages + column) : -1;
          index = page < 0 ? -1 : page * o.page_size + index % o.page_size;
        }
      }
      indices.set_value(row * o.topk + i, static_cast<double>(index));
    }
  }
  return {{"indices", std::move(indices)}};
}

}  // namespace

HostTensor candidate_blocks(const HostTensor& scores, const HostTensor& lengths, int64_t num_blocks,
                            int64_t block_size, BlocksMistake mistake) {
  const int64_t rows = scores.shape()[0], columns = scores.shape()[1];
  HostTensor out(DType::i32, {rows, num_blocks});
  for (int64_t row = 0; row < rows; ++row) {
    int64_t length = std::clamp<int64_t>(integer(lengths, row), 0, columns);
    if (mistake == BlocksMistake::length_cut) length = length / block_size * block_size;
    const int64_t newest = (length + block_size - 1) / block_size - 1;
    const bool all_seen = mistake == BlocksMistake::all_seen;
    const int64_t seen = all_seen ? columns : length;
    const int64_t count = (seen + block_size - 1) / block_size;
    std::vector<float> best(static_cast<size_t>(count), kLowest);
    for (int64_t j = 0; j < seen; ++j) {
      if (mistake == BlocksMistake::first_of_block && j % block_size > 0) continue;
      float& of_block = best[static_cast<size_t>(j / block_size)];
      of_block =
          std::max(of_block, ranked(static_cast<float>(scores.value(row * columns + j)), mistake));
    }
    std::vector<int64_t> ids;
    for (int64_t b = 0; b < count; ++b) {
      const bool is_newest = b == newest && mistake != BlocksMistake::no_newest;
      if (is_newest || best[static_cast<size_t>(b)] > kLowest ||
          mistake == BlocksMistake::lowest_taken) {
        ids.push_back(b);
      }
    }
    if (mistake == BlocksMistake::later_tie) std::reverse(ids.begin(), ids.end());
    std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
      const auto rank = [&](int64_t id) {
        const bool is_newest = id == newest && mistake != BlocksMistake::no_newest;
        const float score = best[static_cast<size_t>(id)];
        if (mistake == BlocksMistake::newest_by_score)
          return std::pair(0, is_newest ? -kLowest : score);
        return std::pair(is_newest ? 1 : 0, score);
      };
      return rank(a) > rank(b);
    });
    ids.resize(std::min(ids.size(), static_cast<size_t>(num_blocks)));
    if (mistake != BlocksMistake::by_score) std::sort(ids.begin(), ids.end());
    for (int64_t i = 0; i < num_blocks; ++i) {
      const int64_t id = i < std::ssize(ids) ? ids[static_cast<size_t>(i)] : -1;
      out.set_value(row * num_blocks + i, static_cast<double>(id));
    }
  }
  return out;
}

HostTensor sparse_mqa_logits(const HostTensors& in, int64_t block_size, int64_t page_size) {
  const HostTensor all = all_logits(in, page_size);
  const HostTensor& blocks = in.at("blocks");
  const int64_t rows = blocks.shape()[0], columns = blocks.shape()[1] * block_size;
  HostTensor out(DType::f32, {rows, columns});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t row = i / columns, key = key_of(in, row, i % columns, block_size);
    const bool is_there = key >= 0 && key < all.shape()[1];
    store(out, i, kLowest);
    if (is_there) out.set_bits(i, all.bits(row * all.shape()[1] + key));
  }
  return out;
}

Runner mistaken_blocks(const std::string& op, BlocksMistake mistake) {
  const auto blocks_of = [mistake](const HostTensor& scores, const HostTensor& lengths,
                                   const Params& params) {
    return candidate_blocks(scores, lengths, param<int64_t>(params, "num_blocks", 2048),
                            param<int64_t>(params, "block_size", 8), mistake);
  };
  if (op == "candidate_blocks") {
    return [=](const HostTensors& in, const Params& params) {
      return HostTensors{{"blocks", blocks_of(in.at("scores"), in.at("lengths"), params)}};
    };
  }
  if (op == "mqa_topk_blocks" || op == "paged_mqa_topk_blocks") {
    return [=](const HostTensors& in, const Params& params) {
      const HostTensor logits = logits_of(in, params);
      HostTensors out = chosen_keys(in, params, logits);
      out["blocks"] =
          blocks_of(logits, flat(in.at(in.contains("cache") ? "lengths" : "k_end")), params);
      return out;
    };
  }
  if (op == "sparse_mqa_topk") {
    return [mistake](const HostTensors& in, const Params& params) {
      return sparse_topk(in, params, mistake);
    };
  }
  return nullptr;
}

Runner mistaken_logits(const std::string& op, LogitsMistake mistake) {
  if (op == "mqa_logits") {
    return [mistake](const HostTensors& in, const Params& params) {
      return HostTensors{{"logits", mqa_logits(in, logits_options(params, mistake))}};
    };
  }
  if (op == "paged_mqa_logits") {
    return [mistake](const HostTensors& in, const Params& params) {
      return HostTensors{{"logits", paged_mqa_logits(in, logits_options(params, mistake))}};
    };
  }
  return nullptr;
}

Runner indexer_runner(const std::string& op) {
  if (op == "mqa_topk" || op == "paged_mqa_topk") {
    return [](const HostTensors& in, const Params& params) {
      return chosen_keys(in, params, logits_of(in, params));
    };
  }
  if (op == "sparse_mqa_logits") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"logits", sparse_mqa_logits(in, param<int64_t>(params, "block_size", 8),
                                                      param<int64_t>(params, "page_size", 64))}};
    };
  }
  if (Runner blocks = mistaken_blocks(op, BlocksMistake::none)) return blocks;
  return mistaken_logits(op, none);
}

}  // namespace tessera::reference
