#include "tests/signatures/random_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "tools/lib/calls/random_tensor.h"

namespace tessera::test {
namespace {

using kernels::BenchCase;
using kernels::OpInfo;
using kernels::TensorInfo;
using tools::HostBuffer;
using tools::StoredTensor;

constexpr int64_t kMostBytes = 1 << 20;
constexpr int64_t kNoBound = INT64_MAX;

const std::vector<int64_t> kExtents = {
    0,  1,   2,   3,   4,   5,   7,   8,   12,  15,  16,   17,   24,   31,   32,   33,   40,   64,
    72, 100, 127, 128, 129, 256, 512, 576, 640, 768, 1000, 1024, 1025, 2048, 4096, 7168, 65536};
const std::vector<int64_t> kHugeExtents = {int64_t{1} << 31, int64_t{1} << 40, INT64_MAX};

// The values that a parameter may be given. Numbers are small, or so large that no memory holds as much:
// those between ask for a result that takes minutes to fill.
const std::vector<std::string> kWords = {"0",
                                         "1",
                                         "2",
                                         "3",
                                         "4",
                                         "5",
                                         "7",
                                         "8",
                                         "16",
                                         "17",
                                         "31",
                                         "32",
                                         "33",
                                         "64",
                                         "100",
                                         "128",
                                         "129",
                                         "256",
                                         "1024",
                                         "1025",
                                         "-1",
                                         "-2",
                                         "-128",
                                         "4611686018427387904",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "9223372036854775808",
                                         "1e-6",
                                         "0.0",
                                         "-0.0",
                                         "1e308",
                                         "1e-320",
                                         "inf",
                                         "-inf",
                                         "nan",
                                         "1e999",
                                         "true",
                                         "false",
                                         "True",
                                         "none",
                                         "",
                                         " ",
                                         "1,1",
                                         "1,128",
                                         "128,1",
                                         "128,128",
                                         "32,32",
                                         "0,0",
                                         "-1,128",
                                         "1,2,3",
                                         "[1, 128]",
                                         "[",
                                         ",",
                                         "1,",
                                         "1,9223372036854775807",
                                         "e4m3",
                                         "e2m1",
                                         "bf16",
                                         "f32",
                                         "row_major",
                                         "col_major_tma",
                                         "packed_ue8m0",
                                         "sigmoid",
                                         "softmax",
                                         "word",
                                         "0x10",
                                         "1 ",
                                         "\x1B[31m",
                                         "a\nb",
                                         "=",
                                         "%s%n",
                                         "\xC2\x9B",
                                         "\xFF"};

const std::vector<DType> kStored = {DType::f32, DType::f16, DType::bf16, DType::e4m3,   DType::e5m2,
                                    DType::i8,  DType::u8,  DType::i16,  DType::u16,    DType::i32,
                                    DType::u32, DType::i64, DType::u64,  DType::boolean};

/// Elements, or kNoBound.
int64_t count_of(const Dims& shape) {
  int64_t count = 1;
  bool overflow = false;
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(count, extent, &count);
  }
  return overflow ? kNoBound : count;
}

/// value * factor + more, around the end of 64 bits.
int64_t times_plus(int64_t value, int64_t factor, int64_t more) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) * static_cast<uint64_t>(factor) +
                              static_cast<uint64_t>(more));
}

/// The shape with extents that are too large for a test set to 1.
Dims bounded(Dims shape, DType dtype) {
  for (int i = 0; i < shape.rank && count_of(shape) > kMostBytes / bytes(dtype); ++i) shape[i] = 1;
  return shape;
}

void fill_with_bytes(HostBuffer& data, Random& random) {
  const uint64_t kind = random.below(3);
  for (std::byte& byte : data.bytes()) {
    byte = kind == 0   ? std::byte{0xFF}
           : kind == 1 ? std::byte{0x7F}
                       : std::byte(random.next() & 0xFF);
  }
}

/// The values of `example` as far as they go; or bytes of any kind, of booleans only 0 and 1.
HostBuffer values_for(DType dtype, const Dims& shape, const BenchCase::Input* example,
                      Random& random) {
  const int64_t count = num_elements(shape);
  HostBuffer data = tools::random_tensor(dtype, count, random.next());
  const bool keeps_values = !random.one_in(4);
  if (keeps_values && example != nullptr && example->values) {
    const int64_t known = num_elements(example->shape);
    for (int64_t i = 0; i < std::min(count, known); ++i) {
      const int64_t value = example->values(i);
      std::memcpy(data.data() + i * bytes(dtype), &value, static_cast<size_t>(bytes(dtype)));
    }
  } else if (dtype != DType::boolean && random.one_in(3)) {
    fill_with_bytes(data, random);
  }
  return data;
}

class Maker {
 public:
  Maker(const OpInfo& op, Random& random)
      : op_(op), random_(random), example_(random.pick(op.examples)) {}

  RandomCall make() {
    call_.op = &op_;
    for (const auto& [name, value] : check_params(op_, example_.params)) {
      call_.params.push_back(name + "=" + kernels::to_string(value));
    }
    bind_extents();
    for (const BenchCase::Input& input : example_.inputs) {
      add(input.name, input.dtype, rebound(input), &input);
    }
    const uint64_t changes = random_.below(4);  // none: the example in another size
    for (uint64_t i = 0; i < changes; ++i) change();
    return std::move(call_);
  }

 private:
  const TensorInfo* info(const std::string& name) const {
    for (const TensorInfo& one : op_.tensors) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }

  /// Gives every symbol its extent in the example, and one symbol a new extent.
  void bind_extents() {
    for (const BenchCase::Input& input : example_.inputs) {
      const TensorInfo* one = info(input.name);
      if (one == nullptr || static_cast<int>(one->shape.size()) != input.shape.rank) continue;
      for (int i = 0; i < input.shape.rank; ++i) {
        extents_.emplace(one->shape[static_cast<size_t>(i)], input.shape[i]);
      }
    }
    const TensorInfo& first = op_.tensors.front();
    if (first.shape.empty()) return;
    changed_ = random_.one_in(6) ? random_.pick(first.shape) : first.shape.front();
    if (!extents_.contains(changed_)) return;
    before_ = extents_[changed_];
    extents_[changed_] = static_cast<int64_t>(random_.below(10));
  }

  Dims rebound(const BenchCase::Input& input) const {
    Dims shape = input.shape;
    const TensorInfo* one = info(input.name);
    const bool has_symbols = one != nullptr && static_cast<int>(one->shape.size()) == shape.rank;
    for (int i = 0; i < shape.rank && before_ >= 0; ++i) {
      const bool is_changed =
          has_symbols ? one->shape[static_cast<size_t>(i)] == changed_ : shape[i] == before_;
      if (is_changed) shape[i] = extents_.at(changed_);
    }
    return shape;
  }

  void add(const std::string& name, DType dtype, const Dims& wanted,
           const BenchCase::Input* example) {
    const Dims shape = bounded(wanted, dtype);
    call_.file.tensors.push_back({name, dtype, shape, values_for(dtype, shape, example, random_)});
  }

  std::string random_word() {
    if (random_.one_in(40)) return std::string(5000, 'w');
    return random_.pick(kWords);
  }

  StoredTensor& random_tensor() {
    return call_.file.tensors[random_.below(call_.file.tensors.size())];
  }

  /// Another shape or dtype for a tensor, with new values.
  void remake(StoredTensor& tensor, DType dtype, const Dims& wanted) {
    tensor.dtype = dtype;
    tensor.shape = bounded(wanted, dtype);
    tensor.data = values_for(dtype, tensor.shape, nullptr, random_);
  }

  void change() {
    if (call_.file.tensors.empty() || random_.one_in(3)) {
      change_params();
    } else {
      change_tensors();
    }
  }

  void change_params() {
    std::vector<std::string>& params = call_.params;
    switch (params.empty() ? 0 : random_.below(8)) {
      case 0:
        params.push_back(random_word() + "=" + random_word());
        return;
      case 1:
        params.erase(params.begin() + static_cast<std::ptrdiff_t>(random_.below(params.size())));
        return;
      case 2:
        params.push_back(random_.pick(params));
        return;
      default: {
        std::string& param = params[random_.below(params.size())];
        param = param.substr(0, param.find('=')) + "=" + random_word();
      }
    }
  }

  void change_tensors() {
    StoredTensor& tensor = random_tensor();
    Dims shape = tensor.shape;
    switch (random_.below(9)) {
      case 0:
        call_.file.tensors.erase(call_.file.tensors.begin() +
                                 (&tensor - call_.file.tensors.data()));
        return;
      case 1:
        add_from_table();
        return;
      case 2:
        rename(tensor);
        return;
      case 3:
        return remake(tensor, random_.pick(kStored), shape);
      case 4:
        if (shape.rank == kMaxRank) return;
        shape.push_back(random_.one_in(2) ? 1 : random_.pick(kExtents));
        return remake(tensor, tensor.dtype, shape);
      case 5:
        if (shape.rank > 0) --shape.rank;
        return remake(tensor, tensor.dtype, shape);
      case 6:
        return change_strides(tensor);
      case 7:
        if (shape.rank > 0 && random_.one_in(4)) {  // empty, with one extent beyond all bounds
          shape[static_cast<int>(random_.below(static_cast<uint64_t>(shape.rank)))] =
              random_.pick(kHugeExtents);
          shape[static_cast<int>(random_.below(static_cast<uint64_t>(shape.rank)))] = 0;
          return remake(tensor, tensor.dtype, shape);
        }
        [[fallthrough]];
      default:
        if (shape.rank == 0) return;
        shape[static_cast<int>(random_.below(static_cast<uint64_t>(shape.rank)))] =
            random_.pick(kExtents);
        return remake(tensor, tensor.dtype, shape);
    }
  }

  /// A tensor of the op's table that the example does without, or an output.
  void add_from_table() {
    const TensorInfo& one = random_.pick(op_.tensors);
    if (call_.file.find(one.name) != nullptr) return;
    Dims shape;
    for (const std::string& symbol : one.shape) {
      const auto known = extents_.find(symbol);
      shape.push_back(known != extents_.end() ? known->second : random_.pick(kExtents));
    }
    std::optional<DType> dtype;
    if (!one.dtypes.empty()) dtype = dtype_from_name(random_.pick(one.dtypes));
    if (!dtype || *dtype == DType::e2m1) dtype = DType::f32;
    add(one.name, *dtype, shape, nullptr);
  }

  void rename(StoredTensor& tensor) {
    const std::vector<std::string> names = {"",
                                            tensor.name + ".0",
                                            tensor.name + "x",
                                            "\x1B[31m",
                                            "a\nb",
                                            std::string(3000, 'n'),
                                            random_.pick(op_.tensors).name};
    const std::string& name = random_.pick(names);
    if (call_.file.find(name) == nullptr) tensor.name = name;
  }

  void change_strides(const StoredTensor& tensor) {
    std::string name = tensor.name;
    Dims strides = row_major_strides(tensor.shape);
    std::string text;
    switch (random_.below(7)) {
      case 0:  // columns
        strides = {};
        for (int i = 0; i < tensor.shape.rank; ++i) {
          strides.push_back(i == 0 ? 1 : times_plus(strides[i - 1], tensor.shape[i - 1], 0));
        }
        break;
      case 1:  // gaps after each row
        for (int i = 0; i + 1 < strides.rank; ++i) strides[i] = times_plus(strides[i], 2, 16);
        break;
      case 2:
        for (int i = 0; i < strides.rank; ++i) strides[i] = random_.pick(kExtents);
        break;
      case 3:  // sparse: megabytes to exabytes between two elements
        if (strides.rank > 0) {
          strides[static_cast<int>(random_.below(static_cast<uint64_t>(strides.rank)))] =
              int64_t{1} << (20 + random_.below(43));
        }
        break;
      case 4:
        text = random_word();
        break;
      case 5:
        name = random_word();
        break;
      default:
        for (int i = 0; i < strides.rank; ++i) strides[i] = times_plus(strides[i], 1, 8);
    }
    if (text.empty()) text = fmt::format("{}", fmt::join(strides, ","));
    call_.file.metadata["strides." + name] = text;
  }

  const OpInfo& op_;
  Random& random_;
  const BenchCase& example_;
  RandomCall call_;
  std::map<std::string, int64_t> extents_;  // by symbol
  std::string changed_;                     // the symbol with another extent than in the example
  int64_t before_ = -1;
};

}  // namespace

RandomCall random_call(const OpInfo& op, Random& random) {
  return Maker(op, random).make();
}

std::string damaged(std::string bytes, Random& random) {
  const auto header = static_cast<size_t>(std::min<uint64_t>(bytes.size(), 400));
  switch (random.below(6)) {
    case 0:
      bytes.resize(random.below(bytes.size()));
      return bytes;
    case 1:
      return bytes + std::string(1 + random.below(9), '\0');
    case 2: {  // a number of the header
      const size_t digit = bytes.find_first_of("0123456789", 8 + random.below(header));
      if (digit != std::string::npos) bytes.insert(digit, std::to_string(random.next()));
      return bytes;
    }
    case 3: {
      const size_t quote = bytes.find('"', 8 + random.below(header));
      if (quote != std::string::npos) bytes.erase(quote, 1 + random.below(4));
      return bytes;
    }
    default:
      for (uint64_t i = 0; i <= random.below(3); ++i) {
        char& byte = bytes[random.below(header)];
        byte = static_cast<char>(byte ^ (1 << random.below(8)));
      }
      return bytes;
  }
}

std::string to_string(const RandomCall& call) {
  std::string text = call.op->name;
  for (const std::string& param : call.params)
    text += fmt::format(" -p '{}'", param.substr(0, 100));
  for (const StoredTensor& tensor : call.file.tensors) {
    text += fmt::format("\n  {} {}{}", tensor.name, name(tensor.dtype),
                        tessera::to_string(tensor.shape));
  }
  for (const auto& [key, value] : call.file.metadata)
    text += fmt::format("\n  {} = {}", key, value);
  return text;
}

}  // namespace tessera::test
