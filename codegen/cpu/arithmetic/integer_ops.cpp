// Integer, boolean and select loops; dsl/ir/integer_ops.h says what the operations are.

#include "dsl/ir/integer_ops.h"

#include "codegen/cpu/arithmetic/column_ops.h"

namespace tessera::codegen::cpu {
namespace {

namespace integer = ir::integer;

template <class T, class Result, class Second, class F>
void map2(void* out, const void* a, const void* b, const void*, int64_t count) {
  auto* __restrict to = static_cast<Result*>(out);
  const auto* __restrict x = static_cast<const T*>(a);
  const auto* __restrict y = static_cast<const Second*>(b);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(F()(x[i], y[i]));
}

template <class T, class Result, class F>
void map1(void* out, const void* a, const void*, const void*, int64_t count) {
  auto* __restrict to = static_cast<Result*>(out);
  const auto* __restrict x = static_cast<const T*>(a);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(F()(x[i]));
}

template <class T>
void select(void* out, const void* a, const void* b, const void* c, int64_t count) {
  auto* __restrict to = static_cast<T*>(out);
  const auto* __restrict condition = static_cast<const uint8_t*>(a);
  const auto* __restrict then = static_cast<const T*>(b);
  const auto* __restrict otherwise = static_cast<const T*>(c);
  for (int64_t i = 0; i < count; ++i) to[i] = condition[i] != 0 ? then[i] : otherwise[i];
}

template <class T>
ColumnOp find(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::add:
      return map2<T, T, T, integer::Add>;
    case Op::sub:
      return map2<T, T, T, integer::Sub>;
    case Op::mul:
      return map2<T, T, T, integer::Mul>;
    case Op::div:
      return map2<T, T, T, integer::Div>;
    case Op::mod:
      return map2<T, T, T, integer::Mod>;
    case Op::min:
      return map2<T, T, T, integer::Min>;
    case Op::max:
      return map2<T, T, T, integer::Max>;
    case Op::bit_and:
      return map2<T, T, T, integer::And>;
    case Op::bit_or:
      return map2<T, T, T, integer::Or>;
    case Op::bit_xor:
      return map2<T, T, T, integer::Xor>;
    case Op::shl:
      return map2<T, T, uint32_t, integer::Shl>;
    case Op::shr:
      return map2<T, T, uint32_t, integer::Shr>;
    case Op::lt:
      return map2<T, uint8_t, T, integer::Less>;
    case Op::le:
      return map2<T, uint8_t, T, integer::LessEqual>;
    case Op::eq:
      return map2<T, uint8_t, T, integer::Equal>;
    case Op::ne:
      return map2<T, uint8_t, T, integer::NotEqual>;
    case Op::neg:
      return map1<T, T, integer::Neg>;
    case Op::abs:
      if constexpr (std::is_signed_v<T>) return map1<T, T, integer::Abs>;
      return nullptr;
    case Op::mulhi:
      if constexpr (sizeof(T) >= 4) return map2<T, T, T, integer::MulHi>;
      return nullptr;
    case Op::popcount:
      return map1<T, int32_t, integer::Popcount>;
    case Op::clz:
      return map1<T, int32_t, integer::Clz>;
    case Op::ffs:
      return map1<T, int32_t, integer::Ffs>;
    default:
      return nullptr;
  }
}

}  // namespace

ColumnOp find_integer_op(ir::Op op, DType type) {
  switch (type) {
    case DType::i8:
      return find<int8_t>(op);
    case DType::u8:
      return find<uint8_t>(op);
    case DType::i16:
      return find<int16_t>(op);
    case DType::u16:
      return find<uint16_t>(op);
    case DType::i32:
      return find<int32_t>(op);
    case DType::u32:
      return find<uint32_t>(op);
    case DType::i64:
      return find<int64_t>(op);
    case DType::u64:
      return find<uint64_t>(op);
    default:
      return nullptr;
  }
}

ColumnOp find_boolean_op(ir::Op op) {
  using ir::Op;
  using T = uint8_t;
  switch (op) {
    case Op::logical_and:
    case Op::bit_and:
    case Op::min:
      return map2<T, T, T, integer::And>;
    case Op::logical_or:
    case Op::bit_or:
    case Op::max:
      return map2<T, T, T, integer::Or>;
    case Op::bit_xor:
    case Op::ne:
      return map2<T, T, T, integer::Xor>;
    case Op::eq:
      return map2<T, T, T, integer::Equal>;
    case Op::logical_not:
      return map1<T, T, integer::Not>;
    default:
      return nullptr;
  }
}

ColumnOp find_select(int bytes) {
  switch (bytes) {
    case 1:
      return select<uint8_t>;
    case 2:
      return select<uint16_t>;
    case 4:
      return select<uint32_t>;
    default:
      return select<uint64_t>;
  }
}

ColumnOp find_op(ir::Op op, DType type) {
  if (is_float(type)) return find_float_op(op, type);
  return type == DType::boolean ? find_boolean_op(op) : find_integer_op(op, type);
}

}  // namespace tessera::codegen::cpu
