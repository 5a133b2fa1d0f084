#include "kernels/jit/argument_binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/ir/extents.h"
#include "dsl/ir/host_value.h"
#include "kernels/call_types.h"
#include "kernels/jit/overlap.h"
#include "kernels/jit/target.h"
#include "kernels/jit/view_check.h"

namespace tessera::kernels::jit {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 62;  // sums of two sizes do not overflow
constexpr std::array<int64_t, 3> kMaxGrid = {(int64_t{1} << 31) - 1, ir::kMostBlocksYZ,
                                             ir::kMostBlocksYZ};

int64_t value_at(const TensorView& view, int dim, bool is_stride) {
  return is_stride ? view.strides[dim] : view.shape[dim];
}

std::string declaration(const ir::Buffer& buffer) {
  std::string text = fmt::format("{}[", name(buffer.dtype));
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + ir::to_string(buffer.shape[i]);
  }
  return text + "]";
}

bool fits(DType type, int64_t value) {
  return bits(type) == 64 || value == static_cast<int32_t>(value);
}

// A stride multiplies an index that is always 0 there, or belongs to a tensor that is never read.
bool stride_matters(const TensorView& view, int dim) {
  return view.shape[dim] != 1 && view.size() > 0;
}

// The tensors that asynchronous copies of `body` read with evict_first.
void add_streamed(const ir::Body& body, bool pipelined, std::vector<ir::BufferRef>& found) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) {
      const bool in_background = pipelined ? copy->to.buffer->space == ir::Space::shared
                                           : copy->plan.when == ir::CopyTime::awaited;
      // Bulk copies carry their hint themselves.
      if (in_background && copy->plan.engine != ir::Engine::bulk &&
          copy->from.terms.cache == ir::CacheHint::evict_first) {
        found.push_back(copy->from.buffer);
      }
    } else if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      add_streamed(loop->body, pipelined || loop->kind == ir::LoopKind::pipelined, found);
    } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
      add_streamed(branch->then, pipelined, found);
      add_streamed(branch->otherwise, pipelined, found);
    }
  }
}

int streamed_tensor(const ir::Kernel& kernel) {
  std::vector<ir::BufferRef> streamed;
  add_streamed(kernel.body, false, streamed);
  if (streamed.empty()) return -1;
  const auto at = std::find(kernel.tensors.begin(), kernel.tensors.end(), streamed.front());
  return at == kernel.tensors.end() ? -1 : static_cast<int>(at - kernel.tensors.begin());
}

// The persistent loops of `body` whose index is an i32: the host knows the number of their tiles.
void add_persistent(const ir::Body& body, std::vector<const ir::Stmt*>& found) {
  for (const ir::Stmt& stmt : body) {
    const auto* loop = std::get_if<ir::Loop>(&stmt.node);
    if (loop != nullptr && loop->label == "persistent" && loop->vars[0]->type == DType::i32) {
      found.push_back(&stmt);
    }
    codegen::for_each_body(stmt, [&](const ir::Body& inner) { add_persistent(inner, found); });
  }
}

// The divisors of `index`, as far as the host knows them, in the values that the body of its loop begins with.
std::vector<ir::Expr> divisors_of(const ir::VarRef& index, const ir::Body& body) {
  std::vector<ir::Expr> found;
  const std::function<void(const ir::Expr&)> look = [&](const ir::Expr& expr) {
    const bool divides = expr->op == ir::Op::div || expr->op == ir::Op::mod;
    if (divides && expr->args[0]->var == index && ir::is_known_at_launch(expr->args[1])) {
      found.push_back(expr->args[1]);
    }
    for (const ir::Expr& arg : expr->args) look(arg);
  };
  for (const ir::Stmt& stmt : body) {
    const auto* let = std::get_if<ir::Let>(&stmt.node);
    if (let == nullptr) break;
    look(let->value);
  }
  return found;
}

}  // namespace

std::vector<PersistentLoop> persistent_loops(const ir::Kernel& kernel) {
  std::vector<const ir::Stmt*> found;
  add_persistent(kernel.body, found);
  std::vector<PersistentLoop> loops;
  for (const ir::Stmt* stmt : found) {
    const auto& loop = std::get<ir::Loop>(stmt->node);
    loops.push_back({loop.extents[0], loop.step, divisors_of(loop.vars[0], loop.body), stmt->loc});
  }
  return loops;
}

void check_finished(const ir::Kernel& kernel) {
  if (!kernel.grid.empty()) return;
  throw Error({.kind = ErrorKind::program,
               .op = kernel.name,
               .what = "the kernel is empty",
               .expected = "what Builder::finish() returned",
               .got = "an ir::Kernel without a grid: default-constructed, or moved from"});
}

ArgumentBinder::ArgumentBinder(std::string op, const ir::Kernel& kernel, Author author)
    : op_(std::move(op)), author_(author) {
  check_finished(kernel);
  const size_t num_slots = kernel.dims.size() + kernel.scalars.size();
  if (num_slots > kMaxSlots || kernel.tensors.size() + num_slots > kMaxArguments) {
    throw Error(
        {.kind = ErrorKind::program,
         .op = op_,
         .what = "too many parameters",
         .expected = fmt::format("at most {} dims and scalars, and {} with the tensors", kMaxSlots,
                                 kMaxArguments),
         .got = fmt::format("{} dims and scalars, {} tensors", num_slots, kernel.tensors.size())});
  }
  const SlotOf slot_of = [&](const ir::VarRef& var) {
    for (size_t i = 0; i < kernel.dims.size(); ++i) {
      if (kernel.dims[i] == var) return static_cast<int>(i);
    }
    for (size_t i = 0; i < kernel.scalars.size(); ++i) {
      if (kernel.scalars[i] == var) return static_cast<int>(kernel.dims.size() + i);
    }
    internal_error(op_ + ": a host expression uses " + var->name +
                   ", which the host does not know");
  };
  for (const ir::BufferRef& buffer : kernel.tensors) {
    if (buffer->is_output) outputs_.push_back(tensors_.size());
    tensors_.push_back({buffer->name, buffer->dtype, static_cast<int>(buffer->shape.size()),
                        buffer->align, buffer->optional, buffer->is_output, buffer->may_alias,
                        declaration(*buffer), buffer->loc});
  }
  for (const ir::VarRef& var : kernel.dims) {
    Dim dim;
    dim.name = var->name;
    dim.type = var->type;
    dim.multiple_of = std::max<int64_t>(var->multiple_of, 1);
    if (var->lower) dim.lower.emplace(var->lower, slot_of);
    if (var->upper) dim.upper.emplace(var->upper, slot_of);
    dims_.push_back(std::move(dim));
  }
  for (const ir::VarRef& var : kernel.scalars) {
    if (var->per_sm == 0) given_.push_back(scalars_.size());
    scalars_.push_back({var->name, var->type, var->loc, var->per_sm});
    if (bits(var->type) >= 8) continue;
    throw Error({.kind = ErrorKind::program,
                 .op = op_,
                 .what = fmt::format("scalar '{}' cannot be passed", var->name),
                 .argument = var->name,
                 .expected = "a dtype of whole bytes",
                 .got = std::string(name(var->type)),
                 .loc = var->loc});
  }
  add_places(kernel, false);
  add_places(kernel, true);
  for (size_t t = 0; t < kernel.tensors.size(); ++t) {
    const ir::Buffer& buffer = *kernel.tensors[t];
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      checks_.push_back(
          {{t, static_cast<int>(d), false},
           HostExpr(buffer.shape[d], slot_of),
           buffer.shape[d]->op != ir::Op::var && buffer.shape[d]->type == DType::i32});
    }
    for (size_t d = 0; d < buffer.strides.size(); ++d) {
      checks_.push_back(
          {{t, static_cast<int>(d), true}, HostExpr(buffer.strides[d], slot_of), false});
    }
  }
  for (const ir::Expr& extent : kernel.grid) grid_.emplace_back(extent, slot_of);
  for (const PersistentLoop& loop : persistent_loops(kernel)) {
    Walk walk{HostExpr(loop.tiles, slot_of), HostExpr(loop.step, slot_of), {}, loop.loc};
    for (const ir::Expr& divisor : loop.divisors) walk.divisors.emplace_back(divisor, slot_of);
    walks_.push_back(std::move(walk));
  }
  streamed_ = streamed_tensor(kernel);
}

void ArgumentBinder::add_places(const ir::Kernel& kernel, bool strides) {
  for (size_t t = 0; t < kernel.tensors.size(); ++t) {
    const ir::Buffer& buffer = *kernel.tensors[t];
    const std::vector<ir::Expr>& exprs = strides ? buffer.strides : buffer.shape;
    for (size_t d = 0; d < exprs.size(); ++d) {
      if (exprs[d]->op != ir::Op::var) continue;
      for (size_t i = 0; i < kernel.dims.size(); ++i) {
        if (kernel.dims[i] != exprs[d]->var) continue;
        dims_[i].places.push_back({t, static_cast<int>(d), strides});
      }
    }
  }
  if (!strides) return;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (!dims_[i].places.empty()) continue;
    throw Error({.kind = ErrorKind::program,
                 .op = op_,
                 .what = fmt::format("no tensor determines dim '{}'", dims_[i].name),
                 .expected = "a tensor with this dim alone as one of its extents or strides",
                 .loc = kernel.dims[i]->loc});
  }
}

std::vector<std::string> ArgumentBinder::parameter_names() const {
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors_) names.push_back(tensor.name);
  for (const Dim& dim : dims_) names.push_back(dim.name);
  for (const ScalarParam& scalar : scalars_) names.push_back(scalar.name);
  return names;
}

std::vector<DType> ArgumentBinder::slot_types() const {
  std::vector<DType> types;
  for (const Dim& dim : dims_) types.push_back(dim.type);
  for (const ScalarParam& scalar : scalars_) types.push_back(scalar.type);
  return types;
}

runtime::Streamed ArgumentBinder::streamed(std::span<const TensorView> tensors) const {
  if (streamed_ < 0) return {};
  return {streamed_, tensors[static_cast<size_t>(streamed_)].span_bytes()};
}

Binding ArgumentBinder::bind(std::span<const TensorView> tensors,
                             std::span<const Scalar> scalars) const {
  if (tensors.size() != tensors_.size() || scalars.size() != given_.size()) {
    fail_count(tensors.size(), scalars.size());
  }
  std::array<uintptr_t, kMaxArguments> begins, ends;
  for (size_t t = 0; t < tensors.size(); ++t) {
    begins[t] = reinterpret_cast<uintptr_t>(tensors[t].data);
    ends[t] = begins[t] + static_cast<uintptr_t>(check_tensor(tensors_[t], tensors[t]));
  }
  Binding binding;
  std::array<const Place*, kMaxSlots> sources{};
  for (size_t i = 0; i < dims_.size(); ++i) {
    sources[i] = bind_dim(dims_[i], tensors, binding.slots[i]);
  }
  for (size_t i = 0; i < scalars.size(); ++i) {
    binding.slots[dims_.size() + given_[i]] = bind_scalar(scalars_[given_[i]], scalars[i]);
  }
  for (size_t i = 0; i < scalars_.size(); ++i) {
    if (scalars_[i].per_sm == 0) continue;
    const auto given = std::find_if(tensors.begin(), tensors.end(),
                                    [](const TensorView& view) { return !is_absent(view); });
    const Device device = given == tensors.end() ? Device::cpu() : given->device;
    binding.slots[dims_.size() + i] = scalars_[i].per_sm * num_sms(device);
  }
  for (const Check& check : checks_) check_place(check, binding, tensors);
  bind_grid(binding);
  for (const Walk& walk : walks_) check_walk(walk, binding);

  const bool writes = std::any_of(outputs_.begin(), outputs_.end(), [&](size_t output) {
    return !is_absent(tensors[output]) && tensors[output].size() > 0;
  });
  if (!outputs_.empty() && !writes) {
    binding.empty = true;
    return binding;
  }
  // Where something is to be written, an empty grid is no excuse: half a tile makes one too.
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (sources[i]) check_dim(dims_[i], *sources[i], binding, tensors, binding.slots[i]);
  }
  for (const size_t output : outputs_) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      const bool meet = begins[t] < ends[output] && begins[output] < ends[t] && t != output;
      if (meet) check_apart(output, t, tensors);
    }
  }
  return binding;
}

int64_t ArgumentBinder::check_tensor(const Tensor& tensor, const TensorView& view) const {
  if (is_absent(view) && tensor.rank > 0) {
    if (tensor.optional) return 0;
    fail("NAME", tensor, fmt::format("argument '{}' is missing", tensor.name), tensor.declared, "");
  }
  if (view.dtype != tensor.dtype || view.rank() != tensor.rank ||
      view.strides.rank != tensor.rank || (tensor.is_output && view.read_only) ||
      view.device.kind > Device::Kind::cuda || view.device.ordinal < 0) {
    check_view(op_, tensor.name, view, tensor.is_output ? Use::written : Use::read,
               line(tensor.loc));
    fail(view.dtype != tensor.dtype ? "DTYPE" : "SHAPE", tensor,
         fmt::format("argument '{}' has the wrong {}", tensor.name,
                     view.dtype != tensor.dtype ? "dtype" : "rank"),
         tensor.declared, to_string(view));
  }
  const int64_t size = view.size();
  if (size == 0) return 0;
  const int64_t bytes = view.span_bytes();
  if (std::max(size, bytes) > kMostBytes) {
    fail("SHAPE", tensor, fmt::format("argument '{}' is too large", tensor.name),
         "at most 2^62 bytes", to_string(view));
  }
  if (!view.data) {
    fail("DATA", tensor, fmt::format("argument '{}' has no data", tensor.name), tensor.declared,
         to_string(view) + " at a null pointer");
  }
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % static_cast<uintptr_t>(tensor.align) != 0) {
    fail("ALIGN", tensor, fmt::format("argument '{}' is not aligned", tensor.name),
         fmt::format("an address that is a multiple of {} bytes", tensor.align),
         fmt::format("{:#x}", address));
  }
  return bytes;
}

int64_t ArgumentBinder::bind_scalar(const ScalarParam& param, const Scalar& value) const {
  if (const auto slot = value.slot(param.type)) return *slot;
  const bool is_for = value.is_for(param.type);
  fail(is_for ? "VALUE" : "TYPE", param.name, param.loc,
       fmt::format("scalar '{}' {}", param.name, is_for ? "is out of range" : "has the wrong type"),
       std::string(name(param.type)), is_for ? value.value_text() : value.text());
}

// Called for tensors whose spans of bytes overlap; strided ones may be disjoint all the same.
void ArgumentBinder::check_apart(size_t output, size_t other,
                                 std::span<const TensorView> tensors) const {
  const Tensor& a = tensors_[output];
  const Tensor& b = tensors_[other];
  if ((a.may_alias && b.may_alias) || disjoint(tensors[output], tensors[other])) return;
  ErrorFields fields = shared_memory_error(op_, a.name, tensors[output], b.name, tensors[other]);
  if (author_ == Author::caller) {
    fields.hint = "if that is meant, declare both with {.may_alias = true}";
    fields.loc = a.loc;
    fields.related = b.loc;
  }
  throw Error(std::move(fields));
}

// The first place that matters decides. Nothing if none does: then any value with the declared
// multiple will do.
const ArgumentBinder::Place* ArgumentBinder::bind_dim(const Dim& dim,
                                                      std::span<const TensorView> tensors,
                                                      int64_t& value) const {
  value = dim.multiple_of;
  bool found_idle = false;
  for (const Place& place : dim.places) {
    const TensorView& view = tensors[place.tensor];
    if (is_absent(view)) continue;
    const int64_t given = value_at(view, place.dim, place.is_stride);
    if (!place.is_stride || stride_matters(view, place.dim)) {
      if (!fits(dim.type, given) || given < 0) {
        fail(place.is_stride ? "STRIDES" : "SHAPE", tensors_[place.tensor],
             fmt::format("argument '{}' has an extent or stride out of range",
                         tensors_[place.tensor].name),
             fmt::format("{} as a non-negative {}", dim.name, name(dim.type)), to_string(view));
      }
      value = given;
      return &place;
    }
    if (!found_idle && given > 0 && fits(dim.type, given)) {
      found_idle = true;
      value = std::max(given - given % dim.multiple_of, dim.multiple_of);
    }
  }
  return nullptr;
}

void ArgumentBinder::check_dim(const Dim& dim, const Place& place, const Binding& binding,
                               std::span<const TensorView> tensors, int64_t value) const {
  const Tensor& tensor = tensors_[place.tensor];
  const auto complain = [&](std::string expected) {
    fail(place.is_stride ? "STRIDES" : "SHAPE", tensor,
         fmt::format("argument '{}' has {} {} that the kernel does not take", tensor.name,
                     place.is_stride ? "a stride" : "an extent", value),
         fmt::format("{} (dimension {}) {}", dim.name, place.dim, expected),
         to_string(tensors[place.tensor]));
  };
  if (value % dim.multiple_of != 0) complain(fmt::format("a multiple of {}", dim.multiple_of));
  if (dim.lower) {
    const int64_t lower = dim.lower->evaluate(binding.slots, op_);
    if (value < lower) complain(fmt::format("at least {}", lower));
  }
  if (dim.upper) {
    const int64_t upper = dim.upper->evaluate(binding.slots, op_);
    if (value >= upper) complain(fmt::format("below {}", upper));
  }
}

void ArgumentBinder::check_place(const Check& check, const Binding& binding,
                                 std::span<const TensorView> tensors) const {
  const Place& place = check.place;
  const TensorView& view = tensors[place.tensor];
  if (is_absent(view)) return;
  if (place.is_stride && !stride_matters(view, place.dim)) return;
  const int64_t expected = check.expected.evaluate(binding.slots, op_);
  if (check.is_index && expected > ir::kLargestExtent) {
    fail("SHAPE", tensors_[place.tensor],
         fmt::format("argument '{}' has an extent out of range", tensors_[place.tensor].name),
         fmt::format("at most {} in dimension {} = {}", ir::kLargestExtent, place.dim,
                     check.expected.text()),
         fmt::format("{}", expected));
  }
  if (value_at(view, place.dim, place.is_stride) == expected) return;
  std::string reason;
  if (!check.expected.is_constant()) {
    reason = " = " + check.expected.text();
    for (const Dim& dim : dims_) {
      if (dim.name == check.expected.text()) reason += origin(dim, tensors);
    }
  }
  const Tensor& tensor = tensors_[place.tensor];
  fail(place.is_stride ? "STRIDES" : "SHAPE", tensor,
       fmt::format("argument '{}' has the wrong {}", tensor.name,
                   place.is_stride ? "strides" : "shape"),
       fmt::format("{} {} in dimension {}{}", place.is_stride ? "stride" : "extent", expected,
                   place.dim, reason),
       to_string(view));
}

// " (from x dim 0)": the place that bound the dim.
std::string ArgumentBinder::origin(const Dim& dim, std::span<const TensorView> tensors) const {
  int64_t value = 0;
  const Place* place = bind_dim(dim, tensors, value);
  if (!place) return "";
  return fmt::format(" (from {} {} {})", tensors_[place->tensor].name,
                     place->is_stride ? "stride" : "dim", place->dim);
}

void ArgumentBinder::bind_grid(Binding& binding) const {
  for (size_t axis = 0; axis < grid_.size(); ++axis) {
    const int64_t extent = grid_[axis].evaluate(binding.slots, op_);
    if (extent < 0 || extent > kMaxGrid.at(axis)) {
      fail("SHAPE", "", {}, "the tensors are too large for one launch",
           fmt::format("0 to {} blocks along {}: {}", kMaxGrid.at(axis), "xyz"[axis],
                       grid_[axis].text()),
           fmt::format("{}", extent));
    }
    binding.grid.at(axis) = extent;
    binding.empty = binding.empty || extent == 0;
  }
}

void ArgumentBinder::check_walk(const Walk& walk, const Binding& binding) const {
  constexpr int64_t kLast = std::numeric_limits<int32_t>::max();
  const auto count = [&](const HostExpr& expr, int64_t most) {
    const std::optional<int64_t> value = expr.evaluate_in_dtypes(binding.slots);
    if (!value || *value > most) {
      fail("SHAPE", "", walk.loc, "a persistent loop has more tiles than i32 counts",
           fmt::format("at most {}, at every step of {}", most, expr.text()),
           fmt::format("{}", expr.evaluate(binding.slots, op_)));
    }
    return *value;
  };
  if (count(walk.tiles, kLast) <= 0) return;
  // The kernel counts a step beyond the last tile, too.
  count(walk.tiles, kLast - count(walk.step, kLast) + 1);
  for (const HostExpr& divisor : walk.divisors) count(divisor, kLast);
}

void ArgumentBinder::fail_count(size_t num_tensors, size_t num_scalars) const {
  const auto count = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::vector<std::string> tensors, scalars;
  for (const Tensor& tensor : tensors_) tensors.push_back(tensor.name + " " + tensor.declared);
  for (const size_t i : given_) {
    scalars.push_back(fmt::format("{} {}", scalars_[i].name, name(scalars_[i].type)));
  }
  std::string expected = count(tensors.size(), "tensor");
  if (!tensors.empty()) expected += fmt::format(": {}", fmt::join(tensors, ", "));
  expected += fmt::format("; {}", count(scalars.size(), "scalar"));
  if (!scalars.empty()) expected += fmt::format(": {}", fmt::join(scalars, ", "));
  // The declaration of the first argument that is missing.
  SourceLoc loc;
  if (num_scalars < given_.size()) loc = scalars_[given_[num_scalars]].loc;
  if (num_tensors < tensors_.size()) loc = tensors_[num_tensors].loc;
  fail("NAME", "", loc, "wrong number of arguments", std::move(expected),
       count(num_tensors, "tensor") + "; " + count(num_scalars, "scalar"));
}

void ArgumentBinder::fail(std::string code, const std::string& argument, SourceLoc loc,
                          std::string what, std::string expected, std::string got) const {
  throw Error({.kind = ErrorKind::argument,
               .op = op_,
               .what = std::move(what),
               .argument = argument,
               .expected = std::move(expected),
               .got = std::move(got),
               .code = std::move(code),
               .loc = line(loc)});
}

}  // namespace tessera::kernels::jit
