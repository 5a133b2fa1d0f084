#pragma once
// Cases of the ops of KV caches that their tests build themselves.

#include <string>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

struct CacheSetup {
  std::string format, order = "planes";
  int64_t page_size = 64, tokens = 9;
  DType x = DType::bf16, loc = DType::i32;
  int64_t channels = 0;  // of bf16
  uint64_t seed = 1;
};

/// kv_store of rows to slots in any order, one of them -1; the cache holds any bits before.
OpCase kv_store_case(const CacheSetup& s);
/// kv_load of the same slots.
OpCase kv_load_case(const CacheSetup& s);
/// kv_norm_rope_store of the same rows.
OpCase kv_norm_rope_store_case(const CacheSetup& s);

/// Cosines and sines of so many positions, in pairs.
HostTensor angle_table(int64_t positions);

}  // namespace tessera::test
