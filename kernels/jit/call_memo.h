#pragma once
// Makes repeated calls cheap. A call with the dtypes, shapes, strides, devices, alignments and
// options of an earlier call passes the same checks and launches the same kernels. The memo finds
// it by these words and launches on the new addresses, without names, maps, allocation or locks.
// Overlap of memory is checked every time.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <variant>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/op_arguments.h"

namespace tessera::kernels::jit {

/// The value of an option: absent, a number, a flag, a word, a list. Words and lists must outlive
/// its use.
using OptionValue =
    std::variant<std::monostate, int64_t, double, bool, std::string_view, std::span<const int64_t>>;

/// The key of one call. Each thread remembers about 512 calls.
class TESSERA_API CallMemo {
 public:
  explicit CallMemo(std::string_view op) { add_text(op); }

  void add(uint64_t word);
  void add_text(std::string_view text);
  void add_option(const OptionValue& value);
  /// `view` must outlive the memo.
  void add_tensor(const TensorView& view);

  /// Launches what an equal call launched before. Returns false if there was none, memory overlaps
  /// or the call is not on a GPU: then make the call in full.
  bool launch_again(Stream stream) const;
  /// Makes the call in full and remembers its launches.
  void learn(const std::function<void()>& call) const;

 private:
  static constexpr size_t kMaxWords = 2048;
  static constexpr size_t kMaxTensors = 256;

  uint64_t hash() const;

  std::array<uint64_t, kMaxWords> words_;
  std::array<const TensorView*, kMaxTensors> tensors_;
  size_t num_words_ = 0;
  size_t num_tensors_ = 0;
  bool is_usable_ = true;
};

}  // namespace tessera::kernels::jit
