#include "kernels/checks/arg_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dsl/base/nearest_name.h"
#include "kernels/jit/view_check.h"
#include "kernels/op.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 62;  // sums of two sizes do not overflow

const TensorView* lookup(std::string_view name, const Tensors& tensors) {
  const auto found = tensors.find(std::string(name));
  return found == tensors.end() ? nullptr : &found->second;
}

std::string names_of(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors) names.push_back(name);
  return names.empty() ? "no tensors" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

// ---- ArgCheck

ArgCheck::Tensor ArgCheck::add(std::string_view name, const TensorView* view, bool optional,
                               bool is_output, std::string_view got) {
  if (view == nullptr || is_absent(*view)) {
    if (!optional) {
      fail("NAME", name, fmt::format("argument '{}' is missing", name),
           fmt::format("a tensor named {}", name), std::string(got));
    }
    return Tensor(*this, std::string(name), nullptr);
  }
  check_view(op_, name, *view, is_output ? Use::written : Use::read);
  if (std::max(view->size(), view->span_bytes()) > kMostBytes) {
    fail("SHAPE", name, fmt::format("argument '{}' is too large", name), "at most 2^62 bytes",
         to_string(*view));
  }
  for (int i = 0; i < view->rank(); ++i) {
    if (view->size() > 0 && view->shape[i] > 1 && view->strides[i] < 0) {
      fail("STRIDES", name, fmt::format("argument '{}' has impossible strides", name),
           fmt::format("{} strides, none negative", view->rank()),
           fmt::format("shape {}, strides {}", to_string(view->shape), to_string(view->strides)));
    }
  }
  if (!given_.empty() && view->device != given_.front().view.device) {
    fail("DEVICE", name, fmt::format("argument '{}' is on another device", name),
         fmt::format("{} (the device of {})", to_string(given_.front().view.device),
                     given_.front().name),
         fmt::format("{} on {}", to_string(*view), to_string(view->device)));
  }
  given_.push_back({std::string(name), *view, is_output, *view});
  return Tensor(*this, std::string(name), view);
}

ArgCheck::Tensor ArgCheck::tensor(std::string_view name, const TensorView& view) {
  return add(name, &view, false, false, "none");
}
ArgCheck::Tensor ArgCheck::tensor(std::string_view name, const Tensors& tensors) {
  return add(name, lookup(name, tensors), false, false, names_of(tensors));
}
ArgCheck::Tensor ArgCheck::optional(std::string_view name, const TensorView& view) {
  return add(name, &view, true, false, {});
}
ArgCheck::Tensor ArgCheck::optional(std::string_view name, const Tensors& tensors) {
  return add(name, lookup(name, tensors), true, false, {});
}
ArgCheck::Tensor ArgCheck::output(std::string_view name, const TensorView& view) {
  return add(name, &view, false, true, "none");
}
ArgCheck::Tensor ArgCheck::output(std::string_view name, const Tensors& tensors) {
  return add(name, lookup(name, tensors), false, true, names_of(tensors));
}
ArgCheck::Tensor ArgCheck::optional_output(std::string_view name, const Tensors& tensors) {
  return add(name, lookup(name, tensors), true, true, {});
}

bool ArgCheck::has(std::string_view name) const {
  return std::any_of(given_.begin(), given_.end(), [&](const Given& g) { return g.name == name; });
}

const ArgCheck::Symbol* ArgCheck::find(std::string_view symbol) const {
  for (const Symbol& s : symbols_) {
    if (s.name == symbol) return &s;
  }
  return nullptr;
}

int64_t ArgCheck::operator[](std::string_view symbol) const {
  const Symbol* found = find(symbol);
  TESSERA_CHECK(found != nullptr, fmt::format("{}: symbol {} is not bound", op_, symbol));
  return found->value;
}

std::string ArgCheck::Symbol::text() const {
  if (origin.empty()) return fmt::format("{} = {}", name, value);
  return fmt::format("{} = {} {}{}", name, value, origin.starts_with("=") ? "" : "from ", origin);
}

void ArgCheck::bind(std::string_view symbol, int64_t value, std::string_view formula,
                    std::string_view argument) {
  TESSERA_CHECK(find(symbol) == nullptr, fmt::format("{}: symbol {} is bound twice", op_, symbol));
  symbols_.push_back({std::string(symbol), value,
                      formula == symbol ? "" : fmt::format("= {}", formula),
                      std::string(argument)});
}

std::optional<ArgCheck::Known> ArgCheck::known(std::string_view symbol) const {
  const Symbol* found = find(symbol);
  if (found == nullptr) return std::nullopt;
  return Known{found->value, found->text(), found->argument};
}

void ArgCheck::param_in_range(std::string_view name, int64_t value, int64_t lowest,
                              int64_t highest) const {
  if (lowest <= value && value <= highest) return;
  fail("VALUE", name, fmt::format("parameter '{}' is out of range", name),
       fmt::format("{} .. {}", lowest, highest), fmt::format("{}", value));
}

void ArgCheck::require(bool condition, std::string_view argument, std::string_view what,
                       std::string_view expected, std::string_view got, ErrorKind kind,
                       std::string_view code) const {
  if (condition) return;
  const bool names_it = what.find(fmt::format("'{}'", argument)) != std::string_view::npos;
  fail(std::string(code), argument,
       names_it ? std::string(what) : fmt::format("argument '{}': {}", argument, what),
       std::string(expected), std::string(got), {}, kind);
}

void ArgCheck::memory() const {
  for (const Given& g : given_) {
    if (g.view.data == nullptr && g.view.size() > 0) {
      fail("DATA", g.name, fmt::format("argument '{}' has no data", g.name), "a data pointer",
           fmt::format("null for {}", to_string(g.view)));
    }
    require_aligned(g.name, g.view, bytes(g.view.dtype));
  }
  for (size_t i = 0; i < given_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Given& a = given_[i];
      const Given& b = given_[j];
      if ((!a.is_output && !b.is_output) || disjoint(a.memory, b.memory)) continue;
      const Given& out = a.is_output ? a : b;
      const Given& other = a.is_output ? b : a;
      throw Error(shared_memory_error(op_, out.name, out.memory, other.name, other.memory));
    }
  }
}

void ArgCheck::require_aligned(std::string_view name, const TensorView& view, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (view.size() == 0 || address % static_cast<uintptr_t>(bytes) == 0) return;
  fail("ALIGN", name, fmt::format("argument '{}' is not aligned", name),
       fmt::format("an address that is a multiple of {} bytes", bytes),
       fmt::format("{} at {}", to_string(view), fmt::ptr(view.data)));
}

void ArgCheck::fail(std::string code, std::string_view argument, std::string what,
                    std::string expected, std::string got, std::string hint, ErrorKind kind) const {
  throw Error({.kind = kind,
               .op = op_,
               .what = std::move(what),
               .argument = std::string(argument),
               .expected = std::move(expected),
               .got = std::move(got),
               .hint = std::move(hint),
               .code = kind == ErrorKind::argument ? std::move(code) : std::string()});
}

// ---- ArgCheck::Tensor

ArgCheck::Tensor::Tensor(ArgCheck& check, std::string name, const TensorView* view)
    : check_(&check), name_(std::move(name)), present_(view != nullptr) {
  if (present_) view_ = *view;
}

std::string ArgCheck::Tensor::got() const {
  return fmt::format("{} on {}", to_string(view_), to_string(view_.device));
}

bool ArgCheck::Tensor::checks_stride(int dim) const {
  return view_.size() > 0 && view_.shape[dim] > 1;
}

ArgCheck::Tensor& ArgCheck::Tensor::dtype(std::span<const DType> allowed) {
  std::vector<std::string_view> words;
  for (const DType d : allowed) words.push_back(tessera::name(d));
  dtype_words_ = fmt::format("{}", fmt::join(words, "|"));
  if (present_ && std::find(allowed.begin(), allowed.end(), view_.dtype) == allowed.end()) {
    check_->fail("DTYPE", name_, fmt::format("argument '{}' has the wrong dtype", name_),
                 dtype_words_, got());
  }
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::movable() {
  dtype_words_ = "any dtype of 1, 2 or 4 bytes";
  if (present_ && bits(view_.dtype) != 8 && bits(view_.dtype) != 16 && bits(view_.dtype) != 32) {
    check_->fail("DTYPE", name_, fmt::format("argument '{}' has the wrong dtype", name_),
                 dtype_words_, got());
  }
  dtype_words_ = tessera::name(view_.dtype);
  return *this;
}

std::string ArgCheck::Tensor::expected_shape(const std::vector<Extent>& extents) const {
  std::vector<std::string> words, origins;
  for (const Extent& extent : extents) {
    const Symbol* symbol = extent.symbol.empty() ? nullptr : check_->find(extent.symbol);
    if (symbol == nullptr) {
      words.push_back(extent.symbol.empty() ? fmt::format("{}", extent.value) : extent.symbol);
      continue;
    }
    words.push_back(fmt::format("{}", symbol->value));
    const std::string origin = symbol->text();
    if (std::find(origins.begin(), origins.end(), origin) == origins.end()) {
      origins.push_back(origin);
    }
  }
  std::string text = fmt::format("{}[{}]", dtype_words_, fmt::join(words, ", "));
  if (!origins.empty()) text += fmt::format("   ({})", fmt::join(origins, "; "));
  return text;
}

ArgCheck::Tensor& ArgCheck::Tensor::shape_of(const std::vector<Extent>& extents) {
  if (!present_) return *this;
  if (view_.rank() != static_cast<int>(extents.size())) {
    check_->fail("SHAPE", name_, fmt::format("argument '{}' has the wrong rank", name_),
                 expected_shape(extents), got());
  }
  // Binds the symbols of this tensor only after all extents match, so that a message shows the free
  // ones as symbols.
  std::vector<Symbol> bound;
  for (int i = 0; i < view_.rank(); ++i) {
    const Extent& extent = extents[static_cast<size_t>(i)];
    const Symbol* symbol = extent.symbol.empty() ? nullptr : check_->find(extent.symbol);
    for (const Symbol& s : bound) {
      if (s.name == extent.symbol) symbol = &s;
    }
    if (!extent.symbol.empty() && symbol == nullptr) {
      bound.push_back({extent.symbol, view_.shape[i], fmt::format("{} dim {}", name_, i), name_});
      continue;
    }
    if (view_.shape[i] == (symbol != nullptr ? symbol->value : extent.value)) continue;
    check_->fail("SHAPE", name_, fmt::format("argument '{}' has the wrong shape", name_),
                 expected_shape(extents), got());
  }
  check_->symbols_.insert(check_->symbols_.end(), bound.begin(), bound.end());
  return *this;
}

void ArgCheck::Tensor::fail_strides(std::string expected) const {
  check_->fail(
      "STRIDES", name_, fmt::format("argument '{}' has the wrong strides", name_),
      std::move(expected),
      fmt::format("{}{}, strides {} on {}", tessera::name(view_.dtype), to_string(view_.shape),
                  to_string(view_.strides), to_string(view_.device)));
}

ArgCheck::Tensor& ArgCheck::Tensor::last_stride(int64_t stride) {
  const int last = view_.rank() - 1;
  if (present_ && last >= 0 && checks_stride(last) && view_.strides[last] != stride) {
    fail_strides(fmt::format("last stride {}", stride));
  }
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::first_stride(int64_t stride) {
  if (present_ && view_.rank() > 0 && checks_stride(0) && view_.strides[0] != stride) {
    fail_strides(fmt::format("first stride {}", stride));
  }
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::row_major() {
  if (present_ && !view_.is_row_major()) {
    fail_strides(fmt::format("row-major strides {}", to_string(row_major_strides(view_.shape))));
  }
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::rows() {
  return last_stride(1).any_strides();
}

ArgCheck::Tensor& ArgCheck::Tensor::any_strides() {
  if (present_ && !self_disjoint(view_)) fail_strides("strides that do not overlap");
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::rows_or_columns() {
  const int last = view_.rank() - 1;
  const auto is_dense = [&](int dim) { return !checks_stride(dim) || view_.strides[dim] == 1; };
  if (present_ && !is_dense(last) && !is_dense(last - 1)) {
    fail_strides("1 as one of the last two strides");
  }
  return any_strides();
}

ArgCheck::Tensor& ArgCheck::Tensor::strides(const Dims& expected) {
  if (!present_) return *this;
  TESSERA_CHECK(expected.rank == view_.rank(), "strides() of another rank than the tensor");
  for (int i = 0; i < view_.rank(); ++i) {
    if (checks_stride(i) && view_.strides[i] != expected[i]) {
      fail_strides(fmt::format("strides {}", to_string(expected)));
    }
  }
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::occupies(const TensorView& memory) {
  for (Given& given : check_->given_) {
    if (given.name == name_) given.memory = memory;
  }
  return *this;
}

ArgCheck::Tensor& ArgCheck::Tensor::aligned(int64_t bytes) {
  if (present_) check_->require_aligned(name_, view_, bytes);
  return *this;
}

// ---- free functions

void check_tensor_names(const OpInfo& op, const Tensors& tensors) {
  const ArgCheck check(op.name);
  std::vector<std::string> known;
  for (const TensorInfo& info : op.tensors) known.push_back(info.name);
  for (const auto& tensor : tensors) {
    const std::string& name = tensor.first;
    const std::string stem = name.substr(0, name.find('.'));
    const auto info = std::find_if(op.tensors.begin(), op.tensors.end(), [&](const auto& t) {
      return t.list ? t.name == stem && stem != name : t.name == name;
    });
    if (info != op.tensors.end()) continue;
    check.fail("NAME", name, fmt::format("unknown tensor '{}'", name),
               fmt::format("{}", fmt::join(known, ", ")), name, did_you_mean(name, known));
  }
  for (const TensorInfo& info : op.tensors) {
    if (info.role == Role::out) continue;
    if (info.list) {
      size_t count = 0;
      while (tensors.count(fmt::format("{}.{}", info.name, count)) != 0) ++count;
      size_t given = 0;
      for (const auto& [name, view] : tensors) given += name.starts_with(info.name + ".") ? 1 : 0;
      if (given == count) continue;
      const std::string gap = fmt::format("{}.{}", info.name, count);
      check.fail("NAME", gap, fmt::format("argument '{}' is missing", gap),
                 fmt::format("{} tensors without a gap", given), names_of(tensors));
    } else if (!info.optional && !info.accumulate && tensors.count(info.name) == 0) {
      check.fail("NAME", info.name, fmt::format("argument '{}' is missing", info.name),
                 fmt::format("a tensor named {}", info.name), names_of(tensors));
    }
  }
}

}  // namespace tessera::kernels
