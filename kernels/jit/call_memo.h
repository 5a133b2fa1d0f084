#pragma once
// What makes a checked call cheap the second time. A call whose tensors have the dtypes, shapes,
// strides, devices and alignments of an earlier one, with the same options, passes the same checks
// and launches the same kernels: it is found by these words and launched on its own addresses,
// without names, maps, allocation or locks. Overlapping memory is looked for every time.

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "dsl/base/tensor_view.h"
#include "kernels/op.h"

namespace tessera::kernels::jit {

/// One call in words. Remembered per thread, the last 512 or so.
class CallMemo {
 public:
  explicit CallMemo(std::string_view op) { add_text(op); }

  void add(uint64_t word);
  void add_text(std::string_view text);
  /// `view` must outlive the memo.
  void add_tensor(const TensorView& view);

  /// Launches what such a call launched before. False if there was none, memory overlaps or the
  /// call is not on a GPU: then it has to be made in full.
  bool launch_again(Stream stream) const;
  /// Makes the call in full and remembers what it launched.
  void learn(const std::function<void()>& call) const;

 private:
  static constexpr size_t kMaxWords = 512;
  static constexpr size_t kMaxTensors = 24;

  uint64_t hash() const;

  std::array<uint64_t, kMaxWords> words_;
  std::array<const TensorView*, kMaxTensors> tensors_;
  size_t num_words_ = 0;
  size_t num_tensors_ = 0;
  bool is_usable_ = true;
};

/// An option of a call: a plain value, one that may be absent, or a word (which must outlive the
/// call).
struct CallOption {
  template <class T>
  CallOption(T value) {  // not explicit: options are listed
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    std::memcpy(&word, &value, sizeof(value));
  }
  CallOption(std::optional<float> value)
      : word(value ? uint64_t{1} << 32 | std::bit_cast<uint32_t>(*value) : 0) {}
  CallOption(std::string_view value) : text(value) {}

  uint64_t word = 0;
  std::string_view text = {};
};

/// A tensor of a call, under its name in the op's table; it must outlive the call.
struct NamedTensor {
  NamedTensor(const char* name_, const TensorView& view_) : name(name_), view(&view_) {}

  const char* name;
  const TensorView* view;
};

/// The tensors by name, without those that are absent (rank 0, no data).
Tensors given_tensors(std::initializer_list<NamedTensor> tensors);

/// A call of an op's C++ function with all its options; `checked` is the call in full, from the
/// tensors that were given.
///
/// Example: jit::call("transpose", {{"x", x}, {"out", out}}, {}, stream,
///                    [&](const Tensors& given) { run(given, {}, stream); });
template <class Checked>
void call(std::string_view op, std::initializer_list<NamedTensor> tensors,
          std::initializer_list<CallOption> options, Stream stream, const Checked& checked) {
  CallMemo memo(op);
  for (const NamedTensor& tensor : tensors) memo.add_tensor(*tensor.view);
  for (const CallOption& option : options) {
    memo.add(option.word);
    if (option.text.data()) memo.add_text(option.text);
  }
  if (!memo.launch_again(stream)) memo.learn([&] { checked(given_tensors(tensors)); });
}

/// The same around an op's `run`.
void call(std::string_view op, const decltype(OpInfo::run)& run, const Tensors& tensors,
          const Params& params, Stream stream);

}  // namespace tessera::kernels::jit
