#include "codegen/print_format.h"

namespace tessera::codegen {
namespace {

const char* place_of(DType type) {
  if (type == DType::f64) return "%.17g";
  if (is_float(type)) return "%.9g";
  switch (type) {
    case DType::u32:
      return "%u";
    case DType::i64:
      return "%lld";
    case DType::u64:
      return "%llu";
    default:
      return "%d";
  }
}

}  // namespace

std::string print_format(const ir::Print& print) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < print.text.size(); ++i) {
    const char c = print.text[i];
    if (c == '{' && i + 1 < print.text.size() && print.text[i + 1] == '}') {
      out += place_of(print.args.at(next++)->type);
      ++i;
    } else {
      out += c == '%' ? "%%" : std::string(1, c);
    }
  }
  return out + "\n";
}

}  // namespace tessera::codegen
