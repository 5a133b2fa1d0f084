#include "codegen/cuda/emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/cuda/literal.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
namespace {

/// Bytes that an access of `width` elements moves.
int access_bytes(const Array& array, int width) {
  return array.space == ArraySpace::registers ? width * bytes(array.dtype)
                                              : width * bits(array.dtype) / 8;
}

/// Half of an even sum. Terms with an even factor are halved by themselves, so that the compiler
/// sees how far apart accesses are; the others, whose sum is even then, together.
Expr half(const Expr& sum) {
  const Expr zero = ir::constant(sum->type, 0);
  Expr halves = zero, rest = zero;
  const auto add = [&](const auto& self, const Expr& e) -> void {
    const bool is_even = ir::is_constant(e) && e->integer % 2 == 0;
    if (e->op == ir::Op::add) {
      self(self, e->args[0]);
      self(self, e->args[1]);
    } else if (is_even) {
      halves = halves + ir::constant(e->type, e->integer / 2);
    } else if (e->op == ir::Op::mul && ir::is_constant(e->args[1]) &&
               e->args[1]->integer % 2 == 0) {
      halves = halves + e->args[0] * ir::constant(e->type, e->args[1]->integer / 2);
    } else {
      rest = rest + e;
    }
  };
  add(add, sum);
  if (ir::is_constant(rest, 0)) return halves;
  const auto shifted = [](const Expr& e) {
    return ir::binary(ir::Op::shr, e, ir::constant(DType::i32, 1));
  };
  const bool is_widened = rest->op == ir::Op::cast && rest->args[0]->type == DType::i32;
  return halves + (is_widened ? ir::cast(rest->type, shifted(rest->args[0])) : shifted(rest));
}

}  // namespace

Emitter::Emitter(const Program& program) : program_(program), usage_(program) {
  walk(program.body, [&](const Stmt& stmt) {
    for_each_call(stmt, [&](const ir::ExternFunction& function) { names_.reserve(function.name); });
  });
  signature();
  indices();
  shared_arrays();
  body(program.body);
  out_.close();
}

std::string Emitter::memory_type(DType dtype) {
  return dtype == DType::e2m1 ? expressions_.call("e2m1x2") : expressions_.type(dtype);
}

void Emitter::signature() {
  std::string bounds = fmt::format("{}", program_.threads);
  const int blocks = program_.min_blocks_per_sm;
  constexpr int kThreadsOfAnySm = 1536, kBlocksOfAnySm = 16;
  const bool sets_registers =
      std::any_of(program_.body.begin(), program_.body.end(), [](const Stmt& stmt) {
        const auto* const bodies = std::get_if<RoleBodies>(&stmt.node);
        return bodies != nullptr &&
               std::any_of(bodies->roles.begin(), bodies->roles.end(),
                           [](const RoleBodies::Role& role) { return role.registers > 0; });
      });
  if (sets_registers) {
    bounds += ", 1";  // the registers at launch are those of one block per multiprocessor
  } else if (blocks * program_.threads > kThreadsOfAnySm || blocks > kBlocksOfAnySm) {
    bounds +=
        fmt::format(", {}<{}, {}>", expressions_.call("blocks_per_sm"), blocks, program_.threads);
  } else if (blocks > 0) {
    bounds += fmt::format(", {}", blocks);
  }
  std::string params;
  for (const Param& param : program_.params) {
    if (!params.empty()) params += ", ";
    if (param.array) {
      const bool read_only = usage_.is_constant(*param.array);
      params += fmt::format("{}{}*{} {}", param.array->read_only ? "const " : "",
                            memory_type(param.array->dtype), read_only ? " __restrict__" : "",
                            names_.declare(param.array.get(), param.name));
    } else {
      params += fmt::format("{} {}", expressions_.type(param.var->type),
                            names_.declare(param.var.get(), param.name));
    }
  }
  for (const TensorMapRef& map : program_.maps) {
    params += fmt::format("{}const __grid_constant__ {} {}", params.empty() ? "" : ", ",
                          expressions_.call("tensor_map"), names_.declare(map.get(), map->name));
  }
  if (program_.cooperative) {
    grid_barrier_ = names_.fresh("grid_barrier");
    params += fmt::format("{}{}* {}", params.empty() ? "" : ", ", expressions_.call("u32"),
                          grid_barrier_);
  }
  out_.directive(fmt::format("extern \"C\" __global__ void __launch_bounds__({})", bounds));
  out_.open(fmt::format("tessera_{}({})", program_.name, params));
}

void Emitter::indices() {
  const auto index = [&](const VarRef& var, const std::string& source) {
    if (var && usage_.is_used(*var)) bind(var, source);
  };
  for (const VarRef& block : program_.blocks) {
    TESSERA_CHECK(block->axis >= 0 && block->axis < 3, "a block index has axis 0, 1 or 2");
    index(block, fmt::format("blockIdx.{}", "xyz"[block->axis]));
  }
  index(program_.thread, "threadIdx.x");
  const bool has_roles = std::any_of(program_.body.begin(), program_.body.end(), [](const Stmt& s) {
    return std::holds_alternative<RoleBodies>(s.node);
  });
  if (program_.thread && !has_roles) bind_first_of_warp(program_.thread, program_.body);
  if (!program_.marked_block) return;
  next_mark_ = names_.fresh("next_mark");
  out_.line(fmt::format("{}* {} = {}({});", expressions_.type(DType::u64), next_mark_,
                        expressions_.call("marks_of_warp"), *program_.marked_block));
}

void Emitter::shared_arrays() {
  bool first = true;
  int64_t align = 128;
  for (const ArrayRef& array : program_.shared) align = std::max(align, array->align);
  for (const ArrayRef& array : program_.shared) {
    if (!usage_.is_accessed(*array)) continue;
    if (first) {
      out_.line(fmt::format("extern __shared__ __align__({}) unsigned char arena[];", align));
    }
    first = false;
    const std::string type = memory_type(array->dtype);
    const std::string start =
        array->shared_offset == 0 ? "arena" : fmt::format("arena + {}", array->shared_offset);
    out_.line(fmt::format("{}* const {} = reinterpret_cast<{}*>({});", type,
                          names_.declare(array.get(), array->name), type, start));
  }
}

void Emitter::body(const Body& body) {
  for (const Stmt& stmt : body) {
    loc_ = stmt.loc;
    if (loc_.known()) origins_.push_back({out_.num_lines() + 1, loc_});
    std::visit([&](const auto& node) { print(node); }, stmt.node);
  }
}

void Emitter::bind(const VarRef& var, const std::string& text) {
  // The name is declared after its value is printed: it must not stand for an outer variable in
  // there.
  out_.line(fmt::format("const {} {} = {};", expressions_.type(var->type),
                        names_.declare(var.get(), var->name), text));
}

void Emitter::print(const Let& let) {
  bind(let.var, expressions_.print(let.value, usage_.role(*let.var)));
}

void Emitter::print(const Load& load) {
  const Array& array = *load.from.array;
  if (!load.into.array) {
    if (load.at_use) return;
    bind(load.var, expressions_.element(load.from).text);
    return;
  }
  const int width = load.from.width;
  if (width == 1) {
    out_.line(fmt::format("{} = {};", expressions_.element(*load.into.array, load.into.base),
                          expressions_.element(load.from).text));
    return;
  }
  const int count = access_bytes(array, width);
  TESSERA_CHECK(count <= 16 && std::has_single_bit(static_cast<unsigned>(count)),
                fmt::format("a load of {} bytes from '{}'", count, array.name));
  const bool packed = array.dtype == DType::e2m1 && array.space != ArraySpace::registers;
  const std::string guard =
      load.from.guard ? expressions_.index(load.from.guard) + ", " : std::string();
  const bool has_hint = load.from.cache != ir::CacheHint::none;
  const std::string& function = expressions_.call(
      fmt::format("load{}{}{}{}", packed ? "_e2m1" : "", load.by_branch ? "_here" : "",
                  load.from.guard ? "_or_zero" : "", has_hint ? "_as" : ""));
  const std::string hint = has_hint ? expressions_.load_hint(load.from) + ", " : std::string();
  const std::string from =
      expressions_.address(array, packed ? half(load.from.offset) : load.from.offset);
  out_.line(fmt::format("{}<{}{}>({}{}, {});", function, hint, width, guard,
                        expressions_.address(*load.into.array, load.into.base), from));
}

void Emitter::print(const Store& store) {
  const Array& array = *store.to.array;
  const int width = store.to.width;
  const bool packed = array.dtype == DType::e2m1 && array.space != ArraySpace::registers;
  TESSERA_CHECK(!array.read_only, fmt::format("a store to '{}', which is read only", array.name));
  TESSERA_CHECK(
      !packed || width % 2 == 0,
      fmt::format("a store of one e2m1 to '{}' would tear the byte it shares", array.name));
  const bool has_hint = store.to.cache != ir::CacheHint::none;
  const std::string hint = has_hint ? expressions_.call(ir::name(store.to.cache)) : std::string();
  std::string text;
  if (width == 1) {
    std::string value = store.from.array
                            ? expressions_.element(*store.from.array, store.from.base)
                            : expressions_.print(store.value, usage_.store_role(array));
    if (store.kept_for_loops) {
      value = fmt::format("{}({})", expressions_.call("computed_here"), value);
    }
    const std::string element = expressions_.element(array, store.to.offset);
    text = has_hint ? fmt::format("{}<{}, {}>(&{}, {});", expressions_.call("write_as"), hint,
                                  memory_type(array.dtype), element, value)
                    : fmt::format("{} = {};", element, value);
  } else {
    const int count = access_bytes(array, width);
    TESSERA_CHECK(count <= 16 && std::has_single_bit(static_cast<unsigned>(count)),
                  fmt::format("a store of {} bytes to '{}'", count, array.name));
    const std::string from = expressions_.address(*store.from.array, store.from.base);
    const std::string& function = expressions_.call(packed     ? "store_e2m1"
                                                    : has_hint ? "store_as"
                                                               : "store");
    const std::string to =
        expressions_.address(array, packed ? half(store.to.offset) : store.to.offset);
    text = fmt::format("{}<{}{}>({}, {});", function, has_hint ? hint + ", " : "", width, to, from);
  }
  if (!store.to.guard) {
    out_.line(text);
    return;
  }
  const std::string condition = fmt::format("if ({})", expressions_.index(store.to.guard));
  if (out_.fits(condition + " " + text)) {
    out_.line(condition + " " + text);
    return;
  }
  out_.open(condition);
  out_.line(text);
  out_.close();
}

void Emitter::print(const Convert& convert) {
  if (convert.width == convert.at_once) {
    out_.line(conversion(convert, ""));
    return;
  }
  names_.enter();
  const std::string i = names_.fresh("i");
  out_.directive("#pragma unroll");
  out_.open(
      fmt::format("for (int {0} = 0; {0} < {1}; {2})", i, convert.width,
                  convert.at_once > 1 ? fmt::format("{} += {}", i, convert.at_once) : "++" + i));
  out_.line(conversion(convert, i));
  out_.close();
  names_.leave();
}

std::string Emitter::conversion(const Convert& convert, const std::string& step) {
  const DType to = convert.into.array->dtype, from = convert.from.array->dtype;
  const auto element = [&](const Slice& slice, const std::string& at) {
    if (at.empty()) return expressions_.element(*slice.array, slice.base);
    return expressions_.element(*slice.array, slice.base, at);
  };
  const std::string into = element(convert.into, step), source = element(convert.from, step);
  const auto of_pointers = [&](const std::string& function) {
    return fmt::format("{}(&{}, &{});", expressions_.call(function), into, source);
  };
  switch (convert.at_once) {
    case 8:
      return of_pointers("f16x8_to_e2m1x8");
    case 4:
      return of_pointers(fmt::format("f32_to_{}x4", name(to)));
    case 2: {
      if (to == DType::f16 && from == DType::e4m3) return of_pointers("e4m3x2_to_f16x2");
      const std::string next = element(convert.from, step.empty() ? "1" : step + " + 1");
      return fmt::format(
          "{}(&{}, {}, {});", expressions_.call(fmt::format("f32_to_{}x2", name(to))), into,
          expressions_.widen(from, {source}).text, expressions_.widen(from, {next}).text);
    }
    default:
      return fmt::format("{} = {};", into,
                         expressions_.convert(to, from, {source}, ValueRole::value).text);
  }
}

void Emitter::print(const Packed& packed) {
  const DType dtype = packed.into.array->dtype;
  const std::string op = packed.op == ir::Op::abs
                             ? "abs_x2"
                             : fmt::format("{}_{}{}x2", ir::name(packed.op),
                                           packed.of_magnitude ? "abs_" : "", name(dtype));
  std::string args = expressions_.address(*packed.into.array, packed.into.base);
  for (const Slice& arg : packed.args) {
    args += ", " + expressions_.address(*arg.array, arg.base);
  }
  out_.line(fmt::format("{}<{}, {}>({});", expressions_.call("in_pairs"), expressions_.call(op),
                        packed.width, args));
}

void Emitter::print(const For& loop) {
  const std::string begin = expressions_.index(loop.begin);
  const std::string end = expressions_.index(loop.end, Precedence::shift);
  const std::string step = expressions_.index(loop.step);
  names_.enter();
  const std::string& i = names_.declare(loop.var.get(), loop.var->name);
  if (loop.at_once > 0) {
    out_.directive(fmt::format("#pragma unroll {}", loop.at_once));
  } else if (loop.unrolled) {
    out_.directive("#pragma unroll");
  }
  const std::string advance =
      loop.may_wrap ? fmt::format("{0} = {1}({0}, {2}, {3})", i, expressions_.call("next_index"),
                                  step, expressions_.index(loop.end))
      : ir::is_constant(loop.step, 1) ? "++" + i
                                      : fmt::format("{} += {}", i, step);
  out_.open(fmt::format("for ({} {} = {}; {} < {}; {})", expressions_.type(loop.var->type), i,
                        begin, i, end, advance));
  body(loop.body);
  out_.close();
  names_.leave();
}

void Emitter::print(const If& branch) {
  const auto condition = [&](const If& of) {
    return of.is_guard ? expressions_.index(of.condition) : expressions_.value(of.condition);
  };
  out_.open(fmt::format("if ({})", condition(branch)));
  names_.enter();
  body(branch.then);
  names_.leave();
  // "else if" needs no block of its own.
  const Body* otherwise = &branch.otherwise;
  while (otherwise->size() == 1 && std::holds_alternative<If>(otherwise->front().node)) {
    const If& next = std::get<If>(otherwise->front().node);
    out_.close(fmt::format(" else if ({}) {{", condition(next)));
    names_.enter();
    body(next.then);
    names_.leave();
    otherwise = &next.otherwise;
  }
  if (!otherwise->empty()) {
    out_.close(" else {");
    names_.enter();
    body(*otherwise);
    names_.leave();
  }
  out_.close();
}

void Emitter::print(const Comment& comment) {
  out_.comment(loc_.known() ? fmt::format("{}  ({})", comment.text, to_string(loc_))
                            : comment.text);
}

void Emitter::print(const Declare& declare) {
  const Array& array = *declare.array;
  const std::string type = expressions_.type(array.dtype);
  if (array.space == ArraySpace::global) {
    // The name is declared after its address is printed, which may use an outer one.
    const std::string address = expressions_.index(array.address);
    const std::string pointee = (array.read_only ? "const " : "") + memory_type(array.dtype);
    out_.line(fmt::format("{}* const {} = reinterpret_cast<{}*>({});", pointee,
                          names_.declare(&array, array.name), pointee, address));
    return;
  }
  if (array.space == ArraySpace::cluster) {
    const std::string view =
        fmt::format("{}({}, {})", expressions_.call("of_block"), names_.of(array.mine.get()),
                    expressions_.index(array.block));
    out_.line(fmt::format("{}* const {} = {};", memory_type(array.dtype),
                          names_.declare(&array, array.name), view));
    return;
  }
  const std::string& name = names_.declare(&array, array.name);
  if (array.size == 1 && !usage_.is_vector(array)) {
    const char* zero = array.dtype == DType::f32 ? " = 0.0f" : " = 0";
    out_.line(fmt::format("{} {}{};", type, name, declare.zero ? zero : ""));
    return;
  }
  // A vector access moves whole registers only if the array starts on a register.
  out_.line(fmt::format("{}{} {}[{}]{};", usage_.is_vector(array) ? "alignas(16) " : "", type, name,
                        array.size, declare.zero ? " = {}" : ""));
}

}  // namespace tessera::codegen::cuda
