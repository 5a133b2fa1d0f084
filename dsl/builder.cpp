#include "dsl/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "dsl/base/target_facts.h"
#include "dsl/ir/registers.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

constexpr int64_t kMaxTileExtent = int64_t{1} << 24;
constexpr int64_t kDefaultAlign = 16;                         // bytes: the widest access
constexpr int64_t kMaxTileElements = (int64_t{1} << 31) - 1;  // their numbers are i32

/// Throws unless the fragment fits into the threads of the block, or of the role, and their registers.
void check_fragment(const Recorder& r, const ir::Buffer& fragment) {
  const std::string holders = r.role ? fmt::format("role '{}'", r.role->name) : "the block";
  const int64_t registers = ir::registers_of(fragment, r.num_threads());
  if (registers > kMaxRegisters) {
    r.fail(
        "REGISTERS",
        fmt::format("fragment '{}' does not fit into the registers of {}", fragment.name, holders),
        fragment.loc,
        fmt::format("at most {} registers in each of {} threads", kMaxRegisters, r.num_threads()),
        fmt::format("{}{}, {} registers each", name(fragment.dtype), shape_text(fragment.shape),
                    registers),
        "take a smaller tile, more threads, or k.shared");
  }
  if (!fragment.layout || fragment.layout->num_threads() <= r.num_threads()) return;
  r.fail("LAYOUT_THREADS",
         fmt::format("the layout of fragment '{}' needs more threads than {} has", fragment.name,
                     holders),
         fragment.loc, fmt::format("at most {}", r.num_threads()),
         fmt::format("{}", fragment.layout->num_threads()));
}

Ref allocate(Recorder& r, ir::Space space, DType dtype, const std::vector<int64_t>& shape,
             std::string name, SourceLoc loc,
             std::shared_ptr<const layout::Layout> layout = nullptr, bool dynamic = false) {
  check_name(r, name, loc);
  ir::Buffer buffer;
  buffer.shape = constant_shape(r, shape, name, loc);
  buffer.name = std::move(name);
  buffer.dtype = dtype;
  buffer.space = space;
  buffer.layout = std::move(layout);
  buffer.dynamic = dynamic;
  buffer.loc = loc;
  Ref ref = r.new_buffer(std::move(buffer));
  if (space != ir::Space::fragment) return ref;
  if (r.launched) {
    check_fragment(r, *ref.region().buffer);
  } else {
    r.early_fragments.push_back(ref.region().buffer);
  }
  return ref;
}

/// Checks a dim, a stride or a scalar.
void check_parameter(const Recorder& r, const std::string& text, int64_t multiple_of,
                     SourceLoc loc) {
  check_name(r, text, loc);
  for (const auto* const list : {&r.kernel.dims, &r.kernel.scalars}) {
    for (const ir::VarRef& other : *list) {
      if (other->name != text) continue;
      r.fail("NAME", fmt::format("two parameters are called '{}'", text), loc, {}, {}, {},
             other->loc);
    }
  }
  if (multiple_of < 1) {
    r.fail("SHAPE", fmt::format("'{}' is a multiple of something impossible", text), loc,
           "1 or more", fmt::format("{}", multiple_of));
  }
}

}  // namespace

void check_name(const Recorder& r, const std::string& text, SourceLoc loc) {
  bool good = !text.empty() && text.size() <= 64 &&
              (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_');
  for (const char c : text) {
    good = good && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
  }
  if (!good) {
    r.fail("NAME", "a name is not an identifier", loc, "[A-Za-z_][A-Za-z0-9_]{0,63}", text);
  }
}

std::vector<ir::Expr> constant_shape(const Recorder& r, const std::vector<int64_t>& shape,
                                     const std::string& what, SourceLoc loc) {
  std::vector<ir::Expr> result;
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent <= 0 || extent > kMaxTileExtent) {
      r.fail("SHAPE", fmt::format("'{}' has an impossible extent", what), loc, "1 .. 2^24",
             fmt::format("{}", extent));
    }
    result.push_back(ir::index(extent));
    elements *= extent;
    if (elements > kMaxTileElements) {
      r.fail("SHAPE", fmt::format("'{}' has too many elements", what), loc, "at most 2^31 - 1",
             fmt::format("[{}]", fmt::join(shape, ", ")));
    }
  }
  if (shape.size() > 4) {
    r.fail("SHAPE", fmt::format("'{}' has too many dimensions", what), loc, "at most 4",
           fmt::format("{}", shape.size()));
  }
  return result;
}

void check_align(const Recorder& r, const ir::Buffer& buffer, SourceLoc loc) {
  const int64_t element = std::max<int64_t>(1, bits(buffer.dtype) / 8);
  if (buffer.align < element || (buffer.align & (buffer.align - 1)) != 0) {
    r.fail("ALIGN", fmt::format("the alignment of '{}' is impossible", buffer.name), loc,
           fmt::format("a power of two from {} on", element), fmt::format("{}", buffer.align));
  }
}

void set_shape(const Recorder& r, ir::Buffer& buffer, const std::vector<Arg>& shape,
               const std::vector<Arg>& strides, SourceLoc loc) {
  if (!strides.empty() && strides.size() != shape.size()) {
    r.fail("RANK", fmt::format("tensor '{}' needs one stride per dimension", buffer.name), loc,
           fmt::format("{}", shape.size()), fmt::format("{}", strides.size()));
  }
  for (const Arg& extent : shape) buffer.shape.push_back(extent.value().expr());
  for (const Arg& stride : strides) buffer.strides.push_back(stride.value().expr());
  for (const ir::Expr& extent : buffer.shape) r.check_in_scope(extent, loc);
  for (const ir::Expr& stride : buffer.strides) r.check_in_scope(stride, loc);
  if (!strides.empty()) return;
  ir::Expr stride = ir::constant(DType::i64, 1);
  buffer.strides.resize(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    buffer.strides[d] = stride;
    stride = stride * ir::cast(DType::i64, buffer.shape[d]);
  }
}

Builder::Builder(std::string name) : recorder_(std::make_unique<Recorder>(std::move(name))) {
  check_name(*recorder_, recorder_->kernel.name, {});
  auto& kernel = recorder_->kernel;
  kernel.thread = recorder_->new_var("thread", DType::i32, ir::VarKind::thread, {}, ir::index(0));
}
Builder::~Builder() = default;

Value Builder::dim(std::string name, DimOptions options, SourceLoc loc) {
  check_parameter(*recorder_, name, options.multiple_of, loc);
  const int64_t largest = options.wide ? ir::kLargestWideExtent : ir::kLargestExtent;
  auto var =
      recorder_->new_var(std::move(name), options.wide ? DType::i64 : DType::i32, ir::VarKind::dim,
                         loc, ir::index(1), ir::index(largest + 1), options.multiple_of);
  recorder_->kernel.dims.push_back(var);
  return Value(recorder_.get(), ir::var(var));
}

Value Builder::stride(std::string name, DimOptions options, SourceLoc loc) {
  check_parameter(*recorder_, name, options.multiple_of, loc);
  auto var = recorder_->new_var(std::move(name), DType::i64, ir::VarKind::dim, loc, ir::index(0),
                                {}, options.multiple_of);
  recorder_->kernel.dims.push_back(var);
  return Value(recorder_.get(), ir::var(var));
}

Value Builder::scalar(std::string name, DType dtype, SourceLoc loc) {
  check_parameter(*recorder_, name, 1, loc);
  auto var = recorder_->new_var(std::move(name), dtype, ir::VarKind::scalar, loc);
  recorder_->kernel.scalars.push_back(var);
  return Value(recorder_.get(), ir::var(var));
}

Value Builder::device_blocks(int per_sm, SourceLoc loc) {
  constexpr int kMostPerSm = 32, kMostSms = 1024;
  if (recorder_->launched) {
    recorder_->fail("ORDER", "device_blocks() after launch()", loc, "before launch()");
  }
  if (per_sm < 1 || per_sm > kMostPerSm) {
    recorder_->fail("LAUNCH", "a multiprocessor does not hold so many blocks", loc,
                    fmt::format("1 .. {}", kMostPerSm), fmt::format("{}", per_sm));
  }
  for (const ir::VarRef& known : recorder_->kernel.scalars) {
    if (known->per_sm == per_sm) return Value(recorder_.get(), ir::var(known));
  }
  std::string name = per_sm == 1 ? "device_blocks" : fmt::format("device_blocks_{}", per_sm);
  check_parameter(*recorder_, name, 1, loc);
  auto var = recorder_->new_var(std::move(name), DType::i32, ir::VarKind::scalar, loc, ir::index(1),
                                ir::index(per_sm * kMostSms + 1), 1, per_sm);
  recorder_->kernel.scalars.push_back(var);
  return Value(recorder_.get(), ir::var(var));
}

Ref Builder::tensor(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options,
                    bool is_output, SourceLoc loc) {
  check_name(*recorder_, name, loc);
  if (recorder_->launched) {
    recorder_->fail("ORDER", fmt::format("tensor '{}' is declared after launch()", name), loc);
  }
  for (const ir::BufferRef& other : recorder_->kernel.tensors) {
    if (other->name == name) {
      recorder_->fail("NAME", fmt::format("two tensors are called '{}'", name), loc, {}, {}, {},
                      other->loc);
    }
  }
  ir::Buffer buffer;
  buffer.name = std::move(name);
  buffer.dtype = dtype;
  buffer.space = ir::Space::global;
  buffer.is_output = is_output;
  buffer.optional = options.optional;
  buffer.may_alias = options.may_alias;
  buffer.loc = loc;
  set_shape(*recorder_, buffer, shape, options.strides, loc);
  const bool is_one_element =
      std::all_of(buffer.shape.begin(), buffer.shape.end(),
                  [](const ir::Expr& extent) { return ir::is_constant(extent, 1); });
  const int64_t by_default = is_one_element ? bytes(dtype) : kDefaultAlign;
  buffer.align = options.align == 0 ? by_default : options.align;
  check_align(*recorder_, buffer, loc);
  if (!buffer.optional) {  // an absent tensor binds no dim
    for (const ir::Expr& extent : buffer.shape) recorder_->bound_dims(extent);
  }
  Ref ref = recorder_->new_buffer(std::move(buffer));
  recorder_->kernel.tensors.push_back(ref.region().buffer);
  return ref;
}

Ref Builder::input(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options,
                   SourceLoc loc) {
  return tensor(std::move(name), dtype, std::move(shape), std::move(options), false, loc);
}
Ref Builder::output(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options,
                    SourceLoc loc) {
  return tensor(std::move(name), dtype, std::move(shape), std::move(options), true, loc);
}

BlockIndex Builder::launch(std::vector<Arg> grid, LaunchOptions options, SourceLoc loc) {
  auto& kernel = recorder_->kernel;
  if (recorder_->launched) recorder_->fail("ORDER", "launch() is called twice", loc);
  if (grid.empty() || grid.size() > 3) {
    recorder_->fail("LAUNCH", "a grid has one to three extents", loc, "1 .. 3",
                    fmt::format("{}", grid.size()));
  }
  if (options.threads < 1 || options.threads > 1024) {
    recorder_->fail("LAUNCH", "the block size is out of range", loc, "1 .. 1024 threads",
                    fmt::format("{}", options.threads));
  }
  kernel.threads = options.threads;
  for (const ir::BufferRef& fragment : recorder_->early_fragments) {
    check_fragment(*recorder_, *fragment);
  }
  kernel.min_blocks_per_sm = options.min_blocks_per_sm;
  check_cluster(*recorder_, grid, options.cluster, loc);
  kernel.cluster = options.cluster;
  // The thread index gets its bound now that the block size is known; it is created with the
  // builder so that its id does not depend on the order of declarations.
  ir::Var thread = *kernel.thread;
  thread.upper = ir::index(options.threads);
  kernel.thread = recorder_->updated(std::move(thread));
  recorder_->iterate(kernel.thread, 0, options.threads - 1);
  const char* names[] = {"block_x", "block_y", "block_z"};
  std::vector<Value> blocks;
  for (size_t axis = 0; axis < 3; ++axis) {
    ir::Expr extent = axis < grid.size() ? grid[axis].value().expr() : ir::index(1);
    recorder_->check_in_scope(extent, loc);
    recorder_->bound_grid(extent, static_cast<int>(axis));
    if (axis < grid.size()) kernel.grid.push_back(extent);
    ir::Var block =
        *recorder_->new_var(names[axis], DType::i32, ir::VarKind::block, loc, ir::index(0), extent);
    block.axis = static_cast<int>(axis);
    kernel.blocks.push_back(recorder_->updated(std::move(block)));
    if (ir::is_constant(extent)) {
      recorder_->iterate(kernel.blocks.back(), 0, extent->integer - 1);
    }
    blocks.emplace_back(recorder_.get(), ir::var(kernel.blocks.back()));
  }
  recorder_->launched = true;
  return {blocks[0], blocks[1], blocks[2]};
}

Value Builder::thread() const {
  const ir::Roles::Role* role = recorder_->role;
  return Value(recorder_.get(), ir::var(role != nullptr ? role->thread : recorder_->kernel.thread));
}
Value Builder::lane() const {
  return thread() % 32;
}
Value Builder::warp() const {
  return thread() / 32;
}

TileRef Builder::shared(DType dtype, std::vector<int64_t> shape, std::string name, SourceLoc loc) {
  return TileRef(allocate(*recorder_, ir::Space::shared, dtype, shape, std::move(name), loc));
}
TileRef Builder::fragment(DType dtype, std::vector<int64_t> shape, std::string name,
                          SourceLoc loc) {
  return TileRef(allocate(*recorder_, ir::Space::fragment, dtype, shape, std::move(name), loc));
}
Ref Builder::local(DType dtype, std::vector<int64_t> shape, std::string name, SourceLoc loc) {
  return local(dtype, std::move(shape), LocalOptions{}, std::move(name), loc);
}
Ref Builder::local(DType dtype, std::vector<int64_t> shape, LocalOptions options, std::string name,
                   SourceLoc loc) {
  return allocate(*recorder_, ir::Space::local, dtype, shape, std::move(name), loc, nullptr,
                  options.dynamic);
}

TileRef Builder::fragment(DType dtype, const layout::Layout& layout, std::string name,
                          SourceLoc loc) {
  if (const auto collision = layout::find_collision(layout)) {
    auto tuple = [](const std::vector<int64_t>& index) {
      return fmt::format("({})", fmt::join(index, ", "));
    };
    recorder_->fail(
        "LAYOUT_NOT_INJECTIVE",
        fmt::format("the layout of fragment '{}' puts two elements into one register", name), loc,
        "one element per thread and slot",
        fmt::format("{} and {} both in thread {} slot {}", tuple(collision->first),
                    tuple(collision->second), collision->thread, collision->slot));
  }
  return TileRef(allocate(*recorder_, ir::Space::fragment, dtype, layout.shape(), std::move(name),
                          loc, std::make_shared<const layout::Layout>(layout)));
}

Ref Builder::var(DType dtype, Arg init, std::string name, SourceLoc loc) {
  check_name(*recorder_, name, loc);
  ir::Buffer buffer;
  buffer.name = std::move(name);
  buffer.dtype = dtype;
  buffer.space = ir::Space::scalar;
  buffer.loc = loc;
  Ref ref = recorder_->new_buffer(std::move(buffer));
  recorder_->store(ref.region(), init.as(dtype, recorder_.get()), loc);
  return ref;
}

Value Builder::let(std::string name, Arg value, SourceLoc loc) {
  check_name(*recorder_, name, loc);
  const Value v = value.value();
  recorder_->check_in_scope(v.expr(), loc);
  auto var = recorder_->new_var(std::move(name), v.dtype(), ir::VarKind::value, loc);
  recorder_->add({ir::Let{var, v.expr()}, loc});
  return Value(recorder_.get(), ir::var(var));
}

Value Builder::uniform(Arg value, SourceLoc loc) {
  const Value v = value.value();
  recorder_->check_in_scope(v.expr(), loc);
  auto var = recorder_->new_var("uniform", v.dtype(), ir::VarKind::value, loc);
  recorder_->add({ir::Let{var, v.expr(), true}, loc});
  return Value(recorder_.get(), ir::var(var));
}

ir::Kernel Builder::finish(SourceLoc loc) {
  if (recorder_->finished) recorder_->fail("SPENT_BUILDER", "finish() is called twice", loc);
  if (!recorder_->launched) recorder_->fail("NO_LAUNCH", "finish() without launch()", loc);
  if (!recorder_->marks.empty()) {  // its body threw
    recorder_->fail(
        "MARK", fmt::format("mark \"{}\" begins and does not end", recorder_->marks.back()), loc);
  }
  recorder_->kernel.body = recorder_->take_body();
  recorder_->drop_unread(recorder_->kernel.body);
  const ir::Kernel& kernel = recorder_->kernel;
  const bool has_output = std::any_of(kernel.tensors.begin(), kernel.tensors.end(),
                                      [](const ir::BufferRef& t) { return t->is_output; });
  if (!recorder_->has_effect && (has_output || kernel.body.empty())) {
    recorder_->fail("NO_EFFECT", "nobody can see what the kernel does", loc,
                    "a statement that writes a tensor, prints, asserts or calls a function",
                    kernel.body.empty() ? "no statements" : "none that does");
  }
  recorder_->finished = true;
  return recorder_->kernel;
}

}  // namespace tessera::dsl
