#include "tests/codegen/cpu/thread_kernel.h"

namespace tessera::codegen::cpu {

ThreadKernel::ThreadKernel(int threads, std::vector<Expr> grid) {
  program_.name = "kernel";
  program_.threads = threads;
  program_.thread = variable("thread", DType::i32, ir::VarKind::thread);
  for (size_t axis = 0; axis < grid.size(); ++axis) {
    auto block = std::make_shared<ir::Var>();
    block->name = std::string("block_") + "xyz"[axis];
    block->kind = ir::VarKind::block;
    block->axis = static_cast<int>(axis);
    block->id = program_.num_vars++;
    program_.blocks.push_back(std::move(block));
  }
  program_.grid = std::move(grid);
  bodies_.push_back(&program_.body);
}

VarRef ThreadKernel::variable(std::string name, DType type, ir::VarKind kind) {
  auto var = std::make_shared<ir::Var>();
  var->name = std::move(name);
  var->type = type;
  var->kind = kind;
  var->id = program_.num_vars++;
  return var;
}

ArrayRef ThreadKernel::tensor(std::string name, DType dtype, std::vector<Expr> shape,
                              bool read_only) {
  auto array = std::make_shared<Array>();
  array->name = name;
  array->dtype = dtype;
  array->space = ArraySpace::global;
  array->shape = std::move(shape);
  array->read_only = read_only;
  program_.params.push_back({std::move(name), array, nullptr});
  return array;
}

Expr ThreadKernel::parameter(std::string name, DType dtype, ir::VarKind kind) {
  VarRef var = variable(name, dtype, kind);
  program_.params.push_back({std::move(name), nullptr, var});
  return ir::var(var);
}

ArrayRef ThreadKernel::shared(std::string name, DType dtype, std::vector<int64_t> shape) {
  auto array = std::make_shared<Array>();
  array->name = std::move(name);
  array->dtype = dtype;
  array->space = ArraySpace::shared;
  array->shared_offset = program_.shared_bytes;
  array->size = 1;
  for (const int64_t extent : shape) {
    array->size *= extent;
    array->shape.push_back(integer(extent));
  }
  program_.shared_bytes += (array->size * bits(dtype) / 8 + 127) / 128 * 128;
  program_.shared.push_back(array);
  return array;
}

ArrayRef ThreadKernel::registers(std::string name, DType dtype, int64_t size, bool zero) {
  auto array = std::make_shared<Array>();
  array->name = std::move(name);
  array->dtype = dtype;
  array->size = size;
  add(Declare{array, zero}, {});
  return array;
}

Access ThreadKernel::access(const ArrayRef& array, std::vector<Expr> indices, int width,
                            Expr guard) const {
  Access result;
  result.array = array;
  result.width = width;
  result.guard = std::move(guard);
  if (array->space == ArraySpace::registers) {
    result.offset = indices.front();
    return result;
  }
  Expr offset = ir::cast(DType::i64, indices.front());
  for (size_t i = 1; i < indices.size(); ++i) offset = offset * array->shape[i] + indices[i];
  result.offset = std::move(offset);
  result.indices = std::move(indices);
  return result;
}

Expr ThreadKernel::let(Expr value, SourceLoc loc) {
  VarRef var = variable("v" + std::to_string(program_.num_vars), value->type, ir::VarKind::value);
  add(Let{var, std::move(value)}, loc);
  return ir::var(var);
}

Expr ThreadKernel::load(const ArrayRef& array, std::vector<Expr> indices, Expr guard,
                        SourceLoc loc) {
  VarRef var = variable("v" + std::to_string(program_.num_vars), array->dtype, ir::VarKind::value);
  add(Load{access(array, std::move(indices), 1, std::move(guard)), var, {}}, loc);
  return ir::var(var);
}

void ThreadKernel::store(const ArrayRef& array, std::vector<Expr> indices, Expr value, Expr guard,
                         SourceLoc loc) {
  add(Store{access(array, std::move(indices), 1, std::move(guard)), std::move(value), {}}, loc);
}

void ThreadKernel::load_vector(const ArrayRef& array, std::vector<Expr> indices, int width,
                               const ArrayRef& registers, Expr base, Expr guard, SourceLoc loc) {
  add(Load{access(array, std::move(indices), width, std::move(guard)),
           nullptr,
           {registers, std::move(base)}},
      loc);
}

void ThreadKernel::store_vector(const ArrayRef& array, std::vector<Expr> indices, int width,
                                const ArrayRef& registers, Expr base, Expr guard, SourceLoc loc) {
  add(Store{access(array, std::move(indices), width, std::move(guard)),
            {},
            {registers, std::move(base)}},
      loc);
}

void ThreadKernel::convert(const ArrayRef& into, const ArrayRef& from, int width, SourceLoc loc) {
  add(Convert{{into, integer(0)}, {from, integer(0)}, width}, loc);
}

void ThreadKernel::loop(Expr begin, Expr end, Expr step, const std::function<void(Expr)>& body) {
  For loop;
  loop.var = variable("i" + std::to_string(program_.num_vars), DType::i32, ir::VarKind::loop);
  loop.begin = std::move(begin);
  loop.end = std::move(end);
  loop.step = std::move(step);
  bodies_.push_back(&loop.body);
  body(ir::var(loop.var));
  bodies_.pop_back();
  add(std::move(loop), {});
}

void ThreadKernel::branch(Expr condition, const std::function<void()>& then,
                          const std::function<void()>& otherwise) {
  If branch;
  branch.condition = std::move(condition);
  bodies_.push_back(&branch.then);
  then();
  bodies_.back() = &branch.otherwise;
  if (otherwise) otherwise();
  bodies_.pop_back();
  add(std::move(branch), {});
}

Expr ThreadKernel::collective(ir::CollectiveKind kind, DType type, std::vector<Expr> args,
                              int width, SourceLoc loc) {
  VarRef var = variable("v" + std::to_string(program_.num_vars), type, ir::VarKind::value);
  add(Collective{var, kind, std::move(args), width}, loc);
  return ir::var(var);
}

void ThreadKernel::run(const std::vector<Argument>& arguments, const Options& options) const {
  Executable(program_).run(arguments, options);
}

Counts ThreadKernel::count(const std::vector<Argument>& arguments) const {
  Counts counts;
  Options options;
  options.counts = &counts;
  run(arguments, options);
  return counts;
}

}  // namespace tessera::codegen::cpu
