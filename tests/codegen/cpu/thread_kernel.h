#pragma once
// Builds small thread-IR programs by hand and runs them on the CPU executor.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cpu/executor.h"

namespace tessera::codegen::cpu {

inline Expr number(double value) {
  return ir::float_constant(DType::f32, value);
}
inline Expr integer(int64_t value) {
  return ir::constant(DType::i32, value);
}
inline Expr less(Expr a, Expr b) {
  return ir::binary(ir::Op::lt, std::move(a), std::move(b));
}

/// A Program under construction. Statements go to the end of the innermost open body.
class ThreadKernel {
 public:
  explicit ThreadKernel(int threads, std::vector<Expr> grid = {integer(1)});

  Expr thread() const { return ir::var(program_.thread); }
  Expr block(int axis) const { return ir::var(program_.blocks[static_cast<size_t>(axis)]); }
  /// A tensor parameter, row-major.
  ArrayRef tensor(std::string name, DType dtype, std::vector<Expr> shape, bool read_only = false);
  Expr dim(std::string name) { return parameter(std::move(name), DType::i32, ir::VarKind::dim); }
  Expr scalar(std::string name, DType dtype) {
    return parameter(std::move(name), dtype, ir::VarKind::scalar);
  }
  ArrayRef shared(std::string name, DType dtype, std::vector<int64_t> shape);
  ArrayRef registers(std::string name, DType dtype, int64_t size, bool zero = false);

  Expr let(Expr value, SourceLoc loc = SourceLoc::here());
  /// array[indices], zero where `guard` is false.
  Expr load(const ArrayRef& array, std::vector<Expr> indices, Expr guard = {},
            SourceLoc loc = SourceLoc::here());
  void store(const ArrayRef& array, std::vector<Expr> indices, Expr value, Expr guard = {},
             SourceLoc loc = SourceLoc::here());
  /// `width` elements between memory and registers[base..].
  void load_vector(const ArrayRef& array, std::vector<Expr> indices, int width,
                   const ArrayRef& registers, Expr base = integer(0), Expr guard = {},
                   SourceLoc loc = SourceLoc::here());
  void store_vector(const ArrayRef& array, std::vector<Expr> indices, int width,
                    const ArrayRef& registers, Expr base = integer(0), Expr guard = {},
                    SourceLoc loc = SourceLoc::here());
  void convert(const ArrayRef& into, const ArrayRef& from, int width,
               SourceLoc loc = SourceLoc::here());
  void loop(Expr begin, Expr end, Expr step, const std::function<void(Expr)>& body);
  void branch(Expr condition, const std::function<void()>& then,
              const std::function<void()>& otherwise = {});
  void barrier(SourceLoc loc = SourceLoc::here()) { add(Barrier{}, loc); }
  void warp_barrier(SourceLoc loc = SourceLoc::here()) { add(Barrier{BarrierScope::warp}, loc); }
  Expr collective(ir::CollectiveKind kind, DType type, std::vector<Expr> args, int width = 32,
                  SourceLoc loc = SourceLoc::here());

  const Program& program() const { return program_; }
  Program& program() { return program_; }
  void run(const std::vector<Argument>& arguments, const Options& options = {}) const;
  /// The counts of a run.
  Counts count(const std::vector<Argument>& arguments) const;
  /// The program's variables, for expressions of a test's own.
  VarRef variable(std::string name, DType type, ir::VarKind kind);

 private:
  Expr parameter(std::string name, DType dtype, ir::VarKind kind);
  Access access(const ArrayRef& array, std::vector<Expr> indices, int width, Expr guard) const;
  template <class Node>
  void add(Node node, SourceLoc loc) {
    Stmt& statement = bodies_.back()->emplace_back();
    statement.node.emplace<Node>(std::move(node));
    statement.loc = loc;
  }

  Program program_;
  std::vector<Body*> bodies_;
};

/// A row-major tensor argument over `values`.
template <class T>
Argument argument(std::vector<T>& values, DType dtype) {
  Argument result;
  result.tensor = TensorView(values.data(), dtype, Dims{static_cast<int64_t>(values.size())});
  return result;
}
inline Argument argument(int64_t value) {
  Argument result;
  result.integer = value;
  return result;
}

}  // namespace tessera::codegen::cpu
