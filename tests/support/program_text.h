#pragma once
// Programs of the thread IR from their text, for tests of passes.

#include <map>
#include <string>
#include <string_view>

#include "codegen/thread_ir.h"

namespace tessera::test {

/// Reads what codegen::to_string(Program) prints, two blanks per level. Statements have the line of the
/// text as their place, in a file "program". Calls of extern functions and prints are not read. Throws std::invalid_argument with the line that does not fit.
///
///   read_program(R"(program p: grid [1], 32 threads
///     thread: thread index
///     shared s: i32[32] at byte 0
///     store s[thread] = thread, proved
///   )")
codegen::Program read_program(std::string_view text);

/// A program of `threads` threads around a body: "thread", "block_x", the dim "n", and what `memory`
/// declares, one array per line. As to_string prints it without its head:
///
///   read_body(64, "shared s: i32[64] at byte 0", "store s[thread] = 1, proved")
codegen::Program read_body(int threads, std::string_view memory, std::string_view body);
/// The statements of the program alone.
std::string body_text(const codegen::Program& program);

/// The variable of that name, the first in program order; throws std::invalid_argument.
ir::VarRef variable_of(const codegen::Program& program, std::string_view name);

}  // namespace tessera::test
