#pragma once
// The bytes of a KV cache in a kernel: its tensors, the places of an entry's codes and scales in them, and the values of codes.

#include <cstdint>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/serving/parts/cache_format.h"

namespace tessera::kernels::serving {

struct CacheAccess {
  bool is_output = false;  // entries are stored, else loaded
  bool is_raw = false;     // codes of 4 bits are seen two by two, as e4m3; scales as words of u32
  int64_t code_bytes = 0;  // of an access to codes; 0: four codes
  int64_t bf16_bytes = 8;  // of one to channels in bf16
};

/// Tensors: cache, as codes and the other parts of its format. Scalar: page_size. Their names begin with `prefix`.
class CacheBytes {
 public:
  CacheBytes(dsl::Builder& k, CacheKind kind, const CacheAccess& access,
             const std::string& prefix = "");

  const CacheLayout& layout() const { return layout_; }
  const dsl::Value& page_size() const { return *page_size_; }

  struct Slot {
    dsl::Value exists, block, offset;
  };
  /// The slot of a location, i32 or i64. With the name of a tensor one beyond the cache is reported as its value.
  Slot slot(const dsl::Value& location, const char* tensor = nullptr) const;

  /// Elements of an entry whose slot exists: a code, or a pair of them; a channel in bf16; the scale of a group, or a word
  /// of scales.
  dsl::Ref code(const Slot& slot, const dsl::Value& at) const;
  dsl::Ref rotated(const Slot& slot, const dsl::Value& channel) const;
  dsl::Ref scale(const Slot& slot, const dsl::Value& at) const;

  /// A stored scale in f32; that from a byte of a word on.
  dsl::Value scale_value(const dsl::Value& stored) const;
  dsl::Value scale_in_word(const dsl::Value& word, const dsl::Value& byte) const;
  /// The value of a code: bf16, but of index_fp8 f32. The product is exact where the scale is a power of two.
  dsl::Value value_of(const dsl::Value& code, const dsl::Value& scale) const;
  /// One code of a pair, the lower or the upper four bits, in f32.
  dsl::Value code_of_pair(const dsl::Value& pair, const dsl::Value& upper) const;

 private:
  dsl::Builder& k_;
  const CacheKind kind_;
  const CacheLayout layout_;
  const DType code_dtype_, scale_dtype_;
  std::optional<dsl::Ref> codes_, rotated_, scales_;
  std::optional<dsl::Value> blocks_, page_size_;
};

}  // namespace tessera::kernels::serving
