#include "tests/support/program_builder.h"

#include "dsl/base/dtype.h"

namespace tessera::test {

using namespace codegen;

ProgramBuilder::ProgramBuilder(std::string name, int threads) : bodies_(1) {
  program_.name = std::move(name);
  program_.threads = threads;
  program_.grid = {number(1)};
}

VarRef ProgramBuilder::make_var(const std::string& name, DType type, ir::VarKind kind, int axis) {
  auto var = std::make_shared<ir::Var>();
  var->name = name;
  var->type = type;
  var->kind = kind;
  var->axis = axis;
  var->id = program_.num_vars++;
  return var;
}

ArrayRef ProgramBuilder::tensor(const std::string& name, DType dtype, std::vector<Expr> shape,
                                bool read_only) {
  auto array = std::make_shared<Array>();
  array->name = name;
  array->dtype = dtype;
  array->space = ArraySpace::global;
  array->shape = std::move(shape);
  array->read_only = read_only;
  program_.params.push_back({name, array, nullptr});
  return array;
}

ArrayRef ProgramBuilder::input(const std::string& name, DType dtype, std::vector<Expr> shape) {
  return tensor(name, dtype, std::move(shape), true);
}

ArrayRef ProgramBuilder::output(const std::string& name, DType dtype, std::vector<Expr> shape) {
  return tensor(name, dtype, std::move(shape), false);
}

Expr ProgramBuilder::dim(const std::string& name) {
  VarRef var = make_var(name, DType::i32, ir::VarKind::dim);
  program_.params.push_back({name, nullptr, var});
  return ir::var(var);
}

Expr ProgramBuilder::scalar(const std::string& name, DType dtype) {
  VarRef var = make_var(name, dtype, ir::VarKind::scalar);
  program_.params.push_back({name, nullptr, var});
  return ir::var(var);
}

ArrayRef ProgramBuilder::shared(const std::string& name, DType dtype, std::vector<Expr> shape) {
  auto array = std::make_shared<Array>();
  array->name = name;
  array->dtype = dtype;
  array->space = ArraySpace::shared;
  array->size = 1;
  for (const Expr& extent : shape) array->size *= extent->integer;
  array->shape = std::move(shape);
  array->shared_offset = program_.shared_bytes;
  program_.shared_bytes += (array->size * bits(dtype) / 8 + 127) / 128 * 128;
  program_.shared.push_back(array);
  return array;
}

ArrayRef ProgramBuilder::registers(const std::string& name, DType dtype, int64_t size, bool zero) {
  auto array = std::make_shared<Array>();
  array->name = name;
  array->dtype = dtype;
  array->size = size;
  add(Declare{array, zero});
  return array;
}

Expr ProgramBuilder::thread() {
  if (!program_.thread) program_.thread = make_var("thread", DType::i32, ir::VarKind::thread);
  return ir::var(program_.thread);
}

Expr ProgramBuilder::block(const std::string& name, int axis) {
  program_.blocks.push_back(make_var(name, DType::i32, ir::VarKind::block, axis));
  return ir::var(program_.blocks.back());
}

void ProgramBuilder::comment(const std::string& text, int line) {
  add(Comment{text}, line > 0 ? SourceLoc{"kernels/sample.cpp", line} : SourceLoc{});
}

Expr ProgramBuilder::let(const std::string& name, Expr value) {
  VarRef var = make_var(name, value->type, ir::VarKind::value);
  add(Let{var, std::move(value)});
  return ir::var(var);
}

namespace {

Access access(const ArrayRef& array, Expr offset, int width, Expr guard) {
  Access result;
  result.array = array;
  result.offset = std::move(offset);
  result.width = width;
  result.bounds = guard ? Bounds::guarded : Bounds::proved;
  result.guard = std::move(guard);
  return result;
}

}  // namespace

Expr ProgramBuilder::load(const std::string& name, const ArrayRef& from, Expr offset, Expr guard) {
  VarRef var = make_var(name, from->dtype, ir::VarKind::value);
  add(Load{access(from, std::move(offset), 1, std::move(guard)), var, {}});
  return ir::var(var);
}

void ProgramBuilder::load(Slice into, const ArrayRef& from, Expr offset, int width, Expr guard) {
  add(Load{access(from, std::move(offset), width, std::move(guard)), nullptr, std::move(into)});
}

void ProgramBuilder::store(const ArrayRef& to, Expr offset, Expr value, Expr guard) {
  add(Store{access(to, std::move(offset), 1, std::move(guard)), std::move(value), {}});
}

void ProgramBuilder::store(const ArrayRef& to, Expr offset, Slice from, int width, Expr guard) {
  add(Store{access(to, std::move(offset), width, std::move(guard)), Expr(), std::move(from)});
}

void ProgramBuilder::convert(Slice into, Slice from, int width) {
  add(Convert{std::move(into), std::move(from), width});
}

Expr ProgramBuilder::collective(const std::string& name, ir::CollectiveKind kind,
                                std::vector<Expr> args, int width) {
  using ir::CollectiveKind;
  DType type = args.at(0)->type;
  if (kind == CollectiveKind::ballot || kind == CollectiveKind::match_any) type = DType::u32;
  VarRef var = make_var(name, type, ir::VarKind::value);
  add(Collective{var, kind, std::move(args), width});
  return ir::var(var);
}

void ProgramBuilder::barrier() {
  add(Barrier{});
}

void ProgramBuilder::warp_barrier() {
  add(Barrier{BarrierScope::warp});
}

Body ProgramBuilder::collect(const std::function<void()>& build) {
  bodies_.emplace_back();
  build();
  Body body = std::move(bodies_.back());
  bodies_.pop_back();
  return body;
}

void ProgramBuilder::for_loop(const std::string& name, Expr begin, Expr end, Expr step,
                              bool unrolled, const std::function<void(Expr)>& body) {
  VarRef var = make_var(name, begin->type, ir::VarKind::loop);
  Body statements = collect([&] { body(ir::var(var)); });
  add(For{var, std::move(begin), std::move(end), std::move(step), unrolled, std::move(statements)});
}

void ProgramBuilder::loop(const std::string& name, Expr begin, Expr end, Expr step,
                          const std::function<void(Expr)>& body) {
  for_loop(name, std::move(begin), std::move(end), std::move(step), false, body);
}

void ProgramBuilder::unrolled(const std::string& name, int64_t end,
                              const std::function<void(Expr)>& body) {
  for_loop(name, number(0), number(end), number(1), true, body);
}

void ProgramBuilder::branch(Expr condition, const std::function<void()>& then,
                            const std::function<void()>& otherwise) {
  Body then_body = collect(then);
  Body otherwise_body;
  if (otherwise) otherwise_body = collect(otherwise);
  add(If{std::move(condition), std::move(then_body), std::move(otherwise_body)});
}

Program ProgramBuilder::finish() const {
  Program program = program_;
  program.body = bodies_.front();
  return program;
}

}  // namespace tessera::test
