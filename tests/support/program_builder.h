#pragma once
// Builds thread-IR programs by hand, one call per statement.

#include <functional>
#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::test {

using codegen::ArrayRef;
using codegen::ArraySpace;
using codegen::Program;
using codegen::Slice;
using ir::Expr;
using ir::VarRef;

class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string name, int threads = 128);

  // ---- parameters and memory
  ArrayRef input(const std::string& name, DType dtype, std::vector<Expr> shape);
  ArrayRef output(const std::string& name, DType dtype, std::vector<Expr> shape);
  Expr dim(const std::string& name);
  Expr scalar(const std::string& name, DType dtype);
  ArrayRef shared(const std::string& name, DType dtype, std::vector<Expr> shape);
  ArrayRef registers(const std::string& name, DType dtype, int64_t size, bool zero = false);
  Expr thread();
  Expr block(const std::string& name, int axis);
  void grid(std::vector<Expr> extents) { program_.grid = std::move(extents); }
  void min_blocks(int count) { program_.min_blocks_per_sm = count; }

  // ---- statements
  void comment(const std::string& text, int line = 0);
  Expr let(const std::string& name, Expr value);
  Expr load(const std::string& name, const ArrayRef& from, Expr offset, Expr guard = Expr());
  void load(Slice into, const ArrayRef& from, Expr offset, int width, Expr guard = Expr());
  void store(const ArrayRef& to, Expr offset, Expr value, Expr guard = Expr());
  void store(const ArrayRef& to, Expr offset, Slice from, int width, Expr guard = Expr());
  void convert(Slice into, Slice from, int width);
  Expr collective(const std::string& name, ir::CollectiveKind kind, std::vector<Expr> args,
                  int width = 32);
  void barrier();
  void warp_barrier();
  void loop(const std::string& name, Expr begin, Expr end, Expr step,
            const std::function<void(Expr)>& body);
  void unrolled(const std::string& name, int64_t end, const std::function<void(Expr)>& body);
  void branch(Expr condition, const std::function<void()>& then,
              const std::function<void()>& otherwise = {});

  Program finish() const;

 private:
  VarRef make_var(const std::string& name, DType type, ir::VarKind kind, int axis = 0);
  ArrayRef tensor(const std::string& name, DType dtype, std::vector<Expr> shape, bool read_only);
  codegen::Body collect(const std::function<void()>& build);
  void for_loop(const std::string& name, Expr begin, Expr end, Expr step, bool unrolled,
                const std::function<void(Expr)>& body);
  template <class Node>
  void add(Node node, SourceLoc loc = {}) {
    bodies_.back().push_back({std::move(node), loc});
  }

  Program program_;
  std::vector<codegen::Body> bodies_;
};

/// i32 constant.
inline Expr number(int64_t value) {
  return ir::constant(DType::i32, value);
}
inline Expr f32(double value) {
  return ir::float_constant(DType::f32, value);
}
inline Expr wide(Expr e) {
  return ir::cast(DType::i64, std::move(e));
}

}  // namespace tessera::test
