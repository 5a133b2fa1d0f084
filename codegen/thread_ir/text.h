#pragma once
// The text of a program besides its statements (codegen/thread_ir.cpp prints it).

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// ": i64" behind the name of a variable that holds `e`; empty if the reader of the text knows the
/// dtype: from a variable, a cast or a test, or because it is i32.
std::string dtype_suffix(const Expr& e);

/// Registers that no statement declares: all of them before place_declarations.
std::vector<ArrayRef> undeclared_registers(const Body& body);

}  // namespace tessera::codegen
