// Every tensor of every op in many layouts, one at a time: the call gives the bits of the same call on
// contiguous copies, or it is refused with the tensor's name. Nothing outside of the elements changes.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "dsl/base/error.h"
#include "kernels/checks/value_check.h"
#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"

namespace tessera::test {
namespace {

using kernels::OpInfo;
using kernels::OutputInfo;

constexpr int64_t kMargin = 512;  // bytes of canaries on both sides
constexpr std::byte kCanary{0x7B};

/// Strides and storage of a tensor.
struct Layout {
  Dims shape, strides;
  int64_t offset = 0;            // bytes from a multiple of 64 to the storage
  int64_t padding_elements = 0;  // of the storage behind the last element, which the op may set
};

/// A tensor inside of canaries. Elements may share memory, and strides may be negative.
class Memory {
 public:
  Memory(DType dtype, const Layout& layout)
      : dtype_(dtype),
        layout_(layout),
        is_dense_(TensorView(nullptr, dtype, layout.shape, layout.strides, {}).is_row_major()) {
    int64_t lowest = 0, highest = 0;
    for (int i = 0; i < layout.shape.rank && size() > 0; ++i) {
      const int64_t reach = (layout.shape[i] - 1) * layout.strides[i];
      (reach < 0 ? lowest : highest) += reach;
    }
    const int64_t end = size() == 0 ? 0 : highest + 1 + layout.padding_elements;
    raw_.assign(
        static_cast<size_t>(2 * kMargin + 64 + layout.offset + (end - lowest) * bytes(dtype)),
        kCanary);
    const auto address = reinterpret_cast<uintptr_t>(raw_.data() + kMargin);
    begin_ = kMargin + static_cast<int64_t>((64 - address % 64) % 64) + layout.offset;
    first_ = begin_ - lowest * bytes(dtype);
    end_ = begin_ + (end - lowest) * bytes(dtype);
  }

  int64_t size() const { return num_elements(layout_.shape); }
  TensorView view() {
    return {raw_.data() + first_, dtype_, layout_.shape, layout_.strides, Device::cpu()};
  }
  std::byte* element(int64_t i) {
    if (is_dense_) return raw_.data() + first_ + i * bytes(dtype_);
    int64_t at = 0;
    for (int d = layout_.shape.rank - 1; d >= 0; --d) {
      at += i % layout_.shape[d] * layout_.strides[d];
      i /= layout_.shape[d];
    }
    return raw_.data() + first_ + at * bytes(dtype_);
  }
  void set_all(std::byte byte) { std::fill(raw_.begin() + begin_, raw_.begin() + end_, byte); }
  void set(const std::vector<std::byte>& logical) {
    if (is_dense_) std::copy(logical.begin(), logical.end(), raw_.begin() + first_);
    if (is_dense_) return;
    for (int64_t i = 0; i < size(); ++i) {
      std::memcpy(element(i), logical.data() + i * bytes(dtype_),
                  static_cast<size_t>(bytes(dtype_)));
    }
  }
  std::vector<std::byte> logical(int64_t count) {
    std::vector<std::byte> copy(static_cast<size_t>(count * bytes(dtype_)));
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(copy.data() + i * bytes(dtype_), element(i), static_cast<size_t>(bytes(dtype_)));
    }
    return copy;
  }
  /// True if all bytes but those of elements, and of padding behind the last, are as `before`.
  bool only_elements_changed(const Memory& before) {
    std::vector<bool> may_change(raw_.size());
    const auto allow = [&](int64_t from, int64_t to) {
      std::fill(may_change.begin() + from, may_change.begin() + to, true);
    };
    if (layout_.padding_elements > 0 || is_dense_) allow(begin_, end_);
    for (int64_t i = 0; i < size() && !is_dense_; ++i) {
      const int64_t at = element(i) - raw_.data();
      allow(at, at + bytes(dtype_));
    }
    for (size_t i = 0; i < raw_.size(); ++i) {
      if (!may_change[i] && raw_[i] != before.raw_[i]) return false;
    }
    return true;
  }
  bool changed(const Memory& before) const { return raw_ != before.raw_; }

 private:
  DType dtype_;
  Layout layout_;
  bool is_dense_;
  std::vector<std::byte> raw_;
  int64_t begin_, first_, end_;  // of the storage; of the element at zero
};

/// Dimensions from the one that lies closest together to the one that lies farthest apart.
std::vector<int> by_stride(const Layout& layout) {
  std::vector<int> order(static_cast<size_t>(layout.shape.rank));
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return layout.strides[a] < layout.strides[b]; });
  return order;
}

/// Dense, but for `step` between neighbours and gaps after the first dimension of `order`, or before the last.
Layout laid_out(Layout layout, const std::vector<int>& order, int64_t step, int64_t row_gap,
                int64_t slab_gap = 0) {
  int64_t stride = step;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 1) stride += row_gap;
    if (i > 0 && i + 1 == order.size()) stride += slab_gap;
    layout.strides[order[i]] = stride;
    stride *= std::max<int64_t>(layout.shape[order[i]], 1);
  }
  return layout;
}

struct NamedLayout {
  std::string name;
  Layout layout;
};

std::vector<NamedLayout> layouts_of(const Layout& usual, int64_t element_bytes) {
  std::vector<NamedLayout> made;
  const std::vector<int> order = by_stride(usual);
  const std::vector<int> transposed(order.rbegin(), order.rend());
  const auto moved = [&](int64_t offset) {
    Layout layout = usual;
    layout.offset = offset;
    return layout;
  };
  made.push_back({"one element further", moved(element_bytes)});
  made.push_back({"sixteen bytes further", moved(16)});
  made.push_back({"between two elements", moved(element_bytes + 1)});
  if (order.empty()) return made;
  made.push_back({"every other element", laid_out(usual, order, 2, 0)});
  made.push_back({"transposed", laid_out(usual, transposed, 1, 0)});
  made.push_back({"transposed, rows apart", laid_out(usual, transposed, 1, 3)});
  made.push_back({"rows one element apart", laid_out(usual, order, 1, 1)});
  made.push_back({"rows sixteen elements apart", laid_out(usual, order, 1, 16)});
  made.push_back({"every other row", laid_out(usual, order, 1, usual.shape[order[0]])});
  made.push_back({"slabs apart", laid_out(usual, order, 1, 0, 5)});
  Layout broadcast = usual, reversed = usual, mirrored = usual, overlapping = usual, ones = usual;
  broadcast.strides[order.back()] = 0;
  reversed.strides[order.back()] *= -1;
  mirrored.strides[order.front()] *= -1;
  if (order.size() > 1)
    overlapping.strides[order[1]] = std::max<int64_t>(usual.shape[order[0]] - 1, 1);
  for (int i = 0; i < ones.shape.rank; ++i) {
    if (ones.shape[i] == 1 || num_elements(ones.shape) == 0) ones.strides[i] = 7;
  }
  made.push_back({"broadcast", broadcast});
  made.push_back({"rows in reverse", reversed});
  made.push_back({"columns in reverse", mirrored});
  made.push_back({"rows that overlap", overlapping});
  // Where the places of all elements are those of another layout, there is nothing new.
  std::set<std::vector<int64_t>> seen;
  std::erase_if(made, [&](const NamedLayout& one) {
    std::vector<int64_t> places = {one.layout.offset};
    for (int i = 0; i < usual.shape.rank; ++i) {
      if (usual.shape[i] > 1) places.push_back(one.layout.strides[i]);
    }
    return !seen.insert(places).second;
  });
  if (ones.strides != usual.strides) made.push_back({"odd strides of single elements", ones});
  return made;
}

/// One case of an op, with its tensors in their usual layouts.
class Example {
 public:
  Example(const OpInfo& op, const OpCase& test)
      : op_(op), params_(kernels::check_params(op, test.params)) {
    kernels::Tensors views;
    for (const auto& [name, tensor] : test.inputs) {
      const Layout layout = {tensor.shape(), tensor.strides()};
      std::vector<std::byte> logical;
      for (int64_t i = 0; i < tensor.size(); ++i) {
        const uint64_t bits = tensor.bits(i);
        const auto* first = reinterpret_cast<const std::byte*>(&bits);
        logical.insert(logical.end(), first, first + bytes(tensor.dtype()));
      }
      tensors_.emplace(name, Tensor{tensor.dtype(), layout, logical, true});
      views[name] = tensor.view();
    }
    for (const OutputInfo& info : op.outputs(views, params_)) {
      if (tensors_.contains(info.name)) continue;
      const int64_t size = num_elements(info.shape);
      int64_t end = size == 0 ? 0 : 1;
      for (int i = 0; i < info.shape.rank && size > 0; ++i) {
        end += (info.shape[i] - 1) * info.strides[i];
      }
      const Layout layout = {info.shape, info.strides, 0,
                             size == 0 ? 0 : std::max<int64_t>(info.storage_elements - end, 0)};
      const std::byte fill = info.starts_at_zero ? std::byte{0} : kCanary;
      tensors_.emplace(info.name, Tensor{info.dtype, layout,
                                         std::vector<std::byte>(
                                             static_cast<size_t>(size * bytes(info.dtype)), fill),
                                         false, info.workspace});
    }
    expected_ = run({}, {}, {});
  }

  struct Tensor {
    DType dtype;
    Layout layout;
    std::vector<std::byte> logical;  // before the call
    bool is_given;
    bool is_workspace = false;
  };
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  /// Runs with one tensor in another layout. Returns a problem, or nothing if the call was refused or right.
  std::string problem_of(const std::string& name, const Layout& layout, int& ran) const {
    const Tensor& tensor = tensors_.at(name);
    Memory memory(tensor.dtype, layout);
    memory.set(tensor.logical);
    const std::vector<std::byte> logical =
        memory.logical(memory.size());  // where elements share memory
    Results want = expected_, got;
    if (logical != tensor.logical) {
      try {
        want = run(name, tensor.layout, logical);
      } catch (const std::exception&) {
        return "";  // values that this op does not take
      }
    }
    try {
      got = run(name, layout, logical);
    } catch (const Error& error) {
      const bool is_for_callers =
          error.kind() == ErrorKind::argument || error.kind() == ErrorKind::unsupported;
      const bool is_named = error.op() == op_.name &&
                            std::string(error.what()).find("'" + name + "'") != std::string::npos;
      return is_for_callers && is_named ? "" : error.what();
    } catch (const std::exception& error) {
      return error.what();
    }
    ++ran;
    for (const auto& [output, bits] : want) {
      if (got.at(output) != bits) return "other bits of '" + output + "'";
    }
    return "";
  }

 private:
  using Results = std::map<std::string, std::vector<std::byte>>;

  /// Throws what the op throws, or a std::runtime_error if memory changed that is no result.
  Results run(const std::string& other, const Layout& layout,
              const std::vector<std::byte>& logical) const {
    std::map<std::string, Memory> memory;
    kernels::Tensors views;
    for (const auto& [name, tensor] : tensors_) {
      if (tensor.is_workspace) continue;
      Memory& one = memory.try_emplace(name, tensor.dtype, name == other ? layout : tensor.layout)
                        .first->second;
      one.set(name == other ? logical : tensor.logical);
      views[name] = one.view();
    }
    // Alignments decide how much scratch memory a call needs.
    for (const OutputInfo& info : op_.outputs(views, params_)) {
      if (!info.workspace) continue;
      const Layout usual = {info.shape, info.strides};
      views[info.name] =
          memory.try_emplace(info.name, info.dtype, info.name == other ? layout : usual)
              .first->second.view();
    }
    const std::map<std::string, Memory> before = memory;
    op_.run(views, params_, nullptr);
    if (op_.trim) op_.trim(views, params_, nullptr);
    Results results;
    for (auto& [name, one] : memory) {
      const Tensor& tensor = tensors_.at(name);
      if (is_result(name)) {
        if (!one.only_elements_changed(before.at(name)))
          throw std::runtime_error("memory around '" + name + "' changed");
        if (!tensor.is_workspace) results[name] = one.logical(views.at(name).size());
      } else if (one.changed(before.at(name))) {
        throw std::runtime_error("the input '" + name + "' changed");
      }
    }
    return results;
  }

  bool is_result(const std::string& name) const {
    if (!tensors_.at(name).is_given) return true;
    const std::string stem = name.substr(0, name.find('.'));
    return std::any_of(
        op_.tensors.begin(), op_.tensors.end(), [&](const kernels::TensorInfo& info) {
          return info.role == kernels::Role::inout && (info.name == name || info.name == stem);
        });
  }

  const OpInfo& op_;
  kernels::Params params_;
  std::map<std::string, Tensor> tensors_;
  Results expected_;
};

int64_t size_of(const OpCase& test) {
  int64_t total = 0;
  for (const auto& [name, tensor] : test.inputs) total += tensor.size();
  return total;
}

/// The smallest cases that have all tensors between them and no empty one, then the smallest with an empty one. Of
/// ops made of ops one case: their parts have the others.
std::vector<OpCase> small_cases(const OpInfo& op) {
  std::vector<OpCase> all = cases_of(op.name), chosen;
  std::stable_sort(all.begin(), all.end(),
                   [](const OpCase& a, const OpCase& b) { return size_of(a) < size_of(b); });
  std::set<std::string> seen;
  bool has_empty = op.family == "modeling";
  for (const OpCase& test : all) {
    if (test.may_be_unsupported) continue;
    bool is_empty = false;
    int64_t longest = 0;
    std::set<std::string> names;
    for (const auto& [name, tensor] : test.inputs) {
      is_empty = is_empty || tensor.size() == 0;
      names.insert(name.substr(0, name.find('.')));
      if (tensor.shape().rank > 1) longest = std::max(longest, tensor.shape()[0]);
    }
    const bool is_new = !std::includes(seen.begin(), seen.end(), names.begin(), names.end());
    if (is_empty ? has_empty : !is_new || (longest < 2 && all.size() > 3)) continue;
    chosen.push_back(test);
    has_empty = has_empty || is_empty;
    if (!is_empty) seen.insert(names.begin(), names.end());
    if (!is_empty && op.family == "modeling") break;
  }
  return chosen;
}

TEST_CASE("a tensor in any layout gives the bits of a contiguous copy, or is refused by name",
          "[signatures][layouts]") {
  const kernels::jit::TrapScope traps;
  const kernels::UncheckedValues unchecked;  // some cases show what becomes of bad values
  int ran = 0;
  for (const OpInfo& op : kernels::ops()) {
    for (const OpCase& test : small_cases(op)) {
      const Example example(op, test);
      for (const auto& [name, tensor] : example.tensors()) {
        for (const NamedLayout& one : layouts_of(tensor.layout, bytes(tensor.dtype))) {
          const std::string problem = example.problem_of(name, one.layout, ran);
          if (problem.empty()) continue;
          FAIL_CHECK(op.name << ", " << test.label << ", '" << name << "' "
                             << to_string(tensor.layout.shape) << " " << one.name << ":\n"
                             << problem);
        }
      }
    }
  }
  CHECK(ran > 2000);
}

}  // namespace
}  // namespace tessera::test
