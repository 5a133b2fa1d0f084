#include "codegen/products/product_lowering.h"

#include <utility>

#include "codegen/lowering/tile_lowering.h"

namespace tessera::codegen {

Expr ProductLowering::thread() const {
  return tiles_.thread();
}
void ProductLowering::add(Stmt stmt) {
  tiles_.emit(std::move(stmt));
}
void ProductLowering::unrolled(const std::string& name, int64_t count,
                               const std::function<void(const Expr&)>& fn) {
  tiles_.unrolled(name, count, loc_, fn);
}
ArrayRef ProductLowering::array_of(const ir::BufferRef& buffer) const {
  return tiles_.array_of(buffer);
}
ArrayRef ProductLowering::new_registers(std::string name, DType dtype, int64_t size) {
  return tiles_.new_registers(std::move(name), dtype, size, loc_);
}
VarRef ProductLowering::new_value(std::string name, DType dtype) {
  return tiles_.new_var(std::move(name), dtype, ir::VarKind::value);
}
std::vector<Expr> ProductLowering::resolve(const std::vector<Expr>& indices) const {
  return tiles_.resolve(indices);
}
Expr ProductLowering::simplify(const Expr& e) const {
  return tiles_.math_.simplify(e);
}
int64_t ProductLowering::divisor(const Expr& e) const {
  return tiles_.math_.divisor(tiles_.resolve(e));
}
Access ProductLowering::access(const ir::Region& region, const std::vector<Expr>& indices,
                               int width) {
  return tiles_.access(region.buffer, indices, width, region.terms, loc_);
}
void ProductLowering::note(std::string text) {
  tiles_.result_.notes.push_back(std::move(text));
}

}  // namespace tessera::codegen
